"""The same assertions as plain functions, with real compilations."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import xpolicy
import xpolicy.testing as testing
from xpolicy.testing import assert_compiles_once, assert_no_graph_breaks, watch


@pytest.fixture(autouse=True)
def cheap():
    with xpolicy.override(torch={"backend": "eager"}, everywhere=True):
        yield


def make(name="mylib.f", **options):
    @xpolicy.compile(name=name, **options)
    def f(x, n=2):
        return x * n

    return f


def make_breaking():
    @xpolicy.compile(name="mylib.breaks")
    def breaks(x):
        x = x + 1
        print(end="")
        return x * 2

    return breaks


def test_every_public_name_is_there():
    assert all(getattr(testing, name) for name in testing.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        testing.nothing  # noqa: B018


def test_compiled_once():
    f = make()
    for _ in range(3):
        f(torch.ones(2))
        f(jnp.ones(2))
        f(np.ones(2))
    assert_compiles_once(f)
    assert_compiles_once("mylib.f", namespace="jax")


def test_compiled_again_says_what_changed():
    f = make()
    for size in (2, 3):
        f(torch.ones(size))
        f(jnp.ones(size))
    with pytest.raises(AssertionError) as caught:
        assert_compiles_once(f)
    text = str(caught.value)
    assert "mylib.f was compiled 2 times for jax:" in text
    assert "(x: shape [2] -> [3])" in text
    assert "mylib.f was compiled 2 times for torch:" in text
    assert "(x: float32[2] -> float32[3])" in text
    f.clear()
    f(torch.ones(3))
    assert_compiles_once(f)


@pytest.mark.parametrize("check", [assert_compiles_once, assert_no_graph_breaks])
def test_not_compiled_is_no_success(check):
    f = make()
    with pytest.raises(AssertionError, match="has not been compiled"):
        check(f)
    with xpolicy.override(mode="eager"):
        f(torch.ones(2))
        with pytest.raises(AssertionError, match="mode is eager"):
            check(f)
    with pytest.raises(AssertionError, match='torch: supports = "eager" caps mode compile'):
        check(make("mylib.g", supports="eager"))


@pytest.mark.parametrize("check", [assert_compiles_once, assert_no_graph_breaks])
def test_a_function_that_is_not_under_policy(check):
    with pytest.raises(TypeError, match=r"decorate it with @xpolicy\.compile"):
        check(make)


def test_a_fallback_is_told():
    @xpolicy.compile(name="mylib.h", on_failure="eager")
    def h(x):
        return x if x.sum() > 0 else -x

    with pytest.warns(xpolicy.XPolicyWarning, match="runs eagerly"):
        h(jnp.ones(2))
    with pytest.raises(AssertionError, match="jax: ran uncompiled: TracerBoolConversionError"):
        assert_compiles_once(h)


def test_graph_breaks_are_told_with_file_and_line():
    breaks = make_breaking()
    breaks(torch.ones(2))
    assert_compiles_once(breaks)
    line = breaks.__wrapped__.__code__.co_firstlineno + 3
    with pytest.raises(AssertionError) as caught:
        assert_no_graph_breaks(breaks)
    assert str(caught.value).splitlines() == [
        "mylib.breaks has 1 graph break for torch:",
        f"  {__file__}:{line}: Failed to trace builtin operator",
    ]


def test_no_graph_breaks():
    f = make()
    f(torch.ones(2))
    assert_no_graph_breaks(f)


def test_watching_starts_afresh_and_sees_threads():
    import threading

    f, breaks = make(), make_breaking()
    f(torch.ones(2))
    with watch(f) as seen:
        thread = threading.Thread(target=lambda: f(torch.ones(2)))
        thread.start()
        thread.join()
        f(torch.ones(3))
        breaks(torch.ones(2))
        assert set(seen.called()) == {("mylib.f", "torch")}
    f(torch.ones(4, dtype=torch.float64))
    (found,) = seen
    assert found.compilations == ["x: float32[2], n: 2", "x: float32[3], n: 2"]
    assert found.recompilations == ["x: float32[2] -> float32[3]"]
    assert seen["mylib.breaks", "torch"].breaks == {}


def test_watching_twice_sees_the_same():
    f = make()
    counts = []
    for _ in range(2):
        with watch() as seen:
            for size in (2, 3, 4):
                f(torch.ones(size))
        counts.append(len(seen["mylib.f", "torch"].compilations))
    assert counts == [2, 2]
