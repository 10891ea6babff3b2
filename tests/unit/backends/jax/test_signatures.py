"""What changed between two variants, in words."""

from __future__ import annotations

import jax.numpy as jnp

from xpolicy.backends.jax.signatures import describe
from xpolicy.backends.jax.statics import key_of


def signature(traced=None, static=None, omitted=None):
    keys = {name: key_of(value) for name, value in (static or {}).items()}
    return describe(traced or {}, keys, omitted or {})


def test_in_words():
    told = signature({"x": [jnp.ones((2, 3)), {"a": jnp.arange(4)}]}, {"n": 1.0}, {"k": None})
    assert str(told) == (
        "x[0]: float32[2,3], x[1]['a']: int32[4], n=1.0 (static), k=None (omitted)"
    )
    assert str(signature()) == "no arguments"


def test_a_long_constant_is_cut():
    assert len(str(signature(static={"n": "a" * 500}))) < 120


def test_no_change():
    assert signature({"x": jnp.ones(2)}).changes_from(signature({"x": jnp.zeros(2)})) == []


def test_each_kind_of_change():
    old = signature({"x": jnp.ones(2), "y": jnp.ones(2)}, {"n": 1}, {"k": 2})
    new = signature({"x": jnp.ones((2, 1), "int32"), "k": jnp.ones(1)}, {"n": True})
    assert new.changes_from(old) == [
        "x: shape [2] -> [2,1]",
        "x: dtype float32 -> int32",
        "k: 2 (omitted) -> float32[1]",
        "n: static value 1 -> True",
        "y: no longer there",
    ]


def test_the_nearest_is_the_one_with_fewest_differences():
    variants = [
        signature({"x": jnp.ones(2), "y": jnp.ones(3)}),
        signature({"x": jnp.ones(9), "y": jnp.ones(9)}),
    ]
    nearest, changes = signature({"x": jnp.ones(2), "y": jnp.ones(4)}).nearest(variants)
    assert nearest is variants[0]
    assert changes == ["y: shape [3] -> [4]"]
    assert signature().nearest([]) == (None, [])
