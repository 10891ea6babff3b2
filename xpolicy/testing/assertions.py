"""Assertions about what was compiled so far, as plain functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xpolicy.runtime.events import stats
from xpolicy.runtime.session import find, session
from xpolicy.testing.budgets import break_lines, recompilation_lines
from xpolicy.testing.watching import Seen

if TYPE_CHECKING:
    from collections.abc import Callable

    from xpolicy.runtime.entry import Entry

    Function = Callable[..., Any] | str


def assert_compiles_once(function: Function, *, namespace: str | None = None) -> None:
    """Assert that a function has been compiled, and once only in each namespace.

    What counts is everything since the function was decorated, or since its last
    ``.clear()``.

    Parameters
    ----------
    function : callable or str
        A decorated function, or a function key.
    namespace : str, optional
        The namespace to look at; all of them by default.

    Raises
    ------
    AssertionError
        If it was compiled again: with the argument that changed each time; or if it has
        not been compiled at all.

    Examples
    --------
    >>> import torch, xpolicy
    >>> from xpolicy.testing import assert_compiles_once
    >>> @xpolicy.compile(name="mylib.triple", torch={"backend": "eager"})
    ... def triple(x):
    ...     return 3 * x
    >>> for _ in range(3):
    ...     y = triple(torch.ones(2))
    >>> assert_compiles_once(triple)
    """
    key, entry = _known(function)
    found = _so_far(key, namespace)
    if not any(seen.compilations for seen in found):
        raise AssertionError(_not_compiled(key, entry, namespace, found))
    wrong = [seen for seen in found if len(seen.compilations) > 1]
    lines: list[str] = []
    for seen in wrong:
        lines.append(f"{key} was compiled {len(seen.compilations)} times for {seen.namespace}:")
        lines += recompilation_lines(seen)
        lines.append(f"  {_advice(seen)}")
    if lines:
        raise AssertionError("\n".join(lines))


def assert_no_graph_breaks(function: Function) -> None:
    """Assert that torch has compiled a function, and in one graph each time.

    What counts is everything since the function was decorated, or since its last
    ``.clear()``.

    Parameters
    ----------
    function : callable or str
        A decorated function, or a function key.

    Raises
    ------
    AssertionError
        With file, line and reason of each break; or if the function has not been compiled
        for torch.

    Examples
    --------
    >>> import torch, xpolicy
    >>> from xpolicy.testing import assert_no_graph_breaks
    >>> @xpolicy.compile(name="mylib.half", torch={"backend": "eager"})
    ... def half(x):
    ...     return x / 2
    >>> y = half(torch.ones(2))
    >>> assert_no_graph_breaks(half)
    """
    key, entry = _known(function)
    found = _so_far(key, "torch")
    breaks = [seen for seen in found if seen.breaks]
    if breaks:
        count = len(breaks[0].breaks)
        lines = [f"{key} has {count} graph break{'s' if count != 1 else ''} for torch:"]
        lines += break_lines(breaks[0])
        raise AssertionError("\n".join(lines))
    if not any(seen.compilations for seen in found):
        raise AssertionError(_not_compiled(key, entry, "torch", found))


def _known(function: Function) -> tuple[str, Entry | None]:
    key, entry = find(function)
    if entry is None and not isinstance(function, str):
        raise TypeError(f"{key} is not under policy: decorate it with @xpolicy.compile")
    return key, entry


def _so_far(key: str, namespace: str | None) -> list[Seen]:
    found = []
    for record in stats(key):
        if namespace in (None, record.namespace):
            seen = Seen(key, record.namespace)
            for event in tuple(record.events):
                seen.take(event)
            found.append(seen)
    return found


def _not_compiled(key: str, entry: Entry | None, namespace: str | None, found: list[Seen]) -> str:
    where = f" for {namespace}" if namespace is not None else ""
    lines = [f"{key} has not been compiled{where}"]
    lines += [
        f"  {seen.namespace}: ran uncompiled: {seen.fallback}" for seen in found if seen.fallback
    ]
    asked = [namespace] if namespace is not None else ["torch", "jax"]
    for name in asked:
        policy = session.resolve(key, name, entry)
        if policy.mode == "eager":
            said = policy.provenance.get("mode")
            by = f", asked for at {said.winner.origin}" if said else ""
            lines.append(f"  {name}: its mode is eager{by}")
            if policy.requested_mode != "eager":
                lines[-1] = f'  {name}: supports = "eager" caps mode {policy.requested_mode}'
    if len(lines) == 1:
        lines.append("  call it with arrays first; this looks at what happened so far")
    return "\n".join(lines)


def _advice(seen: Seen) -> str:
    if seen.namespace == "jax":
        return "jax compiles once for each shape, dtype and static value"
    return (
        "torch makes a size dynamic at its second value; "
        "torch.dynamic = true makes it so at the first"
    )
