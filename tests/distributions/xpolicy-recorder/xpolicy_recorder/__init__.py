"""A backend for array_api_strict: it runs the function, and keeps a log of its calls.

It compiles nothing; it is the smallest thing that has every part of a backend: options of
its own, a rule about them, a lowering that checks them, a callable, rows for ``explain``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal

from xpolicy.backends.base import Backend, Event, Lowered, Request
from xpolicy.errors import BackendOptionError, Problem
from xpolicy.policy.options import NamespaceSpec, OptionModel, option

if TYPE_CHECKING:
    from collections.abc import Callable

    from xpolicy.policy.resolve import ResolvedPolicy


class RecorderOptions(OptionModel):
    """The options of this namespace."""

    keep: int | Literal["unset"] | None = option(
        "How many calls the log keeps.", default=10, example="100"
    )
    label: str | None = option("What the log's lines begin with.")


class Recorder(Backend):
    """Runs functions on array_api_strict arrays and keeps a log."""

    spec = NamespaceSpec("array_api_strict", RecorderOptions)
    module = "array_api_strict"

    def version(self) -> str | None:
        """Return the library's version, or None if it isn't imported."""
        return getattr(sys.modules.get(self.module), "__version__", None)

    def lower(self, policy: ResolvedPolicy) -> Lowered:
        """Check the options and say what the callable is made with."""
        keep = policy.values["keep"]
        if keep is not None and keep > 1000:
            raise BackendOptionError(
                [
                    Problem(
                        f"keep = {keep} is more than the recorder holds",
                        origin=policy.provenance["keep"].winner.origin,
                        key="array_api_strict.keep",
                        value=str(keep),
                        allowed="at most 1000",
                    )
                ]
            )
        keywords = {"keep": keep, "label": policy.values["label"]}
        rows = tuple((name, value, f"array_api_strict.{name}") for name, value in keywords.items())
        return Lowered(keywords, rows, ("nothing is compiled: calls are recorded",), "0.3.0")

    def compile(self, request: Request, lowered: Lowered) -> Callable[..., Any]:
        """Return the recording callable."""
        log: list[str] = []
        label = lowered.keywords["label"] or request.key

        def call(*args: Any, **kwargs: Any) -> Any:
            if not log:
                message = "recording"
                request.notify(Event("compile", request.key, "array_api_strict", message))
            log.append(f"{label}: {len(args) + len(kwargs)} arguments")
            del log[: -lowered.keywords["keep"]]
            return request.function(*args, **kwargs)

        call.log = log  # type: ignore[attr-defined]  # a function takes any attribute
        call.clear = log.clear  # type: ignore[attr-defined]
        return call


backend = Recorder()
