"""Exceptions of the function's own, failures to compile, and what follows either."""

from __future__ import annotations

import contextlib
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


class CodeError(Exception):
    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def class_with_init(x: Any) -> Any:
    if x.shape[0] == 3:
        RAN.append(x)
        raise CodeError("of its own", 7)
    return x + 1


def attribute(x: Any) -> Any:
    if x.shape[0] == 3:
        error = ValueError("has more to say")
        error.extra = 3  # type: ignore[attr-defined]
        raise error
    return x + 1


def noted(x: Any) -> Any:
    if x.shape[0] != 3:
        return x + 1
    error = ValueError("noted")
    if x.ndim == 1:
        error.add_note("in one dimension")
    raise error


def asserts_without_words(x: Any) -> Any:
    assert x.shape[0] == 2
    return x + 1


def asserts_an_object(x: Any) -> Any:
    assert x.shape[0] == 2, ("not two", 1)
    return x + 1


def asserts_with_code(x: Any) -> Any:
    assert x.shape[0] == 2, CodeError("not two", 1)
    return x + 1


def from_another(x: Any) -> Any:
    try:
        return x + {2: 1}[x.shape[0]]
    except KeyError as error:
        raise CodeError("no such size", 1) from error


def called(x: Any) -> Any:
    with torch.no_grad():
        return (lambda: class_with_init(x))()


def printing_first(x: Any) -> Any:
    if x.shape[0] == 3:
        print(end="")
        raise ValueError("said before")
    return x + 1


def missing_name(x: Any) -> Any:
    if x.shape[0] == 3:
        return x + no_such_name  # noqa: F821  # that is what is tested
    return x + 1


def missing_name_in_a_lambda(x: Any) -> Any:
    return (lambda y: y + (1 if y.shape[0] == 2 else no_such_name))(x)  # noqa: F821  # as above


def deleted(x: Any) -> Any:
    y = x + 1
    if x.shape[0] == 3:
        del y
    return y


OWN = [
    class_with_init,
    attribute,
    noted,
    asserts_without_words,
    asserts_an_object,
    asserts_with_code,
    called,
    printing_first,
]
#: Without fullgraph, torch leaves the whole frame uncompiled for good.
STRICT = [from_another, missing_name, missing_name_in_a_lambda, deleted]
CASES = [*OWN, on_shape, own_class, lookup, index, asserts, operation, dimension]


@pytest.mark.parametrize("action", ["error", "eager"])
@pytest.mark.parametrize(
    ("function", "fullgraph"),
    [
        *((f, strict) for f in CASES for strict in (None, True)),
        (later, None),
        *((f, True) for f in STRICT),
    ],
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


@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
def test_the_compilers_error_is_raised_by_default(compiled: Any, mode: str) -> None:
    call = compiled(works, {"backend": failing_backend}, mode=mode)
    RAN.clear()
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="no code for this") as caught:
        call(ones(2))
    (note,) = caught.value.__notes__
    assert f"mylib.f for torch is compiled in mode {mode} (asked for at xpolicy.toml:3:1)" in note
    assert f'supports = "{"eager" if mode == "compile" else "compile"}"' in note
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


def caught_inside(x: Any) -> Any:
    RAN.append(x)
    try:
        raise CodeError("caught", 7)
    except CodeError as error:
        return x + error.code


def caught_by_a_caller(x: Any) -> Any:
    try:
        return class_with_init(x)
    except CodeError as error:
        return x + error.code


def missing_name_caught(x: Any) -> Any:
    RAN.append(x)
    try:
        return x + no_such_name
    except NameError:
        return x


def suppressed(x: Any) -> Any:
    RAN.append(x)
    with contextlib.suppress(CodeError):
        raise CodeError("suppressed", 7)
    return x


def returning_at_last(x: Any) -> Any:
    RAN.append(x)
    try:
        raise CodeError("lost", 7)
    finally:
        return x  # noqa: B012


def branch_on_data(x: Any) -> Any:
    RAN.append(x)
    if x.sum() == 0: raise CodeError("data", 7)  # noqa: E701  # fmt: skip
    return x


def break_in_an_assertion(x: Any) -> Any:
    RAN.append(x)
    assert torch.compiler.disable(lambda: True)()
    return x


def loop_that_leaves(x: Any) -> Any:
    RAN.append(x)
    for _ in range(2):
        torch.compiler.disable(lambda: 1)()
        if x.shape[0] == 3:
            break
        raise CodeError("not reached", 1)
    return x


@pytest.mark.parametrize(
    "function",
    [
        caught_inside,
        caught_by_a_caller,
        missing_name_caught,
        suppressed,
        returning_at_last,
        branch_on_data,
        break_in_an_assertion,
        loop_that_leaves,
    ],
)
def test_a_graph_break_stays_an_error_and_nothing_of_the_function_has_run(
    compiled: Any, function: Any
) -> None:
    function(ones(3))  # raises nothing
    call = compiled(function, backend="eager", fullgraph=True)
    RAN.clear()
    with pytest.raises(torch._dynamo.exc.Unsupported):
        call(ones(3))
    assert RAN == []


def only_in_a_trace(x: Any) -> Any:
    x.add_(1)
    if torch.compiler.is_compiling():
        raise ValueError("only in a trace")
    return x


def test_a_result_is_kept_when_only_tracing_raises(compiled: Any) -> None:
    call = compiled(only_in_a_trace, backend="eager", fullgraph=True)
    with pytest.warns(XPolicyWarning, match="tracing it raised an exception"):
        assert torch.equal(call(torch.zeros(2)), ones(2))
    assert torch.equal(call(torch.zeros(2)), ones(2))
    assert call.count("fallback") == 1
