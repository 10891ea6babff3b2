"""The author layer: ``xpolicy-library.toml`` inside a package, and a decorator's arguments."""

from __future__ import annotations

import importlib.resources
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from xpolicy.errors import PolicyFileError, Problem
from xpolicy.policy.document import make_rule, models, read_document
from xpolicy.policy.layers import Layer, Rule
from xpolicy.policy.mistakes import COMPILE_MODES
from xpolicy.policy.options import OptionSpec, OptionTable, nearest
from xpolicy.policy.patterns import is_pattern
from xpolicy.policy.ties import ties
from xpolicy.policy.writing import show
from xpolicy.sources.toml import MAX_BYTES, parse

if TYPE_CHECKING:
    from xpolicy._origin import Origin
    from xpolicy.policy.conditions import Facts

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
    reading = _Keywords(origin, table, pattern, layer, declared)
    # A decorated function may live in a module that no file could name ("<run_path>").
    if pattern is not None and not declared and not is_pattern(pattern):
        reading.say(
            f"{pattern!r} is not a function key or pattern",
            allowed='dotted names ("mylib.f"), "mylib.*", or "*"',
        )
        return [], reading.problems
    general: dict[str, Any] = {}
    for name, value in options.items():
        canonical = table.canonical(name)
        if namespace is None and canonical in table.namespaces:
            if isinstance(value, Mapping):
                reading.read(value, canonical)
            elif value is not None:
                reading.say(
                    f"{name} takes a mapping of its options",
                    key=name,
                    value=show(value),
                    allowed=f'options of {canonical} by Python name, {name}={{"mode": "eager"}}',
                )
        else:
            general[name] = value
    if general:
        reading.read(general, table.canonical(namespace) if namespace else None)
    # The same namespace by two names, jax and "jax.numpy": their order must not decide.
    reading.problems += ties(reading.rules, layer)
    return reading.rules, reading.problems


@dataclass
class _Keywords:
    """Keyword arguments on their way to becoming rules."""

    origin: Origin
    table: OptionTable
    pattern: str | None
    layer: str
    declared: bool
    rules: list[Rule] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def say(self, message: str, **told: Any) -> None:
        self.problems.append(Problem(message, origin=self.origin, layer=self.layer, **told))

    def read(self, options: Mapping[str, Any], namespace: str | None) -> None:
        """Turn the options of one namespace (None: of any) into a rule."""
        rows = {row.name: row for row in self.table.of(namespace).values()}
        values: dict[str, Any] = {}
        extra: dict[str, Any] = {}
        for name, value in options.items():
            if name in rows:
                checked = self.check(rows[name], value, namespace)
                if checked is not None:
                    values[name] = checked
            elif namespace is not None and self.declared and _is_keyword(name, rows):
                extra[name] = value
            else:
                self.unknown(name, value, namespace, rows)
        made = make_rule(values, self.origin, self.pattern, namespace, (), self.table)
        if isinstance(made, Problem):
            self.problems.append(made.replace(layer=self.layer))
        elif values or extra:
            made.extra = extra
            made.declared = self.declared
            self.rules.append(made)

    def check(self, row: OptionSpec, value: Any, namespace: str | None) -> Any:
        """Return a value as a rule holds it; None if it is None, or wrong."""
        if value is None:
            return None
        exact = self.pattern is not None and not self.pattern.endswith("*")
        if row.capability and self.layer != LAYER and row.name != "supports" and not exact:
            self.say(f"{row.name} is a fact about one function; name the function", key=row.name)
            return None
        if self.declared and row.takes_callable and callable(value):
            return value
        plain = _plain(row, value)
        model = (
            models(self.table).namespaces[namespace] if namespace else models(self.table).document
        )
        try:
            model.model_validate({row.key: plain})
        except ValidationError:
            told = {"key": row.name, "value": show(value), "allowed": _allowed(row)}
            if isinstance(value, str) and row.name == "mode" and value in COMPILE_MODES:
                told["nearest"] = "compile_mode"
                told["fix"] = f'write torch={{"compile_mode": "{value}"}}'
            elif isinstance(value, str) and (near := nearest(value, row.choices)):
                told["nearest"] = near
            self.say(f"{row.full_key} can't be {show(value)}", **told)
            return None
        return tuple(plain) if isinstance(plain, list) else plain

    def unknown(
        self, name: Any, value: Any, namespace: str | None, rows: Mapping[str, OptionSpec]
    ) -> None:
        where = f" for {namespace}" if namespace else ""
        right = str(name).replace("-", "_")
        if right in rows:
            message = f"options are spelt with underscores in Python: {right!r}, not {name!r}"
            self.say(message, key=str(name), nearest=right, fix=f"write {right}")
            return
        names = [*rows, *(self.table.namespaces if namespace is None else ())]
        near = nearest(str(name), names)
        fix = f"write {near}" if near else None
        homes = [s.name for s in self.table.namespaces.values() if right in s.options]
        if namespace is None and homes:
            near = homes[0]
            fix = f'write {near}={{"{right}": …}}'
        self.say(
            f"unknown option {str(name)!r}{where}",
            key=str(name),
            value=show(value),
            allowed=", ".join(names),
            nearest=near,
            fix=fix,
        )


def _is_keyword(name: Any, rows: Mapping[str, OptionSpec]) -> bool:
    """Say whether a name may be a keyword of the compiler's, which only code can give."""
    return isinstance(name, str) and name.isidentifier() and name.replace("-", "_") not in rows


def _plain(row: OptionSpec, value: Any) -> Any:
    """Return a value as a document would hold it: lists for any iterable of names."""
    if isinstance(value, Mapping):
        return dict(value)
    if row.kind != "list" or value == "unset":
        return value
    if isinstance(value, str):
        return [value]  # jax.jit takes one name so, too
    if isinstance(value, AbstractSet):
        return sorted(value, key=str)  # a set's own order differs between processes
    return list(value) if isinstance(value, Iterable) else value


def _allowed(row: OptionSpec) -> str:
    words = {"boolean": "True or False", "list": "a name or several", "table": "a mapping"}
    told = words.get(row.kind)
    return row.allowed if told is None else told if row.capability else f'{told}, or "unset"'
