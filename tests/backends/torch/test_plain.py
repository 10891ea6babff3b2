"""The same promises with nothing but torch.compile, as far as that goes."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from xpolicy.backends.torch import private
from xpolicy.errors import GraphBreakLimitError, RecompileLimitError, XPolicyWarning

ones = torch.ones


@pytest.fixture(autouse=True)
def only_public(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("private interface used")

    monkeypatch.setattr(private, "hooks_available", lambda: False)
    for name in ("hooked", "cache_entries", "matches", "recompile_reasons", "compile_lock"):
        monkeypatch.setattr(private, name, refuse)


def double(x: Any, n: int = 2) -> Any:
    return x.sin() * n


@pytest.mark.parametrize("fullgraph", [None, True])
@pytest.mark.parametrize("action", ["error", "warn", "eager"])
def test_the_limit_holds(compiled: Any, counter: Any, fullgraph: bool | None, action: str) -> None:
    call = compiled(
        double,
        {"backend": counter},
        dynamic=False,
        recompile_limit=2,
        on_recompile_limit=action,
        fullgraph=fullgraph,
    )
    raised: dict[int, str] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for length in (2, 3, 4, 5, 2, 3, 6):
            try:
                torch.testing.assert_close(call(ones(length)), double(ones(length)))
            except RecompileLimitError as error:
                raised[length] = str(error)
    assert counter.graphs == 2
    assert call.count() == 2
    assert set(raised) == ({4, 5, 6} if action == "error" else set())
    assert all("recompile-limit = 2 (set at xpolicy.toml:3:1)" in told for told in raised.values())
    if fullgraph:  # without it, torch falls back by itself and warns in its log
        ours = [w for w in caught if issubclass(w.category, XPolicyWarning)]
        assert len(ours) == (1 if action == "warn" else 0)
    call.clear()
    call(ones(7))
    assert counter.graphs == 3


@pytest.mark.parametrize("fullgraph", [None, True])
def test_own_exceptions_keep_type_and_message(compiled: Any, fullgraph: bool | None) -> None:
    def on_shape(x: Any) -> Any:
        if x.shape[0] == 3:
            raise ValueError("three is too many")
        return x + 1

    call = compiled(on_shape, backend="eager", fullgraph=fullgraph)
    with pytest.raises(ValueError, match=r"^three is too many$"):
        call(ones(3))
    assert torch.equal(call(ones(2)), ones(2) + 1)


def test_static_arguments(compiled: Any, counter: Any) -> None:
    call = compiled(double, {"backend": counter}, static_argnames=("n",))
    for length in (2, 3, 4, 5):
        call(ones(length), 2)
    assert counter.graphs == 2
    call(ones(5), n=3)
    call(ones(6), 3)
    assert counter.graphs == 3


def test_closures_have_their_own_budgets(compiled: Any, counter: Any) -> None:
    def make(k: int) -> Any:
        return compiled(
            lambda x: x.sin() * k,
            {"backend": counter},
            fullgraph=True,
            dynamic=False,
            recompile_limit=1,
            on_recompile_limit="error",
        )

    for call in [make(k) for k in range(3)]:
        call(ones(3))
    assert counter.graphs == 3


def test_graph_breaks_that_graphs_tell_of_are_counted(compiled: Any) -> None:
    def broken(x: Any) -> Any:
        y = x.sin()
        print(end="")
        y = y.cos()
        print(end="")
        return y.sin()

    call = compiled(broken, backend="eager", graph_break_limit=1, on_graph_break_limit="error")
    for _ in range(2):
        with pytest.raises(GraphBreakLimitError, match="graph-break-limit = 1"):
            call(ones(3))
    assert call.count("graph-break") == 2


def test_an_outer_trace_goes_straight_through(compiled: Any) -> None:
    call = compiled(double, backend="eager", fullgraph=True)
    torch.testing.assert_close(torch.func.vmap(call.call)(ones(2, 3)), double(ones(2, 3)))
    assert call.events == []


def test_a_guard_filter_is_passed_on(compiled: Any, counter: Any) -> None:
    def none(guards: Any) -> Any:
        return [False for _ in guards]

    call = compiled(double, {"backend": counter, "guard_filter_fn": none}, dynamic=False)
    call(ones(2))
    call(ones(3))
    assert counter.graphs == 1
