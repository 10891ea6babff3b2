"""The author layer: ``xpolicy-library.toml`` inside a package, and a decorator's arguments."""

from __future__ import annotations

import importlib.resources
import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from xpolicy._origin import Origin
from xpolicy.errors import PolicyFileError, Problem
from xpolicy.policy.conditions import Facts
from xpolicy.policy.document import make_rule, models, read_document
from xpolicy.policy.layers import Layer, Rule
from xpolicy.policy.mistakes import show
from xpolicy.policy.options import OptionTable, kebab, nearest
from xpolicy.policy.patterns import is_pattern
from xpolicy.sources.toml import MAX_BYTES, parse

FILE_NAME = "xpolicy-library.toml"
LAYER = "author"


@dataclass(frozen=True)
class LibraryFile:
    """A package's policy file: where it was looked for, and what was in it."""

    package: str
    path: str
    found: bool
    data: bytes = b""


def library_file(package: str) -> LibraryFile | None:
    """Find the policy file of a top-level package, without importing anything.

    Returns None if there is no such package. A package in a zip archive, an editable
    install and an ordinary one are all the same to ``importlib.resources``.
    """
    loaded = sys.modules.get(package)
    spec = getattr(loaded, "__spec__", None)
    if spec is None:
        try:
            # A top-level name: finding its spec runs no code of the package.
            spec = importlib.util.find_spec(package) if package.isidentifier() else None
        except (ImportError, ValueError):
            spec = None
    if spec is None or not spec.submodule_search_locations or spec.origin is None:
        # A single-file module, or a namespace package: there is no __init__ to stand beside.
        return None
    stand_in = ModuleType(package)
    stand_in.__spec__ = spec
    file = importlib.resources.files(stand_in).joinpath(FILE_NAME)
    if not file.is_file():
        return LibraryFile(package, str(file), found=False)
    with file.open("rb") as stream:
        return LibraryFile(package, str(file), True, stream.read(MAX_BYTES + 1))


def read_library(
    package: str, table: OptionTable, facts: Facts, *, version: str
) -> tuple[Layer, LibraryFile | None, list[Problem]]:
    """Read the policy that a package ships; an empty layer if it ships none."""
    file = None
    try:
        file = library_file(package)
        if file is None or not file.found:
            return Layer(LAYER, package), file, []
        document = parse(file.data, file.path, LAYER)
    except PolicyFileError as error:
        return Layer(LAYER, package), file, list(error.problems)
    except OSError as error:
        problem = Problem(f"{FILE_NAME} of {package} can't be read: {error}", layer=LAYER)
        return Layer(LAYER, package), file, [problem]
    layer, problems = read_document(
        document.data, document.origin, LAYER, table, facts, version=version, package=package
    )
    return layer, file, problems


@lru_cache(maxsize=8)
def _keyword_models(table: OptionTable) -> Mapping[str, Any]:
    return models(table).namespaces


def keyword_rules(
    options: Mapping[str, Any],
    origin: Origin,
    table: OptionTable,
    *,
    pattern: str | None,
    namespace: str | None = None,
    layer: str = LAYER,
    declared: bool = False,
) -> tuple[list[Rule], list[Problem]]:
    """Turn keyword arguments (of the decorator, or of an override) into rules.

    Parameters
    ----------
    options : mapping
        Options by Python name; a value that is a mapping under a namespace's name is
        that namespace's table.
    origin : Origin
        The line of code.
    table : OptionTable
        All options.
    pattern : str or None
        The function that they are for.
    namespace : str, optional
        The namespace that all of them are for.
    layer : str
        ``"author"`` or ``"runtime"``.
    declared : bool
        True for a decorator: keywords that are no option go to the compiler as they are.
    """
    rules: list[Rule] = []
    problems: list[Problem] = []
    # A decorated function may live in a module that no file could name ("<run_path>").
    if pattern is not None and not declared and not is_pattern(pattern):
        problems.append(
            Problem(
                f"{pattern!r} is not a function key or pattern",
                origin=origin,
                layer=layer,
                allowed='dotted names ("mylib.f"), "mylib.*", or "*"',
            )
        )
        return rules, problems
    general: dict[str, Any] = {}
    for name, value in options.items():
        canonical = table.canonical(name)
        if namespace is None and canonical in table.namespaces and isinstance(value, Mapping):
            rule = _keyword_rule(
                dict(value), origin, table, pattern, canonical, layer, declared, problems
            )
            if rule is not None:
                rules.append(rule)
        else:
            general[name] = value
    if general:
        rule = _keyword_rule(
            general,
            origin,
            table,
            pattern,
            table.canonical(namespace) if namespace else None,
            layer,
            declared,
            problems,
        )
        if rule is not None:
            rules.append(rule)
    return rules, problems


def _keyword_rule(
    options: dict[str, Any],
    origin: Origin,
    table: OptionTable,
    pattern: str | None,
    namespace: str | None,
    layer: str,
    declared: bool,
    problems: list[Problem],
) -> Rule | None:
    rows = {row.name: row for row in table.of(namespace).values()}
    values: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for name, value in options.items():
        if name not in rows:
            if namespace is not None and declared:
                extra[name] = value
                continue
            names = [*rows, *(table.namespaces if namespace is None else ())]
            problems.append(_unknown(name, value, origin, layer, namespace, names))
            continue
        row = rows[name]
        if value is None:
            continue
        if row.capability and layer != LAYER and name != "supports" and not _exact(pattern):
            problems.append(
                Problem(
                    f"{name} is a fact about one function; name the function",
                    origin=origin,
                    layer=layer,
                    key=name,
                )
            )
            continue
        if row.kind == "list":
            if isinstance(value, str) and value != "unset":
                value = (value,)  # noqa: PLW2901  # jax.jit takes one name so, too
            elif not isinstance(value, str):
                value = list(value)  # noqa: PLW2901  # any iterable of names
        shown = dict(value) if isinstance(value, Mapping) else value
        checked = list(shown) if isinstance(shown, tuple) else shown
        model = _keyword_models(table)[namespace] if namespace else models(table).document
        try:
            model.model_validate({kebab(name): checked})
        except ValidationError:
            problems.append(
                Problem(
                    f"{row.full_key} can't be {shown!r}",
                    origin=origin,
                    layer=layer,
                    key=row.name,
                    value=show(shown),
                    allowed=row.allowed,
                    nearest=nearest(shown, row.choices) if isinstance(shown, str) else None,
                )
            )
            continue
        values[name] = tuple(checked) if isinstance(checked, list) else shown
    made = make_rule(values, origin, pattern, namespace, (), table)
    if isinstance(made, Problem):
        problems.append(made.replace(layer=layer))
        return None
    made.extra = extra
    made.declared = declared
    return made if values or extra else None


def _exact(pattern: str | None) -> bool:
    return pattern is not None and not pattern.endswith("*")


def _unknown(
    name: str,
    value: Any,
    origin: Origin,
    layer: str,
    namespace: str | None,
    names: list[str],
) -> Problem:
    where = f" for {namespace}" if namespace else ""
    return Problem(
        f"unknown option {name!r}{where}",
        origin=origin,
        layer=layer,
        key=name,
        value=show(value),
        allowed=", ".join(names),
        nearest=nearest(name, names),
    )
