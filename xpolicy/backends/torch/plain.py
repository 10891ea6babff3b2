"""Compiling with nothing but ``torch.compile``: for a torch without what `private` needs.

What is kept: the limit under ``fullgraph`` with every action, and with ``error`` without
it; own exceptions under ``fullgraph``; the graph-break budget, as far as graphs tell of
breaks. What is not: without ``fullgraph``, ``warn`` and ``eager`` beyond the limit are
torch's own fallback, which warns in torch's log only, and behind a graph break each part
of the function counts for itself; threads that call first at once may compile twice.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from xpolicy.backends.torch import private

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: What is taken over by the function's own backend.
_OURS = ("backend", "options", "name")


def compiled_publicly(
    function: Callable[..., Any], backend: Any, keywords: Mapping[str, Any], action: str
) -> Callable[..., Any]:
    """Return a function compiled by ``torch.compile`` alone.

    Parameters
    ----------
    backend : callable
        A dynamo backend.
    keywords : mapping
        The lowered keywords of the policy.
    action : {"error", "warn", "eager"}
        What happens beyond the recompile limit.
    """
    import torch
    import torch._dynamo

    given = {name: value for name, value in keywords.items() if name not in _OURS}
    keep = keywords.get("options", {}).get("guard_filter_fn")
    if keep is not None:
        given["options"] = {"guard_filter_fn": keep}
    compiled: Callable[..., Any] = torch.compile(function, backend=backend, **given)
    if private.hooks_available():
        # Calls are then asked only about traces that a hook doesn't notice, and this has none.
        compiled = _asking(compiled, function)
    if action != "error" or keywords.get("fullgraph") or "recompile_limit" not in keywords:
        return compiled

    # 39 microseconds a call: torch offers no other way to be told.
    @functools.wraps(compiled)
    def told(*args: Any, **kwargs: Any) -> Any:
        with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
            return compiled(*args, **kwargs)

    return told


def _asking(compiled: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(compiled)
    def asked(*args: Any, **kwargs: Any) -> Any:
        return (function if private.under_trace() else compiled)(*args, **kwargs)

    return asked
