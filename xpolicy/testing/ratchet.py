"""What tests observed of each function, kept in a file that may only get better."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xpolicy.errors import PolicyFileError, Problem
from xpolicy.policy.emit import toml_key, toml_string
from xpolicy.policy.options import MODES
from xpolicy.sources.toml import parse, read_bytes

if TYPE_CHECKING:
    from pathlib import Path

HEAD = """\
# What tests observed of each function, for each array namespace that has a compiler.
# `pytest --xpolicy-record` writes this file; a run without it fails on anything worse:
# a lower mode, more graph breaks, more compilations of one function again in one test.
# Graph breaks are those of mode compile. Under fullgraph torch captures more (operators
# whose result's shape depends on values), so a function may reach fullgraph and have some.
"""
#: How the reason of a graph break begins.
BREAK = "compile: graph break in "
#: An address in a message differs between runs.
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")

Name = tuple[str, str]


@dataclass(frozen=True)
class Row:
    """One function in one namespace.

    Parameters
    ----------
    mode : {"eager", "compile", "fullgraph"}
        The strictest mode in which every test of the function passed.
    graph_breaks : int or None
        Distinct graph breaks in mode ``compile`` over all tests; None if it wasn't run in
        that mode. A function may reach ``fullgraph`` and have some: torch 2.13 captures
        operators with a data-dependent shape under ``fullgraph=True`` only.
    recompilations : int or None
        The most compilations after the first in one test; None if it wasn't compiled.
    because : tuple of str
        What failed or broke a graph, each with the mode in which it did.
    failed : str or None
        The least strict mode in which a test failed. Not kept in the file, as the rest.
    supports : str or None
        What the function is declared to support.
    places : tuple of str
        Each graph break with its line.
    """

    mode: str
    graph_breaks: int | None = 0
    recompilations: int | None = 0
    because: tuple[str, ...] = ()
    failed: str | None = None
    supports: str | None = None
    places: tuple[str, ...] = ()

    @property
    def level(self) -> int:
        """The mode as a number."""
        return MODES.index(self.mode)


@dataclass
class _Gathered:
    passed: set[str] = field(default_factory=set)
    failed: dict[str, set[str]] = field(default_factory=dict)
    breaks: dict[tuple[str, int], str] = field(default_factory=dict)
    recompilations: int = 0
    ran: set[str] = field(default_factory=set)
    supports: str | None = None

    def row(self) -> Row:
        reached, failed = "eager", None
        for mode in MODES:
            if mode in self.failed:
                failed = mode
                break
            if mode in self.passed:
                reached = mode
        reasons = {f"{mode}: {reason}" for mode, found in self.failed.items() for reason in found}
        reasons |= {f"{BREAK}{file}: {why}" for (file, _), why in self.breaks.items()}
        return Row(
            reached,
            len(self.breaks) if "compile" in self.ran else None,
            self.recompilations if self.ran - {"eager"} else None,
            tuple(sorted(_ADDRESS.sub("0x...", reason) for reason in reasons)),
            failed,
            self.supports,
            tuple(f"{file}:{line}: {why}" for (file, line), why in sorted(self.breaks.items())),
        )


def gather(observed: Iterable[Mapping[str, Any]]) -> dict[Name, Row]:
    """Put the observations of many tests together, in any order.

    A test that fails in mode eager says nothing about compilers: where it fails in others
    is left out.

    Parameters
    ----------
    observed : iterable of mapping
        `Run.observe`'s records.
    """
    observed = list(observed)
    broken = {
        one["test"] for one in observed if one["mode"] == "eager" and one["outcome"] == "failed"
    }
    found: dict[Name, _Gathered] = {}
    for one in observed:
        for seen in one["functions"]:
            if seen["failed"] is not None and one["test"] in broken:
                continue
            gathered = found.setdefault((seen["key"], seen["namespace"]), _Gathered())
            mode, failed = seen["mode"], seen["failed"] or seen["fallback"]
            gathered.ran.add(mode)
            gathered.supports = seen["supports"]
            if failed is not None:
                gathered.failed.setdefault(mode, set()).add(failed)
            elif one["outcome"] == "passed":
                gathered.passed.add(mode)
            if mode == "compile":  # the one mode in which a graph may break
                for file, line, why in seen["breaks"]:
                    gathered.breaks[file, line] = why
            gathered.recompilations = max(gathered.recompilations, seen["recompilations"])
    return {name: found[name].row() for name in sorted(found)}


def read(path: Path) -> dict[Name, Row]:
    """Read a ratchet file; nothing if there is none.

    Raises
    ------
    PolicyFileError
        If it is no ratchet file.
    """
    if not path.exists():
        return {}
    document = parse(read_bytes(path, "testing"), str(path), "testing")
    rows: dict[Name, Row] = {}
    for key, tables in _tables(document.data.get("functions", {})):
        for namespace, table in _tables(tables):
            mode = table.get("mode")
            if mode not in MODES:
                raise PolicyFileError(
                    [
                        Problem(
                            f"the ratchet holds no mode for {key}",
                            origin=document.origin.child("functions", key, namespace),
                            value=repr(mode),
                            allowed=", ".join(MODES),
                            fix="write the file anew: delete it, and run pytest --xpolicy-record",
                        )
                    ]
                )
            rows[key, namespace] = Row(
                mode,
                int(table.get("graph-breaks", 0)),
                int(table.get("recompilations", 0)),
                tuple(table.get("because", ())),
            )
    return rows


def _tables(value: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(value, Mapping):
        yield from ((k, v) for k, v in value.items() if isinstance(v, Mapping))


def written(rows: Mapping[Name, Row]) -> str:
    r"""Return rows as a ratchet file: sorted, and the same for the same rows.

    Examples
    --------
    >>> print(written({("mylib.f", "torch"): Row("compile", 1)}).split("\n\n")[1])
    [functions."mylib.f".torch]
    mode = "compile"
    graph-breaks = 1
    recompilations = 0
    <BLANKLINE>
    """
    parts = [HEAD]
    for (key, namespace), row in sorted(rows.items()):
        lines = [
            f"[functions.{toml_string(key)}.{toml_key(namespace)}]",
            f"mode = {toml_string(row.mode)}",
            f"graph-breaks = {row.graph_breaks or 0}",
            f"recompilations = {row.recompilations or 0}",
        ]
        if row.because:
            lines += ["because = [", *(f"    {toml_string(why)}," for why in row.because), "]"]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


@dataclass(frozen=True)
class Comparison:
    """What changed since the ratchet was recorded, in words."""

    worse: tuple[str, ...]
    better: tuple[str, ...]
    new: tuple[str, ...]


def compare(recorded: Mapping[Name, Row], found: Mapping[Name, Row]) -> Comparison:
    """Hold what was observed against what was recorded.

    Only what was run counts: a mode that was not tried is neither worse nor better.
    """
    worse: list[str] = []
    better: list[str] = []
    for name in sorted(found.keys() & recorded.keys()):
        old, now = recorded[name], found[name]
        title = f"{name[0]} for {name[1]}"
        if now.failed is not None and MODES.index(now.failed) <= old.level:
            line = f"{title}: mode {old.mode} is recorded, {now.failed} fails"
            worse.append("\n  ".join([line, *now.because]))
        elif now.supports is not None and MODES.index(now.supports) < old.level:
            line = f'{title}: mode {old.mode} is recorded, supports = "{now.supports}" caps it'
            worse.append(line)
        elif now.level > old.level:
            better.append(f"{title}: reaches mode {now.mode}, {old.mode} is recorded")
        for what, before, count in (
            ("graph break", old.graph_breaks, now.graph_breaks),
            ("recompilation", old.recompilations, now.recompilations),
        ):
            if before is None or count is None or before == count:
                continue
            line = f"{title}: {count} {what}{'s' if count != 1 else ''}, {before} recorded"
            if count < before:
                better.append(line)
            else:
                places = now.places if what == "graph break" else ()
                worse.append("\n  ".join([line, *places]))
    new = [f"{key} for {namespace}" for key, namespace in sorted(found.keys() - recorded.keys())]
    return Comparison(tuple(worse), tuple(better), tuple(new))
