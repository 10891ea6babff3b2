"""The dynamo backend that each compiled function has for itself."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from xpolicy.backends.torch import attempt, caches, private, signature
from xpolicy.backends.torch.options import INDUCTOR
from xpolicy.backends.torch.raising import guarded, put_in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xpolicy.backends.torch.breaks import Breaks


class OwnBackend:
    """Hands graphs to the chosen compiler, and sees each of them.

    Parameters
    ----------
    keywords : mapping
        The lowered keywords of the policy.
    breaks : Breaks
        Told of the break that a graph ends with.
    notify, announce : callable, optional
        Told of each graph, and that it is going to be compiled, where no hook on cache
        misses tells of whole variants.

    Notes
    -----
    One object for each compiled function: dynamo shares variants, broken graphs included,
    between functions of one code object whose backends compare equal.
    """

    def __init__(
        self,
        keywords: Mapping[str, Any],
        breaks: Breaks,
        notify: Any = None,
        announce: Callable[[], None] = lambda: None,
    ) -> None:
        self.breaks = breaks
        self.notify = notify
        self.announce = announce
        self.on_reset: Callable[[], None] = lambda: None
        #: whether what is compiled is the function's entry frame; changed by its hook, under
        #: the lock that torch compiles under
        self.of_entry = bool(keywords.get("fullgraph"))
        name = keywords.get("backend")
        if name is None:
            name = INDUCTOR if keywords.get("options") else private.default_backend()
        if name == INDUCTOR:
            from xpolicy.backends.torch.quiet import import_inductor

            import_inductor()
            options = dict(keywords.get("options", {}))
            options.pop("guard_filter_fn", None)
            self.inner = private.inductor(options, keywords.get("dynamic"), keywords.get("name"))
            if caches.disabled:
                self.inner = private.without_caches(self.inner)
            self.__name__ = INDUCTOR
        elif isinstance(name, str):
            import torch._dynamo

            self.inner = torch._dynamo.lookup_backend(name)
            self.__name__ = name
        else:
            self.inner = name
            self.__name__ = getattr(name, "__name__", type(name).__name__)
        context = getattr(self.inner, "backend_ctx_ctor", None)
        if context is not None:
            self.backend_ctx_ctor = context

    def __call__(self, graph: Any, inputs: Any, **more: Any) -> Any:
        """Compile one graph."""
        if self.notify is None:  # the hook tells
            self.breaks.graph(graph)
            compiled = self._compiled(graph, inputs, more)
            ahead = attempt.current()
            return compiled if ahead is None else ahead.held(compiled)
        return self._told(graph, inputs, more)

    def _compiled(self, graph: Any, inputs: Any, more: Mapping[str, Any]) -> Any:
        of_entry = self.of_entry
        messages = put_in_words(graph)
        compiled = self.inner(graph, inputs, **more)
        return guarded(compiled, graph, self.breaks, messages, of_entry=of_entry)

    def _told(self, graph: Any, inputs: Any, more: Mapping[str, Any]) -> Any:
        """Compile one graph and tell about it."""
        events: list[Any] = []
        self.breaks.events = events
        self.breaks.graph(graph)
        self.announce()
        started = time.perf_counter()
        compiled = self._compiled(graph, inputs, more)
        seconds = time.perf_counter() - started
        told = ", ".join(signature.described(each) for each in inputs)
        details = {"signature": told, "seconds": seconds}
        events.insert(0, ("compile", f"compiled for {told} ({seconds:.2g} s)", details))
        try:
            self.breaks.check()
        finally:
            for event in events:
                self.notify(*event)
        return compiled

    def get_compiler_config(self) -> Any:
        """Return the compiler's configuration, where it has one."""
        found = getattr(self.inner, "get_compiler_config", None)
        return None if found is None else found()

    def reset(self) -> None:
        """Reset the compiler; dynamo calls it when it drops its caches."""
        self.on_reset()
        found = getattr(self.inner, "reset", None)
        if found is not None:
            found()
