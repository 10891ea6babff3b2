"""What a compiler said of its persistent cache while something was compiled."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class CacheCounts:
    """Counts of a compiler's own events; they stay 0 where it tells none.

    Attributes
    ----------
    compiled : int or None
        What was handed to the compiler, found in its cache or not; None if it doesn't say.
    hits, misses : int
        What was found in its persistent cache, and what was looked for in vain.
    """

    compiled: int | None = None
    hits: int = 0
    misses: int = 0

    @property
    def outcome(self) -> str | None:
        """``"hit"`` if all was found, ``"miss"`` if not, ``"off"`` if the cache wasn't asked.

        ``"unknown"`` if the compiler says nothing; None if nothing was compiled.
        """
        if self.misses:
            return "miss"
        if self.hits:
            return "hit"
        if self.compiled is None:
            return "unknown"
        return "off" if self.compiled else None
