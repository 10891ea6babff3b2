"""``xpolicy.snapshot``: the layers of this process and context, to use in another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xpolicy.runtime import overrides
from xpolicy.runtime.session import session

if TYPE_CHECKING:
    from typing import Self

    from xpolicy.policy.layers import Layer
    from xpolicy.sources.load import Loaded


class Snapshot:
    """Layers that were resolved here, ready to be carried elsewhere; picklable.

    What decorators say is not in it: it travels with the code. What packages ship is
    read where they are installed.
    """

    def __init__(
        self,
        loaded: Loaded,
        disabled: bool,
        everywhere: tuple[Layer, ...],
        context: tuple[Layer, ...],
    ) -> None:
        self._loaded = loaded
        self._disabled = disabled
        self._everywhere = everywhere
        self._context = context

    def __repr__(self) -> str:
        layers = (*self._loaded.layers, *self._everywhere, *self._context)
        return f"<xpolicy snapshot: {', '.join(layer.label for layer in layers) or 'no layers'}>"

    def activate(self) -> Activation:
        """Use these layers from now on, or for the length of a ``with`` block.

        Files and environment are replaced for the process (in the process that the
        snapshot was taken in they are the same, and nothing changes); overrides are set
        for this context only.

        Returns
        -------
        Activation
            A context manager that restores what was there before.
        """
        before = None
        if session.loaded() is not self._loaded or session.everywhere != self._everywhere:
            before = (session.loaded(), session.disabled, session.everywhere)
            session.put(self._loaded, self._disabled, self._everywhere)
        # In the context that it was taken in they are there already.
        stack = overrides.current()
        context = self._context
        if stack is not None and stack.layers == context:
            context = ()
        if context:
            overrides.push(context)
        return Activation(before, context)


class Activation:
    """An active snapshot; leaving its ``with`` block restores what was there before."""

    def __init__(
        self,
        before: tuple[Loaded, bool, tuple[Layer, ...]] | None,
        context: tuple[Layer, ...],
    ) -> None:
        self._before = before
        self._context = context

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._context:
            overrides.pop(self._context)
            self._context = ()
        if self._before is not None:
            session.put(*self._before)
            self._before = None


def snapshot() -> Snapshot:
    """Take the layers of this process and context, to activate in a thread or worker.

    Returns
    -------
    Snapshot
        Picklable; ``snapshot.activate()`` in the worker makes the same policies hold.

    Examples
    --------
    >>> import pickle
    >>> import xpolicy
    >>> with xpolicy.override(mode="eager"):
    ...     data = pickle.dumps(xpolicy.snapshot())
    >>> with pickle.loads(data).activate():
    ...     xpolicy.resolve("mylib.f", "torch").mode
    'eager'
    """
    stack = overrides.current()
    return Snapshot(
        session.loaded(),
        session.disabled,
        session.everywhere,
        stack.layers if stack is not None else (),
    )
