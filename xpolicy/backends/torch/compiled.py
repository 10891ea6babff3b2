"""The callable that stands for a function under a policy that compiles."""

from __future__ import annotations

import inspect
import threading
from typing import TYPE_CHECKING, Any

from xpolicy.backends.torch import failures, private
from xpolicy.backends.torch.breaks import Breaks
from xpolicy.backends.torch.graphs import OwnBackend
from xpolicy.backends.torch.limits import Limit
from xpolicy.backends.torch.watch import Again, RunOriginal, Watch, notifier

if TYPE_CHECKING:
    from collections.abc import Callable

    from xpolicy.backends.base import Lowered, Request

#: Lookups after another thread's compilation before a call compiles for itself.
_LOOKUPS = 100


def compiled_function(request: Request, lowered: Lowered) -> Callable[..., Any]:
    """Return a callable that runs a request's function compiled; see `TorchBackend.compile`."""
    import torch.compiler

    function = request.function
    if lowered.keywords.get("disable"):
        return function
    maker = _Maker(request, lowered)
    is_dynamo_compiling = torch.compiler.is_dynamo_compiling
    functorch, modes, symbolic, jit = private.outer_trace_checks()

    def first(*args: Any, **kwargs: Any) -> Any:
        return maker.compiled()(*args, **kwargs)

    target = first

    def call(*args: Any, **kwargs: Any) -> Any:
        # A constant inside dynamo: an outer trace goes straight through to the function.
        if is_dynamo_compiling():
            return function(*args, **kwargs)
        # These fail around compiled functions, some after the body has run.
        if functorch() is not None or modes() or symbolic() or jit():
            return function(*args, **kwargs)
        try:
            return target(*args, **kwargs)
        except Again:
            return again(args, kwargs)
        except RunOriginal as signal:
            failure = signal.failure
        return maker.original(failure, args, kwargs)

    def again(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for _ in range(_LOOKUPS):
            try:
                return target(*args, **kwargs)
            except Again:
                continue
            except RunOriginal as signal:
                failure = signal.failure
            return maker.original(failure, args, kwargs)
        return function(*args, **kwargs)

    def swap(new: Callable[..., Any] | None) -> None:
        nonlocal target
        target = first if new is None else new

    maker.swap = swap
    call.clear = maker.clear  # type: ignore[attr-defined]
    return call


class _Maker:
    """Builds the compiled function at the first call, and again after `clear`."""

    def __init__(self, request: Request, lowered: Lowered) -> None:
        self.request = request
        self.keywords = dict(lowered.keywords)
        self.lock = threading.Lock()
        self.swap: Callable[[Callable[..., Any] | None], None] = lambda new: None
        self.made: Callable[..., Any] | None = None
        self.watch: Watch | None = None
        self.failures = failures.Failures(request)
        values = request.policy.values
        self.fullgraph = request.policy.mode == "fullgraph"
        self.limit = Limit(
            request.key,
            values["recompile_limit"],
            values["on_recompile_limit"] or "warn",
            request.origin_of("recompile_limit"),
        )
        self.breaks = Breaks(
            request.key,
            None if self.fullgraph else values["graph_break_limit"],
            values["on_graph_break_limit"] or "warn",
            request.origin_of("graph_break_limit"),
        )

    def compiled(self) -> Callable[..., Any]:
        """Return the compiled function, built once whatever the number of threads."""
        with self.lock:  # no code of the user's runs under it
            if self.made is None:
                self.made = self._build()
                self.swap(self.made)
            return self.made

    def clear(self) -> None:
        """Drop the compiled variants and give the budget back."""
        with self.lock:
            self.made = None
            self.limit.warned = False
            self.breaks.found.clear()
            self.breaks.warned = self.breaks.gave_up = False
            self.failures.forget()
            self.swap(None)

    def _build(self) -> Callable[..., Any]:
        function = self.request.function
        backend = OwnBackend(self.keywords, self.breaks)
        code = function.__code__
        watch = Watch(
            code,
            tuple(inspect.signature(function).parameters),
            self.limit,
            self.breaks,
            notifier(self.request.key, self.request.notify),
        )
        watch.backend = backend
        keywords = dict(self.keywords)
        keywords["guard_filter_fn"] = keywords.get("options", {}).get("guard_filter_fn")
        hooked = private.hooked(function, backend, keywords, watch.attach)
        if hooked is None:
            return function
        compiled, watch.region = hooked
        watch.wrapper_code = compiled.__code__
        self.watch = watch
        return compiled

    def original(
        self, failure: BaseException | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run the original function for one call, or say why it can't be compiled."""
        if failure is None:
            return self.request.function(*args, **kwargs)
        return self.failures.after(failure, args, kwargs)
