"""What happens when torch can't compile a function, or the function itself raises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from xpolicy.backends.base import Request


class Failures:
    """What the policy says about failures of one function, and those that were met."""

    def __init__(self, request: Request) -> None:
        self.request = request

    def forget(self) -> None:
        """Forget the failures that were met."""

    def after(self, failure: BaseException, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Go on after the compiler has refused a call, with nothing of it run yet."""
        function: Callable[..., Any] = self.request.function
        if _own(failure):
            function(*args, **kwargs)  # raises what the function raises
        raise failure


def _own(failure: BaseException) -> bool:
    """Return whether the compiler failed on an exception that the function itself raises."""
    from torch._dynamo import exc

    seen: BaseException | None = failure
    while seen is not None:
        if isinstance(seen, exc.ObservedException | exc.TorchRuntimeError):
            return True
        seen = seen.__cause__
    return False
