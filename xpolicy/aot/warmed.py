"""What became of one warm-up call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xpolicy.errors import XPolicyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xpolicy.errors import Problem


@dataclass(frozen=True)
class Warmed:
    """What became of one call that a policy's ``warmup`` list names.

    Attributes
    ----------
    function, namespace, signature : str
        Which call.
    status : {"compiled", "known", "eager", "skipped", "failed"}
        Compiled now; compiled already in this process; nothing to compile, since the policy
        or the compiler's own switch has it run eager; not tried, since the library or the
        function's package isn't imported; failed.
    seconds : float or None
        How long lowering and compiling took.
    cache : {"hit", "miss", "off", "unknown"} or None
        What the compiler said of its persistent cache; None if nothing was compiled.
    reason : str
        Why nothing was compiled.
    remaining : tuple of str
        What later calls compile all the same.
    origin : str
        Where the policy says it.
    problem : Problem or None
        What is wrong, if it failed.
    error : Exception or None
        What the compiler, or the function, raised.
    """

    function: str
    namespace: str
    signature: str
    status: str
    seconds: float | None = None
    cache: str | None = None
    reason: str = ""
    remaining: tuple[str, ...] = ()
    origin: str = ""
    problem: Problem | None = field(default=None, repr=False)
    error: Exception | None = field(default=None, repr=False, compare=False)

    @property
    def failed(self) -> bool:
        """Whether it failed."""
        return self.status == "failed"

    @property
    def told(self) -> str:
        """What became of it, in words."""
        text = {
            "compiled": "compiled",
            "known": "compiled already",
            "eager": "eager, nothing to compile",
        }.get(self.status, self.status)
        return f"{text}: {self.reason}" if self.reason else text

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "function": self.function,
            "namespace": self.namespace,
            "signature": self.signature,
            "status": self.status,
            "seconds": self.seconds,
            "cache": self.cache,
            "reason": self.reason,
            "remaining": list(self.remaining),
            "origin": self.origin,
            "problem": self.problem.as_dict() if self.problem is not None else None,
        }

    def __str__(self) -> str:
        text = f"{self.function}({self.signature}) for {self.namespace}: {self.told}"
        if self.status == "compiled":
            text += f" in {self.seconds:.2f} s (cache: {self.cache})"
        if self.remaining:
            text += f"; later calls compile {'; '.join(self.remaining)}"
        return text


class WarmupError(XPolicyError):
    """Some warm-up calls failed; `results` holds what became of every one."""

    def __init__(self, results: Sequence[Warmed]) -> None:
        self.results = tuple(results)
        super().__init__(self.results)

    def __str__(self) -> str:
        return "\n\n".join(str(one.problem) for one in self.results if one.problem is not None)
