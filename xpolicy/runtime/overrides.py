"""``xpolicy.override``: options for a while, for this context or for the process.

A context's overrides live in a context variable, so that threads and tasks are isolated
and ``contextvars.copy_context`` carries them. The dispatcher looks at one global flag
only. That flag stays up for as long as any stack of overrides is alive anywhere, also in
a copied context that outlives the ``with`` block, and falls when the last one is freed.
"""

from __future__ import annotations

from _thread import RLock
from _weakref import ref
from contextvars import ContextVar

from xpolicy.runtime import dispatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self

    from xpolicy.policy.layers import Layer

# Reentrant: the collector may free a stack, and so call _freed, inside the locked region.
_lock = RLock()
_alive: set[ref[Stack]] = set()


class Stack:
    """The overrides of one context, lowest first, and the callables made under them."""

    __slots__ = ("__weakref__", "below", "callables", "layers")

    def __init__(self, layers: tuple[Layer, ...], below: Stack | None) -> None:
        self.layers = layers
        self.below = below
        self.callables: dict[Any, Any] = {}


_stack: ContextVar[Stack | None] = ContextVar("xpolicy.overrides", default=None)


def _freed(dead: ref[Stack]) -> None:
    _alive.discard(dead)
    if not _alive:
        # Checked again under the lock: another thread may be entering a block now.
        with _lock:
            if not _alive:
                dispatch.set_overrides_active(False)


def _new_stack(layers: tuple[Layer, ...], below: Stack | None) -> Stack:
    stack = Stack(layers, below)
    with _lock:
        _alive.add(ref(stack, _freed))
        dispatch.set_overrides_active(True)
    return stack


def current() -> Stack | None:
    """Return the overrides of this context, or None."""
    return _stack.get()


def push(layers: tuple[Layer, ...]) -> None:
    """Put layers on top of the overrides of this context."""
    below = _stack.get()
    _stack.set(_new_stack((*(below.layers if below is not None else ()), *layers), below))


def pop(layers: tuple[Layer, ...]) -> None:
    """Take layers away again, whatever has come on top of them, in this context only.

    No token is kept: one override may be entered by several tasks at once, and generators
    that hold overrides may end in any order, or in another context than they began in.
    """
    top = _stack.get()
    if top is None:
        return
    kept = list(top.layers)
    if tuple(kept[-len(layers) :]) == layers:
        below = top.below
        if tuple(kept[: -len(layers)]) == (below.layers if below is not None else ()):
            _stack.set(below)
            return
    for layer in layers:
        # The last one: the same override may have been entered twice.
        for at in reversed(range(len(kept))):
            if kept[at] is layer:
                del kept[at]
                break
    _stack.set(_new_stack(tuple(kept), None) if kept else None)


class override:  # noqa: N801  # a context manager that is called like a function
    """Override options inside a ``with`` block.

    Parameters
    ----------
    function : callable, str or None
        A decorated function, a function key or a pattern (``"mylib.*"``); None for all.
    namespace : str or None
        The namespace that the options are for; None for any.
    everywhere : bool
        True: in the whole process, all threads. False: in this context only (this thread
        or task, and contexts copied from it).
    **options
        Options by Python name. Without `namespace`, a namespace's options are given as a
        mapping under its name: ``torch={"fullgraph": True}``.

    Raises
    ------
    BackendOptionError
        If an option is unknown or has a wrong value.

    Examples
    --------
    >>> import xpolicy
    >>> with xpolicy.override(mode="eager"):
    ...     xpolicy.resolve("mylib.f", "torch").mode
    'eager'
    >>> with xpolicy.override("mylib.*", "torch", fullgraph=True):
    ...     xpolicy.resolve("mylib.f", "torch").mode, xpolicy.resolve("mylib.f", "jax").mode
    ('fullgraph', 'compile')
    """

    def __init__(
        self,
        function: Callable[..., Any] | str | None = None,
        namespace: str | None = None,
        /,
        *,
        everywhere: bool = False,
        **options: Any,
    ) -> None:
        from xpolicy.runtime import session

        self._everywhere = everywhere
        self._layer = session.override_layer(function, namespace, options, depth=2)

    def __enter__(self) -> Self:
        from xpolicy.runtime import session

        if self._everywhere:
            session.push_everywhere(self._layer)
        else:
            push((self._layer,))
        return self

    def __exit__(self, *_: object) -> None:
        from xpolicy.runtime import session

        if self._everywhere:
            session.pop_everywhere(self._layer)
        else:
            pop((self._layer,))
