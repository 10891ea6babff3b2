"""What wraps a decorated function does not get what belongs to the decorated one."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import pytest

import xpolicy


@xpolicy.compile(name="mylib.copied", static_argnames=("n",))
def f(x, n=1):
    return x + n


X = jnp.ones(2)


def wrapper(function):
    @functools.wraps(function)
    def wrapped(x):
        return function(x) + 1000

    return wrapped


@pytest.mark.parametrize("name", ["lower", "trace", "explain", "stats", "clear", "__xpolicy__"])
def test_functools_wraps_copies_none_of_it(name):
    assert hasattr(f, name)
    assert not hasattr(wrapper(f), name)


def test_jit_of_a_wrapper_lowers_the_wrapper():
    wrapped = jax.jit(wrapper(f))
    assert wrapped(X).tolist() == [1002.0, 1002.0]
    assert wrapped.lower(X).compile()(X).tolist() == [1002.0, 1002.0]


def test_jit_of_a_decorated_function_keeps_its_own_options():
    jitted = jax.jit(f, static_argnames="n")
    assert jitted.lower(X, n=3).compile()(X).tolist() == [4.0, 4.0]


def test_a_wrapper_is_still_known_by_the_function_that_it_wraps():
    assert xpolicy.resolve(wrapper(f), "jax").static_argnames == ("n",)
    assert wrapper(f).__name__ == "f"
