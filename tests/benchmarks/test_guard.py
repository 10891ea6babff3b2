"""The hot path does no more than it must; and the guard that says so can tell."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import xpolicy
from benchmarks import dispatch, guard
from xpolicy.runtime import dispatch as dispatchers
from xpolicy.runtime import shapes
from xpolicy.runtime.codegen import Writer
from xpolicy.runtime.likeness import Cell

if TYPE_CHECKING:
    from collections.abc import Callable

ARRAYS = {"torch": torch.ones(1), "jax": jnp.ones(1), "numpy": np.ones(1)}
FUNCTIONS = (dispatch.one, dispatch.two, dispatch.three, dispatch.four)


@pytest.mark.parametrize("namespace", ARRAYS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_known_positional_call_looks_up_and_forwards(
    namespace: str, function: Callable[..., None]
) -> None:
    args = (ARRAYS[namespace],) * (1 + FUNCTIONS.index(function))
    decorated = xpolicy.compile(function, mode="eager")
    assert guard.exceeded(decorated, function, args, strong=namespace != "numpy") == []


@pytest.mark.parametrize("namespace", ARRAYS)
def test_a_known_keyword_call_looks_up_and_forwards(namespace: str) -> None:
    x = ARRAYS[namespace]
    for function, name in ((dispatch.two, "y"), (dispatch.by_keyword, "k")):
        decorated = xpolicy.compile(function, mode="eager")
        strong = namespace != "numpy"
        assert guard.exceeded(decorated, function, (x,), {name: x}, strong=strong) == []


def test_after_an_override_is_over_nothing_is_left_of_it() -> None:
    decorated = xpolicy.compile(dispatch.one, mode="eager")
    args = (ARRAYS["torch"],)
    with xpolicy.override(mode="eager"):
        assert "calls _overridden" in guard.exceeded(decorated, dispatch.one, args)
    assert guard.exceeded(decorated, dispatch.one, args) == []


def changed(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> Any:
    """Decorate with dispatchers whose code was changed."""
    source = Writer.source

    def write(self: Writer) -> str:
        before = source(self)
        assert old in before
        return before.replace(old, new)

    monkeypatch.setattr(Writer, "source", write)
    monkeypatch.setattr(shapes, "_SHAPES", {})
    return xpolicy.compile(dispatch.one, mode="eager")


def test_the_guard_sees_a_context_variable_that_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    stack: ContextVar[None] = ContextVar("stack", default=None)
    monkeypatch.setitem(dispatchers._SHARED, "overrides", Cell(stack))
    decorated = changed(monkeypatch, "if _xp_overrides:", "if _xp_overrides.get():")
    told = guard.exceeded(decorated, dispatch.one, (ARRAYS["torch"],))
    assert "calls ContextVar.get" in told


def test_the_guard_sees_a_python_function_that_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(dispatchers._SHARED, "overrides", Cell(lambda: False))
    decorated = changed(monkeypatch, "if _xp_overrides:", "if _xp_overrides():")
    (told,) = guard.exceeded(decorated, dispatch.one, (ARRAYS["torch"],))
    assert "<lambda>" in told or "instructions" in told


def test_the_guard_sees_instructions_that_call_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    more = "if " + " or ".join(["_xp_overrides"] * 8) + ":"
    decorated = changed(monkeypatch, "if _xp_overrides:", more)
    (told,) = guard.exceeded(decorated, dispatch.one, (ARRAYS["torch"],))
    assert "instructions" in told


@pytest.mark.usefixtures("untraced")
def test_a_call_costs_no_more_than_a_bare_forwarder_with_a_wide_margin() -> None:
    # 0.7 on an idle machine. The counts above are the guard; this sees what they can't:
    # an instruction that is no longer specialised, a truth value that is found in Python.
    case = dispatch.Case("torch", dispatch.one, (ARRAYS["torch"],))
    found = []
    for _ in range(5):
        found.append(dispatch.measure(case, calls=500, rounds=31).ratios["bare"])
        if found[-1] < 1.3:
            return
    raise AssertionError(found)
