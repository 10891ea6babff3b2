"""What a call of a decorated function costs over a call of the function.

The function returns None, and its policy is eager, so nothing but dispatch is measured.
Beside it stands the cheapest decorator that takes every signature::

    def bare(*args, **kwargs):
        return function(*args, **kwargs)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
import torch

import xpolicy
from benchmarks.interleaved import Row, bare, row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Case", "cases", "measure"]


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


def measure(case: Case, *, calls: int = 2000, rounds: int = 51) -> Row:
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
    kinds = {
        "raw": case.function,
        "bare": bare(case.function),
        "xpolicy": xpolicy.compile(case.function, mode="eager"),
    }
    bars = {} if case.bar is None else {"bare": case.bar}
    return row(case.name, kinds, case.args, case.kwargs or {}, bars, calls=calls, rounds=rounds)
