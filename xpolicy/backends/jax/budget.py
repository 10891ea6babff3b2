"""How many variants of one function jax has compiled, and what to say at the limit."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from xpolicy.backends.jax.misses import Canary
from xpolicy.policy.options import kebab

if TYPE_CHECKING:
    from xpolicy._origin import Origin
    from xpolicy.backends.base import Request
    from xpolicy.backends.jax.signatures import Signature


#: Without a limit, variants are kept to say what changed; nobody needs all of them.
_KEPT_WITHOUT_LIMIT = 64


class OverLimit(BaseException):
    """Leaves a trace that must not be finished.

    No `Exception`: jax filters tracebacks of those (1.1 ms against 0.05 ms), and a
    function's own ``except Exception`` must not catch it.
    """

    def __init__(self, signature: Signature, *, sealed: bool = False) -> None:
        self.signature = signature
        self.sealed = sealed
        super().__init__("a recompile limit was met")


class Budget:
    """The variants of one function in one namespace.

    Parameters
    ----------
    limit : int or None
        How many there may be; None for any number.
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._variants: list[Signature] = []
        self._canary: Canary | None = None

    @property
    def variants(self) -> tuple[Signature, ...]:
        """The signatures that were compiled, oldest first."""
        return tuple(self._variants)

    def admit(self, signature: Signature) -> tuple[bool, tuple[Signature, ...]]:
        """Take a place for a new variant.

        Parameters
        ----------
        signature : Signature
            What is being traced.

        Returns
        -------
        admitted : bool
            False if there is no place left.
        before : tuple of Signature
            The variants that were there already.
        """
        canary = self._canary
        # Made outside the lock: it runs jax, and jax may run anything.
        fresh = Canary() if canary is None or not canary.alive() else None
        with self._lock:
            if fresh is not None and (self._canary is canary):
                self._canary = fresh
                if canary is not None:  # jax.clear_caches() gives the budget back
                    self._variants.clear()
            before = tuple(self._variants)
            if self.limit is not None and len(before) >= self.limit:
                return False, before
            self._variants.append(signature)
            if self.limit is None and len(self._variants) > _KEPT_WITHOUT_LIMIT:
                del self._variants[0]
            return True, before

    def withdraw(self, signature: Signature) -> None:
        """Give a place back: the trace failed, so there is no variant."""
        with self._lock:
            if signature in self._variants:
                self._variants.remove(signature)

    def clear(self) -> None:
        """Forget all variants."""
        with self._lock:
            self._variants.clear()
            self._canary = None


def limit_message(request: Request, budget: Budget, signature: Signature) -> str:
    """Say that a limit was met: where it stands, what changed, what would lift it.

    Parameters
    ----------
    request : Request
        Whose limit.
    budget : Budget
        The variants that there are.
    signature : Signature
        The call that would need one more.
    """
    limit = budget.limit
    origin = request.origin_of("recompile_limit")
    _, changes = signature.nearest(budget.variants)
    head = f"{request.key} needs one compiled variant more than recompile-limit = {limit} allows"
    lines = [f"{head} (namespace {request.policy.namespace})"]
    if origin is not None:
        lines.append(f"  limit set at: {origin}")
    lines.append(f"  this call: {signature}")
    if changes:
        lines.append("  changed since the nearest variant:")
        lines += [f"    {change}" for change in changes]
    else:
        lines.append(
            "  no argument changed: jax compiled again for a setting of its own, or after an "
            "entry was dropped from its cache"
        )
    lines.append(f"  fix: {_edit(request.key, origin, (limit or 0) + 1)}")
    return "\n".join(lines)


def _edit(key: str, origin: Origin | None, wanted: int) -> str:
    option = kebab("recompile_limit")
    if origin is not None and origin.kind == "variable" and origin.label != "XPOLICY_TOML":
        return f"set {origin.label}={wanted} or more"
    if origin is not None and origin.kind in ("code", "runtime"):
        return f'recompile_limit={wanted} or more there, or "unset" for no limit'
    # A rule in a lower layer would lose against the one that set the limit.
    where = "" if origin is None else f" in {origin.label} or a layer above it"
    return (
        f'functions."{key}".jax.{option} = {wanted} or more{where}, or "unset" for no limit; '
        f"for one run: XPOLICY_JAX__RECOMPILE_LIMIT={wanted}"
    )
