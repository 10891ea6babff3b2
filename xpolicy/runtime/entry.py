"""One decorated function: what its author said, and the callables made for it."""

from __future__ import annotations

import os
import sys
from _thread import RLock
from _weakref import ref

from xpolicy.runtime.dispatch import note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from xpolicy.policy.resolve import ResolvedPolicy

#: Every decorated function that is still alive, in the order of decoration. The weakref
#: module itself costs more to import than this package; a dictionary keeps the order.
_entries: dict[ref[Entry], None] = {}


def entries() -> Iterator[Entry]:
    """Yield every decorated function that is alive, oldest first."""
    for reference in list(_entries):  # one step without a GIL, too, as `tuple` is not
        entry = reference()
        if entry is not None:
            yield entry


def _gone(reference: ref[Entry]) -> None:
    _entries.pop(reference, None)


# Most decorators are used without arguments; an empty dictionary takes 64 bytes.
_NO_OPTIONS: dict[str, Any] = {}

#: Held while an entry's own lock is made, and for nothing else.
_making = RLock()


def _fresh_lock() -> None:
    """Replace the lock in a forked child: whoever held it is not there any more."""
    global _making
    _making = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fresh_lock)


class Entry:
    """What is known of one decorated function.

    Parameters
    ----------
    fn : callable
        The original function.
    key : str
        Its function key.
    options : mapping
        The decorator's arguments, as given.
    file, line : str, int
        Where it was decorated.
    """

    __slots__ = (
        "__weakref__",
        "_compiled",
        "_lock",
        "file",
        "fn",
        "key",
        "line",
        "options",
        "package",
        "table",
    )

    def __init__(
        self, fn: Callable[..., Any], key: str, options: Mapping[str, Any], file: str, line: int
    ) -> None:
        self.fn = fn
        self.key = key
        self.options = options or _NO_OPTIONS
        self.file = file
        self.line = line
        module = getattr(fn, "__module__", None) or key
        self.package = module.partition(".")[0]
        #: type of the deciding array -> what to call; owned by the dispatcher.
        self.table: dict[Any, Any] = {}
        self._compiled: dict[tuple[str, str, str], Callable[..., Any]] | None = None
        self._lock: RLock | None = None
        _entries[ref(self, _gone)] = None

    def __reduce__(self) -> tuple[type[Entry], tuple[Any, ...]]:
        """Pickle what the author said.

        What was compiled is this process's, and so are the policies that it was compiled
        under: the copy asks again where it is called. (cloudpickle comes here, for a
        function of ``__main__`` that it sends to a worker.)
        """
        return Entry, (self.fn, self.key, dict(self.options), self.file, self.line)

    # Made when they are first asked for: most functions that a program imports are never
    # called in it, and the two take 120 bytes.

    @property
    def lock(self) -> RLock:
        """Held while a callable is made, never while user code runs."""
        lock = self._lock
        if lock is None:
            with _making:
                lock = self._lock
                if lock is None:
                    lock = self._lock = RLock()
        return lock

    @lock.setter
    def lock(self, lock: RLock) -> None:
        self._lock = lock

    @property
    def compiled(self) -> dict[tuple[str, str, str], Callable[..., Any]]:
        """Compiled callables by namespace, fingerprint and the compiler's version."""
        compiled = self._compiled
        if compiled is None:
            with _making:
                compiled = self._compiled
                if compiled is None:
                    compiled = self._compiled = {}
        return compiled

    def bind(self, cls: type, namespace: str, array: Any) -> Callable[..., Any]:
        """Return what to call for arrays of one type, and remember it in the table."""
        from xpolicy.backends.plugins import registered

        if not registered(namespace):
            # A program that uses NumPy only never loads policies, nor pydantic.
            note(self, cls, array, self.fn)
            return self.fn
        from xpolicy.runtime import binding

        return binding.bind(self, cls, namespace, array)

    def overridden(self, namespace: str, array: Any) -> Callable[..., Any]:
        """Return what to call while overrides are active somewhere; remembered nowhere."""
        # Not by `from … import`, which takes half a microsecond at each of these calls.
        binding: Any = sys.modules.get("xpolicy.runtime.binding")
        if binding is None:
            from xpolicy.backends.plugins import registered

            if not registered(namespace):
                return self.fn
            from xpolicy.runtime import binding
        found: Callable[..., Any] = binding.overridden(self, namespace, array)
        return found

    def lower(self, /, *args: Any, **kwargs: Any) -> Any:
        """Lower the function for these arguments, ahead of the first call."""
        import xpolicy

        # By its public name: the stage ahead of time stands a floor above this one.
        return xpolicy.lower(self, *args, **kwargs)

    def trace(self, /, *args: Any, **kwargs: Any) -> Any:
        """Trace the function for these arguments, where the backend has that stage (jax)."""
        return self.lower(*args, **kwargs).traced

    def explain(self, namespace: str, *, device: str | None = None) -> Any:
        """Say where each option of the function comes from; see `xpolicy.explain`."""
        from xpolicy.runtime.explain import explain

        return explain(self, namespace, device=device)

    def stats(self) -> Any:
        """Return what was compiled for the function; see `xpolicy.stats`."""
        from xpolicy.runtime.events import stats

        return stats(self.key)

    def clear(self) -> None:
        """Drop the function's compiled variants, and its statistics."""
        from xpolicy.runtime.binding import clear

        clear(self)

    def resolve(self, namespace: str, device: str | None = None) -> ResolvedPolicy:
        """Return the function's policy in a namespace."""
        from xpolicy.runtime.session import session

        return session.resolve(self.key, namespace, self, device)
