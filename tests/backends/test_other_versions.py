"""An older or newer torch or jax: the plain compile call with what it takes, and nothing raised
but for a policy that asks for what is missing.

The suite for jax has been run with jax 0.6, 0.9 and 0.10 themselves. Here the installed ones
are made to look older and newer, by the keywords that they take and the private parts that
they have.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch._dynamo import convert_frame, eval_frame, guards, types, utils

import xpolicy
from xpolicy.backends.jax import lowering, misses
from xpolicy.backends.torch import private
from xpolicy.errors import BackendOptionError, RecompileLimitError

if TYPE_CHECKING:
    from collections.abc import Iterator

NUMBERS = itertools.count()
modes = pytest.mark.parametrize("mode", ["compile", "fullgraph"])


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Detect the installed libraries' features anew, for this test and for the next."""
    caches = [private.hooks_available, lowering.jit_keywords, misses.hook_works]
    torch._dynamo.reset()
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        getattr(cached, "cache_clear", lambda: None)()


def without(function: Any, *names: str, more: tuple[str, ...] = ()) -> Any:
    """Return a function that takes fewer keywords, and more."""
    signature = inspect.signature(function)
    taken = [p for p in signature.parameters.values() if p.name not in names]
    variadic = taken and taken[-1].kind is inspect.Parameter.VAR_KEYWORD
    assert not variadic
    taken += [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=None) for n in more]
    given: list[dict[str, Any]] = []

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        call.__signature__.bind(*args, **kwargs)  # a TypeError, as an older one raises
        given.append(kwargs)
        return function(*args, **{k: v for k, v in kwargs.items() if k not in more})

    call.__signature__ = signature.replace(parameters=taken)  # type: ignore[attr-defined]
    call.given = given  # type: ignore[attr-defined]
    return call


class Graphs:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.count += 1
        return graph.forward


def compiled(mode: str, **options: Any) -> tuple[Any, Graphs]:
    graphs = Graphs()

    def f(x: Any, n: int = 2) -> Any:
        return x.sin() * n

    made = xpolicy.compile(
        f,
        name=f"mylib.f{next(NUMBERS)}",  # statistics are kept by name
        mode=mode,  # type: ignore[arg-type]
        static_argnames=("n",),
        torch={"backend": graphs, **options},
    )
    return made, graphs


def works(f: Any, graphs: Graphs) -> None:
    for _ in range(2):
        torch.testing.assert_close(f(torch.ones(3), 3), torch.ones(3).sin() * 3)
    assert graphs.count == 1
    assert f.stats()["torch"].compilations == 1
    torch.testing.assert_close(torch.func.vmap(f)(torch.ones(2, 3)), torch.ones(2, 3).sin() * 2)
    with pytest.raises(TypeError):
        f()


LATER = ("recompile_limit", "isolate_recompiles", "shapes_spec", "name")


@pytest.fixture(params=["hook", "older hook", "no hook"])
def torch_of(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make ``torch.compile`` older, with a hook of today's, of its own age, and without."""
    monkeypatch.setattr(torch, "compile", without(torch.compile, *LATER))
    if request.param == "older hook":
        older = without(eval_frame._optimize, *LATER, "guard_filter_fn", "error_on_graph_break")
        monkeypatch.setattr(eval_frame, "_optimize", older)
    elif request.param == "no hook":
        monkeypatch.setattr(private, "hooks_available", lambda: False)
    return str(request.param)


@modes
def test_an_older_torch_compile_is_given_what_it_takes(mode: str, torch_of: str) -> None:
    works(*compiled(mode))
    works(*compiled(mode, dynamic=False))


@modes
@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({"recompile_limit": 3}, "recompile_limit"),
        ({"name": "region"}, "name"),
        ({"shapes_spec": {}}, "shapes_spec"),
    ],
)
def test_only_a_policy_that_asks_for_what_an_older_torch_lacks_raises(
    mode: str, torch_of: str, options: dict[str, Any], missing: str
) -> None:
    f, graphs = compiled(mode, **options)
    with pytest.raises(BackendOptionError, match=f"has no '{missing}' in torch.compile"):
        f(torch.ones(3))
    with xpolicy.override(mode="eager"):
        f(torch.ones(3))
    assert graphs.count == 0


@modes
def test_what_a_newer_torch_compile_takes_reaches_it(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = without(torch.compile, more=("novel",))
    monkeypatch.setattr(torch, "compile", newer)
    f, graphs = compiled(mode, novel="yes")
    works(f, graphs)
    assert [kwargs["novel"] for kwargs in newer.given] == ["yes"]
    g, _ = compiled(mode, novl="yes")
    with pytest.raises(BackendOptionError, match="did you mean: novel"):
        g(torch.ones(3))


PARTS: dict[str, tuple[Any, str]] = {
    "cache entries": (eval_frame, "_debug_get_cache_entry_list"),
    "run-only calls": (eval_frame, "RunOnlyContext"),
    "stance": (eval_frame, "_TorchDynamoContext"),
    "strategies": (types, "FrameExecStrategy"),
    "answers": (types, "ConvertFrameReturn"),
    "metrics": (utils, "get_compilation_metrics"),
    "reasons": (guards, "get_and_maybe_log_recompilation_reasons"),
    "lock": (convert_frame, "compile_lock"),
}


class Lacking:
    """A module without one name; what it is used by is not touched."""

    def __init__(self, module: Any, name: str) -> None:
        self._module, self._name = module, name

    def __getattr__(self, name: str) -> Any:
        if name == self._name:
            raise AttributeError(name)
        return getattr(self._module, name)


@modes
@pytest.mark.parametrize("part", PARTS)
def test_any_private_part_of_torchs_may_be_missing(
    part: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name = PARTS[part]
    monkeypatch.setattr(torch._dynamo, module.__name__.rpartition(".")[2], Lacking(module, name))
    works(*compiled(mode))
    f, graphs = compiled(mode, recompile_limit=1, on_recompile_limit="error", dynamic=False)
    f(torch.ones(3))
    with pytest.raises(RecompileLimitError):
        f(torch.ones(4))
    assert graphs.count == 1


# --- jax --------------------------------------------------------------------------------

LATER_IN_JAX = ("compiler_options", "keep_unused", "inline", "donate_argnames")


@pytest.fixture(params=["hook", "no hook"])
def jax_of(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make ``jax.jit`` older, with what misses are hooked by and without."""
    monkeypatch.setattr(jax, "jit", without(jax.jit, *LATER_IN_JAX))
    if request.param == "no hook":
        monkeypatch.setattr(misses, "hook_works", lambda: False)
        monkeypatch.setattr(misses, "_trace_state_clean", lambda: None)
    return str(request.param)


def jitted(mode: str, **options: Any) -> tuple[Any, list[int]]:
    traced: list[int] = []

    def f(x: Any, n: int = 2) -> Any:
        traced.append(1)
        return x * n

    made = xpolicy.compile(
        f,
        name=f"mylib.f{next(NUMBERS)}",  # statistics are kept by name
        mode=mode,  # type: ignore[arg-type]
        static_argnames=("n",),
        jax=options,
    )
    return made, traced


def jax_works(f: Any, traced: list[int]) -> None:
    for _ in range(2):
        np.testing.assert_allclose(f(jnp.ones(3), 3), 3)
    assert traced == [1]
    np.testing.assert_allclose(jax.vmap(f)(jnp.ones((2, 3))), 2)
    np.testing.assert_allclose(jax.grad(lambda x: f(x).sum())(jnp.ones(3)), 2)
    assert f.stats()["jax"].compilations == 1


@modes
def test_an_older_jit_is_given_what_it_takes(mode: str, jax_of: str) -> None:
    jax_works(*jitted(mode))
    f, traced = jitted(mode, recompile_limit=1, on_recompile_limit="error")
    jax_works(f, traced)
    with pytest.raises(RecompileLimitError):
        f(jnp.ones(4), 3)


@modes
@pytest.mark.parametrize(
    "options",
    [
        {"compiler_options": {"xla_cpu_enable_fast_math": False}},
        {"inline": True},
        {"keep_unused": True},
        {"donate_argnames": ("x",)},
    ],
    ids=lambda options: next(iter(options)),
)
def test_only_a_policy_that_asks_for_what_an_older_jit_lacks_raises(
    mode: str, jax_of: str, options: dict[str, Any]
) -> None:
    f, traced = jitted(mode, **options)
    with pytest.raises(BackendOptionError, match=f"has no {next(iter(options))} in jax.jit"):
        f(jnp.ones(3))
    assert traced == []


@modes
def test_what_a_newer_jit_takes_reaches_it(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = without(jax.jit, more=("novel",))
    monkeypatch.setattr(jax, "jit", newer)
    jax_works(*jitted(mode, novel="yes"))
    assert "yes" in [kwargs.get("novel") for kwargs in newer.given]
    f, _ = jitted(mode, novl="yes")
    with pytest.raises(BackendOptionError, match="did you mean: novel"):
        f(jnp.ones(3))
