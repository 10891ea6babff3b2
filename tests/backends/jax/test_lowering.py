"""What reaches jax.jit, and what is refused before it does."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import pytest

from xpolicy.backends.jax import backend
from xpolicy.errors import BackendOptionError


def f(x, y=1.0):
    return x + y


def test_what_nobody_sets_is_not_sent(policy):
    assert dict(backend.lower(policy()).keywords) == {}


def test_options_become_keywords(policy):
    lowered = backend.lower(
        policy(
            static_argnames=("y",),
            donate_argnames=("x",),
            inline=False,
            keep_unused=True,
            compiler_options={"xla_cpu_enable_fast_math": True},
        )
    )
    assert dict(lowered.keywords) == {
        "static_argnames": ("y",),
        "donate_argnames": ("x",),
        "inline": False,
        "keep_unused": True,
        "compiler_options": {"xla_cpu_enable_fast_math": True},
    }
    assert lowered.version == jax.__version__
    assert [row[0] for row in lowered.rows] == [f"jax.jit({name})" for name in lowered.keywords]


def test_unset_sends_nothing(policy):
    lowered = backend.lower(policy(inline="unset", compiler_options="unset"))
    assert dict(lowered.keywords) == {}


def test_every_keyword_of_the_installed_jit_may_come_from_the_decorator(policy):
    names = [n for n, p in inspect.signature(jax.jit).parameters.items() if n != "fun"]
    assert len(names) > 5
    for name in names:
        assert backend.lower(policy(extra={name: None})).keywords[name] is None


def test_an_unknown_keyword_names_what_there_is(policy):
    with pytest.raises(BackendOptionError) as caught:
        backend.lower(policy(extra={"static_argnam": 1, "in_shardngs": 2}))
    text = str(caught.value)
    assert "did you mean: static_argnames" in text
    assert "did you mean: in_shardings" in text
    assert "out_shardings" in text
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"xla_cpu_enable_fast_mth": True}, "did you mean: xla_cpu_enable_fast_math"),
        ({"xla_cpu_enable_fast_math": 1}, "not a valid bool"),
        ({"xla_backend_optimization_level": True}, "not a valid int32"),
        ({"xla_backend_optimization_level": "high"}, "not a valid int32"),
    ],
)
def test_xla_options_are_checked_when_lowered(policy, options, said):
    with pytest.raises(BackendOptionError) as caught:
        backend.lower(policy(compiler_options={"xla_cpu_enable_fast_min_max": True, **options}))
    text = str(caught.value)
    assert said in text
    assert "/app/xpolicy.toml:7" in text
    assert f"jax.compiler-options.{next(iter(options))}" in text
    assert len(caught.value.problems) == 1


def test_what_does_nothing_is_noted(policy):
    options = {"xla_gpu_autotune_level": 2, "xla_cpu_enable_fast_math": True}
    asked = policy(mode="fullgraph", on_failure="eager", compiler_options=options)
    notes = "\n".join(backend.lower(asked).notes)
    assert "xla_gpu_autotune_level does nothing on cpu" in notes
    assert "xla_cpu_enable_fast_math" not in notes
    assert "does nothing in mode fullgraph" in notes
    assert "not applied to calls inside another jax trace" in notes
    assert backend.lower(policy()).notes == ()


def test_equal_values_of_other_types_are_checked_apart(policy):
    backend.lower(policy(compiler_options={"xla_backend_optimization_level": 1}))
    with pytest.raises(BackendOptionError):
        backend.lower(policy(compiler_options={"xla_backend_optimization_level": True}))


def test_compiler_options_reach_xla(make, tmp_path):
    def dumped(x):
        return jnp.exp(x) / 3

    x = jnp.ones((8, 8))
    call = make(dumped, compiler_options={"xla_dump_to": str(tmp_path)})
    assert not any("dumped" in path.name for path in tmp_path.iterdir())
    call(x)
    assert any("dumped" in path.name for path in tmp_path.iterdir())
    before = len(list(tmp_path.iterdir()))
    jax.jit(lambda x: call(x) + 1)(x)  # inside another trace they are not applied
    assert len(list(tmp_path.iterdir())) == before


def test_shardings_and_devices_from_the_decorator(make):
    device = jax.devices()[0]
    sharding = jax.sharding.SingleDeviceSharding(device)
    call = make(f, extra={"out_shardings": sharding, "in_shardings": (sharding, sharding)})
    assert call(jnp.ones(2), 2.0).sharding == sharding
    static = make(f, static_argnames=("y",), extra={"in_shardings": (sharding,)})
    assert static(jnp.ones(2), 2.0).tolist() == [3, 3]


def test_keep_unused(make):
    def g(x, y):
        return x

    for keep in (True, False):
        text = make(g, keep_unused=keep).call.lower(jnp.ones(2), jnp.ones(3)).as_text()
        assert ("tensor<3xf32>" in text) is keep


def test_lowering_ahead_shares_with_later_calls(make, compilations):
    call = make(f, static_argnames=("y",), recompile_limit=1, on_recompile_limit="error")
    lower = backend.lower_call(call.request, call.lowered, call.call, (jnp.ones(3),), {"y": 2.0})
    assert "stablehlo" in lower.as_text()
    lower.compile()
    assert compilations.of("f") == 1
    assert call(jnp.ones(3), 2.0).tolist() == [3, 3, 3]
    assert compilations.of("f") == 1


def test_the_device_of_an_array():
    x = jnp.ones(2)
    assert backend.device_of(x) == "cpu"
    assert backend.device_of(1.0) is None
    seen = []
    jax.jit(lambda x: seen.append(backend.device_of(x)))(x)
    assert seen == [None]


def test_the_version():
    assert backend.version() == jax.__version__


def test_a_builtin_that_hides_its_parameters(make):
    with pytest.raises(BackendOptionError, match=r"inspect\.signature"):
        make(max, static_argnames=("key",))
    with pytest.raises(BackendOptionError, match=r"inspect\.signature"):
        make(max, static="auto")
