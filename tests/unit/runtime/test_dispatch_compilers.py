"""Dispatchers under torch's and jax's own compilers, counted by real compilations."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounter

from tests.unit.runtime.entries import Recorder
from xpolicy.runtime import dispatch
from xpolicy.runtime.dispatch import build

if TYPE_CHECKING:
    from collections.abc import Callable


class Jitting(Recorder):
    """Binds jax arrays to ``jax.jit`` of the function."""

    def __init__(self, fn: Callable[..., Any], **options: Any) -> None:
        super().__init__(fn)
        self.jitted = jax.jit(fn, **options)

    def _recording(self, name: str) -> Callable[..., Any]:
        return self.jitted if name == "jax" else self.fn


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch._dynamo.reset()


def outer(f: Callable[..., Any]) -> tuple[Callable[..., Any], CompileCounter]:
    counter = CompileCounter()
    return torch.compile(f, fullgraph=True, backend=counter), counter


def test_an_outer_torch_compile_traces_the_function_and_never_again() -> None:
    def f(x: Any, n: int = 2, *, shift: float = 1.0) -> Any:
        return x * n + shift

    entry = Recorder(f)
    inner = build(f, entry)
    compiled, counter = outer(lambda x: inner(x) + inner(x, shift=0.0))
    x = torch.ones(3)
    assert torch.equal(compiled(x), f(x) + f(x, shift=0.0))
    assert counter.frame_count == 1
    inner(x)  # the table changes
    compiled(x)
    inner(np.ones(1))
    compiled(x)
    entry.table.clear()
    compiled(x)
    dispatch.set_overrides_active(True)
    try:
        compiled(x)
    finally:
        dispatch.set_overrides_active(False)
    assert counter.frame_count == 1
    assert entry.namespaces == ["torch"]  # of the one call outside the trace


def test_an_outer_torch_compile_of_the_dispatcher_itself() -> None:
    def f(x: Any, n: int = 2) -> Any:
        return x * n

    entry = Recorder(f)
    compiled, counter = outer(build(f, entry))
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))
        entry.table[object] = 0
    assert counter.frame_count == 1
    assert entry.calls == []


def test_methods_under_an_outer_torch_compile() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))

        def scaled(self, x: Any) -> Any:
            return self.weight * x

        @staticmethod
        def shifted(x: Any) -> Any:
            return x + 1

        def forward(self, x: Any) -> Any:
            return self.shifted(self.scaled(x))

    entries = {}
    for name in ("scaled", "shifted", "forward"):
        raw = vars(Model)[name]
        fn = getattr(raw, "__func__", raw)
        entries[name] = Recorder(fn)
        setattr(Model, name, build(raw, entries[name]))
    model = Model()
    compiled, counter = outer(lambda x: model(x) + model.scaled(x) + Model.shifted(x))
    x = torch.ones(3)
    expected = model(x) + model.scaled(x) + Model.shifted(x)
    assert torch.equal(compiled(x), expected)
    for entry in entries.values():
        entry.table.clear()
    assert torch.equal(compiled(x), expected)
    assert counter.frame_count == 1


def test_a_bound_method_handed_to_torch_compile() -> None:
    class Model:
        scale = 3

        def method(self, x: Any, n: int = 1) -> Any:
            return self.scale * x * n

    entry = Recorder(Model.method)
    Model.method = build(Model.method, entry)  # type: ignore[method-assign]
    x = torch.ones(3)
    for _ in range(2):  # with an empty table, and a filled one
        compiled, counter = outer(Model().method)
        assert torch.equal(compiled(x, n=2), 6 * x)
        assert counter.frame_count == 1
        assert entry.calls == []
        entry.table[torch.nn.Parameter] = entry.fn
        torch._dynamo.reset()


@pytest.mark.parametrize("call_first", [False, True])
def test_a_wrapper_around_a_dispatcher_keeps_what_it_does(call_first: bool) -> None:
    def f(x: Any) -> Any:
        return x + 1

    inner = build(f, Recorder(f))

    @functools.wraps(inner)
    def doubled(x: Any) -> Any:
        return 2 * inner(x)

    x = torch.ones(3)
    if call_first:
        doubled(x)
    for call in (doubled, lambda x: doubled(x) + 0):
        compiled, counter = outer(call)
        assert torch.equal(compiled(x), 2 * f(x))
        assert counter.frame_count == 1
    assert doubled.__wrapped__ is inner


def test_strict_export_through_a_dispatcher() -> None:
    def f(x: Any, n: int = 2) -> Any:
        return x * n

    inner = build(f, Recorder(f))

    class Model(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return inner(x)

    exported = torch.export.export(Model(), (torch.ones(3),), strict=True)
    assert torch.equal(exported.module()(torch.ones(3)), torch.full((3,), 2.0))


def test_vmap_and_grad_see_the_function() -> None:
    def f(x: Any) -> Any:
        return (x * x).sum()

    inner = build(f, Recorder(f))
    x = torch.arange(3.0)
    assert torch.equal(torch.func.grad(inner)(x), 2 * x)
    assert torch.equal(torch.func.vmap(inner)(x), x * x)


def test_an_omitted_default_is_a_constant_to_jax() -> None:
    def f(x: Any, axis: int = 0) -> Any:
        return x.sum(axis)

    dispatcher = build(f, Jitting(f))
    x = jnp.ones((2, 3))
    assert dispatcher(x).shape == (3,)
    with pytest.raises(jax.errors.ConcretizationTypeError):  # as plain jax.jit does
        dispatcher(x, 1)


def test_an_explicit_default_makes_no_variant_of_its_own() -> None:
    traces = []

    def f(x: Any, n: int = 5) -> Any:
        traces.append(1)
        return x * n

    dispatcher = build(f, Jitting(f))
    for n in range(10):
        dispatcher(jnp.ones(2), n)
        dispatcher(x=jnp.ones(2), n=n)
    assert len(traces) == 1


def test_spellings_of_a_call_share_a_trace() -> None:
    traces = []

    def f(x: Any, n: int, *, m: int = 1) -> Any:
        traces.append(1)
        return x * n * m

    dispatcher = build(f, Jitting(f, static_argnames=("n",)))
    x = jnp.ones(2)
    dispatcher(x, 2)
    dispatcher(x, n=2)
    dispatcher(n=2, x=x)
    assert len(traces) == 1


def test_under_an_outer_jax_trace_it_is_the_jitted_function() -> None:
    def f(x: Any, y: Any = 3.0) -> Any:
        return (x * y).sum()

    entry = Jitting(f)
    dispatcher = build(f, entry)
    x = jnp.arange(3.0)
    assert jax.jit(dispatcher)(x) == f(x)
    np.testing.assert_array_equal(jax.grad(dispatcher)(x), jnp.full(3, 3.0))
    np.testing.assert_array_equal(jax.vmap(dispatcher)(x), x * 3)
    np.testing.assert_array_equal(jax.grad(lambda y: dispatcher(x, y))(2.0), x.sum())
    assert {namespace for _, namespace in entry.bound} == {"jax"}
    assert "jit" in str(jax.make_jaxpr(dispatcher)(x))


def test_numpy_with_jax_goes_to_jax() -> None:
    def f(x: Any, y: Any) -> Any:
        return x + y

    dispatcher = build(f, Jitting(f))
    assert isinstance(dispatcher(np.ones(2), jnp.ones(2)), jax.Array)
    assert isinstance(dispatcher(np.ones(2), np.ones(2)), np.ndarray)
