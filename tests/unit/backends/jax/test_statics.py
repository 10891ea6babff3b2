"""Keys of constants, on any values that can be written down."""

from __future__ import annotations

import copy
import datetime
import decimal
import enum
import functools
import math
import pathlib
import uuid

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


class Size:
    """Says what is equal, and shows nothing."""

    def __init__(self, n):
        self.n = n
        self.calls = 0

    def __eq__(self, other):
        return type(other) is Size and other.n == self.n

    def __hash__(self):
        return hash(self.n)


class Slotted(Size):
    __slots__ = ("m",)

    def __init__(self, n):
        super().__init__(0)
        self.m = n

    def __eq__(self, other):
        return type(other) is Slotted and other.m == self.m

    __hash__ = Size.__hash__


class Named(str):  # noqa: SLOT000  # it has attributes
    """A string that carries more than its letters."""

    def __new__(cls, text, unit):
        made = super().__new__(cls, text)
        made.unit = unit
        return made

    def __repr__(self):
        return f"Named({str(self)!r}, {self.unit!r})"


class Point(tuple):  # noqa: SLOT001  # it has attributes
    def __repr__(self):
        return f"Point{tuple(self)} {self.unit}"


def point(unit):
    made = Point((1, 2))
    made.unit = unit
    return made


class Real(float):
    def __repr__(self):
        return f"Real({float(self)}, {self.unit})"


def real(unit):
    made = Real(1.0)
    made.unit = unit
    return made


D = decimal.Decimal
DAY = datetime.datetime(2020, 1, 1)
EQUAL_BUT_NOT_THE_SAME = [
    (D("1.0"), D("1.00")),
    (D("0"), D("-0")),
    (DAY, DAY.replace(fold=1)),
    (
        DAY.replace(tzinfo=datetime.UTC),
        DAY.replace(hour=1, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
    ),
    (Size(1), Size(1.0)),
    (Size(1), Size(True)),
    (Size(0.0), Size(-0.0)),
    (Size((1, 0.0)), Size((1, -0.0))),
    (Slotted(1), Slotted(1.0)),
    (Named("a", "m"), Named("a", "km")),
    (point("m"), point("km")),
    (real("m"), real("km")),
]


@pytest.mark.parametrize("inside", [lambda v: v, lambda v: (v,), lambda v: frozenset({v})])
@pytest.mark.parametrize(("one", "other"), EQUAL_BUT_NOT_THE_SAME)
def test_equal_values_that_a_function_can_tell_apart(one, other, inside):
    assert one == other
    assert key_of(inside(one)) != key_of(inside(other))


@pytest.mark.parametrize(
    "make",
    [
        lambda: D("1.0"),
        lambda: DAY.replace(second=1),
        lambda: Size((1, 2.0)),
        lambda: Slotted(2),
        lambda: Named("a", "m"),
        lambda: point("m"),
        lambda: pathlib.PurePosixPath("/a/b"),
        lambda: uuid.UUID(int=1),
        lambda: [].append.__name__.upper,
        lambda: enum.Enum("Colour", "RED"),
        lambda: functools.partial,
    ],
)
def test_values_made_alike_are_one_key(make):
    one, other = make(), make()
    if one == other:
        assert key_of(one) == key_of(other)
        assert hash(key_of(one)) == hash(key_of(other))
    assert key_of(one) == key_of(one)


def test_what_equality_leaves_out_is_no_constant():
    size = Size(3)
    before = key_of(size)
    size.calls += 1
    assert key_of(size) == before
