"""Keys of constants, on any values that can be written down."""

from __future__ import annotations

import copy
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xpolicy.backends.jax.statics import key_of, token, value_of

SCALARS = st.one_of(
    st.integers(-3, 3),
    st.booleans(),
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, math.inf, math.nan]),
    st.sampled_from([0j, 1 + 0j, complex(-0.0, 0.0), complex(0.0, -0.0)]),
    st.sampled_from(["", "1", b"", b"1"]),
    st.none(),
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=4)


def spelt(value):
    """Another way to say type, value and sign, all the way down."""
    return f"{type(value).__name__}:" + (
        "(" + ",".join(map(spelt, value)) + ")" if isinstance(value, tuple) else repr(value)
    )


@given(VALUES, VALUES)
def test_keys_are_equal_just_when_type_and_value_are(one, other):
    same = spelt(one) == spelt(other)
    assert (key_of(one) == key_of(other)) is same
    if same:
        assert hash(key_of(one)) == hash(key_of(other))


@given(VALUES)
def test_the_value_comes_back(value):
    assert spelt(value_of(key_of(value))) == spelt(value)


@given(VALUES)
def test_a_key_is_not_its_value(value):
    if type(value) not in (int, str, type(None)):
        assert key_of(value) != copy.deepcopy(value)


@pytest.mark.parametrize("value", [[], {}, ([],), (1, {2: 3}), bytearray()])
def test_what_cannot_be_hashed(value):
    with pytest.raises(TypeError):
        token(value)
