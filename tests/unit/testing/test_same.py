"""`assert_same_in_all_modes` finds every kind of difference, and nothing else."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import xpolicy
from xpolicy.testing import assert_same_in_all_modes
from xpolicy.testing.same import copied, differences


@pytest.fixture(autouse=True)
def cheap():
    with xpolicy.override(torch={"backend": "eager"}, everywhere=True):
        yield


def compiling(x):
    """Say whether the function is being traced, for functions that are to differ."""
    return torch.compiler.is_compiling() or isinstance(x, jax.core.Tracer)


@pytest.mark.parametrize(
    "array",
    [
        np.ones(3),
        torch.ones(3),
        torch.ones(3, dtype=torch.bfloat16),
        torch.ones(3, dtype=torch.complex64),
        torch.tensor([1.0, float("nan"), float("inf")]),
        torch.ones((), dtype=torch.int64),
        torch.ones(0),
        jnp.ones(3),
        jnp.ones(3, dtype=jnp.bfloat16),
        jnp.ones(3, dtype=bool),
    ],
    ids=lambda array: f"{type(array).__module__}-{array.dtype}-{tuple(array.shape)}",
)
def test_what_is_the_same_passes(array):
    def f(x, n=2):
        return {"a": [x * n, (x, None)]}

    assert_same_in_all_modes(f, array, n=3)


@pytest.mark.parametrize("xp", [torch, jnp], ids=["torch", "jax"])
def test_a_value_that_differs(xp):
    @xpolicy.compile(name="mylib.f")
    def f(x):
        return (x, x + 1e-3) if compiling(x) else (x, x)

    with pytest.raises(AssertionError) as caught:
        assert_same_in_all_modes(f, xp.ones(2))
    assert re.fullmatch(
        r"mylib\.f for \w+ differs between mode eager and mode compile in its result\[1\]\[0\]: "
        r"1\.0 and 1\.001\d*, more than 2\.4e-05 apart \(2 of 2 differ\)",
        str(caught.value),
    )
    assert_same_in_all_modes(f, xp.ones(2), within=0.01)


def test_an_effect_on_an_argument_that_differs():
    def f(x, y):
        if not compiling(x):
            y += 1
        return x

    x, y = torch.ones(2), torch.zeros(2)
    with pytest.raises(AssertionError, match=r"in its arguments\[0\]\[1\]\[0\]: 1.0 and 0.0"):
        assert_same_in_all_modes(f, x, y)
    assert y.tolist() == [0, 0]


def test_exceptions_are_compared():
    def raises(x):
        if x.shape[0] > 2 or compiling(x):
            raise ValueError(f"shape {x.shape[0]}")
        return x

    assert_same_in_all_modes(raises, torch.ones(3))
    assert_same_in_all_modes(raises, jnp.ones(3))
    with pytest.raises(AssertionError, match="in its exception: NoneType None and tuple"):
        assert_same_in_all_modes(raises, torch.ones(2))


def test_a_function_that_cannot_be_compiled_fails_as_itself():
    def f(x):
        return x if x.sum() > 0 else -x

    with pytest.raises(jax.errors.TracerBoolConversionError):
        assert_same_in_all_modes(f, jnp.ones(2))


def test_modes_above_supports_are_left_out():
    @xpolicy.compile(name="mylib.f", supports="compile")
    def f(x):
        modes.append(xpolicy.resolve("mylib.f", "torch").mode if not compiling(x) else "traced")
        return x if x.sum() > 0 else -x

    modes = []
    assert_same_in_all_modes(f, torch.ones(2))
    assert "eager" in modes


def test_no_array_is_an_error():
    with pytest.raises(TypeError, match="nothing would be compiled"):
        assert_same_in_all_modes(lambda n: n, 1)


class Point(NamedTuple):
    x: object
    y: object


@dataclass
class Pair:
    a: object
    b: object


@pytest.mark.parametrize(
    ("a", "b", "where"),
    [
        (1, 2, ""),
        (1, True, ""),
        (1.0, 1.0 + 1e-9, ""),
        ([1, 2], [1], ""),
        ({"a": 1}, {"b": 1}, ""),
        ({"a": [0, 1]}, {"a": [0, 2]}, "['a'][1]"),
        (Point(1, 2), Point(1, 3), "[1]"),
        (Point(1, 2), (1, 2), ""),
        (Pair(1, [2]), Pair(1, [3]), ".b[0]"),
        (np.ones(2), np.ones((2, 1)), ""),
        (np.ones(2), np.ones(2, dtype=np.float32), ""),
        (np.ones(2), torch.ones(2), ""),
        (np.ones(2), 1.0, ""),
        (np.asarray([1, 2]), np.asarray([1, 3]), "[1]"),
        (np.asarray([0.0, np.nan]), np.asarray([0.0, 0.0]), "[1]"),
        (np.asarray([np.inf]), np.asarray([-np.inf]), "[0]"),
        (np.asarray([1e-30, 1.0]), np.asarray([1e-13, 1.0]), "[0]"),
        ("a", "b", ""),
    ],
    ids=str,
)
def test_differences(a, b, where):
    assert [path for path, _ in differences(a, b)] == [where]
    assert list(differences(a, a)) == []


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (np.float32([1.0, 1e6]), np.float32([1.0 + 2e-5, 1e6])),
        (np.float64([1.0]), np.float64([1.0 + 3e-11])),
        (np.float32([1e6, 0.0]), np.float32([1e6, 0.5])),  # a sum that cancels
        (torch.tensor([1.0], dtype=torch.bfloat16), torch.tensor([1.03], dtype=torch.bfloat16)),
        (float("nan"), float("nan")),
    ],
    ids=str,
)
def test_rounding_is_no_difference(a, b):
    assert list(differences(a, b)) == []


def test_copies_keep_what_containers_are():
    made = defaultdict(list, a=np.zeros(1))
    value = {"d": made, "p": Point(np.zeros(1), 2), "q": Pair(torch.ones(1, requires_grad=True), 3)}
    copy = copied(value)
    assert list(differences(value, copy)) == []
    assert copy["d"].default_factory is list
    assert type(copy["p"]) is Point
    assert copy["q"].a.requires_grad
    for old, new in ((made["a"], copy["d"]["a"]), (value["q"].a, copy["q"].a)):
        assert old is not new
