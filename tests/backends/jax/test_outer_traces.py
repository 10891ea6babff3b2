"""Inside other transformations a compiled function behaves as plain ``jax.jit(f)``."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from xpolicy.backends.jax import misses

pytestmark = pytest.mark.usefixtures("either_way")

# "all" breaks composition in a plain jax.jit: XLA options are refused inside another jit,
# donation deletes what an eager gradient still needs.
BOTH = {
    "compiler_options": {"xla_cpu_enable_fast_math": False},
    "donate_argnames": ("y",),
    "recompile_limit": 1,
    "on_recompile_limit": "error",
}
POLICIES = {"plain": {}, "all": {"static_argnames": ("power",), **BOTH}}


def f(x, y, power=2):
    return x * y * y + power * x


def sharded(g, x, y):
    mesh = Mesh(np.array(jax.devices()[:1]), ("i",))
    spec = PartitionSpec("i")
    return jax.shard_map(g, mesh=mesh, in_specs=(spec, spec), out_specs=spec)(x, y)


def custom(g, x, y):
    @jax.custom_vjp
    def h(x, y):
        return g(x, y)

    h.defvjp(lambda x, y: (g(x, y), x), lambda x, bar: (bar * x, bar))
    return jax.grad(lambda x: h(x, y).sum())(x)


TRANSFORMATIONS = {
    "jit": lambda g, x, y: jax.jit(g)(x, y),
    "jit, concrete inside": lambda g, x, y: jax.jit(lambda z: g(x, y) + z)(y),
    "jit, second concrete": lambda g, x, y: jax.jit(lambda z: g(x, z))(y),
    "vmap": lambda g, x, y: jax.vmap(g)(x, y),
    "vmap, one": lambda g, x, y: jax.vmap(lambda z: g(x, z))(y),
    "vmap, concrete inside": lambda g, x, y: jax.vmap(lambda z: g(x, y) + z)(y),
    "grad": lambda g, x, y: jax.grad(lambda x: g(x, y).sum())(x),
    "grad of the second": lambda g, x, y: jax.grad(lambda z: g(x, z).sum())(y),
    "grad of grad": lambda g, x, y: jax.grad(lambda x: jax.grad(lambda y: g(x, y).sum())(y).sum())(
        x
    ),
    "jvp": lambda g, x, y: jax.jvp(g, (x, y), (x, y))[1],
    "vjp": lambda g, x, y: jax.vjp(g, x, y)[1](x)[1],
    "linearize": lambda g, x, y: jax.linearize(g, x, y)[1](x, y),
    "jacfwd": lambda g, x, y: jax.jacfwd(g)(x, y),
    "jit of grad": lambda g, x, y: jax.jit(jax.grad(lambda x: g(x, y).sum()))(x),
    "scan": lambda g, x, y: jax.lax.scan(lambda c, z: (g(c, z), c), x, jnp.stack([y, x]))[0],
    "while_loop": lambda g, x, y: jax.lax.fori_loop(0, 3, lambda _, c: g(c, y), x),
    "cond": lambda g, x, y: jax.lax.cond(x.sum() > 0, g, lambda x, y: x, x, y),
    "checkpoint": lambda g, x, y: jax.grad(lambda x: jax.checkpoint(g)(x, y).sum())(x),
    "shard_map": sharded,
    "custom_vjp": custom,
    "eval_shape": lambda g, x, y: jnp.ones(jax.eval_shape(g, x, y).shape),
    "make_jaxpr": lambda g, x, y: jnp.ones(len(jax.make_jaxpr(g)(x, y).out_avals)),
    "compile-time": lambda g, x, y: jax.jit(lambda z: z + _at_compile_time(g, x, y))(y),
}


def _at_compile_time(g, x, y):
    with jax.ensure_compile_time_eval():
        return g(x, y)


@functools.cache
def expected(name):
    return np.asarray(TRANSFORMATIONS[name](jax.jit(f), *arrays()))


def arrays():
    return jnp.arange(1.0, 4.0), jnp.arange(2.0, 5.0)


RULES = {
    "custom_vjp": lambda g, h: h.defvjp(lambda x: (g(x), x), lambda x, bar: (bar * g(x),)),
    "custom_vjp, closed over": lambda g, h: h.defvjp(
        lambda x: (g(x), None), lambda _, bar: (bar * g(jnp.arange(1.0, 4.0)),)
    ),
    "custom_jvp": lambda g, h: h.defjvp(lambda x, dx: (g(x[0]), dx[0] * g(x[0]))),
}


@pytest.mark.parametrize("name", RULES)
def test_calls_in_a_rule_of_an_eager_gradient_do_not_count(make, name, either_way):
    if either_way == "public":
        return  # nothing public tells a backward pass over concrete values from the top
    call = make(jnp.sin, recompile_limit=1, on_recompile_limit="error").call
    x = jnp.arange(1.0, 4.0)
    call(x)
    kind = getattr(jax, name.partition(",")[0])
    rule = kind(lambda x: call(x))
    RULES[name](call, rule)
    for _ in range(2):
        assert jnp.allclose(jax.grad(lambda x: rule(x).sum())(x), jnp.sin(x))
        assert jnp.allclose(jax.vjp(rule, x)[1](x)[0], x * jnp.sin(x))
        call(x)


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_as_plain_jit(make, name, either_way):
    for policy in POLICIES if either_way == "hook" else ["all"]:
        if either_way == "public" and name in ("vmap, concrete inside", "compile-time"):
            # No public function says that somebody else's trace is going on, if it
            # stages nothing out, so there a
            # donated array is gone, as with plain jax.jit.
            continue
        call = make(f, **POLICIES[policy]).call
        result = TRANSFORMATIONS[name](call, *arrays())
        assert np.allclose(result, expected(name), rtol=1e-6), policy
        # and the same at the top afterwards, from whatever is cached now
        assert np.allclose(call(*arrays()), f(*arrays()), rtol=1e-6), policy


def test_the_inner_call_is_one_jit_equation(make):
    call = make(f, compiler_options={"xla_cpu_enable_fast_math": False}).call
    x = jnp.ones(3)
    ours, plain = jax.make_jaxpr(call)(x, x), jax.make_jaxpr(jax.jit(f))(x, x)
    assert str(ours) == str(plain)


def test_inline_leaves_no_equation_of_its_own(make):
    x = jnp.ones(3)
    text = str(jax.make_jaxpr(make(f, inline=True).call)(x, x))
    assert text == str(jax.make_jaxpr(jax.jit(f, inline=True))(x, x))
    assert "jit[" not in text


def test_side_effects_happen_once(make):
    seen = []

    def g(x, y):
        seen.append(1)
        return x + y

    call = make(g, donate_argnames=("x",)).call
    outer = jax.jit(lambda x, y: call(x, y) * 2)
    x = jnp.ones(3)
    outer(x, x), outer(x, x)
    assert seen == [1]


def test_an_outer_program_compiles_once(make, compilations):
    call = make(f, recompile_limit=2).call

    def outer(x):
        return call(x, x) + 1

    program = jax.jit(outer)
    x = jnp.ones(3)
    program(x)
    call(x, x), call(jnp.ones(4), jnp.ones(4))
    jax.clear_caches()
    program(x), program(x)
    assert compilations.of("outer") == 2


def test_donation_happens_at_the_top_only(make):
    call = make(lambda x, y: x + y, donate_argnames=("x",)).call
    x, y = jnp.ones(3), jnp.ones(3)
    jax.grad(lambda x: call(x, y).sum())(x)
    jax.jit(lambda z: call(x, y) + z)(y)
    assert not x.is_deleted()
    call(x, y)
    assert x.is_deleted()
    assert not y.is_deleted()


@pytest.mark.parametrize("spelling", ["named", "auto", "numbered"])
def test_donation_beside_constants(make, spelling):
    def g(kind, x, y, *, scale=2.0):
        return x * scale + y

    options = {"donate_argnames": ("y",)}
    extra = None
    if spelling == "named":
        options["static_argnames"] = ("kind",)
    elif spelling == "auto":
        options["static"] = "auto"
    else:
        options, extra = {}, {"donate_argnums": 2, "static_argnums": (0,)}
    call = make(g, extra=extra, **options).call
    x, y = jnp.ones(3), jnp.ones(3)
    assert call("sum", x, y).tolist() == [3, 3, 3]
    assert (x.is_deleted(), y.is_deleted()) == (False, True)
    z = jnp.ones(3)
    assert jax.grad(lambda x: call("sum", x, z).sum())(x).tolist() == [2, 2, 2]
    assert not z.is_deleted()


@pytest.mark.parametrize("around", ["jit", "vmap", "disable_jit"])
def test_the_first_use_of_all_may_be_inside(make, around, either_way, monkeypatch):
    if either_way == "hook":
        monkeypatch.setattr(misses, "hook_works", functools.cache(misses.hook_works.__wrapped__))

    def g(x):
        return make(lambda x: x + 1, **BOTH | {"donate_argnames": ("x",)}).call(x)

    x = jnp.ones(3)
    if around == "disable_jit":
        with jax.disable_jit():
            assert g(x).tolist() == [2, 2, 2]
    else:
        assert getattr(jax, around)(g)(x).tolist() == [2, 2, 2]
    assert misses.hook_works() is (either_way == "hook")


def test_hits_after_an_outer_trace_are_jaxs_own(make, either_way, monkeypatch):
    if either_way == "public":
        return  # there every call passes through Python
    call = make(f).call
    x = jnp.ones(3)
    jax.jit(lambda z: call(x, x) + z)(x)
    jax.vmap(call)(x, x)
    call(x, x)

    def forbidden():
        raise AssertionError("a hit came to Python")

    monkeypatch.setattr(misses, "under_trace", forbidden)
    call(x, x)
    with pytest.raises(AssertionError):
        call(jnp.ones(4), jnp.ones(4))
