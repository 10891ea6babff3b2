"""What a compiled graph raises while it runs is what the function raises.

PYTEST_DONT_REWRITE: the functions' own assertions must reach torch as they stand.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from xpolicy.errors import XPolicyWarning

ones, zeros = torch.ones, torch.zeros
BACKENDS = [None, "eager"]  # inductor, and the graph as it is


def asserts(x: Any) -> Any:
    y = x.sin()
    assert x.sum() > 3, "too small"
    return y + 1


def asserts_twice(x: Any) -> Any:
    assert x.max() < 9, "too large"
    assert x.sum() > 3, "too small"
    return x + 1


def asserts_without_words(x: Any) -> Any:
    assert x.sum() > 3
    return x + 1


def asserts_an_object(x: Any) -> Any:
    assert x.sum() > 3, ("too small", 3)
    return x + 1


def asserts_on_a_number(x: Any) -> Any:
    total = x.sum().item()
    assert total > 3, "too small"
    return x + 1


def takes_out_of_range(x: Any) -> Any:
    return x[(x == 0).long() * 9]


def selects_out_of_range(x: Any) -> Any:
    return x.index_select(0, (x == 0).long() * 9)


def updates_and_asserts(x: Any) -> Any:
    x.add_(1)
    assert x.sum() > 5, "too small"
    return x + 1


def updates_and_asserts_an_object(x: Any) -> Any:
    x.add_(1)
    assert x.sum() > 5, ("too small", 5)
    return x + 1


@pytest.mark.parametrize("fullgraph", [None, True])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "function",
    [
        asserts,
        asserts_twice,
        asserts_without_words,
        asserts_an_object,
        asserts_on_a_number,
        takes_out_of_range,
        selects_out_of_range,
        updates_and_asserts,
        updates_and_asserts_an_object,
    ],
)
def test_type_and_message_are_the_functions_own(
    compiled: Any, function: Any, backend: str | None, fullgraph: bool | None
) -> None:
    with pytest.raises(Exception) as wanted:  # noqa: PT011  # whatever it is, it is to be kept
        function(zeros(4))
    call = compiled(function, backend=backend, fullgraph=fullgraph)
    torch.testing.assert_close(call(ones(4)), function(ones(4)))
    compilations = call.count()
    for _ in range(2):
        with pytest.raises(type(wanted.value)) as found:
            call(zeros(4))
        assert type(found.value) is type(wanted.value)
        assert str(found.value) == str(wanted.value)
        assert found.value.args == wanted.value.args
    torch.testing.assert_close(call(ones(4)), function(ones(4)))
    assert (call.count(), call.count("fallback")) == (compilations, 0)


def test_an_assertion_ends_no_graph(compiled: Any, counter: Any) -> None:
    call = compiled(asserts, {"backend": counter}, graph_break_limit=1)
    call(ones(4))
    with pytest.raises(AssertionError):
        call(zeros(4))
    assert (counter.graphs, call.count("graph-break")) == (1, 0)


@pytest.mark.parametrize("fullgraph", [None, True])
def test_an_update_in_place_is_not_made_twice(compiled: Any, fullgraph: bool | None) -> None:
    call = compiled(updates_and_asserts, backend="eager", fullgraph=fullgraph)
    x = zeros(4)
    with pytest.raises(AssertionError, match=r"^too small$"):
        call(x)
    assert torch.equal(x, ones(4))


EFFECTS: list[int] = []


def prints_and_asserts(x: Any) -> Any:
    y = x.sin()
    EFFECTS.append(1)
    torch.compiler.disable(EFFECTS.append)(2)
    assert x.sum() > 3, "too small"
    return y


def test_what_has_run_before_a_break_is_not_run_again(compiled: Any) -> None:
    call = compiled(prints_and_asserts, backend="eager")
    call(ones(4))
    EFFECTS.clear()
    with pytest.raises(AssertionError, match=r"^too small$"):
        call(zeros(4))
    assert EFFECTS == [1, 2]


def effects_of_a_part(x: Any) -> Any:
    EFFECTS.append(1)
    if x.shape[0] == 4:
        y = asserts(x)
        EFFECTS.append(2)
        raise KeyError(y.shape[0])
    return x


def test_a_part_that_runs_for_itself_is_not_the_function(compiled: Any) -> None:
    # Dynamo sees that the function raises and leaves it as it is; what it calls is compiled.
    call = compiled(effects_of_a_part, backend="eager")
    with pytest.raises(KeyError):
        call(ones(4))
    EFFECTS.clear()
    with pytest.raises(AssertionError, match=r"^too small$"):
        call(zeros(4))
    assert EFFECTS == [1]


def catches(x: Any) -> Any:
    try:
        assert x.sum() > 3, "too small"
    except AssertionError:
        return x - 1
    return x + 1


@pytest.mark.parametrize("fullgraph", [None, True])
def test_a_function_catches_its_own(compiled: Any, fullgraph: bool | None) -> None:
    call = compiled(catches, backend="eager", fullgraph=fullgraph)
    assert torch.equal(call(ones(4)), ones(4) + 1)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(2):
            assert torch.equal(call(zeros(4)), zeros(4) - 1)
    (told,) = [w for w in seen if issubclass(w.category, XPolicyWarning)]
    assert "mylib.f runs uncompiled" in str(told.message)
    assert "RuntimeError: too small" in str(told.message)
    assert call.count("fallback") == 2
