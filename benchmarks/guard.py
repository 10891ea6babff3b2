"""What a known call of a decorated function executes, counted instead of timed.

Counts are the same on a busy machine and on an idle one. A bytecode instruction of the
dispatcher is one of a kind that the interpreter specialises (2 to 15 ns); a call of
anything, a context variable's ``get`` for one, is an event that the interpreter reports.
"""

from __future__ import annotations

import gc
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

__all__ = ["Work", "exceeded", "work"]


@dataclass(frozen=True)
class Work:
    """What one call executed.

    Parameters
    ----------
    instructions : int
        Bytecode instructions, the function's own left out.
    python : tuple of str
        Python functions that were called besides the dispatcher and the function.
    native : tuple of str
        C functions that were called.
    """

    instructions: int
    python: tuple[str, ...]
    native: tuple[str, ...]


def work(
    call: Callable[..., Any],
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Work:
    """Count what a call executes.

    Parameters
    ----------
    call : callable
        A Python function. Its first call is made here, uncounted.
    function : callable
        What it forwards to: not counted.
    args, kwargs : sequence, mapping
        The call.
    """
    named = dict(kwargs or {})
    found: list[Work] = []

    def count() -> None:
        for _ in range(3):
            call(*args, **named)
        instructions = _instructions(call, function, args, named)
        found.append(Work(instructions, *_calls(call, function, args, named)))

    # In a thread of its own: whoever traces this one (coverage, a debugger) goes on.
    thread = threading.Thread(target=count)
    thread.start()
    thread.join()
    return found[0]


def _instructions(call: Any, function: Any, args: Sequence[Any], named: dict[str, Any]) -> int:
    count = 0
    skipped = (_instructions.__code__, function.__code__)

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if frame.f_code in skipped:
            return None
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    # A finalizer that runs meanwhile is no work of the call's.
    gc.disable()
    try:
        sys.settrace(trace)
        call(*args, **named)
    finally:
        sys.settrace(None)
        gc.enable()
    return count


def _calls(
    call: Any, function: Any, args: Sequence[Any], named: dict[str, Any]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    python: list[str] = []
    native: list[str] = []
    expected = (call.__code__, function.__code__)

    def profile(frame: FrameType, event: str, what: Any) -> None:
        if event == "call" and frame.f_code not in expected:
            python.append(frame.f_code.co_qualname)
        elif event == "c_call":
            native.append(getattr(what, "__qualname__", repr(what)))

    gc.disable()
    try:
        sys.setprofile(profile)
        call(*args, **named)
    finally:
        sys.setprofile(None)
        gc.enable()
    native.pop()  # sys.setprofile(None) itself
    return tuple(python), tuple(native)


def exceeded(
    call: Callable[..., Any],
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    strong: bool = True,
) -> list[str]:
    """Say what a known call does beyond looking a type up and forwarding.

    Parameters
    ----------
    call, function : callable
        The decorated function and the original.
    args, kwargs : sequence, mapping
        The call.
    strong : bool
        Whether the first argument decides: then one type is looked up, else each.

    Returns
    -------
    list of str
        One line for each thing too many; empty if there is none.
    """
    found = work(call, function, args, kwargs)
    looked_up = 1 if strong else len(args) + len(kwargs or {})
    # Over a forwarder with the same parameters, which loads each argument once.
    least = work(_forwarder(call, function), function, args, kwargs).instructions
    budget = least + INSTRUCTIONS + PER_LOOKUP * looked_up
    told = [f"calls {name}" for name in (*found.python, *found.native)]
    if found.instructions > budget:
        told.append(f"{found.instructions} instructions, {budget} are enough")
    return told


# The flag, the table, the choice and the call; then each look-up with its test. CPython
# 3.11 needs 18 instructions where the first argument decides, and 22, 34, 43, 54 where
# one to four of NumPy's are looked up. Other versions differ by a few.
INSTRUCTIONS = 14
PER_LOOKUP = 11


def _forwarder(call: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with the same parameters that does nothing but forward."""
    code = call.__code__
    names = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    positional, only = names[: code.co_argcount], names[code.co_argcount :]
    given = ", ".join([*positional, *(f"{name}={name}" for name in only)])
    parameters = ", ".join([*positional, *(["*"] if only else []), *only])
    scope: dict[str, Any] = {}
    exec(
        f"def make(function):\n    def forward({parameters}):\n"
        f"        return function({given})\n    return forward\n",
        scope,
    )
    forward: Callable[..., Any] = scope["make"](function)
    forward.__defaults__ = call.__defaults__
    forward.__kwdefaults__ = call.__kwdefaults__
    return forward
