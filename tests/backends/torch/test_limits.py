"""The recompile limit: how many variants there are, and what happens beyond."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import pytest
import torch

from xpolicy.errors import RecompileLimitError, XPolicyWarning

LENGTHS = (2, 3, 4, 5, 2, 3, 6)
OVER = {4, 5, 6}


def double(x: Any, n: int = 2) -> Any:
    return x.sin() * n


@pytest.mark.parametrize("fullgraph", [None, True])
@pytest.mark.parametrize("action", ["error", "warn", "eager"])
def test_the_limit_holds_and_variants_stay_compiled(
    compiled: Any, counter: Any, fullgraph: bool | None, action: str
) -> None:
    call = compiled(
        double,
        extra={"backend": counter},
        dynamic=False,
        recompile_limit=2,
        on_recompile_limit=action,
        fullgraph=fullgraph,
    )
    raised = set()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for length in LENGTHS:
            x = torch.ones(length)
            try:
                torch.testing.assert_close(call(x), double(x))
            except RecompileLimitError:
                raised.add(length)
    assert counter.graphs == 2
    assert call.count("compile") == 2
    assert raised == (OVER if action == "error" else set())
    ours = [w for w in caught if issubclass(w.category, XPolicyWarning)]
    assert len(ours) == (1 if action == "warn" else 0)
    assert call.count("limit") == (3 if action == "error" else 1)
    call.clear()
    call(torch.ones(7))
    assert counter.graphs == 3


def test_the_error_says_limit_origin_change_and_edit(compiled: Any) -> None:
    call = compiled(
        double, backend="eager", dynamic=False, recompile_limit=1, on_recompile_limit="error"
    )
    call(torch.ones(3))
    with pytest.raises(RecompileLimitError) as caught:
        call(torch.ones(4))
    told = str(caught.value)
    assert "mylib.f" in told
    assert "recompile-limit = 1 (set at xpolicy.toml:3:1)" in told
    assert "x: float32[3] -> float32[4]" in told
    assert "recompile-limit = 2, or more, at xpolicy.toml:3:1" in told


def _no_grad(call: Any, x: Any) -> Any:
    with torch.no_grad():
        return call(x)


def _inference(call: Any, x: Any) -> Any:
    with torch.inference_mode():
        return call(x)


def _threads(call: Any, x: Any) -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        return call(x)
    finally:
        torch.set_num_threads(before)


CHANGES = {
    "x: float32[3] -> float32[4]": lambda call, x: call(torch.ones(4)),
    "x: float32[3] -> float64[3]": lambda call, x: call(x.double()),
    "x: float32[3] -> float32[3, 1]": lambda call, x: call(x[:, None]),
    "x: float32[3] -> float32[3] requires_grad": lambda call, x: call(x.requires_grad_()),
    "x: float32[3] -> float32[3] strides=(2,)": lambda call, x: call(torch.ones(6)[::2]),
    "x: float32[3] -> Parameter float32[3] requires_grad": lambda call, x: call(
        torch.nn.Parameter(x)
    ),
    "n: 2 -> 3": lambda call, x: call(x, 3),
    "n: 2 -> 2.0": lambda call, x: call(x, 2.0),
    "n: 2 -> 'a'": lambda call, x: call(x, "a"),
    "grad mode: True -> False": _no_grad,
    "inference mode: False -> True": _inference,
    "threads: ": _threads,
}


@pytest.mark.parametrize("told", CHANGES)
def test_the_error_names_what_changed(compiled: Any, told: str) -> None:
    def scaled(x: Any, n: Any = 2) -> Any:
        return x.sin() * len(n) if isinstance(n, str) else x.sin() * n

    call = compiled(
        scaled, backend="eager", dynamic=False, recompile_limit=1, on_recompile_limit="error"
    )
    call(torch.ones(3))
    with pytest.raises(RecompileLimitError) as caught:
        CHANGES[told](call, torch.ones(3))
    line = next(x for x in str(caught.value).splitlines() if "changed since" in x)
    assert told in line
    if told != "inference mode: False -> True":  # it turns the grad mode off too
        assert line.count("->") == 1


def test_static_values_are_named_too(compiled: Any) -> None:
    call = compiled(
        double,
        backend="eager",
        static_argnames=("n",),
        recompile_limit=1,
        on_recompile_limit="error",
    )
    call(torch.ones(3), n=2)
    with pytest.raises(RecompileLimitError, match="changed since the nearest variant: n: 2 -> 5"):
        call(torch.ones(3), n=5)


def test_closures_of_one_code_have_their_own_budgets(compiled: Any, counter: Any) -> None:
    def make(k: int) -> Any:
        def inner(x: Any) -> Any:
            return x.sin() * k

        return compiled(
            inner,
            {"backend": counter},
            dynamic=False,
            recompile_limit=1,
            on_recompile_limit="error",
        )

    calls = [make(k) for k in range(4)]
    for k, call in enumerate(calls):
        assert torch.equal(call(torch.ones(3)), torch.ones(3).sin() * k)
    assert counter.graphs == 4
    calls[0].clear()
    with pytest.raises(RecompileLimitError):
        calls[1](torch.ones(4))
    calls[0](torch.ones(4))


@pytest.mark.parametrize("action", ["error", "eager"])
@pytest.mark.parametrize("fullgraph", [None, True])
def test_the_compilers_own_cache_clearing_gives_the_budget_back(
    compiled: Any, counter: Any, fullgraph: bool | None, action: str
) -> None:
    call = compiled(
        double,
        {"backend": counter},
        dynamic=False,
        fullgraph=fullgraph,
        recompile_limit=1,
        on_recompile_limit=action,
    )
    call(torch.ones(3))
    if action == "eager":
        call(torch.ones(4))
    torch.compiler.reset()
    call(torch.ones(5))
    assert counter.graphs == 2
    call(torch.ones(5))
    assert counter.graphs == 2


def test_torchs_own_limit_applies_when_nobody_sets_one(compiled: Any, counter: Any) -> None:
    call = compiled(double, {"backend": counter}, dynamic=False, fullgraph=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for length in range(2, 14):
            call.call(torch.ones(length))
    assert counter.graphs == torch._dynamo.config.recompile_limit == 8
    (warning,) = [w for w in caught if issubclass(w.category, XPolicyWarning)]
    assert "recompile-limit = 8 (torch's own default)" in str(warning.message)
    assert warning.filename == __file__


def test_graphs_behind_a_break_do_not_count(compiled: Any, counter: Any) -> None:
    def broken(x: Any) -> Any:
        y = x.sin()
        print(end="")
        return y.cos()

    call = compiled(
        broken,
        {"backend": counter},
        dynamic=False,
        recompile_limit=2,
        on_recompile_limit="error",
    )
    call(torch.ones(2))
    call(torch.ones(3))
    assert counter.graphs == 4
    with pytest.raises(RecompileLimitError):
        call(torch.ones(4))


def test_a_call_under_an_outer_trace_does_not_count(compiled: Any) -> None:
    call = compiled(
        double, backend="eager", dynamic=False, recompile_limit=1, on_recompile_limit="error"
    )
    for length in (2, 3, 4):
        torch.compile(lambda x: call.call(x), backend="eager")(torch.ones(length))
        torch.func.vmap(call.call)(torch.ones(length, 2))
    call(torch.ones(5))
    assert call.count() == 1


def test_compilations_and_recompilations_are_told(compiled: Any) -> None:
    call = compiled(double, backend="eager", dynamic=False)
    call(torch.ones(2))
    call(torch.ones(3))
    call(torch.ones(3))
    first, second = [event for event in call.events if event.kind == "compile"]
    assert first.key == "mylib.f"
    assert first.namespace == "torch"
    assert first.details["signature"] == "x: float32[2], n: 2"
    assert 0 < first.details["seconds"] < 60
    assert second.details["signature"] == "x: float32[3], n: 2"
    assert call.told("recompile") == ["x: float32[2] -> float32[3]"]


@pytest.mark.slow
@pytest.mark.parametrize("fullgraph", [None, True])
def test_the_limit_holds_under_inductor_and_in_training(
    compiled: Any, fullgraph: bool | None
) -> None:
    call = compiled(
        double, dynamic=False, recompile_limit=1, on_recompile_limit="eager", fullgraph=fullgraph
    )
    for length in (8, 9, 8):
        x = torch.ones(length, requires_grad=True)
        found = call(x)
        torch.testing.assert_close(found, double(x))
        found.sum().backward()
        torch.testing.assert_close(x.grad, 2 * torch.ones(length).cos())
    assert call.count() == 1


def test_methods_of_modules_and_of_plain_classes(compiled: Any, counter: Any) -> None:
    class Layer(torch.nn.Module):
        def __init__(self, size: int) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(2, size)

        def forward(self, x: Any) -> Any:
            return self.linear(x).sum()

    class Scale:
        def __init__(self, by: int) -> None:
            self.by = by

        def __call__(self, x: Any) -> Any:
            return x * self.by

    for method, instances in (
        (Layer.forward, [Layer(2), Layer(2), Layer(3)]),
        (Scale.__call__, [Scale(2), Scale(3)]),
    ):
        call = compiled(method, {"backend": counter}, fullgraph=True)
        for instance in instances:
            torch.testing.assert_close(call(instance, torch.ones(3, 2)), instance(torch.ones(3, 2)))


@pytest.mark.parametrize("function", [torch.sin, functools.partial(torch.sin)])
def test_callables_without_code_of_their_own(compiled: Any, counter: Any, function: Any) -> None:
    call = compiled(function, {"backend": counter}, fullgraph=True)
    assert torch.equal(call(torch.ones(2)), torch.ones(2).sin())
    assert counter.graphs == 1
