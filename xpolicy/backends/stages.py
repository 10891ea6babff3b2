"""What a backend that can compile ahead of time brings: one call lowered, one call compiled.

`xpolicy.aot` puts the names that users meet around these, and checks arguments before
anything of a backend's own runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from xpolicy.errors import XPolicyError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xpolicy.backends.structure import Branch, Leaf


class Stage(ABC):
    """What lowered and compiled calls have in common.

    Attributes
    ----------
    statics : frozenset of str
        Names of arguments that are constants to the compiler.
    fills_defaults : bool
        Whether an argument that is left out is, to the compiler, its default passed.
    """

    statics: frozenset[str] = frozenset()
    fills_defaults: bool = False

    @abstractmethod
    def outline(self, name: str, value: Any) -> Leaf | Branch:
        """Return the structure of one argument, as the compiler tells it from others."""

    @abstractmethod
    def as_text(self, dialect: str | None = None) -> str:
        """Return the compiler's text of this stage."""

    def cost_analysis(self) -> Any:
        """Return the compiler's estimate of what the call costs."""
        raise XPolicyError("this backend has no cost analysis")


class LoweredCall(Stage):
    """One call, traced and not compiled."""

    #: The structure of the arguments, and what comes out; as the library has them.
    in_tree: Any
    out_info: Any

    @abstractmethod
    def compile(self) -> CompiledCall:
        """Compile, so that later calls of the function find it; run nothing of it."""


class CompiledCall(Stage):
    """One call, compiled.

    Attributes
    ----------
    remaining : tuple of str
        What later calls of the function compile all the same.
    seconds : float or None
        Time spent compiling; None if it was compiled already.
    """

    remaining: tuple[str, ...] = ()
    #: Why nothing was compiled, if it wasn't.
    uncompiled: str = ""
    seconds: float | None = None

    @abstractmethod
    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run it. The arguments have the structure that it was compiled for."""

    def memory_analysis(self) -> Any:
        """Return the compiler's account of memory."""
        raise XPolicyError("this backend has no memory analysis")

    def serialize(self) -> bytes:
        """Return what `Backend.load_call` makes the same of in another process."""
        raise XPolicyError("this backend can't save what it compiled")
