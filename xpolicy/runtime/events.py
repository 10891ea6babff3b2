"""What happened to functions: kept for statistics, logged, and told to subscribers."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from xpolicy.backends.base import Event

logger = logging.getLogger("xpolicy")
#: Events kept for each function and namespace; counts go on beyond that.
KEPT = 100

_lock = threading.Lock()
_records: dict[tuple[str, str], Record] = {}
_subscribers: list[Callable[[Event], None]] = []
#: How long the last compilation took, in seconds. Kept when statistics are dropped: what
#: takes long after `clear` is what took long before it.
_last: dict[tuple[str, str], float] = {}
_WARNING = frozenset({"fallback", "limit"})


@dataclass
class Record:
    """Statistics of one function in one namespace. Calls are not counted.

    Attributes
    ----------
    key, namespace : str
        Which function, for which namespace.
    counts : Counter
        How many events of each kind: ``compile`` for each variant; ``recompile`` besides,
        with the reason, for each after the first; ``graph-break``, ``fallback``, ``limit``.
    events : deque of Event
        The latest of them.
    """

    key: str
    namespace: str
    counts: Counter[str] = field(default_factory=Counter)
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=KEPT))

    @property
    def compilations(self) -> int:
        """How many variants were compiled."""
        return self.counts["compile"]

    @property
    def seconds(self) -> float:
        """Time spent compiling, as far as the kept events say, in seconds."""
        compiled = [event for event in self.events if event.kind == "compile"]
        return float(sum(event.details.get("seconds") or 0.0 for event in compiled))

    def as_dict(self) -> dict[str, Any]:
        """Return the record as plain data."""
        return {
            "function": self.key,
            "namespace": self.namespace,
            "counts": dict(self.counts),
            "events": [{"kind": e.kind, "message": e.message, **e.details} for e in self.events],
        }


def publish(event: Event) -> None:
    """Record an event, log it, and tell subscribers."""
    with _lock:
        record = _records.setdefault(
            (event.key, event.namespace), Record(event.key, event.namespace)
        )
        record.counts[event.kind] += 1
        record.events.append(event)
        if event.kind == "compile" and event.details.get("seconds"):
            _last[event.key, event.namespace] = float(event.details["seconds"])
        listeners = tuple(_subscribers)
    level = logging.WARNING if event.kind in _WARNING else logging.INFO
    logger.log(level, "%s [%s]: %s", event.key, event.namespace, _line(event))
    for listener in listeners:
        listener(event)


def _line(event: Event) -> str:
    """Return what happened in one line, without the names that stand before it in the log."""
    first, *more = event.message.splitlines() or [""]
    for prefix in (f"{event.key} for {event.namespace} ", f"{event.key} ", f"{event.key}: "):
        first = first.removeprefix(prefix)
    details = event.details
    if event.kind == "recompile":
        limit = details.get("limit")
        of = "" if limit is None else f" of {limit}"
        return f"recompiled (variant {details.get('variants', '?')}{of}): {first}"
    if event.kind == "graph-break":
        return f"graph break at {first}"
    changed = details.get("changed")
    return f"{first}; {'; '.join(changed)}" if more and changed else first


def announce(key: str, namespace: str) -> None:
    """Log that a compilation begins: a first one can take many seconds."""
    seconds = _last.get((key, namespace))
    last = "" if seconds is None else f" ({seconds:.2g} s last time)"
    logger.info("compiling %s for %s%s", key, namespace, last)


def subscribe(listener: Callable[[Event], None]) -> Callable[[], None]:
    """Call a function with every `Event` from now on.

    Parameters
    ----------
    listener : callable
        Takes one event. What it raises reaches the caller of the function whose
        compilation caused the event.

    Returns
    -------
    callable
        Call it to stop listening.
    """
    with _lock:
        _subscribers.append(listener)

    def stop() -> None:
        with _lock:
            if listener in _subscribers:
                _subscribers.remove(listener)

    return stop


class Stats:
    """Statistics of some functions, by function and namespace."""

    def __init__(self, records: list[Record]) -> None:
        self._records = records

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, namespace: str) -> Record:
        """Return the record of a namespace; an empty one if nothing happened there."""
        for record in self._records:
            if record.namespace == namespace:
                return record
        return Record(self._records[0].key if self._records else "", namespace)

    @property
    def compilations(self) -> int:
        """How many variants were compiled in all."""
        return sum(record.compilations for record in self._records)

    def as_dict(self) -> list[dict[str, Any]]:
        """Return the records as plain data."""
        return [record.as_dict() for record in self._records]

    def __str__(self) -> str:
        if not self._records:
            return "nothing was compiled"
        lines = []
        for record in self._records:
            told = ", ".join(f"{count} {kind}" for kind, count in sorted(record.counts.items()))
            lines.append(f"{record.key} [{record.namespace}]: {told}, {record.seconds:.2f} s")
        return "\n".join(lines)

    __repr__ = __str__


def stats(key: str | None = None) -> Stats:
    """Return the statistics of one function, or of all."""
    with _lock:
        # Copies: other threads go on adding to what is kept here.
        found = [record for name, record in sorted(_records.items()) if key in (None, name[0])]
        return Stats(
            [
                replace(record, counts=Counter(record.counts), events=deque(record.events, KEPT))
                for record in found
            ]
        )


def forget(key: str | None = None) -> None:
    """Drop the statistics of one function, or of all."""
    with _lock:
        for name in [name for name in _records if key in (None, name[0])]:
            del _records[name]
