"""A pytest plugin: array-api-extra's functions under the compilers alone.

What a test fails with here, it fails with because of the compiler: there is no code of
xpolicy's between the two. The functions are those that xpolicy would put under policy.
torch gets ``fullgraph`` and its cheap backend, jax the same static arguments that the
policy file names: those, and what is neither an array nor a number.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import xpolicy
from benchmarks.suite.modes import mode_of
from benchmarks.suite.recorder import COMPILED
from xpolicy.runtime.entry import entries

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

PACKAGE = "array_api_extra"


class _Running:
    """What runs now; modules' own globals would be guarded by dynamo."""

    mode: str | None = None
    item: pytest.Item | None = None


def pytest_configure() -> None:
    """Wrap the functions, wherever the library names them."""
    application = xpolicy.apply(PACKAGE)
    keys = set(application.keys)
    found = {entry.key: entry.fn for entry in entries() if entry.key in keys}
    application.undo()
    text = Path(os.environ["SUITE_POLICY"]).read_text(encoding="utf-8")
    tables = tomllib.loads(text)["functions"]
    wrapped: dict[int, Callable[..., Any]] = {}
    for key, function in found.items():
        names = tables.get(key, {}).get("jax", {}).get("static-argnames", ())
        wrapped[id(function)] = _wrapped(function, frozenset(names))
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == PACKAGE:
            for attribute, value in list(vars(module).items()):
                if id(value) in wrapped:
                    setattr(module, attribute, wrapped[id(value)])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Compile in the test's mode, from a fresh start."""
    _Running.mode, _Running.item = mode_of(item), item
    if "torch" in sys.modules:
        sys.modules["torch"]._dynamo.reset()
    try:
        return (yield)
    finally:
        _Running.mode = _Running.item = None


def _wrapped(function: Callable[..., Any], static: frozenset[str]) -> Callable[..., Any]:
    signature = inspect.signature(function)
    compiled: dict[Any, Callable[..., Any]] = {}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        torch: Any = sys.modules.get("torch")
        if torch is not None and torch.compiler.is_compiling():
            return function(*args, **kwargs)
        leaves = list(_leaves((args, kwargs)))
        compiler = _compiler(leaves) if _Running.mode in ("compile", "fullgraph") else None
        if compiler is None:
            return function(*args, **kwargs)
        assert _Running.item is not None
        _Running.item.stash[COMPILED] = True
        if compiler == "torch":
            strict = _Running.mode == "fullgraph"
            if strict not in compiled:
                compiled[strict] = torch.compile(function, backend="eager", fullgraph=strict)
            return compiled[strict](*args, **kwargs)
        places, names = _static(signature, static, args, kwargs)
        if (places, names) not in compiled:
            import jax

            compiled[places, names] = jax.jit(
                function, static_argnums=places, static_argnames=names
            )
        return compiled[places, names](*args, **kwargs)

    return call


def _leaves(value: Any, depth: int = 0) -> Iterator[Any]:
    # Some of the tests hand over a list that holds itself.
    if isinstance(value, list | tuple) and depth < 4:
        for one in value:
            yield from _leaves(one, depth + 1)
    elif isinstance(value, dict) and depth < 4:
        yield from _leaves(list(value.values()), depth + 1)
    else:
        yield value


def _compiler(leaves: list[Any]) -> str | None:
    """Return whose arrays are among the arguments; None under somebody's trace."""
    jax: Any = sys.modules.get("jax")
    torch: Any = sys.modules.get("torch")
    if torch is not None and any(isinstance(leaf, torch.Tensor) for leaf in leaves):
        return "torch"
    if jax is None or any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        return None
    return "jax" if any(isinstance(leaf, jax.Array) for leaf in leaves) else None


def _static(
    signature: inspect.Signature, names: frozenset[str], args: tuple[Any, ...], kwargs: Any
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return which arguments jax is to take as constants, by place and by name."""
    parameters = list(signature.parameters.values())
    places = []
    for place, value in enumerate(args):
        variadic = place >= len(parameters) or parameters[place].kind.name == "VAR_POSITIONAL"
        name = None if variadic else parameters[place].name
        if name in names or _is_constant(value):
            places.append(place)
    chosen = sorted(n for n, value in kwargs.items() if n in names or _is_constant(value))
    return tuple(places), tuple(chosen)


def _is_constant(value: Any) -> bool:
    import jax
    import numpy as np

    numbers = (int, float, complex, np.ndarray, np.generic, jax.Array)
    return any(
        isinstance(leaf, bool) or not (leaf is None or isinstance(leaf, numbers))
        for leaf in _leaves(value)
    )
