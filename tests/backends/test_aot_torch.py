"""Ahead of time on torch: nothing runs, and later calls find what is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import xpolicy

if TYPE_CHECKING:
    from collections.abc import Callable

torch = pytest.importorskip("torch", reason="these tests run torch: pip install torch")
from torch._dynamo.utils import counters  # noqa: E402  # only where the library is there
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402  # only where the library is there

#: Dynamo is what is tested here; inductor takes 13 s for its first graph.
QUICK = {"backend": "aot_eager"}
_numbers = iter(range(10**6))


class Box:
    """Takes what a function leaves behind; dynamo guards on nothing of it that is written."""


def fresh(function: Callable[..., Any], **options: Any) -> Any:
    options.setdefault("torch", QUICK)
    return xpolicy.compile(name=f"mylib.f{next(_numbers)}", **options)(function)


def graphs() -> int:
    """How many graphs dynamo has handed to a compiler in this process."""
    return int(counters["stats"]["unique_graphs"])


def fake(x: Any) -> Any:
    return FakeTensorMode().from_tensor(x)


ARGUMENTS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    # what is lowered for, and what is called with
    "tensor": (lambda: torch.ones(4), lambda: torch.ones(4)),
    "spec": (lambda: xpolicy.spec("float32[4]", namespace="torch"), lambda: torch.ones(4)),
    "meta": (lambda: torch.ones(4, device="meta"), lambda: torch.ones(4)),
    "fake": (lambda: fake(torch.ones(4)), lambda: torch.ones(4)),
    "fake, strided": (lambda: fake(torch.ones(4, 3)).t(), lambda: torch.ones(4, 3).t()),
    "inside": (
        lambda: {"a": (xpolicy.spec("int64[2]"), torch.ones(2))},
        lambda: {"a": (torch.ones(2, dtype=torch.int64), torch.ones(2))},
    ),
}


def doubled(x: Any) -> Any:
    if isinstance(x, dict):
        return [doubled(item) for item in x["a"]]
    return x * 2


@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
@pytest.mark.parametrize("kind", ARGUMENTS)
def test_a_call_after_compiling_ahead_compiles_nothing(kind: str, mode: str) -> None:
    lowered_for, called_with = ARGUMENTS[kind]
    f = fresh(doubled, mode=mode)
    before = graphs()
    compiled = f.lower(lowered_for()).compile()
    assert (graphs() - before, compiled.remaining) == (1, ())
    f(called_with())
    compiled(called_with())
    assert graphs() - before == 1
    assert f.stats().compilations == 1
    f.lower(lowered_for()).compile()  # and once more
    assert graphs() - before == 1


@pytest.mark.parametrize("kind", ARGUMENTS)
def test_compiling_after_a_call_compiles_nothing(kind: str) -> None:
    lowered_for, called_with = ARGUMENTS[kind]
    f = fresh(doubled)
    f(called_with())
    before = graphs()
    compiled = f.lower(lowered_for()).compile()
    assert graphs() == before
    assert compiled.seconds is None
    assert f.stats().compilations == 1


@pytest.mark.parametrize("call_first", [False, True])
def test_no_kernel_runs_and_no_side_effect(call_first: bool) -> None:
    box = Box()

    def effects(x, y):
        x.add_(1)
        box.seen = "set"
        return x + y

    f = fresh(effects)
    x = torch.zeros(3)
    if call_first:
        f(torch.zeros(3), x)
        del box.seen
    compiled = f.lower(x, torch.zeros(3)).compile()
    assert x.tolist() == [0.0] * 3
    assert not hasattr(box, "seen")
    assert compiled(x, torch.zeros(3)).tolist() == [1.0] * 3
    assert (x.tolist(), box.seen) == ([1.0] * 3, "set")


@pytest.mark.parametrize("lowered_as", [0, 1, 2])
def test_every_spelling_of_static_arguments_is_one_compilation(lowered_as: int) -> None:
    def scaled(x, n=2):
        return x * n

    f = fresh(scaled, static_argnames=("n",))
    spellings: list[tuple[tuple[Any, ...], dict[str, Any]]] = [((), {}), ((2,), {}), ((), {"n": 2})]
    args, kwargs = spellings[lowered_as]
    before = graphs()
    compiled = f.lower(torch.ones(3), *args, **kwargs).compile()
    for args, kwargs in spellings:
        assert f(torch.ones(3), *args, **kwargs).tolist() == [2.0] * 3
        assert compiled(torch.ones(3), *args, **kwargs).tolist() == [2.0] * 3
    f(x=torch.ones(3))
    assert graphs() - before == 1


def test_closures() -> None:
    def made(scale: Any) -> Any:
        return fresh(lambda x: x * scale)

    f, g = made(torch.ones(3)), made(torch.zeros(3))
    before = graphs()
    f.lower(torch.ones(3)).compile()
    g.lower(torch.ones(3)).compile()
    assert (f(torch.ones(3)).sum(), g(torch.ones(3)).sum()) == (3, 0)
    assert graphs() - before == 2


def test_a_graph_break_is_told_as_what_remains() -> None:
    ran = []

    def broken(x):
        y = x + 1
        torch._dynamo.graph_break()
        ran.append("behind the break")
        return y * 2

    f = fresh(broken)
    compiled = f.lower(torch.ones(3)).compile()
    assert ran == []
    assert len(compiled.remaining) == 1
    assert f"{__file__}:{broken.__code__.co_firstlineno + 2}" in compiled.remaining[0]
    before = graphs()
    assert f(torch.ones(3)).tolist() == [4.0] * 3
    assert graphs() - before == 1  # what is before the break was found, what is behind was not
    assert compiled(torch.ones(3)).tolist() == [4.0] * 3


def test_a_break_before_any_graph_compiles_nothing_and_runs_nothing() -> None:
    ran = []

    def late(x):
        ran.append("before the break")
        torch._dynamo.graph_break()
        return x * 2

    f = fresh(late)
    compiled = f.lower(torch.ones(3)).compile()
    assert ran == []
    assert "first graph break" in compiled.remaining[0]
    assert compiled(torch.ones(3)).tolist() == [2.0] * 3


def test_a_frame_that_dynamo_skips_is_not_run() -> None:
    ran = []

    def skipped(x):
        ran.append("ran")
        for _ in range(2):
            torch._dynamo.graph_break()
            x = x + 1
        return x

    for call_first in (False, True):
        f = fresh(skipped)
        if call_first:
            f(torch.ones(3))
        ran.clear()
        compiled = f.lower(torch.ones(3)).compile()
        assert ran == []
        assert compiled.remaining


def test_which_arguments_are_the_same_tensor_is_part_of_what_is_compiled() -> None:
    f = fresh(lambda x, y: x + y)
    x = torch.ones(3)
    compiled = f.lower(x, x).compile()
    assert compiled(x, x).tolist() == [2.0] * 3
    with pytest.raises(xpolicy.StructureMismatchError, match="is"):
        compiled(x, torch.ones(3))


def test_backward_remains() -> None:
    f = fresh(lambda x: (x * x).sum())
    x = torch.ones(3, requires_grad=True)
    compiled = f.lower(x).compile()
    assert compiled.remaining == ("the backward pass: torch compiles it at its first use",)
    before = graphs()
    compiled(x).backward()
    assert x.grad.tolist() == [2.0] * 3
    assert graphs() == before


def test_fullgraph_that_cannot_be_is_an_error() -> None:
    def broken(x):
        torch._dynamo.graph_break()
        return x

    f = fresh(broken, mode="fullgraph")
    with pytest.raises(torch._dynamo.exc.Unsupported):
        f.lower(torch.ones(3)).compile()


@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
@pytest.mark.parametrize("action", ["error", "warn", "eager"])
def test_a_limit_that_allows_no_more_is_an_error_whatever_the_action(
    action: str, mode: str
) -> None:
    ran = Box()

    def effects(x):
        ran.seen = True
        return x + 1

    options = {**QUICK, "recompile_limit": 1, "on_recompile_limit": action, "dynamic": False}
    f = fresh(effects, torch=options, mode=mode)
    f.lower(torch.ones(2)).compile()
    for _ in range(2):
        with pytest.raises(xpolicy.RecompileLimitError, match="recompile-limit = 1"):
            f.lower(torch.ones(3)).compile()
    if action == "eager":
        f(torch.ones(3))  # closes the function for what isn't compiled yet
        del ran.seen
        with pytest.raises(xpolicy.RecompileLimitError, match="recompile-limit = 1"):
            f.lower(torch.ones(3)).compile()
    f.lower(torch.ones(2)).compile()
    assert not hasattr(ran, "seen")


def test_compiling_is_told_outside_of_torchs_lock() -> None:
    from torch._dynamo.convert_frame import compile_lock

    f = fresh(lambda x: x + 1)
    held: list[bool] = []
    stop = xpolicy.subscribe(lambda event: held.append(compile_lock._is_owned()))
    f.lower(torch.ones(2)).compile()
    stop()
    assert held == [False]


def test_inside_somebodys_trace_it_is_refused() -> None:
    f = fresh(lambda x: x + 1)
    lowered = f.lower(torch.ones(2))
    with FakeTensorMode(), pytest.raises(xpolicy.XPolicyError, match="something else traces"):
        lowered.compile()


def test_the_compiler_switched_off() -> None:
    f = fresh(lambda x: x + 1)
    torch.compiler.set_stance("force_eager")
    try:
        compiled = f.lower(torch.ones(2)).compile()
    finally:
        torch.compiler.set_stance("default")
    assert "force_eager" in compiled.remaining[0]
    assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]


def test_what_there_is_to_see_before_compiling() -> None:
    ran = []

    def pair(x, y):
        ran.append("ran")
        return {"sum": x + y, "pair": (x.sum(), y)}

    f = fresh(pair)
    x = torch.ones(2, 3)
    lowered = f.lower(x, y=x)
    text = lowered.as_text()
    assert "torch.ops.aten.add.Tensor" in text
    assert lowered.as_text(dialect="fx") == text
    assert lowered.in_tree == torch.utils._pytree.tree_structure(((0, 0), {}))
    info = lowered.out_info
    assert (info["sum"].shape, info["pair"][0].shape, info["sum"].dtype) == (
        (2, 3),
        (),
        torch.float32,
    )
    assert lowered.policy.namespace == "torch"
    for ask in (lowered.cost_analysis, lambda: lowered.as_text("stablehlo"), lambda: f.trace(x, x)):
        with pytest.raises(xpolicy.XPolicyError, match="no "):
            ask()
    assert ran == []


def test_a_function_of_several_graphs_has_no_exported_one() -> None:
    def broken(x):
        torch._dynamo.graph_break()
        return x

    lowered = fresh(broken).lower(torch.ones(2))
    with pytest.raises(xpolicy.XPolicyError, match="can't be exported"):
        lowered.as_text()


@pytest.mark.slow
def test_inductor() -> None:
    box = Box()

    def wave(x, n=2):
        x.mul_(2)
        box.seen = "set"
        return torch.sin(x) * n

    f = fresh(wave, torch={}, static_argnames=("n",), mode="fullgraph")
    x = torch.ones(16)
    counters.clear()
    compiled = f.lower(x, n=3).compile()
    assert counters["stats"]["unique_graphs"] == 1
    assert (compiled.remaining, f.stats().compilations) == ((), 1)
    assert (x.tolist(), hasattr(box, "seen")) == ([1.0] * 16, False)
    code = compiled.as_text()
    assert "cpp_fused" in code
    assert "def call" in code
    assert f.lower(x, 3).compile().as_text() == code  # found, not compiled again
    expected = torch.sin(torch.full((16,), 2.0)) * 3
    torch.testing.assert_close(f(torch.ones(16), 3), expected)
    torch.testing.assert_close(compiled(x), expected)
    assert (x.tolist(), box.seen) == ([2.0] * 16, "set")
    assert counters["stats"]["unique_graphs"] == 1
    # and the other way round
    f(torch.ones(16, dtype=torch.float64), 3)
    before = f.stats().compilations
    again = f.lower(torch.ones(16, dtype=torch.float64), n=3).compile()
    assert (f.stats().compilations, again.seconds) == (before, None)
    assert "double" in again.as_text()
