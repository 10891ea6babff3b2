"""Modules that are made while a compiled function runs: torch counts its calls to know them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch._dynamo import mutation_guard
from torch._dynamo.testing import CompileCounter

import xpolicy
from xpolicy.backends.torch import private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def through(module: Any, x: torch.Tensor) -> torch.Tensor:
    return module(x) * 2


def body(x: torch.Tensor) -> torch.Tensor:
    module = torch.nn.Linear(3, 3)
    torch.nn.init.ones_(module.weight)
    torch.nn.init.ones_(module.bias)
    torch._dynamo.graph_break()
    return through(module, x)


def compiled(counter: CompileCounter) -> list[Callable[..., Any]]:
    def own() -> Any:
        return type(body)(body.__code__.replace(), body.__globals__, body.__name__)

    return [
        torch.compile(own(), backend=counter),
        xpolicy.compile(own(), name="mylib.made", torch={"backend": counter}),
    ]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    private._generations.cache_clear()
    torch._dynamo.reset()
    yield
    private._generations.cache_clear()


def test_a_module_made_in_the_body_compiles_as_often_as_under_torch_alone() -> None:
    x = torch.ones(2, 3)
    counts = []
    for which in (0, 1):
        torch._dynamo.reset()
        counter = CompileCounter()
        call = compiled(counter)[which]
        for _ in range(4):
            assert call(x).tolist() == body(x).tolist()
        counts.append(counter.frame_count)
    assert counts[0] == counts[1] > 0


def test_each_call_is_a_generation() -> None:
    x = torch.ones(2, 3)
    for call in compiled(CompileCounter()):
        call(x)
        before = mutation_guard.GenerationTracker.generation
        call(x)
        call(x)
        assert mutation_guard.GenerationTracker.generation == before + 2


def test_a_torch_that_does_something_else_at_each_call_goes_on_doing_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = []
    count = mutation_guard.install_generation_tagging_init

    def install() -> None:
        done.append("something else")
        count()

    # Under both names: that of its own module, and what the hook of a call looks up.
    monkeypatch.setattr(mutation_guard, "install_generation_tagging_init", install)
    monkeypatch.setattr("torch._dynamo.eval_frame.install_generation_tagging_init", install)
    x = torch.ones(2, 3)
    _, call = compiled(CompileCounter())
    call(x)
    before = len(done)
    call(x)
    call(x)
    assert len(done) == before + 2
