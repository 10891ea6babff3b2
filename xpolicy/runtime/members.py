"""Members of modules and classes: what stands there, and putting something else there."""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any

from xpolicy.errors import DecorationError, Problem

__all__ = ["ABSENT", "is_function", "public_methods", "put", "raw", "unwrapped"]

#: Stands for what isn't there.
ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "ABSENT"})()

_FUNCTIONS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    functools.partial,
    type(functools.lru_cache(lambda: None)),
)


def raw(owner: Any, name: str) -> Any:
    """Return a member as it is kept: with its descriptor, found along a class's MRO."""
    if isinstance(owner, type):
        return inspect.getattr_static(owner, name)
    # A module may make it on demand.
    return getattr(owner, name)


def unwrapped(member: Any) -> Any:
    """Return what a `staticmethod` or `classmethod` holds, or the member itself."""
    return member.__func__ if isinstance(member, (staticmethod, classmethod)) else member


def is_function(value: Any) -> bool:
    """Return whether a callable is a function, and not an object that can be called, too.

    Functions of compiled modules, NumPy's ufuncs and what is made to be used like either
    (a name of its own on the object) count.
    """
    if isinstance(value, _FUNCTIONS):
        return True
    return callable(value) and isinstance(getattr(value, "__name__", None), str)


def public_methods(cls: type) -> list[str]:
    """Return the names of the methods that a class defines itself and means to be called."""
    return [
        name
        for name, member in vars(cls).items()
        if (name == "__call__" or not name.startswith("_")) and _is_method(unwrapped(member))
    ]


def _is_method(value: Any) -> bool:
    return is_function(value) and not isinstance(value, type)


def put(owner: Any, name: str, value: Any) -> None:
    """Put a member in its place; `ABSENT` takes it away.

    Raises
    ------
    DecorationError
        If the owner is written in C and can't be changed.
    """
    try:
        if value is ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, value)
    except (AttributeError, TypeError) as error:
        where = getattr(owner, "__qualname__", None) or getattr(owner, "__name__", repr(owner))
        message = f"{where}.{name} can't be replaced: {error}"
        fix = "put the functions that call it under policy"
        raise DecorationError([Problem(message, key=name, fix=fix)]) from error
