"""From a decorated function and an array to the callable that will run."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from xpolicy.backends.base import Request
from xpolicy.backends.registry import backend_for, option_table
from xpolicy.errors import BackendOptionError
from xpolicy.policy.resolve import device_matters, resolve
from xpolicy.runtime import caches, detect, events, overrides
from xpolicy.runtime.dispatch import bound, note
from xpolicy.runtime.session import place, session
from xpolicy.sources.positions import located

if TYPE_CHECKING:
    from collections.abc import Callable

    from xpolicy.backends.base import Backend
    from xpolicy.policy.layers import Layer
    from xpolicy.policy.resolve import ResolvedPolicy
    from xpolicy.runtime.entry import Entry


#: Policies of one function whose compiled callables are kept. A program uses one or two;
#: one that overrides with ever new values would keep 1.5 MB for each (a one-line jax
#: function) for as long as it runs.
POLICIES_KEPT = 16


def bind(entry: Entry, cls: type, namespace: str, array: Any) -> Callable[..., Any]:
    """Resolve, compile lazily, and remember the callable for arrays of one type."""
    backend = backend_for(namespace)
    if backend is None:  # registered, but it can't be loaded
        note(entry, cls, array, entry.fn)
        return entry.fn
    with entry.lock:
        # Of many threads that make the first call at once, one resolves. Nothing in here
        # runs the function.
        known = bound(entry, cls)
        if known is not None:
            return known
        generation = session.generation
        # Overrides of this context must not get into a table that every context shares.
        layers = session.layers_for(entry.key, entry, context=False)
        call = _callable(entry, backend, namespace, array, layers)
        with session.lock:
            # What was resolved before a reload must not be remembered after it.
            if generation == session.generation:
                note(entry, cls, array, call)
        return call


def overridden(entry: Entry, namespace: str, array: Any) -> Callable[..., Any]:
    """Return the callable under this context's overrides."""
    stack = overrides.current()
    if stack is None:
        return _not_overridden(entry, namespace, array)
    key = (id(entry), namespace, session.generation)
    found = stack.callables.get(key)
    if found is not None:
        return found[1]  # type: ignore[no-any-return]  # holds (entry, callable)
    backend = backend_for(namespace)
    if backend is None:
        call = entry.fn
    else:
        layers = session.layers_for(entry.key, entry)
        call = _callable(entry, backend, namespace, array, layers)
    # The entry is kept with it, so that its id can't be taken by another.
    stack.callables[key] = (entry, call)
    return call


def _not_overridden(entry: Entry, namespace: str, array: Any) -> Callable[..., Any]:
    """Return what the table knows: the override that is active is another context's."""
    cls = type(array)
    try:
        known = bound(entry, cls)
    except Exception:  # noqa: BLE001  # a metaclass may raise anything from __hash__
        # It can't be remembered in a table: resolved anew each time.
        backend = backend_for(namespace)
        if backend is None:
            return entry.fn
        layers = session.layers_for(entry.key, entry, context=False)
        return _callable(entry, backend, namespace, array, layers)
    return known if known is not None else bind(entry, cls, namespace, array)


def _callable(
    entry: Entry, backend: Backend, namespace: str, array: Any, layers: list[Layer]
) -> Callable[..., Any]:
    table = option_table()
    if device_matters(layers, entry.key, namespace):
        return _by_device(entry, backend, namespace, layers)
    return make(entry, backend, resolve(layers, table, entry.key, namespace))


def _by_device(
    entry: Entry, backend: Backend, namespace: str, layers: list[Layer]
) -> Callable[..., Any]:
    """Choose by the device of the deciding array, at each call: some rule asks for it."""
    table = option_table()
    chosen: dict[str | None, Callable[..., Any]] = {}

    def by_device(*args: Any, **kwargs: Any) -> Any:
        found = detect.deciding((*args, *kwargs.values()))
        device = backend.device_of(found[0]) if found is not None else None
        call = chosen.get(device)
        if call is None:
            policy = resolve(layers, table, entry.key, namespace, device)
            call = chosen[device] = make(entry, backend, policy)
        return call(*args, **kwargs)

    return by_device


def request_for(entry: Entry, policy: ResolvedPolicy) -> Request:
    """Say to a backend what it needs to know of a function."""
    announce = partial(events.announce, entry.key, policy.namespace)
    return Request(entry.fn, entry.key, policy, events.publish, located, announce)


def make(entry: Entry, backend: Backend, policy: ResolvedPolicy) -> Callable[..., Any]:
    """Return the function compiled under a policy; one for each fingerprint."""
    if policy.mode == "eager":
        return entry.fn
    with entry.lock:
        try:
            caches.use(backend)
            lowered = backend.lower(policy)
            key = (policy.namespace, policy.fingerprint, lowered.version)
            # Taken out and put back: the one that was used last stands last.
            call = entry.compiled.pop(key, None)
            if call is None:
                call = backend.compile(request_for(entry, policy), lowered)
            entry.compiled[key] = call
            while len(entry.compiled) > POLICIES_KEPT:
                del entry.compiled[next(iter(entry.compiled))]
        except BackendOptionError as error:
            raise BackendOptionError([place(p) for p in error.problems]) from None
        return call


def clear(entry: Entry) -> None:
    """Drop a function's compiled callables, and give their budgets back."""
    with entry.lock:
        for call in entry.compiled.values():
            drop = getattr(call, "clear", None)
            if drop is not None:
                drop()
        entry.compiled.clear()
        entry.table.clear()
    session.changed()
    events.forget(entry.key)
