"""Telling jax's "this can't be traced" from everything else that can go wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax

from xpolicy.backends.jax.lowering import located_problem
from xpolicy.errors import BackendOptionError

if TYPE_CHECKING:
    from xpolicy.backends.base import Request
    from xpolicy.errors import Problem

#: jax's own classes for it; an older jax lacks some. ``UnexpectedTracerError`` is a value
#: that outlived its trace: eager calls have none.
CANNOT_TRACE: tuple[type[Exception], ...] = tuple(
    getattr(jax.errors, name)
    for name in (
        "ConcretizationTypeError",
        "NonConcreteBooleanIndexError",
        "TracerArrayConversionError",
        "TracerBoolConversionError",
        "TracerIntegerConversionError",
        "UnexpectedTracerError",
    )
    if hasattr(jax.errors, name)
)

#: Words that jax's plain errors use for a value that isn't there yet.
_TRACER_WORDS = ("Traced<", "JitTracer", "Tracer", "traced", "concrete value")


class JaxArgumentError(BackendOptionError, TypeError, ValueError):
    """An argument can be neither traced nor used as a constant.

    jax itself raises a `TypeError` for the one and a `ValueError` for the other: code that
    handles what ``jax.jit`` raises goes on doing so.
    """


def _raised_in_jax(error: BaseException) -> bool:
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    module = last.tb_frame.f_globals.get("__name__", "") if last else ""
    return module.partition(".")[0] in ("jax", "jaxlib")


def cannot_trace(error: BaseException, *, from_function: bool) -> bool:
    """Return whether an error says that jax can't trace the function.

    There is no one class for it: besides those of ``jax.errors`` plain ``TypeError``,
    ``IndexError``, ``AttributeError`` and ``ValueError`` occur. A plain one counts if jax
    raised it and it speaks of a tracer, or if the function hadn't been entered or had
    returned: then it is about an argument or a result that jax has no type for.

    Parameters
    ----------
    error : BaseException
        What was raised.
    from_function : bool
        Whether it came out of the function's own body.
    """
    if isinstance(error, CANNOT_TRACE):
        return True
    if not isinstance(error, TypeError | IndexError | AttributeError | ValueError):
        return False
    if not from_function:
        return isinstance(error, TypeError)
    return _raised_in_jax(error) and any(word in str(error) for word in _TRACER_WORDS)


def explain_failure(error: BaseException, request: Request) -> None:
    """Add a note to jax's exception: whose function it is, and what to say about it.

    Parameters
    ----------
    error : BaseException
        Gets a note (PEP 678).
    request : Request
        The function and its policy.
    """
    origin = request.origin_of("mode")
    asked = (
        f"mode = {request.policy.mode!r} is set at {origin}" if origin else "compiled by default"
    )
    note = (
        f"xpolicy: jax can't trace {request.key} (namespace jax); {asked}.\n"
        f'  Its author can say so: @xpolicy.compile(supports="eager", reason="…"), or for jax '
        f'alone jax={{"supports": "eager"}}; a user: functions."{request.key}".jax.supports = '
        f'"eager". on-failure = "eager" runs the original function whenever that happens.'
    )
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def check_self(request: Request, args: tuple[Any, ...], first: str, cause: BaseException) -> None:
    """Raise an error of ours if jax refused ``self``, with both ways to make it work.

    Parameters
    ----------
    request : Request
        The method.
    args : tuple
        Positional arguments of the call.
    first : str
        The name of the method's first parameter.
    cause : BaseException
        What jax said.
    """
    if first not in ("self", "cls") or not args:
        return
    value = args[0]
    if isinstance(value, jax.Array) or not jax.tree_util.all_leaves([value]):
        return
    raise JaxArgumentError([self_problem(request, value, first)]) from cause


def self_problem(request: Request, value: Any, first: str) -> Problem:
    """Return the problem of a ``self`` that is neither a pytree nor a safe constant."""
    name = type(value).__qualname__
    return located_problem(
        request,
        "static_argnames",
        f"{request.key}: jax can neither trace {first!r} nor keep it as a constant, because "
        f"{name} is no registered pytree and promises no equality",
        value=f"an instance of {type(value).__module__}.{name}",
        fix=f"either register {name} as a pytree (jax.tree_util.register_dataclass), so that "
        f"its arrays are traced; or name it, static_argnames=({first!r},), and give {name} "
        "__eq__ and __hash__ over everything the method reads: a changed value must then be "
        "another key",
    )


def unhashable_problem(request: Request, value: Any, name: str) -> Problem:
    """Return the problem of a static argument whose value can be no key."""
    kind = type(value)
    fix = f"pass {name!r} as something hashable: a tuple for a list, a frozen dataclass"
    if isinstance(value, jax.Array):
        fix = f"pass a number, or take {name!r} out of static-argnames to have it traced"
    return located_problem(
        request,
        "static_argnames",
        f"{request.key}: argument {name!r} is static, so its value must be hashable",
        value=f"{kind.__module__}.{kind.__qualname__}",
        fix=fix,
    )
