"""The ``jax`` namespace: policies become keywords of ``jax.jit``, functions compiled callables.

Importing this imports no jax; only a process that has imported it already gets that far.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from xpolicy.backends.base import Backend, Lowered, Request
from xpolicy.backends.jax.options import SPEC

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from xpolicy.backends.caches import CacheUse
    from xpolicy.backends.hits import CacheCounts
    from xpolicy.backends.stages import CompiledCall, LoweredCall
    from xpolicy.policy.cache import CachePolicy
    from xpolicy.policy.resolve import ResolvedPolicy


class JaxBackend(Backend):
    """Compiles with ``jax.jit``."""

    spec = SPEC
    module = "jax"

    def version(self) -> str | None:
        """Return jax's version, or None if it isn't imported."""
        jax = sys.modules.get("jax")
        # While another thread is still importing it, the module is there but bare.
        return None if jax is None else getattr(jax, "__version__", None)

    def lower(self, policy: ResolvedPolicy) -> Lowered:
        """Say a policy in the keywords of the installed ``jax.jit``."""
        from xpolicy.backends.jax.lowering import lower

        return lower(policy)

    def compile(self, request: Request, lowered: Lowered) -> Callable[..., Any]:
        """Return the function compiled by ``jax.jit``; a hit costs what a hit of jax costs."""
        from xpolicy.backends.jax.compiled import compile_function

        return compile_function(request, lowered)

    def lower_call(
        self,
        request: Request,
        lowered: Lowered,
        call: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> LoweredCall:
        """Lower one call; what is compiled from it is found by later calls of ``call``."""
        from xpolicy.backends.jax.aot import lower_call

        return lower_call(call.owner, args, kwargs)  # type: ignore[attr-defined]  # ours have it

    def load_call(
        self, request: Request, lowered: Lowered, call: Callable[..., Any], data: bytes
    ) -> CompiledCall:
        """Return the executable that was saved."""
        from xpolicy.backends.jax.aot import load_call

        return load_call(call.owner, data)  # type: ignore[attr-defined]  # ours have it

    def use_cache(self, policy: CachePolicy) -> CacheUse:
        """Let jax keep what it compiles where a policy says."""
        from xpolicy.backends.jax.caches import use

        return use(policy)

    def placeholder(
        self, dtype: str, shape: tuple[int, ...], *, weak: bool, device: str | None
    ) -> Any:
        """Return a ``jax.ShapeDtypeStruct``."""
        from xpolicy.backends.jax.aot import placeholder

        return placeholder(dtype, shape, weak=weak, device=device)

    def cache_watched(self) -> AbstractContextManager[CacheCounts]:
        """Count what jax says of its persistent cache."""
        from xpolicy.backends.jax.hits import watched

        return watched()

    def hardware(self) -> str:
        """Return the processor, and the kinds of devices that jax has."""
        import jax

        kinds = sorted({str(device.device_kind) for device in jax.devices()})
        return f"{super().hardware()} {', '.join(kinds)}"

    def disabled_by(self) -> str | None:
        """Return jax's own switch that makes every call eager, if one does."""
        jax = sys.modules.get("jax")
        if jax is None or not getattr(jax.config, "jax_disable_jit", False):
            return None
        said = os.environ.get("JAX_DISABLE_JIT", "").lower()
        if said in ("1", "t", "true", "y", "yes", "on"):
            return f"JAX_DISABLE_JIT={os.environ['JAX_DISABLE_JIT']}"
        return "jax.disable_jit()"

    def device_of(self, array: Any) -> str | None:
        """Return where a concrete jax array lives; None for a tracer, which lives nowhere yet."""
        from xpolicy.backends.jax.devices import device_of

        return device_of(array)


backend = JaxBackend()
