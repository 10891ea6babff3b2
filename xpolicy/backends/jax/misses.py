"""The one file that uses what jax keeps to itself: a hook on cache misses.

``jax.jit`` returns an object whose hits are handled in C++ and whose misses call a Python
function. The object can be rebuilt from its pickling state with another function for
misses, so that limits, failures and events cost hits nothing at all. Where that isn't
possible, `wrapped` does the same with public means, for one Python call a hit.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

#: ``(args, kwargs, proceed) -> result``: what happens instead of compiling at once.
Miss = Callable[[tuple[Any, ...], dict[str, Any], Callable[..., Any]], Any]


def hooked(jitted: Any, miss: Miss) -> Callable[..., Any]:
    """Return ``jitted`` with ``miss`` in front of whatever is no hit.

    Parameters
    ----------
    jitted : callable
        What ``jax.jit`` returned. It must not be called by anybody else: the two share
        jax's cache.
    miss : callable
        Takes the arguments and ``proceed``, which does what jax would have done.
    """
    return _rebuilt(jitted, miss) if hook_works() else wrapped(jitted, miss)


def _rebuilt(jitted: Any, miss: Miss) -> Callable[..., Any]:
    state = dict(jitted.__getstate__())
    original = state["cache_miss"]

    def cache_miss(*args: Any, **kwargs: Any) -> Any:
        answer: list[Any] = []

        def proceed(*args: Any, **kwargs: Any) -> Any:
            answer[:] = [original(*args, **kwargs)]
            return answer[0][0]

        result = miss(args, kwargs, proceed)
        if answer and answer[0][0] is result:
            return answer[0]
        # No data for the fast path: the next call of this kind comes here again.
        return result, None, False

    state["cache_miss"] = cache_miss
    kind: Any = type(jitted)
    rebuilt = kind.__new__(kind)
    rebuilt.__setstate__(state)
    functools.update_wrapper(rebuilt, jitted)
    rebuilt.__dict__.update(jitted.__dict__)  # what `.lower` and `.trace` read
    return rebuilt  # type: ignore[no-any-return]


def wrapped(jitted: Any, miss: Miss) -> Callable[..., Any]:
    """Return what `hooked` does, by public means: ``miss`` sees every call, hit or not."""

    @functools.wraps(jitted)
    def call(*args: Any, **kwargs: Any) -> Any:
        return miss(args, kwargs, jitted)

    return call


@functools.cache
def hook_works() -> bool:
    """Return whether this jax can be hooked, by trying all that we rely on.

    In a thread of its own: the first call of all may come from inside somebody's trace, or
    under ``jax.disable_jit()``, and both are a thread's own affair.
    """
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(_try_hook()), name="xpolicy-jax-probe")
    thread.start()
    thread.join()
    return answers == [True]


def _try_hook() -> bool:
    seen = []

    def probe(x: Any) -> Any:
        return x

    def miss(args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Callable[..., Any]) -> Any:
        seen.append(kwargs)
        return "bypassed" if kwargs else proceed(*args)

    try:
        call = _rebuilt(jax.jit(probe), miss)
        with jax.disable_jit(False):
            results = [call(1), call(1), call(x=1), call(x=1), call(1)]
    except (AttributeError, KeyError, TypeError):
        return False
    as_expected = [result if result == "bypassed" else int(result) for result in results]
    return as_expected == [1, 1, "bypassed", "bypassed", 1] and len(seen) == 3


def under_trace() -> bool:
    """Return whether somebody else is tracing in this thread, whatever the arguments are."""
    clean = _trace_state_clean()
    if clean is not None:
        return not clean() or _in_transposition()
    # Staging out makes a tracer of any operation, also of one without arguments.
    return isinstance(jnp.zeros(()), jax.core.Tracer)


def any_tracer(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether some argument, at any depth, belongs to a trace."""
    tracer = jax.core.Tracer
    return any(isinstance(leaf, tracer) for leaf in jax.tree_util.tree_leaves((args, kwargs)))


def body_is_traced(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether jax traces a body, and doesn't just run it.

    It runs it under ``jax.disable_jit()``, and again after ``jax.debug_nans`` found one.
    """
    return any_tracer(args, kwargs) or under_trace()


@functools.cache
def _trace_state_clean() -> Callable[[], bool] | None:
    try:
        from jax._src import core
    except ImportError:
        return None
    return getattr(core, "trace_state_clean", None)


def _in_transposition() -> bool:
    """Return whether a backward pass calls us with concrete values, as an eager gradient does.

    Its rules see no tracer and a clean trace state. But jax runs each under the mesh of
    its equation: the empty one, where outside of any rule there is none at all. The two
    are different keys to jax, so the call would be traced again and counted as a variant.
    """
    setting = _mesh_setting()
    mesh = None if setting is None else setting.value
    return mesh is not None and bool(getattr(mesh, "empty", False))


@functools.cache
def _mesh_setting() -> Any:
    try:
        from jax._src import config
    except ImportError:
        return None
    return getattr(config, "abstract_mesh_context_manager", None)


class _Token:
    """Lives as long as jax's tracing cache holds it."""


class _Carrier:
    """A pytree whose structure holds a token, and jax's caches hold structures."""

    def __init__(self, token: _Token) -> None:
        self.token = token


jax.tree_util.register_pytree_node(
    _Carrier, lambda carrier: ((), carrier.token), lambda token, _children: _Carrier(token)
)


class Canary:
    """Dies when ``jax.clear_caches()`` is called.

    jax tells nobody that its caches were cleared. What it traced is kept by its caches
    alone, so a token in the structure of a traced result dies with them.
    """

    __slots__ = ("_bird", "_token")

    def __init__(self) -> None:
        held = [_Token()]
        self._token = weakref.ref(held[0])

        def sing() -> _Carrier:
            return _Carrier(held[0])

        self._bird = jax.jit(sing)  # the cache entry goes with the function that it is for
        jax.eval_shape(self._bird)
        held.clear()

    def alive(self) -> bool:
        """Return whether jax's caches are the ones that this was made with."""
        return self._token() is not None
