"""What happens once, whatever the number of threads."""

from __future__ import annotations


class Once:
    """Says yes to the first who asks, and to the first after each `again`.

    Without a lock: ``dict.setdefault`` is one step, also where there is no GIL, and a forked
    child can't inherit it half done.

    Examples
    --------
    >>> warned = Once()
    >>> warned.first(), warned.first()
    (True, False)
    """

    __slots__ = ("_taken",)

    def __init__(self) -> None:
        self._taken: dict[str, object] = {}

    def first(self) -> bool:
        """Return whether nobody has asked before."""
        mine = object()
        return self._taken.setdefault("by", mine) is mine

    def again(self) -> None:
        """Let the next who asks be the first."""
        self._taken.clear()
