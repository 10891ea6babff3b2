"""Keys of static arguments: what makes two values the same constant to the compiler.

``1 == 1.0 == True`` and ``0.0 == -0.0`` in Python, also inside tuples, so a plain
``jax.jit`` answers ``f((1.0,))`` with the program that it compiled for ``f((1,))``. Keys
here compare type and value, and the sign of zero.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import types
from typing import TYPE_CHECKING, Any

import jax

if TYPE_CHECKING:
    from collections.abc import Callable

#: Types whose values are keys as they are. Not bool: ``True`` would meet ``1``.
PLAIN = frozenset({int, str, type(None)})


class Keyed:
    """A static value that compares by type and value, all the way down.

    Parameters
    ----------
    value : object
        The value, which the traced function is given.
    token : hashable
        What it is compared by.
    """

    __slots__ = ("_hash", "token", "value")

    def __init__(self, value: Any, token: Any) -> None:
        self.value = value
        self.token = token
        self._hash = hash(token)

    def __eq__(self, other: object) -> bool:
        return type(other) is Keyed and self._hash == other._hash and self.token == other.token

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return (Keyed, (self.value, self.token))  # hashes of strings differ between processes

    def __repr__(self) -> str:
        try:
            return repr(self.value)
        except Exception:  # noqa: BLE001  # jax says keys in its messages, the user's code fails
            return f"<{type(self.value).__name__}>"


class Traced:
    """Stands in a key for an argument that is traced in this call."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "traced"


class Omitted:
    """Stands for an argument that the caller left out: its default stays a constant."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "omitted"


TRACED = Traced()
OMITTED = Omitted()
# Without leaves, so that an omitted argument is part of the structure that jax keys on.
jax.tree_util.register_pytree_node(Omitted, lambda _: ((), None), lambda _aux, _children: OMITTED)


def token(value: Any) -> Any:
    """Return what a static value is compared by.

    Raises
    ------
    TypeError
        If the value, or something inside it, can't be hashed.

    Examples
    --------
    >>> token(0.0) == token(-0.0), token((1,)) == token((1.0,)), token((1,)) == token((1,))
    (False, False, True)
    """
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is float:
        return (kind, value.hex())
    if kind is complex:
        return (kind, value.real.hex(), value.imag.hex())
    if isinstance(value, tuple):
        return (kind, tuple(map(token, tuple.__iter__(value))), _attributes(kind, value))
    if isinstance(value, frozenset):
        return (kind, frozenset(map(token, frozenset.__iter__(value))), _attributes(kind, value))
    if kind is slice:  # hashable from Python 3.12 only
        return (kind, token(value.start), token(value.stop), token(value.step))
    if kind is range:  # range(0) == range(5, 5)
        return (kind, value.start, value.stop, value.step)
    if dataclasses.is_dataclass(kind):
        return _dataclass_token(kind, value)
    if hasattr(kind, "tobytes") and hasattr(kind, "dtype") and hasattr(value, "__hash__"):
        hash(value)  # NumPy's scalars hash, its arrays don't
        return (kind, str(value.dtype), value.tobytes())
    hash(value)
    if isinstance(value, float):  # by its bits: what is no number isn't equal to itself
        return (kind, float.hex(value), *_shown(kind, value))
    return _promised(kind, value)


#: Types whose equal values nothing can tell apart, and ``==`` of methods asks for the same
#: object; the text of a method would be that of all it is bound to.
_EXACT = frozenset(
    {bytes, bool, types.MethodType, types.BuiltinMethodType, types.MethodWrapperType}
)


def _promised(kind: type, value: Any) -> tuple[Any, ...]:
    """Return a token of a value whose class says itself what is equal.

    ``Decimal("1.0") == Decimal("1.00")``, and a datetime equals its fold: equal, but a
    function can tell them apart. So they must look the same as well, and their numbers
    be of one type and sign: a class may compare ``1`` with ``1.0`` without showing it. A
    program too many is the price where two texts mean the same.
    """
    if kind in _EXACT or _inherits(kind, "__eq__"):
        return (kind, value)
    return (kind, value, *_shown(kind, value))


def _inherits(kind: type, name: str) -> bool:
    return getattr(kind, name, None) is getattr(object, name)


def _shown(kind: type, value: Any) -> tuple[Any, ...]:
    """Return a value's text and the kinds of its numbers."""
    text = None
    if not _inherits(kind, "__repr__"):
        try:
            text = str.__str__(repr(value))
        except Exception:  # noqa: BLE001  # without a text, what the class promises holds
            text = None
    return (text, _kinds_inside(kind, value))


def _attributes(kind: type, value: Any) -> tuple[Any, ...]:
    """Return what a container of a class of its own holds besides its elements."""
    return _shown(kind, value) if kind.__dictoffset__ else ()


def _kinds_inside(kind: type, value: Any) -> tuple[Any, ...]:
    """Return types and signs of the numbers in an object's attributes, not their values.

    Values are what ``==`` is for: a counter or a cache that it leaves out is no constant.
    """
    try:
        own = object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        own = {}
    found = [(name, _kind_of(item)) for name, item in own.items()]
    for name, slot in _slots(kind):
        try:
            found.append((name, _kind_of(slot.__get__(value))))
        except AttributeError:  # an empty slot
            continue
    return tuple((name, item) for name, item in found if item is not None)


@functools.lru_cache(maxsize=1024)
def _slots(kind: type) -> tuple[tuple[str, types.MemberDescriptorType], ...]:
    return tuple(
        (name, slot)
        for base in kind.__mro__
        for name, slot in vars(base).items()
        if isinstance(slot, types.MemberDescriptorType)
    )


def _kind_of(value: Any) -> Any:
    kind = type(value)
    if kind is float:
        return (kind, value == 0 and math.copysign(1, value) < 0)
    if kind is complex:
        return (kind, _kind_of(value.real), _kind_of(value.imag))
    if kind is tuple:
        return tuple(map(_kind_of, value))
    return kind if kind in (int, bool) else None


class Coded(tuple[str, Any]):
    """The key of a float or bool: a tuple that is hashed and compared without Python code.

    Static floats and flags are common, and `Keyed` costs a microsecond a call more.
    """

    __slots__ = ()

    def value(self) -> Any:
        """Return the number that the key was made of."""
        kind, told = self
        return float.fromhex(told) if kind == "float" else told

    def __repr__(self) -> str:
        return repr(self.value())


_BOOLS = {value: Coded(("bool", value)) for value in (True, False)}


def _dataclass_token(kind: type, value: Any) -> Any:
    """Return a token of a dataclass by its fields: ``Config(1) == Config(1.0)`` as well."""
    hash(value)  # without frozen=True a dataclass can't be hashed, whatever its fields
    fields = [field for field in dataclasses.fields(value) if field.compare]
    try:
        inside = tuple(token(getattr(value, field.name)) for field in fields)
    except TypeError:  # it hashes, by a __hash__ of its own, and some field doesn't
        return _promised(kind, value)
    return (kind, value, inside)


def key_of(value: Any) -> Any:
    """Return the key of a static value: itself where that is safe, else a stand-in.

    Examples
    --------
    >>> key_of(2), key_of(True) == 1, key_of(0.0) == key_of(-0.0), value_of(key_of(0.1))
    (2, False, False, 0.1)
    """
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is float:
        return Coded(("float", value.hex()))
    if kind is bool:
        return _BOOLS[value]
    return Keyed(value, token(value))


def value_of(key: Any) -> Any:
    """Return the value that a key was made of."""
    kind = type(key)
    return key.value if kind is Keyed else key.value() if kind is Coded else key


def is_constant_type(value: Any) -> bool:
    """Return whether ``static = "auto"`` makes a constant of values of this type.

    Callables that are registered pytrees (equinox modules) hold arrays, so they are traced.
    """
    kind = type(value)
    if issubclass(kind, str | bytes | bool | enum.Enum | types.ModuleType | slice):
        return True
    if isinstance(value, jax.Array) or value is None:
        return False
    if not callable(value) and not _is_dtype(kind):
        return False
    return bool(jax.tree_util.all_leaves([value]))


def _is_dtype(kind: type) -> bool:
    import numpy as np  # jax has it loaded

    return issubclass(kind, np.dtype)


class AutoStatics:
    """Tells constants from what is traced, by type, remembered per type.

    Parameters
    ----------
    key : callable
        Takes a value and the argument's name; returns its key.
    """

    def __init__(self, key: Callable[[Any, str], Any]) -> None:
        self._key = key
        #: Types of values that are traced; the shim looks here before it calls us.
        self.traced: set[type] = {Omitted, int, float, complex}
        self._constant: set[type] = {str, bool, bytes}

    def split(self, value: Any, name: str) -> tuple[Any, Any]:
        """Return the key of an argument and what is passed to jax in its place."""
        kind = type(value)
        if kind in self._constant:
            return self._key(value, name), OMITTED
        if is_constant_type(value):
            # A callable's class decides: an instance can't be a pytree by itself.
            self._constant.add(kind)
            return self._key(value, name), OMITTED
        self.traced.add(kind)
        return TRACED, value
