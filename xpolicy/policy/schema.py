"""The JSON Schema of policy documents, for editors and for ``validate-pyproject``.

It is made from the very models that check documents, so the two can't disagree about a
name or a type. What those models leave to other code (conditions, function keys) is put
in here. Only words that mean the same in draft 7 and in 2020-12 are used: one schema
serves validators of both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from xpolicy.policy.conditions import KINDS, REQUIRES
from xpolicy.policy.document import models
from xpolicy.policy.options import DEVICES, OptionTable
from xpolicy.policy.specs import BEGINNING, WHOLE
from xpolicy.policy.warmup import WARMUP

DIALECT = "https://json-schema.org/draft/2020-12/schema"
#: A name, not an address: RFC 2606 keeps ``.invalid`` from ever leading anywhere.
SCHEMA_ID = "https://xpolicy.invalid/policy.schema.json"

# A Python name in a regular expression that reads the same in ECMAScript, Rust and
# Python: everything but ASCII characters that no name has. Beyond ASCII it takes too
# much; the check of the document itself does not.
_START = r"[^\u0000-\u0040\u005b-\u005e\u0060\u007b-\u007f]"
_REST = r"[^\u0000-\u002f\u003a-\u0040\u005b-\u005e\u0060\u007b-\u007f]"
_SEGMENT = f"(?:{_START}{_REST}*|<locals>|<lambda>)"
PATTERN = rf"^(?:\*|{_SEGMENT}(?:\.{_SEGMENT})*(?:\.\*)?)$"

# The operators of PEP 440. What stands behind them is left to the check itself.
_OPERATOR = "~=|===?|!=|<=?|>=?"

_Schema = dict[str, Any]


def schema(table: OptionTable, *, dialect: str = DIALECT) -> dict[str, Any]:
    """Return the JSON Schema of a policy document.

    Parameters
    ----------
    table : OptionTable
        The options that may stand in it.
    dialect : str
        What ``$schema`` says. Every keyword used is in draft 7 and in 2020-12.

    Returns
    -------
    dict
        Plain data. Checks form only: contradictions, ties and what an installed compiler
        takes are for ``xpolicy check``.

    Examples
    --------
    >>> from xpolicy.policy.options import OptionTable
    >>> schema(OptionTable())["properties"]["mode"]["enum"]
    ['eager', 'compile', 'fullgraph', 'unset']
    """
    model = models(table).document
    made = model.model_json_schema(by_alias=True, schema_generator=_Generator)
    definitions = made.pop("$defs")
    # The order of classes in memory takes no part in the file.
    definitions = {name: definitions[name] for name in sorted(definitions)}
    for owner in (made, definitions["WhenTable"], definitions["TestRunTable"]):
        _constrain_functions(owner["properties"]["functions"])
    made["properties"]["requires"] = {
        "description": REQUIRES[0],
        "type": "string",
        "pattern": rf"^[\s,]*(?:$|{_OPERATOR})",
    }
    _condition(definitions["WhenTable"])
    for owner in definitions.values():
        if WARMUP in owner["properties"]:
            owner["properties"][WARMUP] |= _calls()
    definitions["WarmupValue"] = _warmup_value()
    return {
        "$schema": dialect,
        "$id": SCHEMA_ID,
        "title": "xpolicy policy",
        **{name: value for name, value in made.items() if name != "title"},
        "$defs": definitions,
    }


class _Generator(GenerateJsonSchema):
    """pydantic's generator, without what TOML has no word for and editors have no use for."""

    def generate(self, schema: Any, mode: Any = "validation") -> Any:
        made = super().generate(schema, mode)
        # Not `null` as a default: pydantic's way to say "absent", and TOML has no null.
        return _toml(made)

    def field_title_should_be_set(self, schema: Any) -> bool:
        # "Static-Argnames" says nothing that the key does not.
        return False


def _toml(node: Any) -> Any:
    """Bring one node, and all below it, to what a TOML document can hold."""
    if isinstance(node, list):
        return [_toml(item) for item in node]
    if not isinstance(node, Mapping):
        return node
    made = {
        name: _toml(value)
        for name, value in node.items()
        # Words of ours that validators in strict mode refuse.
        if not name.startswith("x-") and not (name == "default" and value is None)
    }
    builtin = node.get("x-builtin")
    if "anyOf" in made:
        branches = _merged([b for b in made.pop("anyOf") if b.get("type") != "null"])
        made = {**branches[0], **made} if len(branches) == 1 else {"anyOf": branches, **made}
    if builtin is not None:
        made["default"] = builtin
    if isinstance(made.get("description"), str):
        made["description"] = made["description"].replace("``", "`")
    return made


def _merged(branches: list[_Schema]) -> list[_Schema]:
    """Put the words that may be chosen from into one list: editors complete from it."""
    words: list[str] = []
    others: list[_Schema] = []
    for branch in branches:
        if "const" in branch:
            words.append(branch["const"])
        elif "enum" in branch:
            words += branch["enum"]
        else:
            others.append(branch)
    return [*others, {"type": "string", "enum": words}] if words else others


def _constrain_functions(owner: _Schema) -> None:
    """Let keys be function keys and patterns only."""
    owner["patternProperties"] = {PATTERN: owner.pop("additionalProperties")}
    owner["additionalProperties"] = False


def _calls() -> _Schema:
    """Type a list of warm-up calls; whether a call has an array is for the check itself."""
    call = {
        "type": "object",
        "minProperties": 1,
        "propertyNames": {"pattern": f"^{_START}{_REST}*$"},
        "additionalProperties": {"$ref": "#/$defs/WarmupValue"},
    }
    return {"type": "array", "items": call}


def _warmup_value() -> _Schema:
    inside = {"$ref": "#/$defs/WarmupValue"}
    # Python's \\w, in words that all dialects share.
    beginning = f"^{BEGINNING}".replace(r"\w", "[A-Za-z0-9_]")
    text = {"type": "string", "anyOf": [{"not": {"pattern": beginning}}, {"pattern": WHOLE}]}
    return {
        "description": "A spec of an array, a plain value, or a list or table of them.",
        "anyOf": [
            {"type": ["boolean", "number"]},
            text,
            {"type": "array", "items": inside},
            {"type": "object", "additionalProperties": inside},
        ],
    }


def _specifier(description: str) -> _Schema:
    return {"description": description, "type": "string", "pattern": rf"^[\s,]*(?:{_OPERATOR})"}


def _condition(block: _Schema) -> None:
    """Type the conditions of a ``when`` block, and ask for at least one."""
    block["properties"] |= {
        "device": {
            "description": KINDS["device"][0],
            "type": "string",
            "enum": list(DEVICES),
        },
        "python": _specifier(KINDS["python"][0]),
        "versions": {
            "description": KINDS["versions"][0],
            "type": "object",
            "additionalProperties": _specifier(
                "A PEP 440 specifier. Not met if the distribution is not installed."
            ),
        },
    }
    block["anyOf"] = [
        {"required": ["device"]},
        {"required": ["python"]},
        {"required": ["versions"], "properties": {"versions": {"minProperties": 1}}},
    ]
