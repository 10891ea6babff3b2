"""Command lines that are wrong: told, with exit status 2."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from xpolicy.errors import BackendOptionError
from xpolicy.runtime.explain import checked_namespace
from xpolicy.runtime.session import find

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from xpolicy.errors import Problem


class UsageError(Exception):
    """A command can't be run as it was given; `problem` says why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def namespaces_given(names: Iterable[str]) -> list[str]:
    """Return the namespaces that a command names, each once and by its canonical name."""
    with _named_here():
        return list(dict.fromkeys(map(checked_namespace, names)))


def check_keys(names: Iterable[str]) -> None:
    """Refuse what can't be a function's key, before any part of it is imported."""
    with _named_here():
        for name in names:
            find(name)


@contextlib.contextmanager
def _named_here() -> Iterator[None]:
    try:
        yield
    except BackendOptionError as error:
        raise UsageError(error.problems[0]) from None
