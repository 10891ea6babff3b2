"""``xpolicy warmup``: compile what the ``warmup`` lists of policies name."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from xpolicy.aot.planning import installed, plan
from xpolicy.aot.warmup import run
from xpolicy.backends.registry import option_table
from xpolicy.cli.imports import import_for, importable_from_here
from xpolicy.cli.output import on_terminal, problems_to, render, write, write_json
from xpolicy.cli.usage import UsageError, check_keys, namespaces_given
from xpolicy.errors import Problem
from xpolicy.runtime.explain import columns
from xpolicy.runtime.install import install
from xpolicy.runtime.session import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from xpolicy.aot.planning import Planned
    from xpolicy.aot.warmed import Warmed

_HEAD = ("function", "namespace", "signature", "seconds", "cache", "outcome")
_STYLES = {"compiled": "green", "known": "green", "failed": "bold red"}


def warmup(
    *names: str,
    namespace: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    jobs: int = 1,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Compile functions for the calls that the warmup lists of policies name.

    What is compiled outlives the command in the compilers' persistent caches only. The exit
    status is 0 if nothing failed, 1 if a call did, and 2 if the command itself was wrong.

    Parameters
    ----------
    names
        Packages, modules or function keys. They are imported.
    namespace
        The array namespaces to compile for. By default those that have a list of their own,
        and for other lists every compiler that is installed.
    jobs
        How many threads compile. torch compiles one function at a time all the same.
    json
        Print JSON (docs/reference/explain-json.md).
    """
    option_table(plugins=True)
    if not names:
        raise UsageError(
            Problem(
                "nothing to warm up was named",
                allowed="packages, modules, function keys",
                fix="xpolicy warmup PACKAGE",
            )
        )
    if jobs < 1:
        raise UsageError(Problem(f"--jobs {jobs}: at least one thread has to do it"))
    namespace = None if namespace is None else namespaces_given(namespace)
    with importable_from_here(), contextlib.redirect_stdout(sys.stderr):
        planned = _plan(names, namespace)
        results = _run(planned, jobs)
    _tell(results, json=json)
    return 1 if any(result.failed for result in results) else 0


def _plan(names: tuple[str, ...], namespaces: list[str] | None) -> list[Planned]:
    check_keys(names)
    if any(layer.apply for layer in session.loaded().layers):
        install()  # as the program does that the functions are put under policy for
    for name in names:
        if import_for(name) is None:
            package = name.partition(".")[0]
            fix = "install it, or run the command in the folder that it is in"
            raise UsageError(Problem(f"there is no package {package} here", fix=fix))
    return plan(names, namespaces, installed)


def _run(planned: list[Planned], jobs: int) -> list[Warmed]:
    with _bar(len(planned)) as (started, ended):
        return run(planned, jobs=jobs, started=started, ended=ended)


@contextlib.contextmanager
def _bar(total: int) -> Iterator[tuple[Callable[[Planned], None], Callable[[Warmed], None]]]:
    """Show how far it is, and what is being compiled, to a person on the error stream."""
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty() or not total,
    )
    lock = threading.Lock()
    under_way: list[tuple[str, str]] = []
    with bar:
        task = bar.add_task("", total=total)

        def started(item: Planned) -> None:
            with lock:
                under_way.append((item.key, item.namespace))
                bar.update(task, description=_under_way(under_way))

        def ended(result: Warmed) -> None:
            with lock:
                under_way.remove((result.function, result.namespace))
                bar.update(task, advance=1, description=_under_way(under_way))

        yield started, ended


def _under_way(items: list[tuple[str, str]]) -> str:
    return ", ".join(f"{key} ({namespace})" for key, namespace in items)


# --- the summary ---------------------------------------------------------------------


def _tell(results: list[Warmed], *, json: bool) -> None:
    counts = Counter(result.status for result in results)
    if json:
        write_json({"counts": dict(counts), "calls": [result.as_dict() for result in results]})
        return
    rows = [_row(result) for result in results]
    if rows and on_terminal():
        render(_table(results, rows))
    elif rows:
        write("\n".join(columns([_HEAD, *rows])))
    failed = {str(r.problem): r.problem for r in results if r.problem is not None}
    if failed:
        sys.stdout.flush()
        problems_to(sys.stderr, failed.values())
    write("\n".join([_summary(results, counts), *(f"  - {note}" for note in _notes(results))]))


def _row(result: Warmed) -> tuple[str, ...]:
    seconds = "" if result.seconds is None else f"{result.seconds:.2f}"
    outcome = f"failed ({result.origin})" if result.failed else result.told
    return (
        result.function,
        result.namespace,
        result.signature,
        seconds,
        result.cache or "",
        outcome,
    )


def _table(results: list[Warmed], rows: list[tuple[str, ...]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in _HEAD:
        table.add_column(
            column, overflow="fold", justify="right" if column == "seconds" else "left"
        )
    for result, row in zip(results, rows, strict=True):
        outcome = Text(row[-1], style=_STYLES.get(result.status, ""))
        table.add_row(*map(Text, row[:-1]), outcome)
    return table


def _summary(results: list[Warmed], counts: Counter[str]) -> str:
    if session.disabled:
        return "nothing to compile: XPOLICY_DISABLE is on"
    if not results:
        return "nothing to compile: no warmup list names a function of what was named"
    hits = sum(result.cache == "hit" for result in results)
    compiled = f"{counts['compiled']} compiled"
    told = [f"{compiled} ({hits} found in a cache)" if hits else compiled]
    words = {"known": "compiled already", "eager": "eager", "skipped": "skipped"}
    told += [f"{counts[status]} {word}" for status, word in words.items() if counts[status]]
    told.append(f"{counts['failed']} failed")
    calls = "1 call" if len(results) == 1 else f"{len(results)} calls"
    return f"{calls}: {', '.join(told)}"


def _notes(results: list[Warmed]) -> list[str]:
    notes = [
        f"{name}: its persistent cache is off, so nothing of this is kept for other processes"
        for name in dict.fromkeys(r.namespace for r in results if r.cache == "off")
    ]
    notes += [
        f"{result.function} for {result.namespace}: later calls compile {rest}"
        for result in results
        for rest in result.remaining
    ]
    if any(result.namespace == "torch" and result.status == "compiled" for result in results):
        notes.append(
            "torch: compiled for tensors that need no gradient; for others a call compiles a "
            "variant of its own, and its backward pass"
        )
    return list(dict.fromkeys(notes))
