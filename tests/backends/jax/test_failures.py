"""What can't be traced: jax's own error with a note, or the original function; nothing else."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xpolicy.errors import RecompileLimitError, XPolicyWarning

pytestmark = pytest.mark.usefixtures("either_way")


def branches(x):
    return x if x.sum() > 0 else -x


def to_numpy(x):
    return jnp.asarray(np.sin(np.asarray(x)))


def as_shape(x):
    return jnp.zeros(int(x.sum()))


def shape_of_sum(x):
    return jnp.zeros(x.sum().astype(int))


def loops(x):
    return sum((x for _ in range(x.sum().astype(int))), x)


def selects(x):
    return x[x > 0]


def indexes_list(x):
    return x * [1, 2, 3, 4][x.sum().astype(int)]


def item(x):
    return x + x.sum().item()


def platform(x):
    return x + len(x.devices())


def text_result(x):
    return "done"


UNTRACEABLE = [
    branches,
    to_numpy,
    as_shape,
    shape_of_sum,
    loops,
    selects,
    indexes_list,
    item,
    platform,
    text_result,
]


@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
@pytest.mark.parametrize("function", UNTRACEABLE)
def test_error_is_jaxs_own_with_a_note(make, function, mode):
    x = jnp.ones(3)
    with pytest.raises(Exception) as plain:  # noqa: PT011  # whatever jax raises is compared
        jax.jit(function)(x)
    call = make(function, mode=mode)
    with pytest.raises(type(plain.value)) as caught:
        call(x)
    assert type(caught.value) is type(plain.value)
    note = "\n".join(caught.value.__notes__)
    assert "mylib.f" in note
    assert "jax" in note
    assert "supports" in note
    assert f"mode = {mode!r} is set at /app/xpolicy.toml:7" in note
    assert 'on-failure = "eager"' in note
    assert call.kinds() == []


@pytest.mark.parametrize("function", UNTRACEABLE)
def test_eager_falls_back_once_a_signature(make, function):
    call = make(function, on_failure="eager")
    x = jnp.ones(3)
    expected = function(x)
    with pytest.warns(XPolicyWarning, match="mylib.f runs eagerly on jax") as told:
        result = call.call(x)
    assert len(told) == 1
    assert told[0].filename == __file__
    assert np.array_equal(result, expected) if not isinstance(expected, str) else result == "done"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(x), call(jnp.ones(2))
    assert call.kinds() == ["fallback", "fallback"]


def test_a_remembered_failure_is_not_traced_again(make):
    bodies = []

    def f(x):
        bodies.append(isinstance(x, jax.core.Tracer))
        return branches(x) if x.shape == (3,) else x

    call = make(f, on_failure="eager")
    with pytest.warns(XPolicyWarning):
        call(jnp.ones(3))
    call(jnp.ones(3)), call(jnp.ones(4)), call(jnp.ones(4)), call(jnp.ones(3))
    assert bodies == [True, False, False, True, False]
    assert call.kinds() == ["fallback", "compile"]
    call.call.clear()
    call(jnp.ones(3))
    assert bodies[5:] == [True, False]


def test_never_under_fullgraph(make):
    with pytest.raises(jax.errors.TracerBoolConversionError):
        make(branches, mode="fullgraph", on_failure="eager")(jnp.ones(3))


def test_an_argument_that_jax_has_no_type_for(make):
    def f(x, kind):
        return x.sum() if kind == "sum" else x

    x = jnp.ones(3)
    with pytest.raises(TypeError, match="str") as caught:
        make(f)(x, "sum")
    assert "mylib.f" in "".join(caught.value.__notes__)
    call = make(f, on_failure="eager")
    with pytest.warns(XPolicyWarning):
        assert float(call(x, "sum")) == 3
    assert float(call(x, "sum")) == 3


class OwnError(Exception):
    pass


@pytest.mark.parametrize("on_failure", ["error", "eager"])
@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad n"),
        TypeError("not a Tracer of ours"),
        KeyError("k"),
        IndexError("i"),
        AttributeError("a concrete value"),
        OwnError("own"),
        KeyboardInterrupt("stop"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_the_functions_own_exceptions_are_untouched(make, error, mode, on_failure):
    bodies = []

    def f(x):
        bodies.append(1)
        raise error

    call = make(f, mode=mode, on_failure=on_failure)
    with pytest.raises(type(error)) as caught:
        call(jnp.ones(3))
    assert caught.value is error
    assert str(caught.value) == str(error)
    assert not any("xpolicy" in note for note in getattr(caught.value, "__notes__", ()))
    assert bodies == [1]
    assert call.kinds() == []


def test_a_mistake_in_the_use_of_jax_is_the_functions_own(make):
    bodies = []

    def f(x):
        bodies.append(1)
        return x @ jnp.ones(7)

    with pytest.raises(TypeError, match="contracting dimensions"):
        make(f, on_failure="eager")(jnp.ones(3))
    assert bodies == [1]


def test_a_program_that_fails_when_run_counts(make):
    def f(x):
        return jnp.log(x)

    call = make(f, recompile_limit=1, on_recompile_limit="error")
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        call(jnp.full(3, -1.0))
    with pytest.raises(RecompileLimitError):
        call(jnp.ones(4))


def test_results_that_fail_take_no_place_in_the_budget(make):
    call = make(text_result, recompile_limit=1, on_recompile_limit="error")
    for size in (1, 2, 3):
        with pytest.raises(TypeError, match="str"):
            call(jnp.ones(size))
