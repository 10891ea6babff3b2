"""What a call of a decorated function costs over a call of the function.

The function returns None, and its policy is eager, so nothing but dispatch is measured.
Beside it stands the cheapest decorator that takes every signature::

    def bare(*args, **kwargs):
        return function(*args, **kwargs)

Undecorated, bare and decorated calls are measured in turn, round after round, and the
overhead of a round is over the undecorated calls of the same round: on a shared machine
the times wander by half, the ratios by a few per cent.
"""

from __future__ import annotations

import gc
import statistics
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
import torch

import xpolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Case", "Cost", "cases", "measure"]


@dataclass(frozen=True)
class Case:
    """One form of call.

    Parameters
    ----------
    name : str
        What the table calls it.
    function : callable
        The undecorated function.
    args, kwargs : tuple, dict
        The call.
    bar : float or None
        What the ratio must not exceed; None where none was promised.
    """

    name: str
    function: Callable[..., None]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] | None = None
    bar: float | None = None


@dataclass(frozen=True)
class Cost:
    """Medians over the rounds of one case.

    Parameters
    ----------
    name : str
        The case's.
    raw : float
        Nanoseconds of an undecorated call.
    bare, decorated : float
        Nanoseconds that the bare forwarder and xpolicy add to it.
    ratio : float
        Median over the rounds of ``decorated / bare``.
    bar : float or None
        The case's.
    """

    name: str
    raw: float
    bare: float
    decorated: float
    ratio: float
    bar: float | None


def one(x: Any) -> None: ...
def two(x: Any, y: Any) -> None: ...
def three(x: Any, y: Any, z: Any) -> None: ...
def four(x: Any, y: Any, z: Any, w: Any) -> None: ...
def by_keyword(x: Any, *, k: Any) -> None: ...
def with_defaults(x: Any, n: int = 1, *, axis: int | None = None) -> None: ...
def starred(*args: Any, **kwargs: Any) -> None: ...


def cases() -> Iterator[Case]:
    """Yield the calls that are measured."""
    numpy = np.ones(3)
    for name, array, bar in (
        ("torch", torch.ones(3), 1.0),
        ("jax", jnp.ones(3), 1.0),
        ("numpy", numpy, 1.5),
    ):
        for count, function in enumerate((one, two, three, four), 1):
            yield Case(f"{name}, {count} positional", function, (array,) * count, bar=bar)
        yield Case(f"{name}, by keyword", two, (array,), {"y": array}, bar)
        yield Case(f"{name}, keyword-only", by_keyword, (array,), {"k": array}, bar)
        yield Case(f"{name}, defaults omitted", with_defaults, (array,))
        yield Case(f"{name}, one default given", with_defaults, (array,), {"axis": 1}, bar)
        yield Case(f"{name}, *args", starred, (array, array))
    yield Case("numpy, then torch", two, (numpy, torch.ones(3)), bar=1.5)
    yield Case("numpy, then a tuple", two, (numpy, (0, 1)), bar=1.5)
    yield Case("no array", two, (1, 2.0))
    yield Case("list of 2 torch", one, ([torch.ones(3)] * 2,))
    yield Case("dict of 20 torch", one, ({str(i): torch.ones(3) for i in range(20)},))
    yield Case("list of 1,000 floats", one, ([1.0] * 1000,))


def measure(case: Case, *, calls: int = 2000, rounds: int = 51) -> Cost:
    """Measure one case.

    Parameters
    ----------
    case : Case
        What to call.
    calls : int
        Calls of each kind in a round.
    rounds : int
        Rounds that the medians are over.
    """
    result: list[Cost] = []
    # In a thread of its own: CPython keeps Python frames in chunks of 16 kB, and a loop
    # whose call happens to cross the end of one allocates and frees a chunk each time
    # (1 µs). A new thread begins a chunk.
    thread = threading.Thread(target=lambda: result.append(_measure(case, calls, rounds)))
    thread.start()
    thread.join()
    return result[0]


def _measure(case: Case, calls: int, rounds: int) -> Cost:
    function = case.function

    def bare(*args: Any, **kwargs: Any) -> None:
        return function(*args, **kwargs)

    kinds = [function, bare, xpolicy.compile(function, mode="eager")]
    run = _loop(case)
    repeat = range(calls)
    for kind in kinds:  # the first calls resolve the policy, and specialise the bytecode
        run(kind, repeat, case.args, case.kwargs or {})
    times: list[list[float]] = [[], [], []]
    gc.collect()
    gc.disable()
    try:
        for index in range(rounds):
            for place in range(3):
                kind = (index + place) % 3
                start = time.perf_counter_ns()
                run(kinds[kind], repeat, case.args, case.kwargs or {})
                times[kind].append((time.perf_counter_ns() - start) / calls)
    finally:
        gc.enable()
    raw, bare_times, decorated_times = times
    over_bare = [a - b for a, b in zip(bare_times, raw, strict=True)]
    over = [a - b for a, b in zip(decorated_times, raw, strict=True)]
    ratios = [a / b for a, b in zip(over, over_bare, strict=True)]
    return Cost(
        case.name,
        statistics.median(raw),
        statistics.median(over_bare),
        statistics.median(over),
        statistics.median(ratios),
        case.bar,
    )


def _loop(case: Case) -> Callable[..., None]:
    """Write the loop around the call as a program would have it: no star, no partial."""
    names = [f"a{index}" for index in range(len(case.args))]
    keywords = list(case.kwargs or {})
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
