"""A decorated function inside other people's traces, whatever policies say, then and later.

Through the public interface: torch gives what the undecorated function gives, jax what plain
``jax.jit`` of it gives, with as many graphs, compilations and side effects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.sharding import Mesh, PartitionSpec
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import xpolicy

if TYPE_CHECKING:
    from collections.abc import Callable

RAN: list[int] = []


def function(x: Any, y: Any, n: int = 2) -> Any:
    return (x * y + x * x) * n


def pure() -> Callable[..., Any]:
    """Return the function, as one that no compiler has seen before."""

    def f(x: Any, y: Any, n: int = 2) -> Any:
        return function(x, y, n)

    return f


def noted() -> Callable[..., Any]:
    """Return the function with a side effect; dynamo guards on what it changes."""

    def f(x: Any, y: Any, n: int = 2) -> Any:
        RAN.append(1)
        return function(x, y, n)

    return f


# Everything that could get in the way: limits that a call too many would meet, and on jax
# options and donation, with which a plain jax.jit can't be composed.
POLICIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "everything": {
        "static_argnames": ("n",),
        "torch": {"recompile_limit": 1, "on_recompile_limit": "error", "dynamic": False},
        "jax": {
            "recompile_limit": 1,
            "on_recompile_limit": "error",
            "donate_argnames": ("y",),
            "compiler_options": {"xla_cpu_enable_fast_math": False},
        },
    },
}
modes = pytest.mark.parametrize("mode", ["compile", "fullgraph"])
policies = pytest.mark.parametrize("policy", POLICIES)


def decorated(f: Any, policy: str, mode: str, backend: Any = "eager") -> Any:
    options = dict(POLICIES[policy])
    options["torch"] = {"backend": backend, **options.get("torch", {})}
    return xpolicy.compile(f, name="mylib.f", mode=mode, **options)  # type: ignore[arg-type]


class Graphs:
    """A dynamo backend that counts graphs."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.count += 1
        return graph.forward


# --- torch ------------------------------------------------------------------------------


class Operations(TorchDispatchMode):
    """Counts the operations that reach it."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


class Net(torch.nn.Module):
    def __init__(self, inner: Callable[..., Any]) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any, y: Any) -> Any:
        return self.inner(x, y)


def tensors(**options: Any) -> tuple[Any, Any]:
    return torch.arange(1.0, 5.0).requires_grad_(**options), torch.arange(2.0, 6.0)


def total(f: Any) -> Any:
    return lambda *args: f(*args).sum()


def exported(f: Any, *, strict: bool) -> Any:
    program = torch.export.export(Net(f), (torch.ones(4), torch.ones(4)), strict=strict)
    nodes = [node.target for node in program.graph.nodes]
    return (program.module()(torch.ones(4), torch.ones(4)), len(nodes))


def dispatched(f: Any) -> Any:
    with Operations() as seen:
        f(torch.ones(4), torch.ones(4))
    return seen.count


def flops(f: Any) -> Any:
    with FlopCounterMode(display=False) as seen:
        f(torch.ones(4), torch.ones(4))
    return seen.get_total_flops()


def fake(f: Any) -> Any:
    with FakeTensorMode():
        return tuple(f(torch.ones(4), torch.ones(4)).shape)


def outer_compile(f: Any) -> Any:
    graphs = Graphs()
    found = torch.compile(lambda x, y: f(x, y) + 1, backend=graphs, fullgraph=True)(
        torch.ones(4), torch.ones(4)
    )
    return found, graphs.count


TRACES: dict[str, Callable[[Any], Any]] = {
    "compile": outer_compile,
    "export": lambda f: exported(f, strict=False),
    "strict export": lambda f: exported(f, strict=True),
    "vmap": lambda f: torch.func.vmap(f)(torch.ones(3, 4), torch.ones(3, 4)),
    "vmap of one": lambda f: torch.func.vmap(lambda y: f(torch.ones(4), y))(torch.ones(3, 4)),
    "grad": lambda f: torch.func.grad(total(f))(*tensors(requires_grad=False)),
    "grad of the second": lambda f: torch.func.grad(total(f), argnums=1)(
        *tensors(requires_grad=False)
    ),
    "jvp": lambda f: torch.func.jvp(f, tensors(requires_grad=False), (torch.ones(4),) * 2),
    "make_fx": lambda f: len(
        make_fx(lambda x, y: f(x, y))(torch.ones(4), torch.ones(4)).graph.nodes
    ),
    "dispatch mode": dispatched,
    "flop counter": flops,
    "fake mode": fake,
}


def checkpointed(f: Any) -> Any:
    x, y = tensors(requires_grad=True)
    found = checkpoint(f, x, y, use_reentrant=False)
    found.sum().backward()
    return found.detach(), x.grad


def autocast(f: Any) -> Any:
    with torch.autocast("cpu"):
        return f(torch.ones(4), torch.ones(4))


def inference(f: Any) -> Any:
    with torch.inference_mode():
        found = f(torch.ones(4), torch.ones(4))
        return found.is_inference(), found.clone()


AROUND: dict[str, Callable[[Any], Any]] = {
    "checkpoint": checkpointed,
    "autocast": autocast,
    "inference mode": inference,
}


def same(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted)


@pytest.mark.filterwarnings("ignore:While compiling, we found certain side effects:UserWarning")
@modes
@policies
@pytest.mark.parametrize("used_before", [False, True])
@pytest.mark.parametrize("trace", TRACES)
def test_torch_gives_what_the_undecorated_function_gives(
    trace: str, policy: str, mode: str, used_before: bool
) -> None:
    torch._dynamo.reset()
    wanted = TRACES[trace](pure())
    torch._dynamo.reset()
    graphs = Graphs()
    f = decorated(pure(), policy, mode, graphs)
    if used_before:
        f(torch.ones(4), torch.ones(4))
    same(TRACES[trace](f), wanted)
    assert graphs.count == used_before  # no graph of ours
    f(torch.ones(4), torch.ones(4))  # and nothing of it counts, or is in the way
    assert f.stats()["torch"].counts["limit"] == 0
    # Strict export empties dynamo's caches, plain torch.compile's as well (torch 2.13).
    emptied = used_before and trace == "strict export"
    assert f.stats()["torch"].compilations == 1 + emptied


@pytest.mark.filterwarnings("ignore:While compiling, we found certain side effects:UserWarning")
@modes
@policies
@pytest.mark.parametrize("trace", TRACES)
def test_side_effects_in_torch_are_those_of_the_undecorated_function(
    trace: str, policy: str, mode: str
) -> None:
    torch._dynamo.reset()
    RAN.clear()
    TRACES[trace](noted())
    effects = len(RAN)
    torch._dynamo.reset()
    RAN.clear()
    TRACES[trace](decorated(noted(), policy, mode))
    assert len(RAN) == effects


@modes
@policies
@pytest.mark.parametrize("around", AROUND)
def test_torch_modes_around_a_call(around: str, policy: str, mode: str) -> None:
    torch._dynamo.reset()
    wanted = AROUND[around](pure())
    f = decorated(pure(), policy, mode, "aot_eager")
    for _ in range(2):
        same(AROUND[around](f), wanted)
    assert f.stats()["torch"].compilations == 1


def changes(f: Any) -> list[Callable[[], object]]:
    """Return what changes tables, flags and policies of this process."""
    everywhere = xpolicy.override(mode="eager", everywhere=True)
    here = xpolicy.override(f, "torch", backend="aot_eager")
    return [
        lambda: f(np.ones(4), np.ones(4)),  # another type in the table
        lambda: everywhere.__enter__(),
        lambda: everywhere.__exit__(None, None, None),
        lambda: here.__enter__(),
        lambda: here.__exit__(None, None, None),
        xpolicy.reload,
        f.clear,
    ]


@modes
@policies
def test_an_outer_torch_compile_is_done_once_whatever_changes_later(policy: str, mode: str) -> None:
    torch._dynamo.reset()
    f, graphs = decorated(pure(), policy, mode), Graphs()
    outer = torch.compile(lambda x, y: f(x, y) * 2, backend=graphs, fullgraph=True)
    x = torch.ones(4)
    for change in [lambda: None, *changes(f)]:
        change()
        same(outer(x, x), function(x, x) * 2)
    assert graphs.count == 1


# --- jax --------------------------------------------------------------------------------


def arrays() -> tuple[Any, Any]:
    return jnp.arange(1.0, 5.0), jnp.arange(2.0, 6.0)


def sharded(f: Any) -> Any:
    mesh = Mesh(np.array(jax.devices()[:1]), ("i",))
    spec = PartitionSpec("i")
    around: Any = jax.shard_map(f, mesh=mesh, in_specs=(spec, spec), out_specs=spec)
    return around(*arrays())


def custom(f: Any) -> Any:
    @jax.custom_vjp
    def h(x: Any, y: Any) -> Any:
        return f(x, y)

    h.defvjp(lambda x, y: (f(x, y), x), lambda x, bar: (bar * x, bar * x))
    return jax.grad(total(h))(*arrays())


def scanned(f: Any) -> Any:
    x, y = arrays()
    return jax.lax.scan(lambda c, z: (c + f(c, z), c), x, jnp.stack([y, x]))[0]


JAX_TRACES: dict[str, Callable[[Any], Any]] = {
    "jit": lambda f: jax.jit(f)(*arrays()),
    "jit of the first": lambda f: jax.jit(lambda x: f(x, arrays()[1]))(arrays()[0]),
    "jit of the second": lambda f: jax.jit(lambda y: f(arrays()[0], y))(arrays()[1]),
    "vmap": lambda f: jax.vmap(f)(*(jnp.stack([a, a]) for a in arrays())),
    "vmap of the first": lambda f: jax.vmap(f, in_axes=(0, None))(jnp.ones((3, 4)), arrays()[1]),
    "vmap of the second": lambda f: jax.vmap(f, in_axes=(None, 0))(arrays()[0], jnp.ones((3, 4))),
    "grad of the first": lambda f: jax.grad(total(f))(*arrays()),
    "grad of the second": lambda f: jax.grad(total(f), argnums=1)(*arrays()),
    "scan": scanned,
    "shard_map": sharded,
    "checkpoint": lambda f: jax.grad(total(jax.checkpoint(f)))(*arrays()),
    "eval_shape": lambda f: jnp.ones(jax.eval_shape(f, *arrays()).shape),
    "custom_vjp": custom,
}


@modes
@policies
@pytest.mark.parametrize("used_before", [False, True])
@pytest.mark.parametrize("trace", JAX_TRACES)
def test_jax_gives_what_plain_jit_gives(
    trace: str, policy: str, mode: str, used_before: bool
) -> None:
    # What an outer trace leaves behind in jax is no variant of ours: a decorated function has
    # one jax.jit for calls at the top and another for outer traces. Each call is traced as
    # often as with a plain one, used at the top before or not.
    counts = []
    for plain in (jax.jit(noted(), static_argnames="n"), jax.jit(noted(), static_argnames="n")):
        if counts and used_before:
            plain(*arrays())
        RAN.clear()
        wanted = JAX_TRACES[trace](plain)
        counts.append(len(RAN))
    f = decorated(noted(), policy, mode)
    if used_before:
        f(*arrays())
    RAN.clear()
    np.testing.assert_allclose(JAX_TRACES[trace](f), wanted, rtol=1e-6)
    assert len(RAN) in counts
    assert f.stats()["jax"].counts["limit"] == 0
    np.testing.assert_allclose(f(*arrays()), function(*arrays()), rtol=1e-6)
    assert f.stats()["jax"].compilations == 1


@modes
@policies
def test_jax_sees_one_jit_in_an_outer_program(policy: str, mode: str) -> None:
    found = jax.make_jaxpr(decorated(pure(), policy, mode))(*arrays())
    plain = jax.make_jaxpr(jax.jit(function))(*arrays())
    assert [e.primitive.name for e in found.eqns] == [e.primitive.name for e in plain.eqns]


@modes
@policies
def test_an_outer_jax_jit_is_done_once_whatever_changes_later(policy: str, mode: str) -> None:
    f, traced = decorated(pure(), policy, mode), []

    @jax.jit
    def outer(x: Any, y: Any) -> Any:
        traced.append(1)
        return f(x, y) * 2

    for change in [lambda: None, *changes(f)]:
        change()
        np.testing.assert_allclose(outer(*arrays()), function(*arrays()) * 2, rtol=1e-6)
    assert traced == [1]
