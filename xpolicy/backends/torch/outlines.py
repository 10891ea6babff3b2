"""What torch tells the arguments of a call apart by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from xpolicy.backends.stages import Stage
from xpolicy.backends.structure import Branch, Leaf, outline
from xpolicy.backends.torch.statics import static_parameters

if TYPE_CHECKING:
    from xpolicy.backends.base import Request

_NUMBERS = (bool, int, float, complex, str, bytes)


class TorchStage(Stage):
    """A stage that tells arguments apart as torch does."""

    fills_defaults = True

    def __init__(self, request: Request) -> None:
        self.request = request
        named = request.policy.values["static_argnames"] or ()
        self.statics = frozenset(static_parameters(request.function, named))

    def outline(self, name: str, value: Any) -> Leaf | Branch:
        """Return the structure of one argument; constants by value, tensors by metadata."""
        if name in self.statics:
            return Leaf(f"static {value!r}", (("static value", _token(value)),))
        return outline(value, _leaf)


def _token(value: Any) -> Any:
    """Return what a constant is compared by: type, value and the sign of zero."""
    kind = type(value)
    if isinstance(value, tuple):
        return (kind, tuple(map(_token, value)))
    return (kind, repr(value) if isinstance(value, float | complex) else value)


def _leaf(value: Any) -> Leaf:
    kind = type(value)
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if value is None or isinstance(value, _NUMBERS):
        told = "None" if value is None else f"{value!r} (a Python {kind.__name__})"
        return Leaf(told, (("array", False), ("value", (kind, repr(value)))))
    named = f"{kind.__module__}.{kind.__qualname__}"
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if isinstance(shape, tuple) and dtype is not None:
        named += f" {dtype}[{', '.join(map(str, shape))}]"
    return Leaf(named, (("array", False), ("type", named)))


def _tensor(value: Any) -> Leaf:
    strided = value.layout is torch.strided
    name = str(value.dtype).removeprefix("torch.")
    facts = (
        ("array", True),
        ("rank", value.dim()),
        ("shape", tuple(value.shape)),
        ("dtype", name),
        ("requires_grad", value.requires_grad),
        ("type", type(value).__name__),
        ("layout", str(value.layout)),
        ("strides", value.stride() if strided else None),
    )
    text = f"{name}[{', '.join(map(str, value.shape))}]"
    if value.requires_grad:
        text += " requires_grad"
    if strided and not value.is_contiguous():
        text += f" strides={value.stride()}"
    if type(value) is not torch.Tensor:
        text = f"{type(value).__name__} {text}"
    return Leaf(text, facts, str(value.device))
