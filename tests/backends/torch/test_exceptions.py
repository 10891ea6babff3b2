"""Exceptions of the function's own, failures to compile, and what follows either."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from xpolicy.errors import XPolicyWarning

ones = torch.ones
RAN: list[Any] = []


class OwnError(Exception):
    pass


def on_shape(x: Any) -> Any:
    if x.shape[0] == 3:
        raise ValueError("three is too many")
    return x + 1


def own_class(x: Any) -> Any:
    if x.shape[0] == 3:
        raise OwnError("of its own")
    return x + 1


def lookup(x: Any) -> Any:
    return x + {2: 1}[x.shape[0]]


def index(x: Any) -> Any:
    return x + (1, 2, 3)[x.shape[0]]


def asserts(x: Any) -> Any:
    assert x.shape[0] == 2, "not two"
    return x + 1


def operation(x: Any) -> Any:
    return x.sin() @ ones(2)


def dimension(x: Any) -> Any:
    return x.sum(x.shape[0] - 2)


def later(x: Any) -> Any:
    y = x.sin()
    print(end="")
    if x.shape[0] == 3:
        raise ValueError("after a break")
    return y


CASES = [on_shape, own_class, lookup, index, asserts, operation, dimension]


@pytest.mark.parametrize("action", ["error", "eager"])
@pytest.mark.parametrize(
    ("function", "fullgraph"),
    [*((f, strict) for f in CASES for strict in (None, True)), (later, None)],
    ids=lambda told: getattr(told, "__name__", str(told)),
)
def test_an_exception_keeps_type_and_message_and_compilation_goes_on(
    compiled: Any, counter: Any, function: Any, fullgraph: bool | None, action: str
) -> None:
    with pytest.raises(Exception) as wanted:  # noqa: PT011  # whatever it is, it is to be kept
        function(ones(3))
    call = compiled(function, {"backend": counter}, fullgraph=fullgraph, on_failure=action)
    for _ in range(2):
        with pytest.raises(type(wanted.value)) as found:
            call(ones(3))
        assert type(found.value) is type(wanted.value)
        assert str(found.value) == str(wanted.value)
    before = counter.graphs
    torch.testing.assert_close(call(ones(2)), function(ones(2)))
    assert counter.graphs > before
    assert call.count("fallback") == 0


def untraceable(x: Any) -> Any:
    RAN.append(x.shape)
    return x + torch.compiler.disable(lambda: 1)()


def failing_backend(graph: Any, inputs: Any) -> Any:
    raise NotImplementedError("no code for this")


def works(x: Any) -> Any:
    RAN.append(x.shape)
    return x + 1


def test_a_failure_says_function_policy_and_remedy(compiled: Any) -> None:
    call = compiled(untraceable, backend="eager", fullgraph=True)
    RAN.clear()
    with pytest.raises(torch._dynamo.exc.Unsupported) as caught:
        call(ones(2))
    (note,) = caught.value.__notes__
    assert "mylib.f for torch is compiled in mode fullgraph (asked for at xpolicy.toml:3:1)" in note
    assert 'supports = "compile"' in note
    assert RAN == []


def test_fullgraph_never_falls_back(compiled: Any) -> None:
    call = compiled(untraceable, backend="eager", fullgraph=True, on_failure="eager")
    with pytest.raises(torch._dynamo.exc.Unsupported):
        call(ones(2))


def test_the_compilers_error_is_raised_by_default(compiled: Any) -> None:
    call = compiled(works, {"backend": failing_backend})
    RAN.clear()
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="no code for this") as caught:
        call(ones(2))
    assert len(caught.value.__notes__) == 1
    assert RAN == []


def test_a_fallback_is_remembered_for_each_signature_and_warned_of_once(compiled: Any) -> None:
    tries = []

    def failing(graph: Any, inputs: Any) -> Any:
        tries.append(1)
        raise NotImplementedError("no code for this")

    call = compiled(works, {"backend": failing}, on_failure="eager", dynamic=False)
    RAN.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for length in (2, 2, 2, 3, 3):
            assert torch.equal(call.call(ones(length)), ones(length) + 1)
    assert len(tries) == 2
    assert len(RAN) == 5
    (warning,) = [w for w in caught if issubclass(w.category, XPolicyWarning)]
    assert "no code for this" in str(warning.message)
    assert warning.filename == __file__
    assert call.count("fallback") == 2


def test_exceptions_of_the_function_are_no_reason_to_fall_back(compiled: Any) -> None:
    call = compiled(on_shape, backend="eager", on_failure="eager")
    with pytest.raises(ValueError, match="three"):
        call(ones(3))
    assert call.count("fallback") == 0
