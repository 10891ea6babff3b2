"""What happens when torch can't compile a function, or the function itself raises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xpolicy.backends.base import Event
from xpolicy.backends.once import Once
from xpolicy.backends.torch.own import is_own
from xpolicy.backends.torch.quiet import warn_caller
from xpolicy.backends.torch.raising import RaisedInGraphError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xpolicy.backends.base import Request


class Failures:
    """What the policy says about failures of one function, and those that were met.

    Parameters
    ----------
    request : Request
        Whose function it is, and the policy.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        policy = request.policy
        self.falls_back = policy.values["on_failure"] == "eager" and policy.mode != "fullgraph"
        self._warned = Once()
        self._known: set[tuple[tuple[str, str], ...]] = set()

    def forget(self) -> None:
        """Forget the failures that were met."""
        self._known.clear()
        self._warned.again()

    def known(self, variant: Mapping[str, str]) -> bool:
        """Return whether compiling has failed for this signature before."""
        return bool(self._known) and tuple(variant.items()) in self._known

    def before_running(
        self,
        failure: BaseException,
        variant: Mapping[str, str],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Go on after the compiler has refused a call of which nothing has run."""
        function: Callable[..., Any] = self.request.function
        in_graph = isinstance(failure, RaisedInGraphError)
        if in_graph or is_own(failure) or (self.falls_back and _torchs(failure)):
            result = function(*args, **kwargs)  # an own exception is raised here
            # There was none: the function raises in a trace only, or torch was wrong. Its
            # effects have happened, so torch's error now would be worse than a result that
            # is right: who tries again has them twice.
            self._fell_back(failure, variant)
            return result
        raise self._noted(failure)

    def while_running(
        self, failure: BaseException, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """Go on after torch has failed in a call that had begun to run."""
        if self.falls_back:
            result = self.request.function(*args, **kwargs)
            self._fell_back(failure, {})
            return result
        raise self._noted(failure)

    def _fell_back(self, failure: BaseException, variant: Mapping[str, str]) -> None:
        if variant:
            self._known.add(tuple(variant.items()))
        key = self.request.key
        told = failure.__cause__ if isinstance(failure, RaisedInGraphError) else None
        told = told or failure
        reason = f"{type(told).__name__}: {_first_line(told)}"
        self.request.notify(
            Event("fallback", key, "torch", f"runs uncompiled: {reason}", {"reason": reason})
        )
        if self._warned.first():
            where = "where torch can't compile it"
            why = "(tracing it raised an exception, running it did not)"
            if isinstance(failure, RaisedInGraphError):
                where = "after what torch has compiled has raised an exception"
                why = "(running it did not)"
            elif self.falls_back:
                why = '(on-failure = "eager")'
            warn_caller(f"{key} runs uncompiled for torch {where} {why}: {reason}")

    def _noted(self, failure: BaseException) -> BaseException:
        if not any(note.startswith("xpolicy: ") for note in getattr(failure, "__notes__", ())):
            failure.add_note(self._note())
        return failure

    def _note(self) -> str:
        request = self.request
        origin = next(
            (
                request.origin_of(option)
                for option in ("fullgraph", "graph_break_limit", "mode")
                if request.policy.values.get(option) is not None and request.origin_of(option)
            ),
            None,
        )
        mode = request.policy.mode
        where = f" (asked for at {origin})" if origin else ""
        lower = "compile" if mode == "fullgraph" else "eager"
        return (
            f"xpolicy: {request.key} for torch is compiled in mode {mode}{where}. "
            f'If it can\'t be, say so: supports = "{lower}" under functions."{request.key}".torch, '
            f'or supports="{lower}" in its decorator.'
        )


def _first_line(failure: BaseException) -> str:
    """Return what a failure says first; "backend='x' raised:" alone says nothing."""
    lines = str(failure).strip().splitlines()
    if len(lines) > 1 and lines[0].endswith(":"):
        return f"{lines[0]} {lines[1]}"
    return lines[0] if lines else ""


def _torchs(failure: BaseException) -> bool:
    """Return whether an exception says that torch can't trace or compile something."""
    from torch._dynamo import exc

    return isinstance(failure, exc.TorchDynamoException)
