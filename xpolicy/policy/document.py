"""Check one policy document against the option table, and turn it into a layer.

A document is what a TOML parser returns. Form and types are checked by a pydantic model
that is built from the option table, so that files, the JSON Schema and the reference page
can't disagree. Everything that is wrong is reported, not just the first thing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from packaging.specifiers import SpecifierSet

from xpolicy.errors import Problem
from xpolicy.policy.applying import read_applied
from xpolicy.policy.cache import read_cache
from xpolicy.policy.conditions import Condition, Facts, read_conditions, wrong_specifier
from xpolicy.policy.form import MOST, Models, bounded, check_form, models, without
from xpolicy.policy.layers import Layer, Rule, Unmet
from xpolicy.policy.patterns import is_pattern
from xpolicy.policy.rules import make_rule
from xpolicy.policy.testing import TESTING, testing_rows
from xpolicy.policy.ties import ties
from xpolicy.policy.warmup import WARMUP, misplaced
from xpolicy.policy.warmup import mistakes as warmup_mistakes
from xpolicy.policy.writing import LONGEST, dotted, show

if TYPE_CHECKING:
    from xpolicy._origin import Origin
    from xpolicy.policy.options import OptionTable

__all__ = ["LENIENT", "RESTRICTED", "Models", "make_rule", "models", "read_document"]

#: Layers in which a wrong name is only warned about: one file, many environments.
LENIENT = ("user", "author")
#: Layers whose files may set compiler options from an allow-list only, and whose they are.
RESTRICTED = ("author", "project")
WHOSE = {"author": "a library's", "project": "a project's"}
TRUSTED_WORDS = "the user file, XPOLICY_FILE, XPOLICY_TOML, a variable, or xpolicy.override"


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
    testing: list[Rule] = field(default_factory=list)
    warmup: list[Rule] = field(default_factory=list)

    def say(self, message: str, *path: str | int, base: Origin | None = None, **told: Any) -> None:
        where = (base or self.origin).child(*path)
        self.add(Problem(message, origin=where, **told))

    def add(self, problem: Problem) -> None:
        if len(self.problems) > MOST:
            return
        where = problem.origin or self.origin
        key = problem.key or dotted(where.key[len(self.origin.key) :])
        self.problems.append(problem.replace(key=key, layer=self.layer))


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
    # What is wrong in form is taken out and the rest read on: all problems at once.
    problems, wrong = check_form(body, origin, table, layer=layer, lenient=layer in LENIENT)
    if wrong is None:
        return Layer(layer, origin.label), bounded(problems, origin, layer)
    reading.problems += problems
    body = without(body, wrong)
    _read_body(reading, body, origin, None, ())
    blocks = {path[1] for path in wrong if path[0] == "when" and len(path) > 1}
    for number, block in enumerate(body.get("when", ())):
        if isinstance(block, Mapping):
            _read_when(reading, block, origin.child("when", number), cut=number in blocks)
    _read_testing(reading, body.get(TESTING, {}), origin.child(TESTING), None)
    applied, wrong_names = read_applied(body, origin, layer)
    cache, wrong_caches = read_cache(body, origin, layer)
    reading.problems += [*wrong_names, *wrong_caches]
    for rules in (reading.rules, reading.testing, reading.warmup):
        reading.problems += ties(rules, layer)
    _in_order(reading.problems, data, len(origin.key))
    told = bounded(reading.problems, origin, layer)
    if any(p.severity == "error" for p in told):
        return Layer(layer, origin.label), told
    made = Layer(
        layer,
        origin.label,
        reading.rules,
        reading.unmet,
        reading.testing,
        applied,
        reading.warmup,
        cache,
    )
    return made, told


def _requires(reading: _Reading, data: Mapping[str, Any], version: str) -> bool:
    if "requires" not in data:
        return True
    wanted = data["requires"]
    wrong = wrong_specifier(wanted)
    if wrong is not None:
        allowed = 'a PEP 440 version specifier for xpolicy, such as ">=0.3"'
        message, fix = wrong
        reading.say(message, "requires", value=show(wanted), allowed=allowed, fix=fix)
        return False
    holds = SpecifierSet(wanted).contains(version, prereleases=True)
    if not holds:
        reading.say(
            f"this file requires xpolicy {wanted}, and {version} is installed",
            "requires",
            value=show(wanted),
            fix=f'install a matching version: pip install "xpolicy{wanted}"',
        )
    return holds


def _in_order(problems: list[Problem], data: Mapping[str, Any], root: int) -> None:
    """Sort problems as their keys stand in the document, from top to bottom."""
    numbers: dict[int, dict[str, int]] = {}

    def rank(problem: Problem) -> list[int]:
        places: list[int] = []
        value: Any = data
        for part in problem.origin.key[root:] if problem.origin is not None else ():
            if isinstance(value, Mapping) and part in value:
                if id(value) not in numbers:
                    numbers[id(value)] = {name: n for n, name in enumerate(value)}
                places.append(numbers[id(value)][str(part)])
            elif isinstance(value, list) and isinstance(part, int) and part < len(value):
                places.append(part)
            else:
                break
            value = value[part]
        return places

    problems.sort(key=rank)


def _read_when(reading: _Reading, block: Mapping[str, Any], origin: Origin, *, cut: bool) -> None:
    conditions, bad = read_conditions(block)
    for item in bad:
        reading.say(
            item.message,
            *item.path,
            base=origin,
            value=show(item.value),
            allowed=item.allowed,
            nearest=item.nearest,
            fix=item.fix,
        )
    # Read all the same: a block that doesn't hold is checked for form.
    kept, warmed = len(reading.rules), len(reading.warmup)
    _read_body(reading, block, origin, None, tuple(conditions))
    if not conditions:
        del reading.rules[kept:], reading.warmup[warmed:]
        if not bad and not cut:  # else the condition is what was wrong
            reading.say(
                "a when block without a condition",
                base=origin,
                allowed="device, python, versions",
                fix="add a condition, or move its options out of the block",
            )
        return
    reasons = [condition.holds(reading.facts) for condition in conditions]
    unmet = [reason for holds, reason in reasons if not holds]
    if unmet or bad:
        del reading.rules[kept:], reading.warmup[warmed:]
    if unmet:
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
    tables: list[tuple[str | None, Mapping[str, Any], Origin]] = [(None, body, origin)]
    for name, inner in body.items():
        namespace = table.canonical(name)
        if namespace in table.namespaces and isinstance(inner, Mapping):
            tables.append((namespace, inner, origin.child(name)))
    for named, found, where in tables:
        _read_options(reading, found, where, pattern, named, conditions)
        if WARMUP in found:
            _read_warmup(reading, found[WARMUP], where, pattern, named, conditions)
    if pattern is None:
        for name, inner in body.get("functions", {}).items():
            where = origin.child("functions", name)
            if _check_pattern(reading, name, where):
                _read_body(reading, inner, where, name, conditions)


def _read_warmup(
    reading: _Reading,
    value: Any,
    origin: Origin,
    pattern: str | None,
    namespace: str | None,
    conditions: tuple[Condition, ...],
) -> None:
    """Turn a list of warm-up calls into a rule that no policy sees."""
    where = origin.child(WARMUP)
    broad = misplaced(pattern, where, value)
    found = [((), broad)] if broad is not None else list(warmup_mistakes(value))
    for path, problem in found:
        told = problem.value or show(_at(value, path))
        reading.add(problem.replace(origin=where.child(*path), value=told))
    if not found:
        values = {WARMUP: tuple(value)}
        reading.warmup.append(Rule(values, origin, pattern, namespace, conditions))


def _at(value: Any, path: tuple[str | int, ...]) -> Any:
    for part in path:
        value = value[part]
    return value


def _read_testing(
    reading: _Reading, body: Mapping[str, Any], origin: Origin, pattern: str | None
) -> None:
    """Turn the ``testing`` table, or one of its functions, into rules that no policy sees."""
    kind = TESTING if pattern is None else "testing-function"
    tables: list[tuple[str | None, Mapping[str, Any], Origin]] = [(None, body, origin)]
    for name, inner in body.items():
        namespace = reading.table.canonical(name)
        if namespace in reading.table.namespaces and isinstance(inner, Mapping):
            tables.append((namespace, inner, origin.child(name)))
    for named, found, where in tables:
        rows = testing_rows(kind if named is None else "testing-namespace", named)
        values = {
            rows[key].name: tuple(value) if isinstance(value, list) else value
            for key, value in found.items()
            if key in rows
        }
        if values:
            reading.testing.append(Rule(values, where, pattern, named))
    if pattern is None:
        for name, inner in body.get("functions", {}).items():
            where = origin.child("functions", name)
            if _check_pattern(reading, name, where):
                _read_testing(reading, inner, where, name)


def _check_pattern(reading: _Reading, name: str, where: Origin) -> bool:
    allowed = 'a function key ("mylib.f"), everything below a prefix ("mylib.*"), or "*"'
    if not is_pattern(name):
        fix = _meant_pattern(name)
        message = "not a function key or pattern"
        reading.say(message, base=where, value=show(name), allowed=allowed, fix=fix)
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


def _meant_pattern(name: str) -> str | None:
    if len(name) > LONGEST:
        return None
    meant = name.strip().replace(":", ".").removesuffix("()").rstrip(".")
    if not is_pattern(meant):
        # "mylib.fft*", "mylib.*.norm", "mylib.[ab]": the part that a pattern can say.
        meant = meant[: next((i for i, c in enumerate(meant) if c in "*?[{("), 0)]
        meant = (meant.rpartition(".")[0] or meant) + ".*"
    return f'write [functions."{meant}"]' if is_pattern(meant) and meant != name else None


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
        if row.capability and not _may_state(reading, row.name, value, pattern, origin.child(key)):
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


def _may_state(
    reading: _Reading, name: str, value: Any, pattern: str | None, where: Origin
) -> bool:
    """Outside the author layer, facts are stated for one function at a time."""
    exact = pattern is not None and not pattern.endswith("*")
    if exact or reading.layer == "author" or name == "supports":
        return True
    key = where.key[-1]
    reading.say(
        f"{key} is a fact about one function; a broad rule may not state it",
        base=where,
        value=show(value),
        allowed="rules for one function, or a library's own file",
        fix=f'move {key} to [functions."NAME"], with the name of one function',
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
            if len(reading.problems) > MOST:
                return
            why = spec.refused(name, entry)
            if why is not None:
                reading.problems.append(
                    Problem(
                        f"{entry} may not be set in {WHOSE[reading.layer]} file: {why}",
                        origin=rule.origin_of(name, entry),
                        key=dotted(rule.origin_of(name, entry).key[len(reading.origin.key) :]),
                        layer=reading.layer,
                        value=show(value[entry]),
                        allowed=f"it may stand in {TRUSTED_WORDS}",
                        fix="remove it here; whoever runs the program may set it there",
                    )
                )
