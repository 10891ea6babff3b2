"""Recompile limits on jax: what is counted, what happens at the limit, what gives it back."""

from __future__ import annotations

import threading
import warnings

import jax
import jax.numpy as jnp
import pytest

from xpolicy._origin import Origin
from xpolicy.errors import RecompileLimitError, XPolicyWarning

pytestmark = pytest.mark.usefixtures("either_way")


def double(x, n=2):
    return x * n


def array(size):
    return jnp.ones(size)


@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
def test_error_action_names_everything(make, mode, compilations):
    call = make(double, mode=mode, recompile_limit=2, on_recompile_limit="error")
    call(array(3)), call(array(4))
    with pytest.raises(RecompileLimitError) as caught:
        call(array(5))
    text = str(caught.value)
    assert "mylib.f" in text
    assert "recompile-limit = 2" in text
    assert "/app/xpolicy.toml:7" in text
    assert "x: shape [4] -> [5]" in text
    assert 'functions."mylib.f".jax.recompile-limit = 3 or more in /app/xpolicy.toml' in text
    assert call(array(3)).tolist() == [2, 2, 2]
    assert compilations.of("double") == 2


@pytest.mark.parametrize("action", ["warn", "eager"])
@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
def test_other_actions_run_the_original(make, mode, action, compilations):
    bodies = []

    def f(x):
        bodies.append(isinstance(x, jax.core.Tracer))
        return x + 1

    call = make(f, mode=mode, recompile_limit=1, on_recompile_limit=action)
    call(array(3))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert [call(array(n)).shape for n in (4, 5, 4)] == [(4,), (5,), (4,)]
    ours = [w for w in told if issubclass(w.category, XPolicyWarning)]
    assert len(ours) == (1 if action == "warn" else 0)
    assert bodies == [True, False, False, False]
    assert compilations.of("f") == 1
    call(array(3))
    assert len(bodies) == 4  # the variant that exists stays compiled
    assert call.kinds() == ["compile", "limit", "limit", "limit"]


@pytest.mark.parametrize("action", ["error", "warn", "eager"])
@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
def test_constants_and_the_limit(make, mode, action, compilations):
    call = make(
        double,
        mode=mode,
        static_argnames=("n",),
        recompile_limit=2,
        on_recompile_limit=action,
    )
    x = array(2)
    for _ in range(2):
        assert call(x).tolist() == call(x, n=2).tolist() == [2, 2]
        assert call(x, 2.0).tolist() == [2, 2]
    if action == "error":
        with pytest.raises(RecompileLimitError, match=r"n: static value 2\.0 -> True"):
            call(x, True)
    elif action == "warn":
        with pytest.warns(XPolicyWarning, match="static value"):
            assert call(x, True).tolist() == [1, 1]
    else:
        assert call(x, True).tolist() == [1, 1]
    call(x), call(x, 2.0)
    assert compilations.of("double") == 2
    assert call.kinds() == ["compile", "compile", "recompile", "limit"]


def test_the_warning_points_at_the_caller(make):
    call = make(double, recompile_limit=1, on_recompile_limit="warn")
    call(array(3))
    with pytest.warns(XPolicyWarning) as told:
        call.call(array(4))
    assert told[0].filename == __file__


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ((jnp.ones(3),), (jnp.ones(3, "int32"),), "x: dtype float32 -> int32"),
        ((jnp.ones(3),), (jnp.ones((3, 1)),), "x: shape [3] -> [3,1]"),
        ((1.0,), (jnp.float32(1),), "weak type"),
        ((jnp.ones(3), 2), (jnp.ones(3), 3.0), "n: static value 2 -> 3.0"),
        (({"a": jnp.ones(3)},), ({"b": jnp.ones(3)},), "x['a']: no longer there"),
    ],
)
def test_what_changed_is_named(make, first, second, said):
    def f(x, n=2):
        return n

    call = make(f, static_argnames=("n",), recompile_limit=1, on_recompile_limit="error")
    call(*first)
    with pytest.raises(RecompileLimitError) as caught:
        call(*second)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("origin", "said"),
    [
        (Origin("variable", "XPOLICY_JAX__RECOMPILE_LIMIT"), "set XPOLICY_JAX__RECOMPILE_LIMIT=2"),
        (Origin("variable", "XPOLICY_TOML"), "in XPOLICY_TOML or a layer above it"),
        (Origin("code", "/app/f.py", line=3), "recompile_limit=2 or more there"),
    ],
    ids=str,
)
def test_the_fix_is_where_the_limit_was_set(make, origin, said):
    call = make(double, origin=origin, recompile_limit=1, on_recompile_limit="error")
    call(array(3))
    with pytest.raises(RecompileLimitError) as caught:
        call(array(4))
    assert said in str(caught.value)
    assert str(origin) in str(caught.value)


def test_a_setting_of_jax_is_named(make):
    call = make(double, recompile_limit=1, on_recompile_limit="error")
    x = jnp.ones(3, "float32")
    call(x)
    with (
        jax.default_matmul_precision("highest"),
        pytest.raises(RecompileLimitError, match="jax_default_matmul_precision: None -> highest"),
    ):
        call(x)


def test_closures_of_one_code_object_have_budgets_of_their_own(make):
    def closure(n):
        return make(lambda x: x * n, recompile_limit=1, on_recompile_limit="error")

    two, three = closure(2), closure(3)
    assert float(two(array(1))[0]) == 2
    assert float(three(array(1))[0]) == 3
    for call in (two, three):
        with pytest.raises(RecompileLimitError):
            call(array(2))


@pytest.mark.parametrize("how", ["clear", "jax.clear_caches"])
def test_clearing_gives_the_budget_back(make, how, compilations):
    call = make(double, recompile_limit=1, on_recompile_limit="error")
    call(array(3))
    call.call.clear() if how == "clear" else jax.clear_caches()
    call(array(4))
    assert compilations.of("double") == 2
    with pytest.raises(RecompileLimitError):
        call(array(3))


def test_what_was_cleared_compiles_again(make):
    call = make(double, recompile_limit=1, on_recompile_limit="error")
    call(array(3)), call(array(3))
    call.call.clear()
    call(array(3)), call(array(3))
    assert call.kinds() == ["compile", "compile"]


def test_lowering_ahead_takes_a_place(make):
    call = make(double, recompile_limit=1, on_recompile_limit="eager")
    call.call.lower(array(3)).compile()
    call(array(3))
    with pytest.raises(RecompileLimitError):
        call.call.lower(array(4))
    assert call(array(4)).shape == (4,)


def test_lowering_ahead_inside_a_call(make):
    def f(x):
        if x.shape == (3,):
            with pytest.raises(RecompileLimitError):
                call.call.lower(jax.ShapeDtypeStruct((4,), "float32"))
        return x + 1

    call = make(f, recompile_limit=1, on_recompile_limit="eager")
    assert call(array(3)).tolist() == [2, 2, 2]
    assert call.kinds() == ["compile"]


def test_clearing_makes_eager_calls_compile_again(make, compilations):
    call = make(double, recompile_limit=1, on_recompile_limit="eager")
    call(array(3)), call(array(4))
    jax.clear_caches()
    call(array(4)), call(array(4))
    assert compilations.of("double") == 2
    assert call.kinds() == ["compile", "limit", "compile"]


def test_clearing_another_function_gives_nothing_back(make):
    call = make(double, recompile_limit=1, on_recompile_limit="error")
    other = jax.jit(lambda x: x)
    call(array(3)), other(array(3))
    other.clear_cache()
    with pytest.raises(RecompileLimitError):
        call(array(4))


def test_calls_under_an_outer_trace_do_not_count(make, compilations):
    call = make(double, recompile_limit=1, on_recompile_limit="error")
    for size in (2, 3, 4):
        jax.jit(call.call)(array(size))
        jax.vmap(call)(array(size))
        jax.jit(lambda y, x: y + call(x), static_argnums=1)(1.0, float(size))
    call(array(3))
    assert compilations.of("double") >= 1
    with pytest.raises(RecompileLimitError):
        call(array(4))  # traced by an outer jit already, and still one variant too many


def test_a_trace_that_fails_takes_no_place(make):
    def f(x):
        if x.shape == (3,):
            raise ValueError("three")
        return x

    call = make(f, recompile_limit=1, on_recompile_limit="error")
    for _ in range(3):
        with pytest.raises(ValueError, match="three"):
            call(array(3))
    call(array(4))
    with pytest.raises(RecompileLimitError):
        call(array(5))


def test_the_body_cannot_swallow_the_limit(make):
    def inner(x):
        return x + 1

    limited = make(inner, recompile_limit=1, on_recompile_limit="error")
    limited(array(1))

    def outer(x):
        try:
            return limited(x)  # under an outer trace: no limit of its own
        except Exception:  # noqa: BLE001  # what is asserted: it catches no limit
            return x

    assert float(make(outer, recompile_limit=3)(array(2))[0]) == 2


def test_32_threads_compile_each_signature_once(make, compilations):
    call = make(double, recompile_limit=2, on_recompile_limit="error")
    gate, failures = threading.Barrier(32), []
    arrays = [array(3), array(4)]
    compilations._names.clear()

    def work(number):
        gate.wait()
        try:
            call(arrays[number % 2])
        except BaseException as error:  # noqa: BLE001  # asserted below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(32)]
    [t.start() for t in threads]
    [t.join(60) for t in threads]
    assert failures == []
    assert compilations.of("double") == 2
    assert sorted(call.kinds()) == ["compile", "compile", "recompile"]


def test_without_a_limit_any_number_compiles(make, compilations):
    call = make(double)
    for size in range(1, 12):
        call(array(size))
    assert compilations.of("double") == 11
