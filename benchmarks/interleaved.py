"""Times of several callables for the same call, measured in turn.

On a shared machine the times wander by half, the ratios of neighbours by a few per cent:
so every kind is called in every round, and what is compared is of the same round.
"""

from __future__ import annotations

import contextvars
import gc
import random
import statistics
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["Row", "bare", "row", "times"]

SLICE = 500_000
"""Nanoseconds that one kind is called for at most before the next has its turn."""


@dataclass(frozen=True)
class Row:
    """Medians over the rounds of one case.

    Parameters
    ----------
    name : str
        The case's.
    raw : float
        Nanoseconds of the call without any decorator.
    added : dict of str to float
        Nanoseconds that each kind (``"bare"``, ``"xpolicy"``, a peer) adds to it.
    ratios : dict of str to float
        What xpolicy adds, over what each other kind adds; under ``"raw"`` the whole call
        through xpolicy over the whole raw call.
    bars : dict of str to float
        What a ratio must not exceed, where something was promised.
    """

    name: str
    raw: float
    added: dict[str, float]
    ratios: dict[str, float]
    bars: dict[str, float] = field(default_factory=dict)

    def above(self) -> list[str]:
        """Return the kinds whose ratio is above its bar."""
        return [kind for kind, bar in self.bars.items() if self.ratios.get(kind, 0.0) > bar]


def bare(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the cheapest decorator that takes every signature."""

    def forward(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return forward


def row(
    name: str,
    kinds: Mapping[str, Callable[..., Any]],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    bars: Mapping[str, float],
    *,
    calls: int,
    rounds: int,
) -> Row:
    """Measure one call; `kinds` holds ``"raw"``, ``"xpolicy"`` and what they stand beside.

    Kinds that differ by a number at the end (``"raw 2"``) are of one sort: in each round
    their median counts. Of two torch functions compiled from the same text one is slower
    by 1 to 3 % as long as the process lives, which one is chance.
    """
    each = times(kinds, args, kwargs, calls=calls, rounds=rounds)
    sorts: dict[str, list[list[float]]] = {}
    for kind, values in each.items():
        sorts.setdefault(kind.rstrip(" 0123456789"), []).append(values)
    found = {
        sort: [statistics.median(turn) for turn in zip(*values, strict=True)]
        for sort, values in sorts.items()
    }
    raw = found.pop("raw")
    over = {kind: [a - b for a, b in zip(mine, raw, strict=True)] for kind, mine in found.items()}
    added = {kind: statistics.median(values) for kind, values in over.items()}
    # Of medians: in a single round a compiled call may wander by more than what is added.
    ratios = {kind: added["xpolicy"] / added[kind] for kind in added if kind != "xpolicy"}
    ratios["raw"] = statistics.median(a / b for a, b in zip(found["xpolicy"], raw, strict=True))
    return Row(
        name,
        statistics.median(raw),
        added,
        ratios,
        {kind: bar for kind, bar in bars.items() if kind in ratios},
    )


def times(
    kinds: Mapping[str, Callable[..., Any]],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    calls: int,
    rounds: int,
) -> dict[str, list[float]]:
    """Return nanoseconds a call, a list over the rounds for each kind."""
    result: list[dict[str, list[float]]] = []
    # In a thread of its own: CPython keeps Python frames in chunks of 16 kB, and a loop
    # whose call happens to cross the end of one allocates and frees a chunk each time
    # (1 µs). A new thread begins a chunk. It takes the caller's overrides along.
    context = contextvars.copy_context()
    thread = threading.Thread(
        target=lambda: result.append(context.run(_times, kinds, args, kwargs, calls, rounds))
    )
    thread.start()
    thread.join()
    return result[0]


def _times(
    kinds: Mapping[str, Callable[..., Any]],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    calls: int,
    rounds: int,
) -> dict[str, list[float]]:
    run = _loop(len(args), list(kwargs))
    counts: dict[str, int] = {}
    for kind, function in kinds.items():
        # The first calls compile, resolve the policy, and specialise the bytecode.
        run(function, range(calls), args, kwargs)
        took = min(_took(run, function, range(5), args, kwargs) for _ in range(5)) / 5
        # What takes longer than a scheduler's slice is interrupted in every round on a busy
        # machine, and the median with it.
        counts[kind] = max(1, min(calls, int(SLICE / max(took, 1.0))))
    order = list(kinds)
    found: dict[str, list[float]] = {kind: [] for kind in order}
    # A slow kind leaves cold caches to the one after it: each comes after each other.
    shuffle = random.Random(0).shuffle
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            shuffle(order)
            for kind in order:
                repeat = range(counts[kind])
                took = _took(run, kinds[kind], repeat, args, kwargs)
                found[kind].append(took / len(repeat))
    finally:
        gc.enable()
    return found


def _took(run: Callable[..., None], *what: Any) -> float:
    start = time.perf_counter_ns()
    run(*what)
    return time.perf_counter_ns() - start


def _loop(count: int, keywords: list[str]) -> Callable[..., None]:
    """Write the loop around the call as a program would have it: no star, no partial."""
    names = [f"a{index}" for index in range(count)]
    lines = [
        "def run(function, repeat, args, kwargs):",
        *(f"    {name} = args[{index}]" for index, name in enumerate(names)),
        *(f"    {name} = kwargs[{name!r}]" for name in keywords),
        "    for _ in repeat:",
        f"        function({', '.join(names + [f'{name}={name}' for name in keywords])})",
    ]
    scope: dict[str, Any] = {}
    exec("\n".join(lines), scope)
    run: Callable[..., None] = scope["run"]
    return run
