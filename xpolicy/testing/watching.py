"""See what the compilers do while some code runs: their own events, nothing simulated."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xpolicy.backends.torch.private import forget_all_sizes_seen
from xpolicy.runtime.binding import clear
from xpolicy.runtime.detect import namespace_of
from xpolicy.runtime.entry import Entry, entries
from xpolicy.runtime.events import subscribe
from xpolicy.runtime.session import find, session
from xpolicy.testing.computing import see_computing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Self

    from xpolicy.backends.base import Event

    Function = Callable[..., Any] | str


@dataclass
class Seen:
    """What the compiler did to one function in one namespace.

    Attributes
    ----------
    key, namespace : str
        Which function, for which namespace.
    compilations : list of str
        The signature of each variant that was compiled.
    recompilations : list of str
        Why each variant after the first was needed: which argument changed, and how.
    breaks : dict of (str, int) to str
        The reason of each distinct graph break, by file and line.
    fallback : str or None
        Why the function ran uncompiled though it was to be compiled.
    limited : list of str
        What was said when a limit was met.
    computations : list of (str, int)
        The file and line of each computation of a lazy dask array.
    """

    key: str
    namespace: str
    compilations: list[str] = field(default_factory=list)
    recompilations: list[str] = field(default_factory=list)
    breaks: dict[tuple[str, int], str] = field(default_factory=dict)
    fallback: str | None = None
    limited: list[str] = field(default_factory=list)
    computations: list[tuple[str, int]] = field(default_factory=list)

    def take(self, event: Event) -> None:
        """Note one event of this function."""
        details = event.details
        if event.kind == "compile":
            self.compilations.append(str(details.get("signature") or event.message))
        elif event.kind == "recompile":
            self.recompilations.append(cause(event))
        elif event.kind == "graph-break":
            place = (str(details.get("file") or "?"), int(details.get("line") or 0))
            self.breaks.setdefault(place, str(details.get("reason") or event.message))
        elif event.kind == "fallback":
            self.fallback = str(details.get("reason") or event.message)
        elif event.kind == "limit":
            self.limited.append(event.message)


def cause(event: Event) -> str:
    """Return why a variant was needed: which argument changed, else the compiler's words."""
    details = event.details
    told = details.get("changed") or details.get("reasons") or [details.get("reason")]
    return "; ".join(str(part) for part in told if part) or event.message


class watch:  # noqa: N801  # a context manager that is called like a function
    """See what is compiled inside a ``with`` block, from a fresh start.

    Compiled variants that exist are dropped first, so that what is seen does not depend
    on what ran before. Every thread's compilations are seen.

    Parameters
    ----------
    *functions : callable or str
        Decorated functions or function keys; none for all.

    Examples
    --------
    >>> import torch, xpolicy
    >>> from xpolicy.testing import watch
    >>> @xpolicy.compile(name="mylib.double", torch={"backend": "eager"})
    ... def double(x):
    ...     return 2 * x
    >>> with watch(double) as seen:
    ...     _ = double(torch.ones(2))
    >>> seen["mylib.double", "torch"].compilations
    ['x: float32[2]']
    """

    def __init__(self, *functions: Function) -> None:
        self._keys = {find(function)[0] for function in functions}
        self._seen: dict[tuple[str, str], Seen] = {}
        self._stops: list[Callable[[], None]] = []
        #: kept until the block ends, so that functions made in it can be asked about
        self._alive: dict[str, Entry] = {}

    def __enter__(self) -> Self:
        forget_compiled(self._keys)
        self._stops = [subscribe(self._take), see_computing(self._computed)]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for stop in self._stops:
            stop()

    def __getitem__(self, name: tuple[str, str]) -> Seen:
        """Return what was seen of a function, by key and namespace."""
        return self._seen.get(name) or Seen(*name)

    def __iter__(self) -> Iterator[Seen]:
        """Yield what was seen, by key and namespace."""
        yield from (self._seen[name] for name in sorted(self._seen))

    def _take(self, event: Event) -> None:
        if self._keys and event.key not in self._keys:
            return
        name = (event.key, event.namespace)
        if event.key not in self._alive:
            entry = find(event.key)[1]
            if entry is not None:
                self._alive[event.key] = entry
        # One dictionary operation: other threads compile, too.
        self._seen.setdefault(name, Seen(*name)).take(event)

    def _computed(self, entry: Entry, file: str, line: int) -> None:
        if self._keys and entry.key not in self._keys:
            return
        self._alive[entry.key] = entry
        name = (entry.key, "dask")
        self._seen.setdefault(name, Seen(*name)).computations.append((file, line))

    def called(self) -> dict[tuple[str, str], Entry]:
        """Return the functions that ran under a policy in the block, compiled or not.

        Calls inside an `xpolicy.override` of a context's own are known by their events
        only. Calls with tracers of jax don't count: there the outer function's compiling
        decides, and no policy of the inner one is applied.
        """
        found = {name: entry for name, entry, traced in _called() if not traced}
        for key, namespace in self._seen:
            if key in self._alive:
                found.setdefault((key, namespace), self._alive[key])
        return found if not self._keys else {n: e for n, e in found.items() if n[0] in self._keys}

    def only_traced(self) -> set[tuple[str, str]]:
        """Return the functions that ran under somebody else's trace and not else."""
        return {name for name, _, traced in _called() if traced} - self.called().keys()


def _called() -> Iterator[tuple[tuple[str, str], Entry, bool]]:
    """Yield what ran since the tables were empty, and whether with a tracer of jax."""
    jax: Any = sys.modules.get("jax")
    for entry in entries():
        for kept, verdict in tuple(entry.table.items()):
            # A pair of parentheses marks what does not decide before torch and jax.
            cls = kept[0] if type(kept) is tuple else kept
            # 0 and None are no arrays, or arrays that no policy was asked for.
            if verdict is False or verdict:
                namespace = namespace_of(cls)
                if namespace is not None:
                    traced = namespace == "jax" and issubclass(cls, jax.core.Tracer)
                    yield (entry.key, namespace), entry, traced


def forget_compiled(keys: set[str]) -> None:
    """Drop the compiled variants of some functions, or of all if there are no keys."""
    for entry in entries():
        if entry.compiled and (not keys or entry.key in keys):
            clear(entry)
    forget_all_sizes_seen()
    # Which functions ran is told by the tables; they start empty.
    session.changed()
