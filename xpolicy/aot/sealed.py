"""``xpolicy.seal``: from now on, nothing more is compiled unnoticed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xpolicy.backends import sealing
from xpolicy.policy.options import nearest

if TYPE_CHECKING:
    from typing import Self


class Seal:
    """A seal in force; a context manager that lifts it."""

    def __init__(self, action: str) -> None:
        self.action = action
        self._token = sealing.put(action)

    def __repr__(self) -> str:
        return f"<xpolicy.seal: {self.action}>"

    def lift(self) -> None:
        """Allow compilations again, unless another seal is in force. Twice does nothing."""
        sealing.lift(self._token)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.lift()


def seal(action: str = "error") -> Seal:
    """Let every new compilation, of any decorated function in any thread, meet an action.

    What is compiled already stays as fast as it was. Call it when a program has warmed up.

    Parameters
    ----------
    action : {"error", "warn", "eager"}
        ``"error"`` raises `SealedError`, which says which argument changed and how;
        ``"warn"`` warns and runs the original function; ``"eager"`` runs it silently.
        Compiling ahead of time (``f.lower(...).compile()``) meets an error whatever the
        action, since there is no call to run.

    Returns
    -------
    Seal
        With ``lift()``; leaving its ``with`` block lifts it, too.

    Raises
    ------
    ValueError
        If the action is none of these.

    Notes
    -----
    On jax a seal sees what is traced. A call that jax has traced already, but not compiled
    for where its arrays are now, is compiled by jax all the same. On torch, the backward
    pass of what is compiled is compiled at its first use.

    Examples
    --------
    >>> import xpolicy
    >>> with xpolicy.seal():
    ...     pass
    """
    if action not in sealing.ACTIONS:
        near = nearest(str(action), sealing.ACTIONS)
        hint = f"; did you mean {near!r}?" if near else ""
        raise ValueError(f"action={action!r}: it is one of {', '.join(sealing.ACTIONS)}{hint}")
    return Seal(action)
