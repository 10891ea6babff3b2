"""Static arguments: constants to the compiler, with all other dimensions still dynamic."""

from __future__ import annotations

import collections
import functools
import inspect
import types
import warnings
from typing import Any

import pytest
import torch

from xpolicy.errors import RecompileLimitError, XPolicyWarning

ones = torch.ones


def columns(x: Any, k: Any, *, n: Any = 2) -> Any:
    return x.reshape(-1, k).sum(0) * n


def divided(x: Any, k: Any) -> Any:
    return x / k


def nested(x: Any, k: Any) -> Any:
    return x.sum() * k[0] + k[1][0]


def test_each_value_of_a_static_integer_has_its_own_variant_and_sizes_stay_dynamic(
    compiled: Any, counter: Any
) -> None:
    call = compiled(columns, {"backend": counter}, static_argnames=("k",))
    for length in (12, 24, 36, 48, 60):
        torch.testing.assert_close(call(ones(length), 2), columns(ones(length), 2))
    assert counter.graphs == 2  # one for the first length, one for any
    for length in (12, 24, 36, 48, 60):
        torch.testing.assert_close(call(ones(length), 3), columns(ones(length), 3))
    assert counter.graphs == 3


def test_without_static_argnames_an_integer_becomes_a_symbol(compiled: Any, counter: Any) -> None:
    call = compiled(columns, {"backend": counter})
    for k in (2, 3, 4, 6):
        call(ones(12), k)
    assert counter.graphs == 2
    counter.graphs = 0
    call = compiled(columns, {"backend": counter}, static_argnames=("k",))
    for k in (2, 3, 4, 6):
        call(ones(12), k)
    assert counter.graphs == 4


@pytest.mark.parametrize("dynamic", [None, True])
def test_positional_keyword_and_defaulted_spelling_share_a_variant(
    compiled: Any, counter: Any, dynamic: bool | None
) -> None:
    call = compiled(columns, {"backend": counter}, static_argnames=("k", "n"), dynamic=dynamic)
    call(ones(12), 2)
    call(ones(12), k=2)
    call(ones(12), 2, n=2)
    call(x=ones(12), k=2, n=2)
    assert counter.graphs == 1


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (divided, (1, 1.0, True, 2, 2.0)),
        (divided, (0.0, -0.0)),
        (divided, (-0.0, 0.0)),
        (nested, ((1, (1,)), (1.0, (1,)), (True, (1,)), (1, (1.0,)))),
        (nested, ((0.0, (1,)), (-0.0, (1,)))),
    ],
)
def test_values_that_compare_equal_are_kept_apart_by_type_and_sign(
    compiled: Any, counter: Any, function: Any, values: tuple[Any, ...]
) -> None:
    call = compiled(function, {"backend": counter}, static_argnames=("k",))
    for _ in range(2):
        for value in values:
            x = torch.tensor([1, 2])
            found, wanted = call(x, value), function(x, value)
            assert found.dtype == wanted.dtype
            assert torch.equal(found, wanted), value
            assert torch.equal(torch.signbit(found), torch.signbit(wanted)), value
    assert counter.graphs == len(values)


def test_zeros_that_are_not_named_static_keep_their_sign_too(compiled: Any) -> None:
    call = compiled(divided, backend="eager")
    for value in (0.0, -0.0, 0.0, 2.0, -0.0):
        assert torch.equal(call(ones(2), value), divided(ones(2), value))


class Scale:
    factor: Any = 1.0


SCALE = Scale()
Pair = collections.namedtuple("Pair", "first second")  # noqa: PYI024


def by_global(x: Any, k: Any) -> Any:
    return x / SCALE.factor


def by_keyword(x: Any, **rest: Any) -> Any:
    return x / rest["k"]


def by_branch(x: Any, k: Any) -> Any:
    return x / k[0] if k[0] == 0 else x * k[0]


def by_complex(x: Any, k: Any) -> Any:
    return x * str(k.real).count("-") + 10 * str(k.imag).count("-")


@pytest.mark.parametrize("first", [0.5, 0.0, -0.0])
@pytest.mark.parametrize(
    ("function", "wrapped"),
    [
        (lambda x, k: x / k[0], lambda z: [z]),
        (lambda x, k: x / k[1][0], lambda z: [1, (z,)]),
        (lambda x, k: x / k["a"], lambda z: {"a": z}),
        (lambda x, k: x / k["a"][0], lambda z: {"a": [z]}),
        (lambda x, k: x / k.first, lambda z: Pair(z, 1)),
        (lambda x, k: x / k["a"], lambda z: collections.OrderedDict(a=z)),
        (lambda x, k: x / k.factor, lambda z: (s := Scale(), setattr(s, "factor", z))[0]),
        (by_branch, lambda z: [z]),
        (by_complex, lambda z: complex(z, 1)),
        (by_complex, lambda z: complex(1, z)),
        (by_complex, lambda z: complex(z, 0.0)),
        (by_complex, lambda z: complex(-0.0, z)),
    ],
)
def test_zeros_keep_their_sign_wherever_they_are(
    compiled: Any, function: Any, wrapped: Any, first: float
) -> None:
    call = compiled(function, backend="eager")
    for value in (first, 0.0, -0.0, 0.0, 0.25, -0.0, 0.0):
        argument = wrapped(value)
        assert torch.equal(call(ones(2), argument), function(ones(2), argument)), value


def test_zeros_among_keywords_and_outside_of_arguments_keep_their_sign(
    compiled: Any, monkeypatch: Any
) -> None:
    keyword = compiled(by_keyword, backend="eager")
    outside = compiled(by_global, backend="eager")
    for value in (0.0, -0.0, 0.0):
        assert torch.equal(keyword(ones(2), k=value), ones(2) / value)
        monkeypatch.setattr(SCALE, "factor", value)
        assert torch.equal(outside(ones(2), 1), ones(2) / value)


def test_a_list_that_contains_itself_can_be_given(compiled: Any) -> None:
    endless: list[Any] = [0.0]
    endless.append(endless)
    call = compiled(lambda x, k: x / k[0], backend="eager")
    assert torch.equal(call(ones(2), endless), ones(2) / 0.0)


def test_a_zero_that_became_another_number_needs_no_variant(compiled: Any, counter: Any) -> None:
    call = compiled(lambda x, k: x / k[0] + k[1], {"backend": counter})
    for value in (0.5, 0.25, 0.0, 0.75):
        call(ones(2), (value, 0.0))
    before = counter.graphs
    for value in (0.125, 0.0625):
        call(ones(2), (value, 0.0))
    assert counter.graphs == before


def test_variants_for_zeros_are_found_again(compiled: Any, counter: Any) -> None:
    call = compiled(lambda x, k: x / k[0], {"backend": counter})
    for value in (0.0, -0.0, 0.0, -0.0):
        call(ones(2), [value])
    assert counter.graphs == 2


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}, {1}])
def test_an_unhashable_static_value_names_the_argument(compiled: Any, value: Any) -> None:
    ran = []

    def noted(x: Any, k: Any) -> Any:
        ran.append(k)
        return x + 1

    call = compiled(noted, backend="eager", static_argnames=("k",))
    with pytest.raises(TypeError, match=r"static argument 'k' of mylib\.f must be hashable"):
        call(ones(2), value)
    assert ran == []


def test_an_argument_stays_static_behind_a_graph_break(compiled: Any) -> None:
    sizes = []

    def watching(graph: Any, inputs: Any) -> Any:
        sizes.extend(type(i).__name__ for i in inputs if not isinstance(i, torch.Tensor))
        return graph.forward

    def broken(x: Any, k: Any) -> Any:
        y = x.sin()
        print(end="")
        return y.reshape(-1, k).sum(0)

    call = compiled(broken, {"backend": watching}, static_argnames=("k",))
    for k in (2, 3, 4, 6):
        torch.testing.assert_close(call(ones(12), k), broken(ones(12), k))
    assert sizes == []


def test_every_kind_of_parameter_passes_through_the_shim(compiled: Any) -> None:
    def every(a: Any, /, b: Any, n: Any = 2, *rest: Any, k: Any, m: Any = 3, **more: Any) -> Any:
        return a * n + b * k + m + sum(rest) + sum(more.values())

    call = compiled(every, backend="eager", static_argnames=("n", "k"))
    x = ones(3)
    assert torch.equal(call(x, x, k=1), every(x, x, k=1))
    assert torch.equal(call(x, x, 4, x, x, k=1, z=x), every(x, x, 4, x, x, k=1, z=x))
    assert torch.equal(call(x, b=x, k=1, m=2, n=7), every(x, b=x, k=1, m=2, n=7))
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'k'"):
        call(x, x)


def test_an_omitted_default_stays_what_it_is(compiled: Any) -> None:
    marker = object()

    def optional(x: Any, axis: Any = None, flag: Any = marker) -> Any:
        return x.sum() if axis is None and flag is marker else x.sum(axis)

    call = compiled(optional, backend="eager", static_argnames=("axis",), fullgraph=True)
    assert torch.equal(call(ones(2, 3)), optional(ones(2, 3)))
    assert torch.equal(call(ones(2, 3), 1), optional(ones(2, 3), 1))


def test_the_method_of_a_module_may_have_static_arguments(compiled: Any, counter: Any) -> None:
    class Repeat(torch.nn.Module):
        def forward(self, x: Any, times: int) -> Any:
            return x.repeat(times)

    call = compiled(Repeat.forward, {"backend": counter}, static_argnames=("times",))
    module = Repeat()
    for times in (2, 3, 4, 2, 3, 4):
        assert call(module, ones(2), times).shape == (2 * times,)
    assert counter.graphs == 3


@pytest.mark.parametrize("fullgraph", [None, True])
@pytest.mark.parametrize("action", ["error", "warn", "eager"])
def test_static_values_count_against_the_limit(
    compiled: Any, counter: Any, fullgraph: bool | None, action: str
) -> None:
    call = compiled(
        columns,
        {"backend": counter},
        static_argnames=("k",),
        recompile_limit=2,
        on_recompile_limit=action,
        fullgraph=fullgraph,
    )
    raised = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for k in (2, 3, 4, 6, 2, 3):
            try:
                assert torch.equal(call(ones(12), k), columns(ones(12), k))
            except RecompileLimitError:
                raised.append(k)
    warned = [w for w in caught if issubclass(w.category, XPolicyWarning)]
    assert counter.graphs == 2
    assert raised == ([4, 6] if action == "error" else [])
    assert len(warned) == (action == "warn")


def scaled(x: Any, n: Any = 2) -> Any:
    return x * n


@functools.wraps(scaled)
def with_another_order(x: Any, y: Any = 1, n: Any = 3) -> Any:
    return scaled(x, n) + y * 100


@functools.wraps(scaled)
def with_stars(*args: Any, **kwargs: Any) -> Any:
    return scaled(*args, **kwargs) + len(args) * 10 + len(kwargs) * 100


def with_a_told_signature(x: Any, y: Any = 1, n: Any = 3) -> Any:
    return x * n + y * 100


with_a_told_signature.__signature__ = inspect.signature(scaled)  # type: ignore[attr-defined]


@pytest.mark.parametrize("statics", [("n",), None])
@pytest.mark.parametrize(
    "function",
    [
        with_another_order,
        with_stars,
        with_a_told_signature,
        functools.partial(with_another_order, y=4),
        types.MethodType(with_another_order, ones(3)),
    ],
)
def test_arguments_go_where_the_code_has_them_whatever_signature_is_told(
    compiled: Any, function: Any, statics: Any
) -> None:
    call = compiled(function, backend="eager", static_argnames=statics)
    tensors = () if isinstance(function, types.MethodType) else (ones(3),)
    for kwargs in ({}, {"n": 5}, {"n": 7}):
        torch.testing.assert_close(call(*tensors, **kwargs), function(*tensors, **kwargs))


def test_a_static_argument_can_be_one_of_the_keywords(compiled: Any, counter: Any) -> None:
    call = compiled(with_stars, {"backend": counter}, static_argnames=("n",))
    for n in (2, 3, 4):
        torch.testing.assert_close(call(ones(3), n=n), with_stars(ones(3), n=n))
    assert counter.graphs == 3
