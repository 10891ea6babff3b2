"""``xpolicy schema``: the JSON Schema of policy files."""

from __future__ import annotations

from xpolicy.backends.registry import option_table
from xpolicy.cli.output import write_json
from xpolicy.policy.schema import schema as policy_schema


def schema() -> None:
    """Print the JSON Schema (2020-12) of a policy file, for editors and validators.

    It holds the options of every backend that is installed here. It describes
    xpolicy.toml; in pyproject.toml the same stands under [tool.xpolicy].
    """
    write_json(policy_schema(option_table(plugins=True)))
