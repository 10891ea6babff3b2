"""Rules held against the code that they speak of, which is imported for it."""

from __future__ import annotations

import inspect
import pkgutil
from typing import TYPE_CHECKING

from xpolicy.aot.arguments import argument_problems
from xpolicy.aot.mismatch import signature_of
from xpolicy.backends.registry import option_table
from xpolicy.cli.imports import UnimportableError, import_for, installed
from xpolicy.errors import Problem
from xpolicy.policy.mistakes import show
from xpolicy.policy.options import kebab, nearest
from xpolicy.policy.patterns import prefixes
from xpolicy.policy.warmup import calls_of
from xpolicy.runtime.entry import entries
from xpolicy.runtime.session import session

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from xpolicy.policy.layers import Layer, Rule
    from xpolicy.runtime.entry import Entry

#: Options that name a function's arguments.
_ARGUMENTS = ("static_argnames", "donate_argnames")


def code_problems(layers: list[Layer]) -> Iterator[Problem]:
    """Yield rules that reach no decorated function, and names of arguments that aren't there.

    Parameters
    ----------
    layers : list of Layer
        Layers to look at. What names a package that isn't installed is passed over: one
        file serves many environments. It is told if an installed one has nearly its name.
    """
    yield from _misspelt(layers)
    patterns = {rule.pattern: None for layer in layers for rule in _rules(layer)}
    there: set[str] = set()
    failed: set[str] = set()
    for pattern in patterns:
        if pattern is None or pattern == "*" or pattern.partition(".")[0] in failed:
            continue
        package = pattern.partition(".")[0]
        try:
            if import_for(pattern.removesuffix(".*")) is not None:
                there.add(package)
        except UnimportableError as error:
            failed.add(package)
            yield error.problem.replace(key=pattern, severity="warning")
    known = {entry.key: entry for entry in entries()}
    yield from _dead(layers, there - failed, known)
    for layer in layers:
        for rule in layer.rules:
            if rule.pattern in known:
                yield from _absent(rule, known[rule.pattern], layer.name)
        yield from _uncallable(layer, known)
    for entry in known.values():
        if entry.package in there:
            rules, problems = session.declared_rules(entry, option_table())
            yield from problems
            for rule in rules:
                yield from _absent(rule, entry, "author")


def _misspelt(layers: Iterable[Layer]) -> Iterator[Problem]:
    """Yield names of packages that aren't there, where one that is has nearly that name."""
    told: set[tuple[str, str]] = set()
    there: list[str] | None = None
    for layer in layers:
        named = [(r.pattern, _header(layer, r), r.origin) for r in _rules(layer) if r.pattern]
        named += [(name, "apply", origin) for name, origin in layer.apply]
        for name, key, origin in named:
            package = name.partition(".")[0]
            if package == "*" or (layer.label, package) in told or installed(package):
                continue
            told.add((layer.label, package))
            if there is None:  # by the names of files: none is imported
                there = [module.name for module in pkgutil.iter_modules()]
            meant = nearest(package, there)
            if meant is not None:
                yield Problem(
                    f"there is no package {package} here",
                    origin=origin,
                    layer=layer.name,
                    key=key,
                    value=show(name),
                    nearest=meant,
                    fix=f"write {show(meant + name.removeprefix(package))}, or install {package}",
                    severity="warning",
                )


def _header(layer: Layer, rule: Rule) -> str:
    # The header that names the pattern stands one above a namespace's.
    return f"testing.{rule.text}" if rule in layer.testing else rule.text


def _rules(layer: Layer) -> tuple[Rule, ...]:
    return (*layer.rules, *layer.testing, *layer.warmup)


def _dead(layers: Iterable[Layer], packages: set[str], known: Iterable[str]) -> Iterator[Problem]:
    reached = {pattern for key in known for pattern in prefixes(key)}
    for layer in layers:
        told: set[str] = set()
        for rule in _rules(layer):
            pattern = rule.pattern
            if pattern is None or pattern in reached or pattern in told:
                continue
            package = pattern.partition(".")[0]
            if package in packages:
                told.add(pattern)
                yield Problem(
                    f"this rule reaches nothing: {package} was imported, and none of its "
                    "decorated functions has such a name",
                    origin=rule.origin,
                    layer=layer.name,
                    key=_header(layer, rule),
                    nearest=nearest(pattern, known),
                    fix="correct the name, or remove the rule",
                    severity="warning",
                )


def _uncallable(layer: Layer, known: Mapping[str, Entry]) -> Iterator[Problem]:
    """Yield what is wrong with the calls that functions are to be warmed up for."""
    for rule in layer.warmup:
        entry = known.get(str(rule.pattern))
        if entry is not None:
            for call in calls_of(rule, layer.name):
                yield from argument_problems(call, signature_of(entry.fn), entry.key)


def _absent(rule: Rule, entry: Entry, layer: str) -> Iterator[Problem]:
    # Of the code itself: a wrapper's `__wrapped__` may take others.
    parameters = inspect.signature(entry.fn, follow_wrapped=False).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return  # any name may be one
    for option in _ARGUMENTS:
        names = rule.values.get(option, ())
        for name in names if isinstance(names, tuple) else ():
            if name not in parameters:
                meant = nearest(name, parameters)
                yield Problem(
                    f"{kebab(option)} names an argument that {entry.key} doesn't have",
                    origin=rule.origin_of(option),
                    layer=layer,
                    key=f"{rule.text}.{kebab(option)}",
                    value=show(name),
                    allowed=", ".join(parameters) or "nothing: it has no arguments",
                    nearest=meant,
                    fix=f"write {show(meant)}" if meant else f"remove {show(name)}",
                )
