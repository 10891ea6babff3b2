"""Check one policy document against the option table, and turn it into a layer.

A document is what a TOML parser returns. Form and types are checked by a pydantic model
that is built from the option table, so that files, the JSON Schema and the reference page
can't disagree. Everything that is wrong is reported, not just the first thing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import BaseModel, Field, ValidationError, create_model

from xpolicy._origin import Origin
from xpolicy.errors import Problem
from xpolicy.policy.conditions import Condition, Facts, read_conditions
from xpolicy.policy.layers import Layer, Rule, Unmet
from xpolicy.policy.mistakes import explain_mistake, show
from xpolicy.policy.options import GeneralOptions, OptionTable
from xpolicy.policy.patterns import is_pattern
from xpolicy.policy.ties import ties

#: Layers in which a wrong name is only warned about: one file, many environments.
LENIENT = ("user", "author")
#: Layers whose files may set compiler options from an allow-list only.
RESTRICTED = ("author", "project")
TRUSTED_WORDS = "the user file, XPOLICY_FILE, XPOLICY_TOML, a variable, or xpolicy.override"


@dataclass(frozen=True)
class Models:
    """The pydantic models of a document, built from one option table."""

    document: type[BaseModel]
    namespaces: Mapping[str, type[BaseModel]]


@lru_cache(maxsize=8)
def models(table: OptionTable) -> Models:
    """Build the models of documents for an option table (once for each table)."""
    namespaces: dict[str, type[BaseModel]] = {}
    for name, spec in table.namespaces.items():
        namespaces[name] = create_model(
            f"{name.title().replace('_', '')}Table",
            __base__=(spec.model, GeneralOptions),
            __doc__=f"Options for {name} arrays.",
        )
    fields: dict[str, Any] = {}
    for name, model in namespaces.items():
        for spelling in (name, *(a for a, target in table.aliases.items() if target == name)):
            fields[spelling.replace(".", "_")] = (
                model | None,
                Field(default=None, alias=spelling, description=f"Options for {name} arrays."),
            )
    function = create_model(
        "FunctionTable",
        __base__=GeneralOptions,
        __doc__="Options for the functions that the table's name matches.",
        **fields,
    )
    functions = (
        dict[str, function] | None,  # type: ignore[valid-type]  # a model made at run time
        Field(default=None, description='Function keys or patterns ("mylib.*") and their options.'),
    )
    when = create_model(
        "WhenTable",
        __base__=GeneralOptions,
        __doc__="Options that hold only under conditions.",
        device=(Any, Field(default=None, description="Kind of device.")),
        python=(Any, Field(default=None, description="PEP 440 specifier.")),
        versions=(Any, Field(default=None, description="PEP 440 specifiers by distribution.")),
        functions=functions,
        **fields,
    )
    document = create_model(
        "PolicyDocument",
        __base__=GeneralOptions,
        __doc__="An xpolicy policy document.",
        requires=(Any, Field(default=None, description="PEP 440 specifier for xpolicy.")),
        functions=functions,
        when=(list[when] | None, Field(default=None, description="Conditional blocks.")),  # type: ignore[valid-type]  # as above
        **fields,
    )
    return Models(document, namespaces)


@dataclass
class _Reading:
    """One document on its way to becoming a layer."""

    origin: Origin
    layer: str
    table: OptionTable
    facts: Facts
    package: str | None
    problems: list[Problem] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    unmet: list[Unmet] = field(default_factory=list)

    def say(self, message: str, *path: str | int, base: Origin | None = None, **told: Any) -> None:
        where = (base or self.origin).child(*path)
        keys = where.key[len(self.origin.key) :]
        told.setdefault("key", dotted(keys))
        self.problems.append(Problem(message, origin=where, layer=self.layer, **told))


def dotted(path: tuple[str | int, ...]) -> str:
    """Return a path as TOML spells it."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            bare = part.replace("-", "").replace("_", "").isalnum() and part.isascii()
            quoted = part if bare else '"' + part.replace("\\", "\\\\").replace('"', '\\"') + '"'
            text += f".{quoted}" if text else quoted
    return text


def read_document(
    data: Mapping[str, Any],
    origin: Origin,
    layer: str,
    table: OptionTable,
    facts: Facts,
    *,
    version: str,
    package: str | None = None,
) -> tuple[Layer, list[Problem]]:
    """Check a document and return it as a layer, with everything that is wrong in it.

    Parameters
    ----------
    data : mapping
        What the parser returned, without the ``tool.xpolicy`` prefix.
    origin : Origin
        The place of the document's root.
    layer : str
        The layer's name; it decides what is an error and what a warning.
    table : OptionTable
        All options.
    facts : Facts
        What conditions are judged by.
    version : str
        The version of xpolicy, for ``requires``.
    package : str, optional
        For an author's file: the package that its keys must begin with.

    Returns
    -------
    layer : Layer
        Empty if there is an error.
    problems : list of Problem
        Errors and warnings.
    """
    reading = _Reading(origin, layer, table, facts, package)
    if not _requires(reading, data, version):
        return Layer(layer, origin.label), reading.problems
    body = {k: v for k, v in data.items() if k != "requires"}
    _check_form(reading, body)
    if not any(p.severity == "error" for p in reading.problems):
        _read_body(reading, body, origin, None, ())
        for number, block in enumerate(body.get("when", ())):
            _read_when(reading, block, origin.child("when", number))
        reading.problems += ties(reading.rules, layer)
    if any(p.severity == "error" for p in reading.problems):
        return Layer(layer, origin.label), reading.problems
    return Layer(layer, origin.label, reading.rules, reading.unmet), reading.problems


def _requires(reading: _Reading, data: Mapping[str, Any], version: str) -> bool:
    if "requires" not in data:
        return True
    wanted = data["requires"]
    allowed = 'a PEP 440 version specifier for xpolicy, such as ">=0.3"'
    try:
        holds = SpecifierSet(wanted).contains(version, prereleases=True)
    except (InvalidSpecifier, TypeError, AttributeError):
        reading.say("not a version specifier", "requires", value=show(wanted), allowed=allowed)
        return False
    if not holds:
        reading.say(
            f"this file requires xpolicy {wanted}, and {version} is installed",
            "requires",
            value=show(wanted),
            fix=f'install a matching version: pip install "xpolicy{wanted}"',
        )
    return holds


def _check_form(reading: _Reading, body: Mapping[str, Any]) -> None:
    """Check names and types by the model; wrong names are warnings in lenient layers."""
    try:
        models(reading.table).document.model_validate(body)
    except ValidationError as error:
        seen: set[tuple[str | int, ...]] = set()
        for item in error.errors(include_url=False, include_context=False):
            problem, path = explain_mistake(item, body, reading.table)
            if path in seen:
                continue
            seen.add(path)
            where = reading.origin.child(*path)
            severity = "error"
            if item["type"] == "extra_forbidden" and reading.layer in LENIENT:
                severity = "warning"
            reading.problems.append(
                problem.replace(
                    origin=where, layer=reading.layer, key=dotted(path), severity=severity
                )
            )


def _read_when(reading: _Reading, block: Mapping[str, Any], origin: Origin) -> None:
    conditions, bad = read_conditions(block)
    for item in bad:
        reading.say(
            item.message,
            *item.path,
            base=origin,
            value=show(item.value),
            allowed=item.allowed,
            nearest=item.nearest,
        )
    if bad:
        return
    if not conditions:
        reading.say(
            "a when block without a condition",
            base=origin,
            allowed="device, python, versions",
            fix="add a condition, or move its options out of the block",
        )
        return
    reasons = [condition.holds(reading.facts) for condition in conditions]
    unmet = [reason for holds, reason in reasons if not holds]
    # Read all the same: a block that doesn't hold is checked for form.
    kept = len(reading.rules)
    _read_body(reading, block, origin, None, tuple(conditions))
    if unmet:
        del reading.rules[kept:]
        text = ", ".join(str(condition) for condition in conditions)
        reading.unmet.append(Unmet(origin, text, "; ".join(unmet), reading.layer))


def _read_body(
    reading: _Reading,
    body: Mapping[str, Any],
    origin: Origin,
    pattern: str | None,
    conditions: tuple[Condition, ...],
) -> None:
    """Turn one body (document, ``when`` block or function table) into rules."""
    table = reading.table
    _read_options(reading, body, origin, pattern, None, conditions)
    for name, inner in body.items():
        namespace = table.canonical(name)
        if namespace in table.namespaces and isinstance(inner, Mapping):
            _read_options(reading, inner, origin.child(name), pattern, namespace, conditions)
    if pattern is None:
        for name, inner in body.get("functions", {}).items():
            where = origin.child("functions", name)
            if _check_pattern(reading, name, where):
                _read_body(reading, inner, where, name, conditions)


def _check_pattern(reading: _Reading, name: str, where: Origin) -> bool:
    allowed = 'a function key ("mylib.f"), everything below a prefix ("mylib.*"), or "*"'
    if not is_pattern(name):
        reading.say("not a function key or pattern", base=where, value=show(name), allowed=allowed)
        return False
    package = reading.package
    if package is not None and name != package and not name.startswith(f"{package}."):
        reading.say(
            f"a library's file may speak of its own package only: {package}",
            base=where,
            value=show(name),
            allowed=f'"{package}.*" or keys below it',
            fix=f'write "{package}.*"' if name == "*" else "move the rule to a project file",
        )
        return False
    return True


def _read_options(
    reading: _Reading,
    body: Mapping[str, Any],
    origin: Origin,
    pattern: str | None,
    namespace: str | None,
    conditions: tuple[Condition, ...],
) -> None:
    """Turn the options of one table into a rule, its spellings brought to one form."""
    rows = reading.table.of(namespace)
    values: dict[str, Any] = {}
    for key, value in body.items():
        row = rows.get(key)
        if row is None:
            continue
        if row.capability and not _may_state(reading, row.name, pattern, origin.child(key)):
            continue
        values[row.name] = tuple(value) if isinstance(value, list) else value
    if not values:
        return
    rule = make_rule(values, origin, pattern, namespace, conditions, reading.table)
    if isinstance(rule, Problem):
        reading.problems.append(rule.replace(layer=reading.layer))
        return
    _check_trust(reading, rule)
    reading.rules.append(rule)


def make_rule(
    values: dict[str, Any],
    origin: Origin,
    pattern: str | None,
    namespace: str | None,
    conditions: tuple[Condition, ...],
    table: OptionTable,
) -> Rule | Problem:
    """Bring one rule's spellings to one form; a rule that contradicts itself is a problem."""
    origins: dict[str, Origin] = {}
    spec = table.namespaces.get(namespace) if namespace else None
    if spec is not None:
        before = dict(values)
        for option, message in spec.normalise(values):
            row = spec.options.get(option)
            key = row.key if row else option
            return Problem(
                message,
                origin=origin.child(key) if origin.text is not None else origin,
                key=dotted((*origin.key, key)),
            )
        if origin.text is not None:
            origins = dict(_moved(before, values, origin, table.of(namespace)))
    return Rule(
        values, origin, pattern=pattern, namespace=namespace, conditions=conditions, origins=origins
    )


def _moved(
    before: Mapping[str, Any], after: Mapping[str, Any], origin: Origin, rows: Mapping[str, Any]
) -> Iterator[tuple[str, Origin]]:
    """Find where values that were respelt stand: under the option that has gone or changed."""
    keys = {row.name: row.key for row in rows.values()}
    sources = {name: _leaves(value) for name, value in before.items() if isinstance(value, Mapping)}
    for name, value in after.items():
        if isinstance(value, Mapping):
            for entry in value:
                path = sources.get(name, {}).get(entry.replace("-", "_"))
                if path is not None:
                    yield f"{name}.{entry}", origin.child(keys[name], *path)
        elif name not in before:
            for table_name, leaves in sources.items():
                for flat, path in leaves.items():
                    if flat.endswith(name):
                        yield name, origin.child(keys[table_name], *path)


def _leaves(value: Mapping[str, Any], path: tuple[str, ...] = ()) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            found.update(_leaves(inner, (*path, key)))
        else:
            found[".".join((*path, key)).replace("-", "_")] = (*path, key)
    return found


def _may_state(reading: _Reading, name: str, pattern: str | None, where: Origin) -> bool:
    """Outside the author layer, facts are stated for one function at a time."""
    exact = pattern is not None and not pattern.endswith("*")
    if exact or reading.layer == "author" or name == "supports":
        return True
    reading.say(
        f"{where.key[-1]} is a fact about one function; a broad rule may not state it",
        base=where,
        fix=f'move it to [functions."NAME"], with the name of one function ({where.key[-1]})',
    )
    return False


def _check_trust(reading: _Reading, rule: Rule) -> None:
    if reading.layer not in RESTRICTED or rule.namespace is None:
        return
    spec = reading.table.namespaces[rule.namespace]
    for name, value in rule.values.items():
        row = spec.options.get(name)
        if row is None or not row.allow_listed or not isinstance(value, Mapping):
            continue
        for entry in value:
            why = spec.refused(name, entry)
            if why is not None:
                reading.problems.append(
                    Problem(
                        f"{entry} may not be set in {_article(reading.layer)} file: {why}",
                        origin=rule.origin_of(name, entry),
                        key=dotted(rule.origin_of(name, entry).key[len(reading.origin.key) :]),
                        layer=reading.layer,
                        value=show(value[entry]),
                        allowed=f"it may stand in {TRUSTED_WORDS}",
                        nearest=None,
                    )
                )


def _article(layer: str) -> str:
    return f"an {layer}" if layer[0] in "aeiou" else f"a {layer}"
