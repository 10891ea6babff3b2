"""The seal: from some moment on, nothing more is to be compiled.

Process-wide, since the point of sealing is to know that no thread of a server compiles.
Backends ask here on cache misses only, so hits pay nothing.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from xpolicy.errors import SealedError

if TYPE_CHECKING:
    from collections.abc import Iterator

ACTIONS = ("error", "warn", "eager")

_lock = threading.Lock()
#: (token, action) of the seals in force, the latest last. Replaced, never changed: it is
#: read without the lock.
_seals: tuple[tuple[object, str], ...] = ()
_here = threading.local()


def put(action: str) -> object:
    """Seal the process; returns what `lift` takes."""
    global _seals
    token = object()
    with _lock:
        _seals = (*_seals, (token, action))
    return token


def lift(token: object) -> None:
    """Take one seal away, whichever came on top of it."""
    global _seals
    with _lock:
        _seals = tuple(seal for seal in _seals if seal[0] is not token)


def action() -> str | None:
    """Return what a compilation meets now in this thread; None if there is no seal."""
    if getattr(_here, "depth", 0):
        return "error"
    return _seals[-1][1] if _seals else None


def told() -> bool:
    """Return whether a refusal is an event of its own: not for a call that only asks."""
    return not getattr(_here, "depth", 0)


@contextmanager
def sealed_here() -> Iterator[None]:
    """Refuse compilations in this thread, for a call that must find everything compiled."""
    _here.depth = getattr(_here, "depth", 0) + 1
    try:
        yield
    finally:
        _here.depth -= 1


def refusal(key: str, namespace: str, signature: str, reasons: list[str]) -> SealedError:
    """Return the error that says what would have been compiled, and why.

    Parameters
    ----------
    key, namespace : str
        The function.
    signature : str
        The arguments of the call, in one line.
    reasons : list of str
        What differs from what is compiled.
    """
    lines = [
        f"{key} for {namespace} would have to be compiled, and compilation is sealed",
        f"  called with: {signature}",
    ]
    if reasons:
        lines.append("  changed since the nearest variant: " + "; ".join(reasons))
    else:
        lines.append("  nothing is compiled for it yet")
    lines.append("  fix: compile it before the seal (f.lower(...).compile(), or call it once)")
    error = SealedError("\n".join(lines))
    error.reasons = tuple(reasons)
    return error
