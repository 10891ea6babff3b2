"""``xpolicy explain``: each option of a function, who set it, and what that beat."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich import box
from rich.table import Table
from rich.text import Text

from xpolicy.backends.plugins import OURS, points
from xpolicy.backends.registry import option_table
from xpolicy.cli.imports import import_for, importable_from_here, installed
from xpolicy.cli.output import on_terminal, render, write, write_json
from xpolicy.cli.usage import UsageError, check_keys, namespaces_given
from xpolicy.errors import Problem
from xpolicy.policy.options import nearest
from xpolicy.runtime.entry import entries
from xpolicy.runtime.explain import explain as explained
from xpolicy.runtime.session import find, session

if TYPE_CHECKING:
    from xpolicy.runtime.explain import Explanation, Row


def explain(
    name: str,
    /,
    *,
    namespace: str | None = None,
    device: str | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
    import_: Annotated[bool, Parameter(name="--import", negative="")] = False,
) -> None:
    """Tell each option of a function: its value, who set it where, and what that beat.

    Parameters
    ----------
    name
        The function's key, such as mylib.linalg.norm. It need not be importable: rules
        go by name.
    namespace
        The array namespace: torch, jax, numpy, ... By default each that has a compiler
        which is installed.
    device
        The kind of device that the arrays are on, for rules that ask for one.
    json
        Print JSON (docs/reference/explain-json.md).
    import_
        Import the code, so that what its decorators say is seen.
    """
    option_table(plugins=True)
    check_keys([name])
    with importable_from_here():
        if import_:
            import_for(name)
        asked = _compiled_here() if namespace is None else namespaces_given([namespace])
        all_found = [explained(name, one, device=device) for one in asked]
        notes = () if session.disabled else tuple(unseen(name))
    all_found = [dataclasses.replace(one, notes=(*one.notes, *notes)) for one in all_found]
    if json:
        told = [one.as_dict() for one in all_found]
        write_json(told if namespace is None else told[0])
    elif on_terminal():
        render(*(part for one in all_found for part in _pictured(one)))
    else:
        write("\n\n".join(map(str, all_found)))


def _compiled_here() -> list[str]:
    """Return the namespaces whose compiler is installed, without importing any."""
    names = [*OURS, *points()]
    found = [name for name in names if installed(name.partition(".")[0])]
    if not found:
        raise UsageError(
            Problem(
                "no array library that compiles is installed: say for which to explain",
                allowed=", ".join(option_table().namespaces),
                fix="add --namespace, such as --namespace numpy",
            )
        )
    return found


def unseen(name: str) -> list[str]:
    """Say what could not be known about a function without importing it."""
    if find(name)[1] is not None:
        return []
    package = name.partition(".")[0]
    keys = [entry.key for entry in entries() if entry.package == package]
    if keys:
        meant = nearest(name, keys)
        hint = f"; did you mean {meant}?" if meant else ""
        return [f"{package} is imported, and none of its decorated functions is {name}{hint}"]
    if package in sys.modules:
        return [f"{package} is imported, and has no decorated function"]
    if installed(package):
        return ["decorators not seen: package not imported (--import imports it)"]
    return [f"decorators not seen: there is no package {package} here"]


def _pictured(found: Explanation) -> list[Text | Table]:
    """Return what `str(found)` says, for a terminal."""
    policy = found.policy
    style = "yellow" if policy.mode == "eager" else "green"
    head = Text.assemble((policy.key, "bold"), f" for {policy.namespace}: ", (policy.mode, style))
    if policy.requested_mode != policy.mode:
        head.append(f" (asked for {policy.requested_mode})")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("option", "value", "set by", "rule", "beat"):
        # Folded, not cut: a path without its end says nothing.
        table.add_column(column, overflow="fold")
    for row in found.rows:
        table.add_row(*_cells(row))
    parts: list[Text | Table] = [head, table]
    if found.unset:
        unset = "unset (the compiler's own defaults): " + ", ".join(found.unset)
        parts += [Text(unset, style="dim"), Text()]
    for title, rows in (
        ("conditions that do not hold:", found.conditions),
        ("conditions that hold:", found.met),
        ("given to the compiler:", found.compiler),
    ):
        if rows:
            parts += [Text(title), _grid(rows)]
    if found.notes:
        parts += [Text("notes:"), *(Text(f"- {note}") for note in found.notes)]
    return parts


def _cells(row: Row) -> list[Text]:
    said = row.said
    # The longest cells are places: dimmed, so that options and values stand out.
    source = Text(said.origin)
    if said.layer not in ("built-in", "kill switch"):
        source.append(f"\n{said.layer}", style="dim")
    rule = Text(said.rule)
    if said.condition:
        rule.append(f"\nwhen {said.condition}", style="dim")
    beat = Text("\n").join(
        Text.assemble(other.value, (f" ({other.origin})", "dim")) for other in row.beat
    )
    return [Text(row.option, style="bold"), Text(row.shown), source, rule, beat]


def _grid(rows: tuple[tuple[str, str, str], ...]) -> Table:
    grid = Table.grid(padding=(0, 2))
    for _ in range(3):
        grid.add_column(overflow="fold")
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    return grid
