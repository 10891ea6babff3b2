"""Count what was compiled by the compilers' own books, not by xpolicy's."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["COMPILERS", "watch"]

COMPILERS = {"torch": "torch.compile", "jax": "jax.jit"}
"""What compiles for a namespace; the others have no compiler."""

_JAX_COMPILED = "/jax/core/compile/backend_compile_duration"


def watch(function: Callable[..., Any], namespace: str) -> Callable[[], int]:
    """Return a call that tells how many graphs of `function` were compiled since now.

    Call it before anything is compiled. For jax it counts the monitoring events that carry the
    function's name: without ``jax.jit`` around it jax compiles too, each operation by itself. For
    torch it is dynamo's counter of graphs, which is the process's: nothing else in a worker
    compiles.
    """
    if namespace == "jax":
        import jax.monitoring

        seen: list[str] = []

        # Named as jax names them: its type for a listener asks for that.
        def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
            if event == _JAX_COMPILED and function.__name__ in str(kwargs.get("fun_name")):
                seen.append(event)

        jax.monitoring.register_event_duration_secs_listener(listen)
        return lambda: len(seen)
    if namespace == "torch":
        return _graphs
    return lambda: 0


def _graphs() -> int:
    # Not imported: where nothing asked for a compiler, dynamo is not loaded, and that is the answer.
    dynamo = sys.modules.get("torch._dynamo.utils")
    return 0 if dynamo is None else int(dynamo.counters["stats"]["unique_graphs"])
