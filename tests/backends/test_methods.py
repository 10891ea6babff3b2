"""Decorated methods of modules: ``torch.nn.Module.forward``, and pytrees as equinox has them."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import xpolicy

modes = pytest.mark.parametrize("mode", ["compile", "fullgraph"])
every_mode = pytest.mark.parametrize("mode", ["eager", "compile", "fullgraph"])


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


class Layer(torch.nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, size)
        self.register_buffer("calls", torch.zeros(()))

    @xpolicy.compile(name="mylib.Layer.forward", torch={"backend": "aot_eager"})
    def forward(self, x: Any, scale: float = 1.0) -> Any:
        if x.shape[-1] != 3:
            raise ValueError("three, please")
        self.calls += 1
        return self.linear(x).relu() * scale

    def plain(self, x: Any, scale: float = 1.0) -> Any:
        return self.linear(x).relu() * scale


@every_mode
def test_forward_of_a_torch_module(mode: str) -> None:
    layer, x = Layer(2), torch.ones(4, 3)
    with xpolicy.override(mode=mode):
        torch.testing.assert_close(layer(x), layer.plain(x))
        torch.testing.assert_close(layer(x, scale=2.0), layer.plain(x, 2.0))
        other = copy.deepcopy(layer)
        with torch.no_grad():
            other.linear.weight.mul_(2)
        torch.testing.assert_close(other(x), other.plain(x))
        layer.load_state_dict(other.state_dict())
        torch.testing.assert_close(layer(x), other.plain(x))
        with pytest.raises(ValueError, match=r"^three, please$"):
            layer(torch.ones(4, 2))
    assert layer.calls == 4  # what other had counted, and one more
    compilations = Layer.forward.stats()["torch"].compilations
    assert (compilations == 0) is (mode == "eager")
    Layer.forward.clear()


@every_mode
def test_a_training_step(mode: str) -> None:
    torch.manual_seed(0)
    layer, x = Layer(2), torch.ones(4, 3)
    layer.plain(x).sum().backward()
    wanted = layer.linear.weight.grad.clone()
    layer.zero_grad()
    with xpolicy.override(mode=mode):
        layer.train()(x).sum().backward()
    torch.testing.assert_close(layer.linear.weight.grad, wanted)
    Layer.forward.clear()


@modes
def test_a_module_inside_an_outer_compile_is_one_graph(mode: str) -> None:
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    layer, x = Layer(2), torch.ones(4, 3)
    with xpolicy.override(mode=mode):
        found = torch.compile(layer, backend=backend, fullgraph=True)(x)
    torch.testing.assert_close(found, layer.plain(x))
    assert len(graphs) == 1
    assert Layer.forward.stats()["torch"].compilations == 0


TRACED: list[int] = []


@jax.tree_util.register_dataclass
@dataclass
class Affine:
    """A pytree whose method is called as equinox modules are."""

    weight: Any
    bias: Any

    @xpolicy.compile(name="mylib.Affine", static_argnames=("power",))
    def __call__(self, x: Any, power: int = 1) -> Any:
        TRACED.append(1)
        if x.shape[-1] != 3:
            raise ValueError("three, please")
        return (x @ self.weight + self.bias) ** power


def affine(seed: int) -> Affine:
    draw = np.random.default_rng(seed).normal
    return Affine(jnp.asarray(draw(size=(3, 2))), jnp.asarray(draw(size=2)))


@every_mode
def test_a_method_of_a_pytree(mode: str) -> None:
    TRACED.clear()
    x = jnp.ones((4, 3))
    with xpolicy.override(mode=mode):
        for seed in range(3):
            model = affine(seed)
            wanted = x @ model.weight + model.bias
            np.testing.assert_allclose(model(x), wanted, rtol=1e-5)
            np.testing.assert_allclose(model(x, power=2), wanted**2, rtol=1e-5)
        calls = len(TRACED)
        with pytest.raises(ValueError, match=r"^three, please") as caught:
            model(jnp.ones((4, 2)))
        assert str(caught.value) == "three, please"  # jax adds a note about its own frames
    # Instances that differ in their arrays only share what is compiled.
    assert calls == (6 if mode == "eager" else 2)
    call: Any = Affine.__call__
    assert call.stats()["jax"].compilations == (0 if mode == "eager" else 2)
    call.clear()


@modes
def test_gradients_of_a_pytree_by_itself(mode: str) -> None:
    model, x = affine(0), jnp.ones((4, 3))
    with xpolicy.override(mode=mode, jax={"recompile_limit": 1, "on_recompile_limit": "error"}):
        slope = jax.grad(lambda m: m(x).sum())(model)
        np.testing.assert_allclose(slope.bias, [4, 4], rtol=1e-6)
        models = jax.tree.map(lambda *leaves: jnp.stack(leaves), affine(0), affine(1))
        together = jax.vmap(lambda m: m(x))(models)
        np.testing.assert_allclose(together[1], affine(1)(x), rtol=1e-5)
    call: Any = Affine.__call__
    call.clear()


@every_mode
@pytest.mark.parametrize("module", [torch, jnp, np], ids=["torch", "jax", "numpy"])
def test_a_functions_own_exception_passes_the_same_test_in_every_mode(
    module: Any, mode: str
) -> None:
    @xpolicy.compile(name="mylib.f", mode=mode, torch={"backend": "eager"})  # type: ignore[arg-type]
    def f(x: Any, n: int = 1) -> Any:
        if n < 1:
            raise ValueError(f"n must be positive, got {n}")
        return x * n

    for _ in range(2):
        with pytest.raises(ValueError, match=r"^n must be positive, got 0") as caught:
            f(module.ones(2), 0) if module is not jnp else g(f)
        assert type(caught.value) is ValueError
        assert str(caught.value) == "n must be positive, got 0"
    assert float(f(module.ones(2)).sum()) == 2


def g(f: Any) -> Any:
    with xpolicy.override(f, static_argnames=("n",)):
        return f(jnp.ones(2), 0)
