"""Types of the public interface, for type checkers; nothing here is needed at run time."""

from __future__ import annotations

from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    overload,
)

if TYPE_CHECKING:
    from collections.abc import Callable

Mode = Literal["eager", "compile", "fullgraph"]

P = ParamSpec("P")
Q = ParamSpec("Q")
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")
S = TypeVar("S")


class Compiled(Protocol[P, R_co]):
    """A function under policy: the original's signature, and some attributes."""

    __name__: str
    __qualname__: str

    @property
    def __wrapped__(self) -> Callable[P, R_co]:
        """The original function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run the function under its policy."""

    @overload
    def __get__(self, instance: None, owner: type, /) -> Self: ...
    @overload
    def __get__(
        self: Compiled[Concatenate[S, Q], R_co], instance: S, owner: type | None = None, /
    ) -> Compiled[Q, R_co]: ...

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Lower the function for these arguments, ahead of the first call."""

    def trace(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Trace the function for these arguments, where the backend has that stage."""

    def explain(self, namespace: str, *, device: str | None = None) -> Any:
        """Say where each option comes from."""

    def stats(self) -> Any:
        """Return what was compiled."""

    def clear(self) -> None:
        """Drop compiled variants and statistics."""


class Decorator(Protocol):
    """What ``xpolicy.compile(…)`` with arguments returns."""

    def __call__(self, fn: Callable[P, R], /) -> Compiled[P, R]:
        """Put a function under policy."""
