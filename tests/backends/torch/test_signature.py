"""Descriptions of arguments: what they say, and that they run nobody's code."""

from __future__ import annotations

import collections
import enum
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch

from xpolicy.backends.torch.signature import described


class CodeRanError(Exception):
    pass


def ran(*_: Any) -> Any:
    raise CodeRanError


class Attributes:
    __getattr__ = ran


class Lazy(Mapping[str, int]):
    __getitem__ = __len__ = items = ran

    def __iter__(self) -> Iterator[str]:
        raise CodeRanError


class Pretender:
    __class__ = property(ran)  # type: ignore[assignment]


class Meta(type):
    __getattribute__ = ran


class OfMeta(metaclass=Meta):
    pass


class Key:
    __repr__ = ran


class Number(float):
    __repr__ = __str__ = __len__ = ran


class Text(str):  # noqa: SLOT000
    __repr__ = __str__ = __len__ = __getitem__ = ran


class Row(tuple):  # type: ignore[type-arg]
    __slots__ = ()
    __repr__ = __getitem__ = __iter__ = __len__ = ran


class Rows(list):  # type: ignore[type-arg]
    __repr__ = __getitem__ = __iter__ = __len__ = ran


class Table(dict):  # type: ignore[type-arg]
    __repr__ = __getitem__ = __iter__ = __len__ = items = keys = ran


class Array(torch.Tensor):
    @classmethod
    def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
        raise CodeRanError


class Shaped(torch.Tensor):
    shape = property(ran)  # type: ignore[assignment]


class Colour(enum.IntEnum):
    RED = 1


Pair = collections.namedtuple("Pair", "a b")  # noqa: PYI024

FOREIGN = [
    (Attributes(), "Attributes object"),
    (Lazy(), "Lazy object"),
    (Pretender(), "Pretender object"),
    (OfMeta, "OfMeta"),
    (OfMeta(), "OfMeta object"),
    ({Key(): 1}, "{Key object: 1}"),
    (Number(2.5), "Number 2.5"),
    (Text("s"), "Text 's'"),
    (Row((1, 2)), "(1, 2)"),
    (Rows([1, 2]), "[1, 2]"),
    (Table(a=1), "{'a': 1}"),
    ([Key(), Text("s")], "[Key object, Text 's']"),
    (torch.ones(2).as_subclass(Array), "Array float32[2]"),
    (torch.ones(2).as_subclass(Shaped), "Shaped object"),
    (10**5000, "int object"),
]


@pytest.mark.parametrize(("value", "text"), FOREIGN, ids=map(str, range(len(FOREIGN))))
def test_describing_runs_no_code_of_the_callers(value: Any, text: str) -> None:
    assert described(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.ones(2, 3), "float32[2, 3]"),
        (Pair(1, torch.ones(2)), "(1, float32[2])"),
        (list(range(9)), "[0, 1, 2, 3, 4, 5, 6, 7, ...]"),
        (dict.fromkeys(range(9)), "{" + ", ".join(f"{i}: None" for i in range(8)) + ", ...}"),
        ([[[1]]], "[[list object]]"),
        ({"a": "b"}, "{'a': 'b'}"),
        ("x" * 80, "'" + "x" * 56 + "..."),
        (Colour.RED, "Colour 1"),
        (len, "len"),
        (described, "described"),
        (dict, "dict"),
        (object(), "object object"),
        (None, "None"),
        (True, "True"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_descriptions(value: Any, text: str) -> None:
    assert described(value) == text


@pytest.mark.parametrize("value", [Attributes(), Lazy(), Text("s")], ids=lambda v: type(v).__name__)
def test_a_call_with_a_foreign_object_is_compiled(compiled: Any, counter: Any, value: Any) -> None:
    call = compiled(lambda x, o=None: x + 1, {"backend": counter})
    assert torch.equal(call(torch.ones(1), value), torch.full((1,), 2.0))
    assert counter.graphs == 1


class NoHash:
    __hash__ = ran  # type: ignore[assignment]


def test_a_static_value_whose_hash_raises_is_named(compiled: Any) -> None:
    call = compiled(lambda x, o: x + 1, backend="eager", static_argnames=("o",))
    with pytest.raises(TypeError, match="static argument 'o'"):
        call(torch.ones(1), NoHash())
