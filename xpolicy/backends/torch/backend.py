"""`TorchBackend`: the protocol's methods, each handing on to the file that does the work."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, ClassVar

from xpolicy.backends.base import Backend, Lowered, Request
from xpolicy.backends.torch.options import SPEC

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from xpolicy.backends.caches import CacheUse
    from xpolicy.backends.hits import CacheCounts
    from xpolicy.backends.stages import CompiledCall, LoweredCall
    from xpolicy.policy.cache import CachePolicy
    from xpolicy.policy.options import NamespaceSpec
    from xpolicy.policy.resolve import ResolvedPolicy

#: Read whenever something is compiled.
_OFF_AT_ONCE = "TORCHDYNAMO_DISABLE"
#: Read when dynamo's configuration is first imported, which then says what holds.
_OFF_AT_IMPORT = "TORCH_COMPILE_DISABLE"


class TorchBackend(Backend):
    """Compiles functions of torch tensors with ``torch.compile``."""

    spec: ClassVar[NamespaceSpec] = SPEC
    module: ClassVar[str] = "torch"

    def version(self) -> str | None:
        """Return torch's version, or None if torch isn't imported."""
        torch = sys.modules.get("torch")
        return None if torch is None else str(torch.__version__)

    def lower(self, policy: ResolvedPolicy) -> Lowered:
        """Say a policy in the keywords of ``torch.compile``.

        Raises
        ------
        BackendOptionError
            For all options that the installed torch doesn't take, each with its origin.
        """
        from xpolicy.backends.torch.lowering import lower

        return lower(policy)

    def compile(self, request: Request, lowered: Lowered) -> Callable[..., Any]:
        """Return the function compiled; nothing is built before its first call."""
        from xpolicy.backends.torch.compiled import compiled_function

        return compiled_function(request, lowered)

    def lower_call(
        self,
        request: Request,
        lowered: Lowered,
        call: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> LoweredCall:
        """Lower one call; what is compiled from it is found by later calls of ``call``."""
        from xpolicy.backends.torch.aot import TorchLowered

        return TorchLowered(request, lowered, call, args, kwargs)

    def load_call(
        self, request: Request, lowered: Lowered, call: Callable[..., Any], data: bytes
    ) -> CompiledCall:
        """Return the compiled function that was saved."""
        from xpolicy.backends.torch.saved import load_call

        return load_call(request, data)

    def use_cache(self, policy: CachePolicy) -> CacheUse:
        """Let inductor keep what it compiles where a policy says."""
        from xpolicy.backends.torch.caches import use

        return use(policy)

    def placeholder(
        self, dtype: str, shape: tuple[int, ...], *, weak: bool, device: str | None
    ) -> Any:
        """Return a tensor without content."""
        from xpolicy.backends.torch.aot import placeholder

        return placeholder(dtype, shape, weak=weak, device=device)

    def stand_in(self, value: Any) -> Any:
        """Return tensors without content in place of meta and fake ones."""
        from xpolicy.backends.torch.aot import stand_in

        return stand_in(value)

    def cache_watched(self) -> AbstractContextManager[CacheCounts]:
        """Count what inductor says of its persistent cache."""
        from xpolicy.backends.torch.hits import watched

        return watched()

    def hardware(self) -> str:
        """Return the processor, and the GPU if there is one."""
        import torch

        told = [super().hardware(), torch.backends.cpu.get_cpu_capability()]
        if torch.cuda.is_available():
            told.append(torch.cuda.get_device_name())
        return " ".join(told)

    def disabled_by(self) -> str | None:
        """Return the switch of torch's own that turns ``torch.compile`` off, if one does."""
        if os.environ.get(_OFF_AT_ONCE) == "1":
            return f"{_OFF_AT_ONCE}=1"
        at_import = f"{_OFF_AT_IMPORT}=1" if os.environ.get(_OFF_AT_IMPORT) == "1" else None
        if "torch._dynamo.config" not in sys.modules:
            return at_import
        from xpolicy.backends.torch.private import dynamo_disabled, stance

        if dynamo_disabled():
            return at_import or "torch._dynamo.config.disable"
        if stance() == "force_eager":
            return 'torch.compiler.set_stance("force_eager")'
        return None

    def device_of(self, array: Any) -> str | None:
        """Return the kind of device that a tensor is on."""
        try:
            kind = str(array.device.type)
        except AttributeError:
            return None
        if kind == "cuda":
            torch = sys.modules.get("torch")
            return "rocm" if torch is not None and torch.version.hip else "cuda"
        return kind
