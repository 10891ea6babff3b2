"""Run one function as its users will: inside jax.jit, torch.compile, or a dask graph."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from xpolicy._origin import Origin
from xpolicy.backends.base import Event, Request
from xpolicy.backends.registry import backend_for, option_table
from xpolicy.policy.layers import Layer, Rule
from xpolicy.policy.resolve import resolve
from xpolicy.runtime.callables import FunctionType
from xpolicy.runtime.entry import Entry
from xpolicy.runtime.session import session
from xpolicy.sources.positions import located
from xpolicy.testing.budgets import break_lines, recompilation_lines
from xpolicy.testing.lifting import lifted
from xpolicy.testing.watching import Seen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["counted_on_dask", "jitted", "torch_compiled"]


class Spending:
    """What one function needs in one test, held against its budgets after each call.

    Parameters
    ----------
    key, namespace : str
        Which function, for which namespace.
    name : str
        What the function is called in its own file.
    tags : mapping
        With ``graph_breaks`` and ``compilations``; None is no limit.
    """

    def __init__(self, key: str, namespace: str, name: str, tags: Mapping[str, Any]) -> None:
        self.seen = Seen(key, namespace)
        self._name = name
        self._budgets = {what: tags.get(what) for what in ("graph_breaks", "compilations")}

    def check(self) -> None:
        """Raise if it needed more than is allowed."""
        lines: list[str] = []
        for what, told in (("graph_breaks", break_lines), ("compilations", recompilation_lines)):
            allowed = self._budgets[what]
            count = len(self.seen.breaks if what == "graph_breaks" else self.seen.compilations)
            if allowed is None or count <= allowed:
                continue
            words = what.replace("_", " ")
            lines.append(
                f"{self.seen.key} for {self.seen.namespace} needs {count} {words} in this test, "
                f"and lazy_xp_function allows {allowed}:"
            )
            lines += told(self.seen)
            lines.append(f"  to allow it: lazy_xp_function({self._name}, {what}={count})")
        if lines:
            raise AssertionError("\n".join(lines))


# --- jax ------------------------------------------------------------------------------


def jitted(function: Callable[..., Any], spending: Spending) -> Callable[..., Any]:
    """Return a function that runs inside ``jax.jit``; only jax arrays are traced.

    Everything else, in arguments and results alike, is a constant of the compiled
    program. Arrays may be inside any object. An iterator that is returned has been
    consumed.
    """
    import jax

    def body(rest: Any, *arrays: Any) -> _Result:
        args, kwargs = rest.filled(arrays)
        _tell_jax(spending, arrays, len(spending.seen.compilations))
        result = function(*args, **kwargs)
        endless = isinstance(result, Iterator)
        return _Result(*lifted(list(result) if endless else result, jax.Array), endless)

    _Result.register()
    call = jax.jit(body, static_argnums=0)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        arrays, rest = lifted((args, kwargs), jax.Array)
        result = call(rest, *arrays).value()
        spending.check()
        return result

    return run


def _tell_jax(spending: Spending, arrays: tuple[Any, ...], before: int) -> None:
    shown = ", ".join(f"{a.dtype}[{','.join(map(str, a.shape))}]" for a in arrays)
    shown = shown or "no arrays"
    seen = spending.seen
    if before:
        same = shown in seen.compilations
        why = "a constant changed" if same else f"was {seen.compilations[-1]}"
        seen.take(Event("recompile", seen.key, "jax", why, {"reason": why}))
    seen.take(Event("compile", seen.key, "jax", shown, {"signature": shown}))


class _Result:
    """What a function returned, as jax passes it out of a trace: its arrays, and the rest."""

    _registered = False

    def __init__(self, arrays: list[Any], rest: Any, iterator: bool) -> None:
        self.arrays = arrays
        self.rest = rest
        self.iterator = iterator

    def value(self) -> Any:
        """Return what the function returned."""
        value = self.rest.filled(self.arrays)
        return iter(value) if self.iterator else value

    @classmethod
    def register(cls) -> None:
        """Let jax know the class."""
        if not cls._registered:
            import jax

            jax.tree_util.register_pytree_node(
                cls,
                lambda result: (result.arrays, (result.rest, result.iterator)),
                lambda rest, arrays: cls(list(arrays), *rest),
            )
            cls._registered = True


# --- torch ----------------------------------------------------------------------------


def torch_compiled(
    function: Callable[..., Any], mode: str, spending: Spending
) -> Callable[..., Any]:
    """Return a function that runs under ``torch.compile``; what is no tensor is a constant.

    Its graphs are captured and run as they are, unless a policy names another
    ``torch.backend``. Sizes and numbers are constants, as they are for jax.
    """
    own = getattr(function, "__xpolicy__", None)
    inner = own.fn if isinstance(own, Entry) else function
    consumed = inspect.isgeneratorfunction(inner)
    key = spending.seen.key
    code = getattr(inner, "__code__", None)
    file, line = (code.co_filename, code.co_firstlineno) if code is not None else (key, 1)
    # Its author's wish, which policies may change; the mode is the test's, and holds.
    entry = Entry(inner, key, {"torch": {"backend": "eager"}}, file, line)
    forced = Rule(
        {"mode": mode, "dynamic": False, "on_failure": "error", "recompile_limit": "unset"},
        Origin("runtime", "lazy_xp_function"),
        key,
        "torch",
    )
    layers = [*session.layers_for(key, entry), Layer("runtime", "lazy_xp_function", [forced])]
    policy = resolve(layers, option_table(), key, "torch")
    backend = backend_for("torch")
    if policy.mode == "eager" or backend is None:  # `supports` says that it can't be compiled
        return function
    request = Request(
        _list_of(inner) if consumed else inner, key, policy, _taker(spending), located
    )
    call = backend.compile(request, backend.lower(policy))

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        result = call(*args, **kwargs)
        spending.check()
        return iter(result) if consumed else result

    return run


def _taker(spending: Spending) -> Callable[[Event], None]:
    return spending.seen.take


def _list_of(function: Callable[..., Any]) -> Callable[..., Any]:
    def items(*args: Any, **kwargs: Any) -> Any:
        return list(function(*args, **kwargs))

    return functools.wraps(function)(items) if isinstance(function, FunctionType) else items


# --- dask -----------------------------------------------------------------------------


def counted_on_dask(
    function: Callable[..., Any], limit: int | None, name: str
) -> Callable[..., Any]:
    """Return a function that may compute lazy arrays so often in each call, and no more.

    What is returned is computed at once, so that what is wrong is raised by the call.

    Parameters
    ----------
    function : callable
        The function.
    limit : int or None
        How often; None for any number of times.
    name : str
        What the function is called in its own file.
    """
    dask: Any = importlib.import_module("dask")  # untyped, where it is installed at all
    array = importlib.import_module("dask.array").Array

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        count = 0

        def scheduler(graph: Any, keys: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if limit is not None and count > limit:
                few = f"only up to {limit}" if limit else "no"
                raise AssertionError(
                    f"{name} called `dask.compute()` or `dask.persist()` {count} times, but "
                    f"{few} calls are allowed, each of which computes the whole graph\n"
                    f"  to allow it: lazy_xp_function({name}, allow_dask_compute={count})"
                )
            return dask.get(graph, keys, **options)

        with dask.config.set(scheduler=scheduler):
            result = function(*args, **kwargs)
        arrays, rest = lifted(result, array)
        return rest.filled(dask.persist(*arrays, scheduler="threads"))

    return run
