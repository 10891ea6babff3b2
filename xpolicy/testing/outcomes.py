"""What one test showed of the functions that it called."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xpolicy.backends.plugins import registered
from xpolicy.runtime.entry import Entry
from xpolicy.runtime.session import session

#: Packages whose frames say nothing about the function that failed to compile.
_INSIDE = frozenset({"torch", "jax", "jaxlib", "xpolicy"})

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xpolicy.policy.resolve import ResolvedPolicy
    from xpolicy.testing.watching import watch


def capped(key: str, namespace: str, entry: Entry | None, mode: str) -> str | None:
    """Return why a function doesn't run in a mode that is asked for; None if it does."""
    policy = session.resolve(key, namespace, entry)
    if policy.mode == policy.requested_mode or policy.mode == mode:
        return None
    text = f'{key} for {namespace}: supports = "{policy.mode}"'
    return f"{text}, {policy.reason}" if policy.reason else text


def functions(
    seen: watch, error: BaseException | None, named: Iterable[str], root: Path
) -> list[dict[str, Any]]:
    """Return a record for each function and namespace that has a compiler: plain data.

    Parameters
    ----------
    seen : watch
        What was compiled.
    error : BaseException or None
        What the test failed with.
    named : iterable of str
        The functions that the test is about, if it says so.
    root : Path
        Files are named from there.
    """
    called = {n: e for n, e in seen.called().items() if registered(n[1])}
    keys = set(named) or {key for key, _ in called}
    at_fault = keys
    if error is not None:
        culprit = outermost(error)
        at_fault = {culprit} if culprit is not None else keys
    records: list[dict[str, Any]] = []
    for (key, namespace), entry in sorted(called.items(), key=lambda item: item[0]):
        if key not in keys and key not in at_fault:
            continue
        policy = session.resolve(key, namespace, entry)
        one = seen[key, namespace]
        fallback = one.fallback
        if policy.mode != "eager" and one.breaks and not one.compilations and not fallback:
            fallback = next(iter(one.breaks.values()))  # all of it runs uncompiled
        records.append(
            {
                "key": key,
                "namespace": namespace,
                "mode": policy.mode,
                "supports": policy.values.get("supports"),
                "breaks": [
                    (_shown(file, root), line, why) for (file, line), why in one.breaks.items()
                ],
                "compilations": len(one.compilations),
                "recompilations": max(len(one.compilations) - 1, 0),
                "fallback": fallback,
                "failed": _first_line(error) if error is not None and key in at_fault else None,
            }
        )
    return records


def declared(policy: ResolvedPolicy) -> str | None:
    """Return what a policy declares that a function supports."""
    value: str | None = policy.values.get("supports")
    return value


def outermost(error: BaseException) -> str | None:
    """Return the key of the function that a call failed in: its dispatcher is on the way.

    The outermost one counts, since its policy is the one that held.
    """
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code.co_filename.startswith("<xpolicy dispatch("):
            for value in frame.f_locals.values():
                if type(value) is Entry:
                    return value.key
        trace = trace.tb_next
    return None


def trim(error: BaseException) -> None:
    """Take the compilers' own frames out of the traceback of a compiler's failure.

    Dynamo alone puts 30 of them between the test and a message that tells all. What the
    function under test raises itself keeps every frame.
    """
    if not any(note.startswith("xpolicy: ") for note in getattr(error, "__notes__", ())):
        return
    kept: list[Any] = []
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        inside = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        ours = frame.f_code.co_filename.startswith("<xpolicy ")
        # The plugin's own frames stand above the test's; pytest leaves them out itself.
        if not kept or not (ours or inside in _INSIDE):
            kept.append(trace)
        trace = trace.tb_next
    for before, after in zip(kept, [*kept[1:], None], strict=True):
        before.tb_next = after


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _shown(file: str, root: Path) -> str:
    """Return a file's name as it is on every machine."""
    path = Path(file)
    for folder in (root, *sorted(map(Path, filter(None, sys.path)), reverse=True)):
        if path.is_relative_to(folder):
            return path.relative_to(folder).as_posix()
    return path.name
