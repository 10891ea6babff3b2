"""The graph-break budget: which places count, and what happens beyond the limit."""

from __future__ import annotations

import inspect
import warnings
from types import FunctionType
from typing import Any

import pytest
import torch

from xpolicy.errors import GraphBreakLimitError, XPolicyWarning

ones = torch.ones


def line_of(function: Any, text: str) -> int:
    lines, start = inspect.getsourcelines(function)
    return start + next(i for i, line in enumerate(lines) if text in line)


def plain(x: Any) -> Any:
    y = x.sin()
    print(end="")
    return y.sum()


def nothing_before(x: Any) -> Any:
    print(end="")
    return x.sum()


def in_loop(x: Any) -> Any:
    for _ in range(3):
        x = x + 1
        print(end="")
    return x


def on_data(x: Any) -> Any:
    if x.sum() > 0:
        return x + 1
    return x - 1


def in_try(x: Any) -> Any:
    try:
        y = x + 1
        print(end="")
    except ValueError:
        pass
    return y * 2


def helper(x: Any) -> Any:
    y = x.sin()
    print(end="")
    return y + 1


def through_helper(x: Any) -> Any:
    return helper(x) * 2


def through_helper_later(x: Any) -> Any:
    y = x.cos()
    return helper(y) * 2


@pytest.mark.parametrize(
    ("function", "where", "text", "whole"),
    [
        (plain, plain, "print", False),
        (nothing_before, nothing_before, "print", False),
        (in_loop, in_loop, "print", True),
        (on_data, on_data, "if x.sum", False),
        (in_try, in_try, "print", True),
        (through_helper, helper, "print", False),
        (through_helper_later, helper, "print", False),
    ],
)
def test_every_kind_of_break_is_found_once_with_its_line(
    compiled: Any, function: Any, where: Any, text: str, whole: bool
) -> None:
    call = compiled(function, backend="eager")
    for length in (3, 4, 5, 3):
        torch.testing.assert_close(call(ones(length)), function(ones(length)))
    (found,) = [event for event in call.events if event.kind == "graph-break"]
    assert found.details["file"] == __file__
    assert found.details["line"] == line_of(where, text)
    assert found.details["reason"]
    assert ("runs uncompiled" in found.details["reason"]) == whole


def test_a_package_that_torch_never_traces_is_said_so(compiled: Any) -> None:
    import networkx

    def skipped(x: Any) -> Any:
        return x.sin() + 1

    # As if it were defined there: dynamo goes by the file of the code.
    theirs = FunctionType(skipped.__code__.replace(co_filename=networkx.__file__), globals())
    call = compiled(theirs, backend="eager")
    assert torch.equal(call(ones(3)), skipped(ones(3)))
    (told,) = call.told("graph-break")
    assert "torch traces no function of this package" in told
    assert networkx.__file__ in told
    strict = compiled(theirs, backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="marked as skipped"):
        strict(ones(3))


def test_no_break_no_event(compiled: Any) -> None:
    call = compiled(lambda x: x.sin() + 1, backend="eager")
    call(ones(3))
    assert call.count("graph-break") == 0


def test_a_function_without_an_operation_has_no_break(compiled: Any) -> None:
    call = compiled(lambda x: x, backend="eager")
    x = ones(3)
    assert call(x) is x
    assert call.events == []


def test_a_generator_runs_uncompiled_as_a_whole(compiled: Any) -> None:
    def steps(x: Any) -> Any:
        yield x + 1
        yield x + 2

    call = compiled(steps, backend="eager")
    assert [each.sum().item() for each in call(ones(2))] == [4, 6]
    (told,) = call.told("graph-break")
    assert "the whole of steps runs uncompiled" in told


EFFECTS: list[str] = []


def two(x: Any) -> Any:
    EFFECTS.append("start")
    y = x.sin()
    print(end="")
    y = y + 1
    EFFECTS.append("middle")
    print(end="")
    return y.sum()


@pytest.mark.parametrize("action", ["error", "warn", "eager"])
@pytest.mark.parametrize("limit", [1, 2])
def test_the_budget_holds(compiled: Any, counter: Any, action: str, limit: int) -> None:
    call = compiled(
        two,
        {"backend": counter},
        graph_break_limit=limit,
        on_graph_break_limit=action,
        recompile_limit=8,
    )
    over = limit < 2
    errors = 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            try:
                torch.testing.assert_close(call.call(ones(3)), two(ones(3)))
            except GraphBreakLimitError as error:
                errors += 1
                told = str(error)
                assert "graph-break-limit = 1 (set at xpolicy.toml:3:1)" in told
                assert told.count(__file__) == 2
                assert f"{__file__}:{line_of(two, 'print')}: " in told
    ours = [w for w in caught if issubclass(w.category, XPolicyWarning)]
    assert errors == (3 if over and action == "error" else 0)
    assert len(ours) == (1 if over and action == "warn" else 0)
    assert all(w.filename == __file__ for w in ours)


def test_an_error_known_from_the_first_frame_comes_before_any_side_effect(compiled: Any) -> None:
    def one_frame(x: Any) -> Any:
        EFFECTS.append("ran")
        for _ in range(2):
            x = x + 1
            print(end="")
        return x

    call = compiled(one_frame, backend="eager", graph_break_limit=1, on_graph_break_limit="error")
    EFFECTS.clear()
    call(ones(3))  # the one break there is: the frame runs as a whole
    assert EFFECTS == ["ran"]
    EFFECTS.clear()
    call = compiled(two, backend="eager", graph_break_limit=1, on_graph_break_limit="error")
    with pytest.raises(GraphBreakLimitError):
        call(ones(3))
    first = list(EFFECTS)
    with pytest.raises(GraphBreakLimitError):
        call(ones(3))
    assert first == EFFECTS  # later calls are refused before they begin


def test_limit_zero_asks_for_one_graph(compiled: Any) -> None:
    call = compiled(plain, backend="eager", graph_break_limit=0)
    assert call.lowered.keywords["fullgraph"] is True
    with pytest.raises(torch._dynamo.exc.Unsupported):
        call(ones(3))


def test_eager_stops_compiling(compiled: Any, counter: Any) -> None:
    call = compiled(two, {"backend": counter}, graph_break_limit=1, on_graph_break_limit="eager")
    call(ones(3))
    before = counter.graphs
    for length in (3, 4, 5, 6):
        torch.testing.assert_close(call(ones(length)), two(ones(length)))
    assert counter.graphs == before
    call.clear()
    call(ones(3))
    assert counter.graphs > before
