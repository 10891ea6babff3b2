"""The reference page of options is generated, complete, and committed as generated."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from xpolicy._origin import Origin
from xpolicy.backends.registry import option_table
from xpolicy.policy.conditions import Facts
from xpolicy.policy.document import read_document
from xpolicy.policy.mistakes import CONDITION_KEYS
from xpolicy.policy.options import NamespaceSpec, OptionModel, OptionTable, option
from xpolicy.policy.reference import reference
from xpolicy.policy.schema import schema
from xpolicy.sources.environment import read_environment

PAGE = Path(__file__).parents[3] / "docs/reference/options.md"
FACTS = Facts("3.12.0", lambda name: None)


def ours() -> OptionTable:
    """The table of our own backends, whatever a test before has registered."""
    table = option_table()
    return OptionTable([table.namespaces["torch"], table.namespaces["jax"]])


def test_the_committed_page_is_what_the_option_table_gives() -> None:
    assert PAGE.read_text("utf-8") == reference(ours()), (
        "run: python -m xpolicy.cli.reference, and commit the page"
    )


def test_a_new_option_appears_with_all_that_is_known_of_it() -> None:
    class Options(OptionModel):
        try_hard: bool | None = option("Whether to try. More words.", default=True, example="true")

    page = reference(OptionTable([NamespaceSpec("thirdparty", Options)]))
    for text in (
        "### `thirdparty.try-hard`",
        "| `true` | Whether to try. |",
        "- takes: `true` or `false`",
        "- variable: `XPOLICY_THIRDPARTY__TRY_HARD`",
        "thirdparty.try-hard = true",
    ):
        assert text in page


@pytest.mark.parametrize("row", ours().every(), ids=lambda row: row.full_key)
def test_every_options_example_is_a_policy(row: object) -> None:
    table = ours()
    row = next(r for r in table.every() if r == row)
    assert row.example is not None, "an option without an example"
    text = f"{row.full_key} = {row.example}"
    assert text in PAGE.read_text("utf-8")
    # As the author would write it, so that facts may be stated for all functions.
    layer, problems = read_document(
        tomllib.loads(text), Origin("file", "a", text=text), "author", table, FACTS, version="0.1.0"
    )
    assert not problems
    assert row.name in layer.rules[0].values


@pytest.mark.parametrize(
    "row", [r for r in ours().every() if not r.capability], ids=lambda row: row.full_key
)
def test_every_variable_of_the_page_is_read(row: object) -> None:
    table = ours()
    row = next(r for r in table.every() if r == row)
    prefix = f"XPOLICY_{row.namespace.upper()}__" if row.namespace else "XPOLICY_"
    variable = prefix + row.name.upper()
    assert f"`{variable}`" in PAGE.read_text("utf-8")
    value = str(tomllib.loads(f"a = {row.example}")["a"])
    if row.kind in ("list", "table"):
        value = str(row.example)
    layers, problems = read_environment({variable: value}, table, FACTS, version="0.1.0")
    assert not problems
    assert row.name in layers[0].rules[0].values


def blocks() -> list[str]:
    return re.findall(r"```toml\n(.*?)\n```", PAGE.read_text("utf-8"), re.DOTALL)


def test_every_example_of_the_page_is_a_policy() -> None:
    assert len(blocks()) >= 30
    for text in blocks():
        # What capabilities say of all functions is an author's; `apply` is a user's.
        layer = "user" if text.startswith(("apply", "cache", "testing")) else "author"
        _, problems = read_document(
            tomllib.loads(text), Origin("file", "a", text=text), layer, ours(), FACTS, version="0.1"
        )
        assert problems == [], text


def test_every_key_that_a_file_may_hold_is_on_the_page() -> None:
    page = PAGE.read_text("utf-8")
    made = schema(ours())
    tables = made["$defs"]
    keys = {key for key, value in made["properties"].items() if not _is_table(value)}
    keys |= {key for key in CONDITION_KEYS if key in tables["WhenTable"]["properties"]}
    for name, prefix in (("TestRunTable", "testing."), ("DaskBudgetOptions", "testing.dask.")):
        own = {key for key, value in tables[name]["properties"].items() if not _is_table(value)}
        keys |= {prefix + key for key in own}
    keys -= {"testing.dask.graph-breaks", "testing.dask.compilations"}  # said for all
    keys -= {"warmup"}  # a list of calls has a section of its own
    assert "testing.ratchet" in keys
    missing = [key for key in keys if f"### `{key}`" not in page]
    assert missing == []


def _is_table(value: dict[str, Any]) -> bool:
    """Return whether a property leads to tables of other keys."""
    return "$ref" in value or value.get("type") == "object" or "$ref" in value.get("items", {})


def test_what_a_condition_is_is_said_by_schema_and_page_alike() -> None:
    page = PAGE.read_text("utf-8")
    properties = schema(ours())["$defs"]["WhenTable"]["properties"]
    for key in CONDITION_KEYS:
        assert f"### `{key}`\n\n{properties[key]['description']}\n" in page
