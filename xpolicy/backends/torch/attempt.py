"""Compiling without running: a call that ends where its first graph would begin.

Torch compiles when it is called. So a function is called with nothing to compute on, in a
thread that says so here: what the graph was compiled to raises `NotRun` instead of
running. By then the variant is installed, with its guards, and a later real call finds
it. Effects of Python code come after the graph, so none of them has happened either.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_here = threading.local()


class NotRun(BaseException):
    """A graph would have run. Not an `Exception`: no code in between may take it for its own."""


class NothingCompiled(BaseException):
    """Nothing was compiled that a call could be stopped in, so it was stopped before it.

    Parameters
    ----------
    reason : str
        Why.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Attempt:
    """One compilation ahead of time, in one thread.

    Attributes
    ----------
    graphs : int
        How many graphs were compiled.
    events : list
        What is to be told once it is over.
    """

    def __init__(self) -> None:
        self.graphs = 0
        self.events: list[tuple[str, str, dict[str, Any]]] = []
        self.going_on = True

    def held(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """Return what a graph was compiled to, running nothing in this attempt."""
        self.graphs += 1

        def run(*args: Any) -> Any:
            if self.going_on and current() is self:
                raise NotRun
            return compiled(*args)

        return run

    def checked(self, result: Any) -> Any:
        """Return dynamo's answer for the entry frame, if the call will stop in a graph."""
        if result.guarded_code is None:
            raise NothingCompiled("torch leaves it uncompiled")
        if not self.graphs:
            raise NothingCompiled("no operation on a tensor comes before its first graph break")
        return result


def current() -> Attempt | None:
    """Return the attempt that this thread is in."""
    found: Attempt | None = getattr(_here, "attempt", None)
    return found


@contextmanager
def attempting() -> Iterator[Attempt]:
    """Begin an attempt in this thread."""
    outer, mine = current(), Attempt()
    _here.attempt = mine
    try:
        yield mine
    finally:
        mine.going_on = False
        _here.attempt = outer
