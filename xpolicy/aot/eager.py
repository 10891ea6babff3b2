"""Calls that nothing compiles: NumPy's, and those that a policy says are to run as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xpolicy.backends.stages import CompiledCall, LoweredCall
from xpolicy.backends.structure import Branch, Leaf, outline
from xpolicy.errors import XPolicyError
from xpolicy.runtime.detect import namespace_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xpolicy.policy.resolve import ResolvedPolicy
    from xpolicy.runtime.entry import Entry


class EagerCall(LoweredCall, CompiledCall):
    """A call that runs the original function; both stages at once.

    Parameters
    ----------
    entry : Entry
        The decorated function.
    reason : str
        Why nothing is compiled.
    policy : ResolvedPolicy, optional
        Says which arguments would be constants to a compiler: they are held to their
        values here, too, so that a test with NumPy finds what would fail with others.
    """

    fills_defaults = True

    def __init__(self, entry: Entry, reason: str, policy: ResolvedPolicy | None = None) -> None:
        self.entry = entry
        named = policy.values.get("static_argnames") if policy is not None else None
        self.statics = frozenset(named or ())
        self.reason = reason
        self.remaining = (f"nothing is compiled: {reason}",)

    @property
    def in_tree(self) -> Any:
        """Raise: no compiler has flattened the arguments."""
        raise self._none("no in_tree")

    @property
    def out_info(self) -> Any:
        """Raise: no compiler knows what comes out."""
        raise self._none("no out_info")

    def as_text(self, dialect: str | None = None) -> str:
        """Raise: there is no compiler's text. The error says why."""
        raise self._none("no lowered text")

    def compile(self) -> EagerCall:
        """Return itself."""
        return self

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run the original function."""
        return self.entry.fn(*args, **kwargs)

    def outline(self, name: str, value: Any) -> Leaf | Branch:
        """Return the structure of one argument: arrays by type, numbers by Python's type."""
        if name in self.statics:
            return Leaf(f"static {value!r}", (("static value", (type(value), repr(value))),))
        return outline(value, _leaf)

    def _none(self, what: str) -> XPolicyError:
        return XPolicyError(f"{self.entry.key} has {what}: {self.reason}")


def _leaf(value: Any) -> Leaf:
    kind = type(value)
    namespace = namespace_of(kind, value)
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if namespace is None or not isinstance(shape, tuple) or dtype is None:
        told = kind.__qualname__
        return Leaf(told if value is not None else "None", (("array", False), ("type", told)))
    name = str(dtype).rpartition(".")[2]
    text = f"{name}[{', '.join(map(str, shape))}]"
    device = str(getattr(value, "device", "") or "")
    facts = (
        ("array", True),
        ("library", namespace),
        ("rank", len(shape)),
        ("shape", tuple(shape)),
        ("dtype", name),
    )
    return Leaf(text if namespace == "numpy" else f"{namespace} {text}", facts, device)
