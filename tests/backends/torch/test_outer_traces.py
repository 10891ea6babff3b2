"""Under somebody else's trace a compiled function behaves as the undecorated one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

if TYPE_CHECKING:
    from collections.abc import Callable

ones = torch.ones
EFFECTS: list[int] = []


def function(x: Any, n: int = 2) -> Any:
    EFFECTS.append(1)
    return (x.sin() @ ones(4, 4)).cos().sum() * n


class Net(torch.nn.Module):
    def __init__(self, inner: Callable[..., Any]) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return self.inner(x)


def outer_compile(f: Any) -> Any:
    def outer(x: Any) -> Any:
        return f(x) * 2

    return torch.compile(outer, fullgraph=True, backend="eager")(ones(4))


def flops(f: Any) -> Any:
    with FlopCounterMode(display=False) as counted:
        f(ones(4))
    return torch.tensor(counted.get_total_flops())


def fake(f: Any) -> Any:
    with FakeTensorMode():
        found = f(torch.ones(4))
    return torch.zeros(found.shape)


def graph_of(f: Any) -> Any:
    def outer(x: Any) -> Any:
        return f(x)

    return torch.tensor([len(make_fx(outer)(ones(4)).graph.nodes)])


def fx(f: Any) -> Any:
    def outer(x: Any) -> Any:
        return f(x)

    return torch.fx.symbolic_trace(outer)(ones(4))


def checkpointed(f: Any) -> Any:
    x = ones(4, requires_grad=True)
    checkpoint(f, x, use_reentrant=False).backward()
    return x.grad


def autocast(f: Any) -> Any:
    with torch.autocast("cpu"):
        return f(ones(4))


def inference(f: Any) -> Any:
    with torch.inference_mode():
        return f(ones(4))


OUTER = {
    "vmap": lambda f: torch.func.vmap(f)(ones(3, 4)),
    "grad": lambda f: torch.func.grad(f)(ones(4)),
    "jvp": lambda f: torch.func.jvp(f, (ones(4),), (ones(4),))[1],
    "hessian": lambda f: torch.func.hessian(f)(ones(4)),
    "functionalize": lambda f: torch.func.functionalize(f)(ones(4)),
    "compile": outer_compile,
    "strict export": lambda f: torch.export.export(Net(f), (ones(4),), strict=True).module()(
        ones(4)
    ),
    "export": lambda f: torch.export.export(Net(f), (ones(4),), strict=False).module()(ones(4)),
    "make_fx": graph_of,
    "fx": fx,
    "flop counter": flops,
    "fake mode": fake,
}
AROUND = {"checkpoint": checkpointed, "autocast": autocast, "inference": inference}


# Strict export warns of the effect that the tests count.
@pytest.mark.filterwarnings("ignore:While compiling, we found certain side effects:UserWarning")
@pytest.mark.parametrize("fullgraph", [None, True])
@pytest.mark.parametrize("outer", OUTER)
def test_a_trace_gets_what_the_function_itself_gives(
    compiled: Any, outer: str, fullgraph: bool | None
) -> None:
    EFFECTS.clear()
    wanted = OUTER[outer](function)
    effects = len(EFFECTS)
    torch._dynamo.reset()
    EFFECTS.clear()
    call = compiled(
        function,
        backend="eager",
        fullgraph=fullgraph,
        recompile_limit=1,
        on_recompile_limit="error",
    )
    torch.testing.assert_close(OUTER[outer](call.call), wanted)
    assert len(EFFECTS) == effects
    assert call.events == []


def reads_no_tensor(x: Any) -> Any:
    return (torch.zeros(3) + 1.0).sum()


def reads_a_closed_over_tensor(x: Any) -> Any:
    return (CLOSED_OVER * 2.0).sum()


CLOSED_OVER = ones(3)
PURE = {
    "reads": lambda x: (x.sin() @ ones(4, 4)).cos().sum(),
    "reads none": reads_no_tensor,
    "reads another": reads_a_closed_over_tensor,
}
WITH_OTHERS = {
    "vmap over another": lambda f: torch.func.vmap(lambda y: f(ones(4)) + y)(ones(3, 4)),
    "grad of another": lambda f: torch.func.grad(lambda y: (f(ones(4)) + y).sum())(ones(4)),
}


@pytest.mark.parametrize("fullgraph", [None, True])
@pytest.mark.parametrize(
    ("outer", "body"),
    [
        (outer, body)
        for outer in (*OUTER, *WITH_OTHERS)
        for body in PURE
        # An outer compile has another backend; fake mode refuses tensors from elsewhere.
        if outer != "compile" and (outer, body) != ("fake mode", "reads another")
    ],
)
def test_a_trace_after_compiling_gets_what_the_function_itself_gives(
    compiled: Any, outer: str, body: str, fullgraph: bool | None
) -> None:
    function, around = PURE[body], (OUTER | WITH_OTHERS)[outer]
    if body != "reads" and outer in ("grad", "jvp", "hessian"):
        ran: list[Any] = []  # nothing to differentiate: what counts is what runs

        def around(f: Any) -> Any:
            torch.func.vmap(lambda y: ran.append(f(y)) or y)(ones(3, 4))
            return ran[-1]

    wanted = around(function)
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            graphs.append(graph)
            return graph(*args)

        return run

    call = compiled(function, backend=backend, fullgraph=fullgraph)
    for _ in range(2):
        call.call(ones(4))
    before, told = len(graphs), len(call.events)
    torch.testing.assert_close(around(call.call), wanted)
    # What is exported or traced runs elsewhere; nothing compiled took part in it.
    assert len(graphs) == before
    assert len(call.events) == told


def test_a_trace_beyond_the_limit_gets_what_the_function_itself_gives(compiled: Any) -> None:
    call = compiled(
        PURE["reads"],
        backend="eager",
        fullgraph=True,
        recompile_limit=1,
        on_recompile_limit="eager",
    )
    for size in (4, 3, 4):
        call.call(ones(4) if size == 4 else ones(2, 4))
    for outer in ("vmap", "grad", "make_fx", "fx", "flop counter", "fake mode"):
        torch.testing.assert_close(OUTER[outer](call.call), OUTER[outer](PURE["reads"]))


@pytest.mark.parametrize("fullgraph", [None, True])
@pytest.mark.parametrize("outer", AROUND)
def test_modes_around_a_call_give_the_same_values(
    compiled: Any, outer: str, fullgraph: bool | None
) -> None:
    wanted = AROUND[outer](function)
    call = compiled(function, backend="aot_eager", fullgraph=fullgraph)
    torch.testing.assert_close(AROUND[outer](call.call), wanted)
    assert call.count() >= 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.jit.trace is deprecated
@pytest.mark.parametrize("fullgraph", [None, True])
def test_torchscript_traces_through(compiled: Any, fullgraph: bool | None) -> None:
    call = compiled(function, backend="eager", fullgraph=fullgraph)
    traced = torch.jit.trace(lambda x: call(x), (ones(4),), check_trace=False)
    torch.testing.assert_close(traced(ones(4)), function(ones(4)))
    assert call.events == []


def test_an_error_of_the_body_within_a_symbolic_trace_is_its_own(compiled: Any) -> None:
    ran = []

    def raising(x: Any) -> Any:
        ran.append(x)
        raise RuntimeError("my own")

    call = compiled(raising, backend="eager")
    with pytest.raises(RuntimeError, match=r"^my own$"):
        torch.fx.symbolic_trace(lambda x: call(x))
    assert len(ran) == 1


def test_a_first_call_within_a_symbolic_trace_builds_nothing(compiled: Any) -> None:
    def pure(x: Any) -> Any:
        return x.sin().sum()

    call = compiled(pure, backend="eager")
    for _ in range(2):  # before anything is compiled, and after
        traced = torch.fx.symbolic_trace(lambda x: call(x))
        torch.testing.assert_close(traced(ones(4)), pure(ones(4)))
        call(ones(4))
    assert [event for event in call.events if event.kind != "compile"] == []


def test_an_outer_compile_neither_breaks_nor_recompiles(compiled: Any, counter: Any) -> None:
    def pure(x: Any) -> Any:
        return x.sin().sum()

    call = compiled(pure, backend="eager", recompile_limit=1, on_recompile_limit="error")
    inner = call.call

    def outer(x: Any) -> Any:
        return inner(x) * 2

    together = torch.compile(outer, backend=counter, fullgraph=True)
    for _ in range(3):
        torch.testing.assert_close(together(ones(4)), pure(ones(4)) * 2)
        call(ones(4))
        call.clear()
    assert counter.graphs == 1


def test_fake_tensors_outside_of_their_mode(compiled: Any) -> None:
    with FakeTensorMode():
        x = torch.ones(4)
    call = compiled(lambda x: x.sin() + 1, backend="eager")
    assert call(x).shape == (4,)
