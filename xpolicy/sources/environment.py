"""The environment layer: ``XPOLICY_*`` variables, and a whole document in ``XPOLICY_TOML``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from xpolicy._origin import Origin
from xpolicy.errors import PolicyFileError, Problem
from xpolicy.policy.cache import CACHE, cache_rows
from xpolicy.policy.document import make_rule, models, read_document
from xpolicy.policy.layers import Layer, Rule
from xpolicy.policy.mistakes import explain_mistake
from xpolicy.policy.options import OptionSpec, OptionTable, nearest
from xpolicy.policy.testing import Setting
from xpolicy.policy.writing import LONGEST, show
from xpolicy.sources.toml import parse

if TYPE_CHECKING:
    from xpolicy.policy.conditions import Facts

PREFIX = "XPOLICY_"
LAYER = "environment"
#: Variables that are read elsewhere.
CONTROL = ("XPOLICY_DISABLE", "XPOLICY_FILE", "XPOLICY_PROJECT", "XPOLICY_TOML")
TRUE = frozenset({"1", "true", "yes", "on"})
FALSE = frozenset({"0", "false", "no", "off"})
BOOLEAN_WORDS = "1/0, true/false, yes/no, on/off"

# What an orchestrator injects for a service called xpolicy, or xpolicy-something.
_INJECTED = re.compile(
    r"XPOLICY(_\w+)?_(SERVICE_HOST|SERVICE_PORT(_\w+)?"
    r"|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
# A service's name is a DNS label, of at most 63 characters.
_LONGEST_SERVICE = 200
_INJECTED_PORT = re.compile(r"XPOLICY(_\w+)?_PORT")


def injected(name: str, value: str) -> bool:
    """Return whether a variable is one that a container orchestrator sets by itself."""
    if len(name) > _LONGEST_SERVICE:
        return False
    if _INJECTED.fullmatch(name):
        return True
    return _INJECTED_PORT.fullmatch(name) is not None and "://" in value


def read_boolean(text: str) -> bool | None:
    """Read a switch in any accepted spelling, or return None."""
    word = text.strip().lower()
    return True if word in TRUE else False if word in FALSE else None


def kill_switch(environ: Mapping[str, str]) -> tuple[bool, Problem | None]:
    """Return whether ``XPOLICY_DISABLE`` is on; what can't be read counts as on."""
    text = environ.get("XPOLICY_DISABLE", "").strip()
    if not text:
        return False, None
    value = read_boolean(text)
    if value is not None:
        return value, None
    return True, Problem(
        "XPOLICY_DISABLE has a value that can't be read, and counts as true",
        origin=Origin("variable", "XPOLICY_DISABLE"),
        layer=LAYER,
        value=show(text),
        allowed=BOOLEAN_WORDS,
        severity="warning",
    )


@dataclass
class _Variables:
    table: OptionTable
    problems: list[Problem] = field(default_factory=list)
    values: dict[str | None, dict[str, Any]] = field(default_factory=dict)
    origins: dict[str | None, dict[str, Origin]] = field(default_factory=dict)

    def names(self) -> dict[str, tuple[str | None, OptionSpec]]:
        """Return every variable that sets an option."""
        found: dict[str, tuple[str | None, OptionSpec]] = {}
        for row in self.table.general.values():
            found[PREFIX + row.name.upper()] = (None, row)
        for namespace in self.table.namespaces:
            for row in self.table.of(namespace).values():
                name = f"{PREFIX}{namespace.upper()}__{row.name.upper()}"
                found[name] = (namespace, row)
        for row in cache_rows().values():
            found[f"{PREFIX}{CACHE.upper()}__{row.name.upper()}"] = (CACHE, row)
        return found


def read_environment(
    environ: Mapping[str, str], table: OptionTable, facts: Facts, *, version: str
) -> tuple[list[Layer], list[Problem]]:
    """Read the layers that the environment sets.

    Parameters
    ----------
    environ : mapping of str to str
        The environment, or what a test puts in its place.
    table : OptionTable
        All options.
    facts : Facts
        What conditions in ``XPOLICY_TOML`` are judged by.
    version : str
        The version of xpolicy.

    Returns
    -------
    layers : list of Layer
        The variables' layer, and above it that of ``XPOLICY_TOML``.
    problems : list of Problem
        Everything that is wrong.
    """
    reading = _Variables(table)
    names = reading.names()
    for name in sorted(environ):
        value = environ[name]
        if not name.startswith(PREFIX) or name in CONTROL or not value.strip():
            continue
        if name not in names:
            if not injected(name, value):
                reading.problems.append(_unknown(name, value, names))
            continue
        namespace, row = names[name]
        problem = _set(reading, name, value, namespace, row)
        if problem is not None:
            reading.problems.append(problem)
    layers = [_variables_layer(reading)] if reading.values else []
    text = environ.get("XPOLICY_TOML", "")
    if text.strip():
        layer, problems = _toml_layer(text, table, facts, version)
        reading.problems += problems
        if layer is not None:
            layers.append(layer)
    return layers, reading.problems


def _variables_layer(reading: _Variables) -> Layer:
    rules: list[Rule] = []
    origins = reading.origins.get(CACHE, {})
    cache = {n: Setting(v, origins[n]) for n, v in reading.values.pop(CACHE, {}).items()}
    for namespace, values in reading.values.items():
        origins = reading.origins[namespace]
        root = Origin("variable", ", ".join(dict.fromkeys(o.label for o in origins.values())))
        # A value that was respelt (options."triton.cudagraphs") stands in the table's variable.
        tables = [origins[name] for name, value in values.items() if isinstance(value, Mapping)]
        rule = make_rule(values, root, None, namespace, (), reading.table)
        if isinstance(rule, Problem):
            reading.problems.append(rule.replace(layer=LAYER))
            continue
        moved = dict.fromkeys((n for n in rule.values if n not in origins), *tables[:1] or [root])
        rule.origins = {**origins, **moved}
        rules.append(rule)
    return Layer(LAYER, "XPOLICY_* variables", rules, cache=cache)


def _toml_layer(
    text: str, table: OptionTable, facts: Facts, version: str
) -> tuple[Layer | None, list[Problem]]:
    try:
        document = parse(text, "XPOLICY_TOML", LAYER, kind="variable")
    except PolicyFileError as error:
        return None, list(error.problems)
    layer, problems = read_document(
        document.data, document.origin, LAYER, table, facts, version=version
    )
    return layer, problems


def _unknown(name: str, value: str, names: Mapping[str, tuple[str | None, OptionSpec]]) -> Problem:
    # Names that are no variable's name anywhere may still move a terminal's cursor.
    shown = name if name.isprintable() and len(name) <= LONGEST else show(name)
    # Without the prefix, which would make any two names alike.
    bare = {known.removeprefix(PREFIX): known for known in (*names, *CONTROL)}
    near = nearest(name.removeprefix(PREFIX), bare) if len(name) <= LONGEST else None
    meant = bare[near] if near else None
    return Problem(
        f"unknown variable {shown}, ignored",
        origin=Origin("variable", shown),
        layer=LAYER,
        value=show(value),
        nearest=meant,
        fix=f"set {meant}, or unset {shown}" if meant else f"unset {shown}",
        severity="warning",
    )


def _set(
    reading: _Variables, name: str, text: str, namespace: str | None, row: OptionSpec
) -> Problem | None:
    origin = Origin("variable", name)
    if row.capability:
        return Problem(
            f"{name} can't be set: {row.full_key} is a fact about one function",
            origin=origin,
            layer=LAYER,
            value=show(text),
            fix=f"""set XPOLICY_TOML='functions."NAME".{row.key} = …' for one function""",
        )
    value = _read(row, name, text)
    told: dict[str, Any] = {"origin": origin, "layer": LAYER, "key": row.full_key}
    told["value"] = show(text)
    if isinstance(value, Problem):
        return value.replace(**told | {"origin": value.origin or origin})
    document = {row.key: value}
    try:
        models(reading.table).document.model_validate(
            {namespace: document} if namespace else document
        )
    except ValidationError as error:
        item = error.errors(include_url=False, include_context=False)[0]
        data = {namespace: document} if namespace else document
        problem, _ = explain_mistake(item, data, reading.table)
        return problem.replace(
            message=f"{name} can't be {show(text.strip())}"
            if row.kind in ("choice", "integer") or row.form is not None
            else f"{name} has a value that it doesn't take: {problem.message}",
            fix=_as_variable(problem.nearest, name, text.strip()),
            **told,
        )
    if isinstance(value, list):
        value = tuple(value)
    reading.values.setdefault(namespace, {})[row.name] = value
    reading.origins.setdefault(namespace, {})[row.name] = origin
    return None


def _as_variable(nearest: str | None, name: str, text: str) -> str | None:
    if nearest is None:
        return None
    if "." in nearest:  # another option: torch.compile-mode
        return f"set {PREFIX}{nearest.replace('.', '__').replace('-', '_').upper()}={text}"
    meant = nearest.strip('"')
    return f"set {name}={meant}"


#: What each kind of value looks like in a variable, where that differs from TOML.
_FORMS = {
    "boolean": BOOLEAN_WORDS,
    "list": 'names with commas between them, or a TOML array, such as ["a", "b"]',
    "table": "an inline TOML table, such as '{ key = 1 }'",
}


def _allowed(row: OptionSpec) -> str:
    form = _FORMS.get(row.kind)
    return f"{form}, or unset" if form else row.allowed.replace('"', "")


def _read(row: OptionSpec, name: str, text: str) -> Any:
    """Read a value by the option's declared type; a `Problem` if it can't be read."""
    word = text.strip()
    if word == "unset" or row.kind in ("choice", "string"):
        return word
    if row.kind == "boolean":
        value: Any = read_boolean(word)
    elif row.kind == "integer":
        value = int(word) if re.fullmatch(r"[+-]?[0-9]{1,18}", word) else None
    elif row.kind == "list" and not word.startswith("["):
        return [item.strip() for item in word.split(",") if item.strip()]
    elif row.kind == "number":
        value = _number(word)
    else:
        value = _read_toml(row, name, text)
    if value is None:
        return Problem(
            f"{name} has a value that can't be read",
            allowed=_allowed(row),
            fix=f"give {name} an allowed value, or unset it",
        )
    return value


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def _read_toml(row: OptionSpec, name: str, text: str) -> Any:
    before = "value = "
    try:
        # With the bounds that documents have: on a long dotted key the parser's memory
        # grows with the square of its length.
        data = parse(before + text.strip(), name, LAYER, kind="variable").data
    except PolicyFileError as error:
        problem = error.problems[0]
        place = problem.origin
        if place is not None and place.line == 1 and place.column is not None:
            shift = len(before) - (len(text) - len(text.lstrip()))
            place = place.at(1, max(1, place.column - shift))
        message = f"{name} has a value that can't be read: {problem.message}"
        return problem.replace(message=message, origin=place, allowed=_allowed(row))
    # A line break would let a second key in.
    value = data["value"] if set(data) == {"value"} else None
    return value if isinstance(value, dict if row.kind == "table" else list) else None
