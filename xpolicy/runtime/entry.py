"""One decorated function: what its author said, and the callables made for it."""

from __future__ import annotations

from _thread import RLock
from _weakref import ref

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
    for reference in tuple(_entries):
        entry = reference()
        if entry is not None:
            yield entry


def _gone(reference: ref[Entry]) -> None:
    _entries.pop(reference, None)


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
        "compiled",
        "file",
        "fn",
        "key",
        "line",
        "lock",
        "options",
        "package",
        "table",
    )

    def __init__(
        self, fn: Callable[..., Any], key: str, options: Mapping[str, Any], file: str, line: int
    ) -> None:
        self.fn = fn
        self.key = key
        self.options = options
        self.file = file
        self.line = line
        module = getattr(fn, "__module__", None) or key
        self.package = module.partition(".")[0]
        #: type of the deciding array -> what to call; owned by the dispatcher.
        self.table: dict[type, Any] = {}
        #: (namespace, fingerprint, compiler's version) -> compiled callable
        self.compiled: dict[tuple[str, str, str], Callable[..., Any]] = {}
        #: Held while a callable is made, never while user code runs.
        self.lock = RLock()
        _entries[ref(self, _gone)] = None

    def bind(self, cls: type, namespace: str, array: Any) -> Callable[..., Any]:
        """Return what to call for arrays of one type, and remember it in the table."""
        from xpolicy.backends.plugins import registered

        if not registered(namespace):
            # A program that uses NumPy only never loads policies, nor pydantic.
            self.table[cls] = self.fn
            return self.fn
        from xpolicy.runtime import binding

        return binding.bind(self, cls, namespace, array)

    def overridden(self, namespace: str, array: Any) -> Callable[..., Any]:
        """Return what to call while overrides are active somewhere; remembered nowhere."""
        from xpolicy.backends.plugins import registered

        if not registered(namespace):
            return self.fn
        from xpolicy.runtime import binding

        return binding.overridden(self, namespace, array)

    def lower(self, /, *args: Any, **kwargs: Any) -> Any:
        """Lower the function for these arguments, ahead of the first call."""
        import xpolicy

        # By its public name: the stage ahead of time stands a floor above this one.
        return xpolicy.lower(self, *args, **kwargs)

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
