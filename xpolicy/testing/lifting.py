"""Take the arrays out of any object, and put others in their places.

pickle walks objects; what it can't write down (locks, open files, functions, modules) is
kept as it is. So wrappers around arrays need no registration with anybody.
"""

from __future__ import annotations

import io
import pickle
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Frozen", "lifted"]

#: What pickle writes down as it is, or walks into: there is no need to ask the object.
_WALKED = frozenset(
    {type(None), bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset}
)
#: What is the same object wherever it is used. Bare objects are sentinels.
_ONE_OF_A_KIND = frozenset({FunctionType, BuiltinFunctionType, ModuleType, type, object})

_ARRAY, _KEPT = "array", "kept"


class Frozen:
    """An object without its arrays; two are equal if they would be filled up alike.

    Parameters
    ----------
    data : bytes
        What pickle wrote.
    kept : tuple of object
        What pickle can't write.
    """

    __slots__ = ("_data", "_kept")

    def __init__(self, data: bytes, kept: tuple[Any, ...]) -> None:
        self._data = data
        self._kept = kept

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Frozen):
            return NotImplemented
        # By identity: an `==` of theirs may be anything, and two that are equal may still
        # be told apart by the function.
        return self._data == other._data and [*map(id, self._kept)] == [*map(id, other._kept)]

    def __hash__(self) -> int:
        return hash((self._data, *map(id, self._kept)))

    def filled(self, arrays: Sequence[Any]) -> Any:
        """Return a copy of the object with these arrays in it, in the order of `lifted`."""
        reader = _Reader(io.BytesIO(self._data))
        reader.arrays, reader.kept = arrays, self._kept
        return reader.load()


def lifted(value: Any, kind: type | tuple[type, ...]) -> tuple[list[Any], Frozen]:
    """Take all instances of a type out of an object.

    Parameters
    ----------
    value : object
        Anything: containers, recursive ones, instances of any class.
    kind : type or tuple of type
        The class of the arrays.

    Returns
    -------
    arrays : list
        The arrays, each once.
    rest : Frozen
        The object without them.

    Examples
    --------
    >>> import numpy as np
    >>> arrays, rest = lifted({"x": [np.ones(2), 3]}, np.ndarray)
    >>> rest.filled(["other"])
    {'x': ['other', 3]}
    """
    file = io.BytesIO()
    writer = _Writer(file, kind)
    writer.dump(value)
    return writer.arrays, Frozen(file.getvalue(), tuple(writer.kept))


class _Writer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, kind: type | tuple[type, ...]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._kind = kind
        self.arrays: list[Any] = []
        self.kept: list[Any] = []
        self._numbers: dict[int, tuple[str, int]] = {}

    def persistent_id(self, value: Any) -> tuple[str, int] | None:
        cls = type(value)
        if cls in _WALKED:
            return None
        found = self._numbers.get(id(value))
        if found is not None:
            return found
        if isinstance(value, self._kind):
            return self._number(_ARRAY, self.arrays, value)
        if cls in _ONE_OF_A_KIND or isinstance(value, type) or not _reduces(value):
            return self._number(_KEPT, self.kept, value)
        return None

    def _number(self, what: str, values: list[Any], value: Any) -> tuple[str, int]:
        values.append(value)
        number = self._numbers[id(value)] = (what, len(values) - 1)
        return number


def _reduces(value: Any) -> bool:
    try:
        value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    except Exception:  # noqa: BLE001  # an object may refuse with anything
        return False
    return True


class _Reader(pickle.Unpickler):
    arrays: Sequence[Any]
    kept: Sequence[Any]

    def persistent_load(self, number: tuple[str, int]) -> Any:
        what, place = number
        return (self.arrays if what == _ARRAY else self.kept)[place]
