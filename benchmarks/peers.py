"""What decorators with the same purpose add to a compiled call, and to one of NumPy's.

The compiled functions return None or add one, so the call is dispatch and little else.
Peers that are not installed have no column (``make bench`` installs them).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

import xpolicy
from benchmarks.interleaved import Row, bare, row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["PEERS", "Compiled", "cases", "installed", "measure"]

PEERS = ("array-api-jit", "autoray", "equinox", "array-api-extra")

# At most these parts of what a peer adds to raw jax.jit.
JAX_BARS = {
    "array-api-jit": 1 / 5,
    "autoray": 1 / 8,
    "equinox": 1 / 50,
    "array-api-extra": 1 / 50,
}
# At most so many times a raw call of a function compiled by torch.
TORCH_BARS = {"raw": 1.05}


@dataclass(frozen=True)
class Compiled:
    """One call of a function that every decorator compiles in its own way.

    Parameters
    ----------
    name : str
        What the table calls it.
    function : callable
        The undecorated function.
    raw : callable
        Makes what the overhead is over: ``jax.jit``, ``torch.compile``, or nothing.
    args, kwargs : tuple, dict
        The call.
    peers : tuple of str
        The peers that take such a call.
    bars : dict
        What the ratios must not exceed.
    override : dict or None
        Options that are overridden around the calls.
    options : dict
        What `xpolicy.compile` is given.
    """

    name: str
    function: Callable[..., Any]
    raw: Callable[[Any], Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    peers: tuple[str, ...] = ()
    bars: dict[str, float] = field(default_factory=dict)
    override: dict[str, Any] | None = None
    options: dict[str, Any] = field(default_factory=dict)


def installed() -> dict[str, str]:
    """Return the versions of the peers that are installed."""
    found = {}
    for name in PEERS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def decorate(peer: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function as the peer's documentation does."""
    if peer == "array-api-jit":
        from array_api_jit import jit

        return jit()(function)
    if peer == "autoray":
        from autoray import autojit

        return autojit(function)
    if peer == "equinox":
        import equinox

        return equinox.filter_jit(function)
    # It has no public name in 0.11: `array_api_extra.testing` uses it.
    from array_api_extra._lib._helpers import jax_autojit

    return jax_autojit(function)


def nothing(x: Any) -> None: ...
def nothing_of_three(x: Any, y: Any, z: Any) -> None: ...
def nothing_by_keyword(x: Any, *, k: Any) -> None: ...
def with_a_string(x: Any, how: str) -> None: ...
def add_one(x: Any) -> Any:
    return x + 1


def add_three(x: Any, y: Any, z: Any) -> Any:
    return x + y + z


COPIES = 4
"""Functions of a sort that torch compiles; see `interleaved.row`."""


def undecorated(function: Any) -> Any:
    return function


def cases() -> Iterator[Compiled]:
    """Yield the calls that are measured."""
    x = jnp.ones(3)
    many = {str(index): x for index in range(20)}
    # jax.jit keeps its variants with the function itself: each row has one of its own,
    # which `measure` makes.
    jit, all_ = jax.jit, PEERS
    yield Compiled("jax.jit, 1 array", nothing, jit, (x,), peers=all_, bars=JAX_BARS)
    yield Compiled("jax.jit, 3 arrays", nothing_of_three, jit, (x, x, x), {}, all_, JAX_BARS)
    yield Compiled("jax.jit, keyword-only", nothing_by_keyword, jit, (x,), {"k": x}, all_, JAX_BARS)
    # array_namespace, and so array-api-jit, finds no array in a dict; autoray neither.
    part = ("equinox", "array-api-extra")
    yield Compiled("jax.jit, dict of 20", nothing, jit, (many,), peers=part)
    # array-api-jit takes no string, and autoray none that is no array.
    by_name, auto = functools.partial(jit, static_argnames="how"), {"jax": {"static": "auto"}}
    for told, options in (("named", {"jax": {"static_argnames": ["how"]}}), ("auto", auto)):
        yield Compiled(
            f"jax.jit, static {told}",
            with_a_string,
            by_name,
            (x, "left"),
            {},
            part,
            options=options,
        )
    yield Compiled("jax.jit, inside override", nothing, jit, (x,), override={"on_failure": "error"})
    t = torch.ones(64)
    one = ("array-api-jit",)
    yield Compiled("torch inductor, 1 array", add_one, torch.compile, (t,), {}, one, TORCH_BARS)
    yield Compiled(
        "torch inductor, 3 arrays", add_three, torch.compile, (t, t, t), {}, one, TORCH_BARS
    )
    yield Compiled(
        "torch inductor, in override",
        add_one,
        torch.compile,
        (t,),
        override={"on_failure": "error"},
    )
    yield Compiled("numpy no-op", nothing, undecorated, (np.ones(3),), peers=one)


def measure(case: Compiled, *, calls: int = 50, rounds: int | None = None) -> Row:
    """Measure one case beside the peers that are installed.

    A round of a torch call wanders by more than what is asked about: 601 of them tell 4
    from 5 %, where 201 are enough for jax.
    """
    torchs = case.raw is torch.compile
    if rounds is None:
        rounds = 601 if torchs else 201

    def own() -> Callable[..., Any]:
        # Neither compiler may find what another kind compiled.
        original = case.function
        code = original.__code__.replace(co_name=original.__name__)
        made = type(original)(code, original.__globals__, original.__name__)
        made.__kwdefaults__ = original.__kwdefaults__
        return made

    raw = case.raw(own())
    kinds = {"raw": raw, "bare": bare(raw), "xpolicy": xpolicy.compile(own(), **case.options)}
    present = installed()
    kinds |= {peer: decorate(peer, own()) for peer in case.peers if peer in present}
    if torchs:
        for number in range(2, COPIES + 1):
            kinds[f"raw {number}"] = case.raw(own())
            kinds[f"xpolicy {number}"] = xpolicy.compile(own(), **case.options)

    def run() -> Row:
        return row(case.name, kinds, case.args, case.kwargs, case.bars, calls=calls, rounds=rounds)

    if case.override is None:
        return run()
    with xpolicy.override(**case.override):
        return run()
