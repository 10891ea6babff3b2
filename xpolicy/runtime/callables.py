"""What may be decorated, and what is said about what may not."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from xpolicy.errors import DecorationError

__all__ = ["check", "split"]


class _Sample:
    def method(self) -> None: ...


# `types` would be one more import.
FunctionType: Any = type(lambda: None)
MethodType: Any = type(_Sample().method)

#: Classes whose instances hold a model's state, and the method that a call of one ends in.
_MODULES = {("torch.nn", "Module"): "forward", ("equinox", "Module"): "__call__"}

# inspect.CO_GENERATOR, CO_COROUTINE, CO_ITERABLE_COROUTINE, CO_ASYNC_GENERATOR
_KINDS = (
    (0x200, "an async generator function"),
    (0x80 | 0x100, "a coroutine function"),
    (0x20, "a generator function"),
)


def split(target: Any) -> tuple[Callable[..., object], Callable[[Any], Any] | None]:
    """Separate what is decorated from the descriptor around it.

    Parameters
    ----------
    target : object
        What the decorator was given.

    Returns
    -------
    tuple of (callable, callable or None)
        The callable itself, and what to put around the decorated one again
        (`staticmethod`, `classmethod`).

    Raises
    ------
    DecorationError
        If the callable can't be decorated.
    """
    if isinstance(target, (staticmethod, classmethod)):
        inner = target.__func__
        check(inner)
        return inner, type(target)
    check(target)
    result: Callable[..., object] = target
    return result, None


def check(target: object) -> None:
    """Refuse what can't be decorated.

    Raises
    ------
    DecorationError
        For classes, coroutine and generator functions, properties,
        instances of `torch.nn.Module` and `equinox.Module`, and what can't be called.
    """
    if isinstance(target, type):
        raise _refusal(
            target,
            f"{_name(target)} is a class",
            "decorate its methods, or `__call__` for its instances",
        )
    if isinstance(target, property):
        raise _refusal(
            target.fget,
            f"{_name(target.fget)} is a property",
            "put @property above the xpolicy decorator, not below it",
        )
    if not callable(target):
        raise _refusal(
            target,
            f"an object of type {type(target).__name__} can't be called",
            "decorate a function",
        )
    for module, method in _MODULES.items():
        if _is_instance(target, module):
            name = type(target).__qualname__
            raise _refusal(
                target,
                f"an instance of {name} is a {module[0]}.{module[1]}, not a function",
                f"decorate the method {name}.{method} in the class",
            )
    code = getattr(_function_in(target), "__code__", None)
    flags = getattr(code, "co_flags", 0)
    for flag, kind in _KINDS:
        if flags & flag:
            raise _refusal(
                target,
                f"{_name(target)} is {kind}: no array compiler takes one",
                "decorate the plain functions that it calls",
            )


def _function_in(target: Any) -> object:
    """Find the Python function that a call runs, if there is one."""
    partial = getattr(sys.modules.get("functools"), "partial", None)
    for _ in range(32):  # partials of methods of instances with __call__ …
        if type(target) is FunctionType:
            return target
        if type(target) is MethodType:
            target = target.__func__
        elif partial is not None and isinstance(target, partial):
            target = target.func
        else:
            call = getattr(type(target), "__call__", None)  # noqa: B004  # its code is wanted
            return call if type(call) is FunctionType else None
    return None


def _is_instance(target: object, kind: tuple[str, str]) -> bool:
    found = getattr(sys.modules.get(kind[0]), kind[1], None)
    return isinstance(found, type) and isinstance(target, found)


def _name(target: object) -> str:
    name = getattr(target, "__qualname__", None)
    return name if isinstance(name, str) else f"an object of type {type(target).__qualname__}"


def _refusal(target: object, message: str, fix: str) -> DecorationError:
    # Every decorated program imports this module; few see this.
    from xpolicy._origin import Origin
    from xpolicy.errors import DecorationError, Problem

    code = getattr(target, "__code__", None)
    origin = None
    if code is not None:
        origin = Origin("code", code.co_filename, line=code.co_firstlineno)
    module = getattr(target, "__module__", None)
    name = getattr(target, "__qualname__", None)
    key = f"{module}.{name}" if module and name else ""
    return DecorationError([Problem(message, origin=origin, key=key, fix=fix)])
