"""Ahead of time: lower a function for given arguments, look at it, compile it, call it.

The names follow ``jax.stages``: ``f.lower(*args)`` gives a `Lowered`, its ``compile()`` a
`Compiled`. Each backend brings its own; where nothing compiles, `EagerLowered` says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xpolicy.backends.registry import backend_for
from xpolicy.errors import XPolicyError
from xpolicy.runtime.binding import make, request_for
from xpolicy.runtime.detect import deciding
from xpolicy.runtime.entry import Entry
from xpolicy.runtime.session import find, session

if TYPE_CHECKING:
    from collections.abc import Callable

    from xpolicy.policy.resolve import ResolvedPolicy


class EagerLowered:
    """A function that nothing compiles for these arguments; calling it runs the original.

    Parameters
    ----------
    entry : Entry
        The decorated function.
    policy : ResolvedPolicy or None
        Its policy; None if there was no array to resolve one for.
    reason : str
        Why there is nothing to look at.
    """

    def __init__(self, entry: Entry, policy: ResolvedPolicy | None, reason: str) -> None:
        self._entry = entry
        self.policy = policy
        self.reason = reason

    def as_text(self) -> str:
        """Raise: there is no compiler's text. The error says why."""
        raise XPolicyError(f"{self._entry.key} has no lowered text: {self.reason}")

    def compile(self) -> EagerLowered:
        """Return itself: there is nothing to compile."""
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the original function."""
        return self._entry.fn(*args, **kwargs)


def lower(function: Callable[..., Any] | Entry, /, *args: Any, **kwargs: Any) -> Any:
    """Lower a decorated function for these arguments, under its policy.

    Parameters
    ----------
    function : callable
        A decorated function.
    *args, **kwargs
        As in a call.

    Returns
    -------
    object
        With ``as_text()``, ``compile()`` and ``policy``; what ``compile()`` returns is
        called with the same arguments, and has ``as_text()`` too.

    Raises
    ------
    XPolicyError
        If the function is not decorated.
    """
    entry = function if isinstance(function, Entry) else find(function)[1]
    if entry is None:
        raise XPolicyError(f"{function!r} is not decorated with xpolicy.compile")
    found = deciding((*args, *kwargs.values()))
    if found is None:
        return EagerLowered(entry, None, "no argument is an array")
    array, namespace, _ = found
    backend = backend_for(namespace)
    device = backend.device_of(array) if backend is not None else None
    policy = session.resolve(entry.key, namespace, entry, device)
    if backend is None:
        return EagerLowered(entry, policy, f"nothing compiles for {namespace}")
    if policy.mode == "eager":
        return EagerLowered(entry, policy, f"its mode for {namespace} is eager")
    call = make(entry, backend, policy)
    return backend.lower_call(request_for(entry, policy), backend.lower(policy), call, args, kwargs)
