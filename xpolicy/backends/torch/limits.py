"""The limit on compiled variants: what is allowed, and what happens beyond."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from xpolicy.backends.once import Once
from xpolicy.backends.torch import signature
from xpolicy.backends.torch.quiet import WARNING
from xpolicy.errors import RecompileLimitError

if TYPE_CHECKING:
    from xpolicy._origin import Origin

#: What torch allows when nobody says anything.
_TORCH_DEFAULT = 8


class Limit:
    """The recompile limit of one function.

    Parameters
    ----------
    key : str
        The function.
    number : int or None
        The limit, or None for torch's own.
    action : {"error", "warn", "eager"}
        What happens to a call beyond it.
    origin : Origin or None
        Who set the limit.
    """

    def __init__(self, key: str, number: int | None, action: str, origin: Origin | None) -> None:
        self.key = key
        self.number = number
        self.action = action
        self.origin = origin
        self._met = Once()

    def allowed(self) -> int:
        """Return how many variants there may be."""
        if self.number is not None:
            return self.number
        config = sys.modules.get("torch._dynamo.config")
        return int(getattr(config, "recompile_limit", _TORCH_DEFAULT))

    def exceeded(
        self, now: dict[str, str], changed: list[str], reasons: list[str], events: list[Any]
    ) -> None:
        """Do what the policy says about a call that would need one variant more.

        Raises
        ------
        RecompileLimitError
            If the action is ``error``.
        """
        text = self._text(now, changed, reasons)
        first = self._met.first()
        if first or self.action == "error":
            events.append(
                ("limit", text, {"limit": self.allowed(), "changed": changed, "reasons": reasons})
            )
        if self.action == "error":
            raise RecompileLimitError(text)
        if self.action == "warn" and first:
            told = "This call and others like it run uncompiled. Variants that exist stay compiled."
            events.append((WARNING, f"{text}\n{told}", {}))

    def forget(self) -> None:
        """Tell of it again when the limit is met again."""
        self._met.again()

    def error(
        self, now: dict[str, str], changed: list[str], reasons: list[str]
    ) -> RecompileLimitError:
        """Return the error for a variant too many that was asked for ahead of any call."""
        return RecompileLimitError(self._text(now, changed, reasons))

    def _text(self, now: dict[str, str], changed: list[str], reasons: list[str]) -> str:
        number = self.allowed()
        where = f"set at {self.origin}" if self.origin else "torch's own default"
        lines = [
            (
                f"{self.key} for torch would need more than {number} compiled "
                f"variant{'s' if number != 1 else ''}: recompile-limit = {number} ({where})"
            ),
            f"  called with: {signature.told(now)}",
        ]
        if changed:
            lines.append("  changed since the nearest variant: " + "; ".join(changed))
        if reasons:
            lines.append("  torch says: " + "; ".join(reasons))
        lines.append(f"  fix: {self._fix(number)}")
        return "\n".join(lines)

    def _fix(self, number: int) -> str:
        kind = self.origin.kind if self.origin else "builtin"
        if kind == "variable":
            return f"XPOLICY_TORCH__RECOMPILE_LIMIT={number + 1}, or more"
        if kind in ("code", "runtime"):
            return f"recompile_limit={number + 1}, or more, at {self.origin}"
        place = f" at {self.origin}" if kind == "file" else f' under functions."{self.key}".torch'
        return f"recompile-limit = {number + 1}, or more,{place}"
