"""From a decorated function and arguments, or specs of them, to the first stage."""

from __future__ import annotations

import sys
from types import MethodType
from typing import TYPE_CHECKING, Any

from xpolicy.aot.eager import EagerCall
from xpolicy.aot.mismatch import Expected, outlined, signature_of, spelled
from xpolicy.aot.specs import Spec, inside, replaced, specs_in
from xpolicy.aot.stages import Lowered
from xpolicy.backends.registry import backend_for
from xpolicy.errors import XPolicyError
from xpolicy.runtime.binding import make, request_for
from xpolicy.runtime.detect import STRONG, deciding
from xpolicy.runtime.entry import Entry
from xpolicy.runtime.session import find, session

if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable

    from xpolicy.backends.base import Backend
    from xpolicy.backends.stages import LoweredCall
    from xpolicy.policy.resolve import ResolvedPolicy

#: Where a spec alone says no namespace: the libraries that have a compiler here.
_COMPILING = ("torch", "jax")
#: No deeper into containers than this.
_DEPTH = 8


def lower(function: Callable[..., Any] | Entry, /, *args: Any, **kwargs: Any) -> Lowered:
    """Lower a decorated function for these arguments, under its policy.

    Parameters
    ----------
    function : callable
        A decorated function, or a bound method that is one.
    *args, **kwargs
        As in a call; `xpolicy.spec`, ``jax.ShapeDtypeStruct``, and torch's meta and fake
        tensors stand for arrays.

    Returns
    -------
    Lowered
        Nothing of the function has run.

    Raises
    ------
    XPolicyError
        If the function is not decorated, or no argument tells the array library.

    Examples
    --------
    >>> import numpy as np
    >>> import xpolicy
    >>> @xpolicy.compile(name="mylib.double")
    ... def double(x):
    ...     return 2 * x
    >>> double.lower(np.ones(2)).compile()(np.ones(2))
    array([2., 2.])
    """
    entry = entry_of(function)
    if isinstance(function, MethodType):
        args = (function.__self__, *args)
    signature = signature_of(entry.fn)
    bound = spelled(signature, args, kwargs)
    stage, policy, bound, device = _stage(entry, bound)
    namespace = policy.namespace if policy is not None else "no array"
    constants = {name: bound.arguments[name] for name in stage.statics if name in bound.arguments}
    expected = Expected(
        entry.key, namespace, entry.file, entry.line, outlined(stage, bound), constants, device
    )
    return Lowered(entry, policy, expected, signature, stage)


def entry_of(function: Callable[..., Any] | Entry) -> Entry:
    """Return the entry of a decorated function."""
    entry = function if isinstance(function, Entry) else find(function)[1]
    if entry is None:
        raise XPolicyError(f"{function!r} is not decorated with xpolicy.compile")
    return entry


def _stage(
    entry: Entry, bound: inspect.BoundArguments
) -> tuple[LoweredCall, ResolvedPolicy | None, inspect.BoundArguments, str | None]:
    """Lower a call; also returns its policy, its arguments without specs, and its device."""
    namespace = _namespace(entry, bound)
    if namespace is None:
        return EagerCall(entry, "no argument is an array"), None, bound, None
    backend = backend_for(namespace)
    if backend is None:
        policy = session.resolve(entry.key, namespace, entry, None)
        return EagerCall(entry, f"nothing compiles for {namespace}", policy), policy, bound, None
    bound = _with_placeholders(backend, bound)
    device = _device(backend, bound)
    policy = session.resolve(entry.key, namespace, entry, device)
    if policy.mode == "eager":
        return EagerCall(entry, f"its mode for {namespace} is eager", policy), policy, bound, device
    switch = backend.disabled_by()
    if switch is not None:
        return (
            EagerCall(entry, f"{switch} turns {namespace}'s compiler off", policy),
            policy,
            bound,
            device,
        )
    call = make(entry, backend, policy)
    request = request_for(entry, policy)
    stage = backend.lower_call(request, backend.lower(policy), call, bound.args, bound.kwargs)
    return stage, policy, bound, device


def _values(bound: inspect.BoundArguments) -> tuple[Any, ...]:
    return (*bound.args, *bound.kwargs.values())


def _namespace(entry: Entry, bound: inspect.BoundArguments) -> str | None:
    """Return whose arrays decide, placeholders counting as arrays."""
    values = _values(bound)
    found = deciding(values)
    if found is not None and found[2] == STRONG:
        return found[1]
    specs = list(specs_in(values))
    named = next((item.namespace for item in specs if item.namespace is not None), None)
    if named is not None:
        return named
    if _has_struct(values):
        return "jax"
    if found is not None or not specs:
        return found[1] if found is not None else None
    loaded = [name for name in _COMPILING if name in sys.modules]
    if len(loaded) == 1:
        return loaded[0]
    raise XPolicyError(
        f"{entry.key}: no argument tells the array library, and "
        f"{' and '.join(loaded) if loaded else 'none with a compiler'} "
        f"{'are' if loaded else 'is'} imported; fix: "
        f'xpolicy.spec("{specs[0]}", namespace="{(loaded or list(_COMPILING))[0]}")'
    )


def _has_struct(value: Any, depth: int = _DEPTH) -> bool:
    kind = getattr(sys.modules.get("jax"), "ShapeDtypeStruct", None)
    if kind is None:
        return False
    return isinstance(value, kind) or (
        depth > 0 and any(_has_struct(item, depth - 1) for item in inside(value))
    )


def _with_placeholders(backend: Backend, bound: inspect.BoundArguments) -> inspect.BoundArguments:
    def make_one(item: Spec) -> Any:
        return backend.placeholder(item.dtype, item.shape, weak=item.weak, device=item.device)

    for name, value in bound.arguments.items():
        bound.arguments[name] = backend.stand_in(replaced(value, make_one))
    return bound


def _device(backend: Backend, bound: inspect.BoundArguments) -> str | None:
    values = _values(bound)
    found = deciding(values)
    if found is not None and found[2] == STRONG:
        return backend.device_of(found[0])
    waiting = list(values)
    for value in waiting:  # grows while it is walked: containers are opened
        device = backend.device_of(value)
        if device is not None:
            return device
        waiting += inside(value)
    return None
