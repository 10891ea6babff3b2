"""The protocol that every backend follows, ours and third parties' alike.

A distribution registers a backend under the entry point group ``xpolicy.backends``; the
entry point's name is the namespace and its object an instance of `Backend`. Importing
that object must not import the array library: it is imported only where the process has
imported it already.
"""

from __future__ import annotations

import platform
from abc import ABC, abstractmethod
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from xpolicy.backends.hits import CacheCounts
from xpolicy.errors import XPolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from xpolicy._origin import Origin
    from xpolicy.backends.caches import CacheUse
    from xpolicy.backends.stages import CompiledCall, LoweredCall
    from xpolicy.policy.cache import CachePolicy
    from xpolicy.policy.options import NamespaceSpec
    from xpolicy.policy.resolve import ResolvedPolicy


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a function: a compilation, a fallback, a limit met.

    Parameters
    ----------
    kind : str
        ``"compile"``, ``"recompile"``, ``"graph-break"``, ``"fallback"`` or ``"limit"``.
    key, namespace : str
        Which function, for which namespace.
    message : str
        What happened, in one line.
    details : mapping
        Plain data: ``seconds``, ``signature``, ``reason``, ``file``, ``line``.
    """

    kind: str
    key: str
    namespace: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lowered:
    """A policy in the compiler's own words.

    Parameters
    ----------
    keywords : mapping
        The keyword arguments for the compiler's entry point, complete and checked.
    rows : tuple of (str, object, str)
        For ``explain``: name as the compiler has it, value, and where it came from
        (``"torch.compile-mode = max-autotune expands to this"``).
    notes : tuple of str
        Remarks for ``explain``: what can do nothing on this machine, what was dropped.
    version : str
        The compiler's version; part of the key of compiled callables.
    """

    keywords: Mapping[str, Any]
    rows: tuple[tuple[str, Any, str], ...] = ()
    notes: tuple[str, ...] = ()
    version: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """Everything a backend needs to make one callable.

    Parameters
    ----------
    function : callable
        The original function.
    key : str
        Its function key.
    policy : ResolvedPolicy
        What was resolved; its mode is ``compile`` or ``fullgraph``.
    notify : callable
        Takes an `Event`.
    locate : callable
        Fills in line and column of an origin; called on error paths only.
    announce : callable
        To be called when a compilation begins, which may take long; `notify` tells of it
        once it is over.
    """

    function: Callable[..., Any]
    key: str
    policy: ResolvedPolicy
    notify: Callable[[Event], None]
    locate: Callable[[Origin], Origin] = lambda origin: origin
    announce: Callable[[], None] = lambda: None

    def origin_of(self, option: str) -> Origin | None:
        """Return where an option of the policy was set, with its line if known."""
        found = self.policy.provenance.get(option)
        return self.locate(found.winner.origin) if found else None


class Backend(ABC):
    """A compiler for one namespace."""

    #: Its options, spelling rules and allow-lists (`xpolicy.policy.options.NamespaceSpec`).
    spec: ClassVar[NamespaceSpec]
    #: The module whose presence in ``sys.modules`` says that the library is in use.
    module: ClassVar[str]

    @abstractmethod
    def version(self) -> str | None:
        """Return the installed library's version, or None if it isn't imported."""

    @abstractmethod
    def lower(self, policy: ResolvedPolicy) -> Lowered:
        """Say a policy in the compiler's words: expand presets, check against the compiler.

        Called with the library imported. Raises `BackendOptionError` for what the
        installed compiler doesn't take, with the origin of each option.
        """

    @abstractmethod
    def compile(self, request: Request, lowered: Lowered) -> Callable[..., Any]:
        """Return a callable that takes the function's arguments and runs it compiled.

        It takes the same arguments in the same spellings, gives the same results and the
        same exceptions. It may carry a ``clear()`` method that drops its variants.
        """

    def lower_call(
        self,
        request: Request,
        lowered: Lowered,
        call: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> LoweredCall:
        """Lower one call ahead of time.

        ``call`` is what `compile` returned for the same request; what is compiled here
        should be found there by later calls. Nothing of the function may run.
        """
        raise XPolicyError(
            f"{request.key} can't be lowered ahead of time: "
            f"the backend for {self.spec.name} has no such stage"
        )

    def load_call(
        self, request: Request, lowered: Lowered, call: Callable[..., Any], data: bytes
    ) -> CompiledCall:
        """Return the compiled call that ``CompiledCall.serialize`` made the data of."""
        raise XPolicyError(
            f"{request.key} can't be loaded: the backend for {self.spec.name} loads nothing"
        )

    def use_cache(self, policy: CachePolicy) -> CacheUse | None:
        """Keep what is compiled between processes as a policy says, from now on.

        Called with the library imported, before something is first compiled under these
        policies, and once more whenever they may have changed. None if the compiler keeps
        nothing.
        """
        return None

    def placeholder(
        self, dtype: str, shape: tuple[int, ...], *, weak: bool, device: str | None
    ) -> Any:
        """Return what stands for an array of which only dtype and shape are known."""
        raise XPolicyError(
            f"the backend for {self.spec.name} takes no xpolicy.spec: give it an array"
        )

    def stand_in(self, value: Any) -> Any:
        """Return what to lower for, in place of an argument that has no data."""
        return value

    def cache_watched(self) -> AbstractContextManager[CacheCounts]:
        """Count what the compiler says of its persistent cache in a ``with`` block."""
        return nullcontext(CacheCounts())

    def hardware(self) -> str:
        """Return what compiled code depends on besides versions, in one line."""
        return f"{platform.system()} {platform.machine()}"

    def disabled_by(self) -> str | None:
        """Return the compiler's own switch that turns it off in this process, if one does."""
        return None

    def device_of(self, array: Any) -> str | None:
        """Return the kind of device an array is on, in the vocabulary of conditions."""
        return None
