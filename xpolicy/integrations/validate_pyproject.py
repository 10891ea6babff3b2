"""The plugin for ``validate-pyproject``: it checks ``[tool.xpolicy]``, too.

Named in the entry point group ``validate_pyproject.tool_schema``.
"""

from __future__ import annotations

from typing import Any

#: The only dialect that validate-pyproject takes.
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def schema(tool: str = "xpolicy") -> dict[str, Any]:
    """Return the JSON Schema of ``[tool.xpolicy]``.

    Parameters
    ----------
    tool : str
        The table's name below ``tool``; validate-pyproject passes it.

    Returns
    -------
    dict
        The schema that ``xpolicy schema`` prints, in draft 7. It holds the options of
        every backend that is installed beside the validator.

    Examples
    --------
    >>> schema()["type"]
    'object'
    """
    # Loaded when a file is validated, not when the validator lists its plugins.
    from xpolicy.backends.registry import option_table
    from xpolicy.policy.schema import schema as policy_schema

    return policy_schema(option_table(plugins=True), dialect=DRAFT_7)
