"""What a compiled variant was compiled for, and how a later call differs from it."""

from __future__ import annotations

from itertools import islice
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Arguments are described this deep into containers.
_DEPTH = 2
#: and this many entries of each.
_ENTRIES = 8
#: Values that are told by their ``repr``.
_CONSTANTS: tuple[Any, ...] = (bool, int, float, complex, str, bytes)


def _tensor(value: Any) -> str:
    kind = str(value.dtype).removeprefix("torch.")
    text = f"{kind}[{', '.join(str(size) for size in value.shape)}]"
    if value.device.type != "cpu":
        text += f" on {value.device}"
    if value.requires_grad:
        text += " requires_grad"
    if value.layout is not _strided():
        text += f" {value.layout}"
    elif not value.is_contiguous():
        text += f" strides={value.stride()}"
    if type(value).__name__ != "Tensor":
        text = f"{type(value).__name__} {text}"
    return text


def _strided() -> Any:
    import torch

    return torch.strided


def described(value: Any, depth: int = _DEPTH) -> str:
    """Return an argument in one line, as far as a compiler tells it from others.

    Never raises, and runs no code of the caller's classes: an entry of a lazy mapping may
    be a file, and a ``__repr__`` or ``__getattr__`` may do anything. What a class derived
    from a builtin one holds is read by the builtin's own methods.

    Examples
    --------
    >>> described((1, "a"))
    "(1, 'a')"
    """
    try:
        return _told(value, depth)
    except Exception:  # noqa: BLE001  # an integer of 5000 digits, a tensor that has no strides to tell
        return f"{_name(type(value))} object"


def _told(value: Any, depth: int) -> str:
    import torch

    kind = type(value)  # isinstance() would ask a `__class__` of the value's own
    if issubclass(kind, torch.Tensor):
        with torch._C.DisableTorchFunctionSubclass():
            return _tensor(value)
    if value is None:
        return "None"
    for base in _CONSTANTS:
        if issubclass(kind, base):
            text = base.__repr__(value)
            text = text if len(text) <= 60 else text[:57] + "..."
            return text if kind is base else f"{_name(kind)} {text}"
    if depth and issubclass(kind, tuple | list | dict):
        return _entries(value, kind, depth)
    if issubclass(kind, type):
        return _name(value)
    if issubclass(kind, FunctionType | BuiltinFunctionType):
        return str(value.__qualname__)
    return f"{_name(kind)} object"


def _entries(value: Any, kind: type, depth: int) -> str:
    """Return the first entries of a tuple, list or dict."""
    if issubclass(kind, dict):
        items = islice(dict.items(value), _ENTRIES)
        told = [f"{described(k, 0)}: {described(v, depth - 1)}" for k, v in items]
        more, brackets = dict.__len__(value) > _ENTRIES, "{}"
    else:
        base: Any = tuple if issubclass(kind, tuple) else list
        told = [described(each, depth - 1) for each in islice(base.__iter__(value), _ENTRIES)]
        more, brackets = base.__len__(value) > _ENTRIES, "()" if base is tuple else "[]"
    return brackets[0] + ", ".join(told + ["..."] * more) + brackets[1]


def _name(kind: type) -> str:
    """Return the name of a class, past what its metaclass may say."""
    return str(type.__dict__["__qualname__"].__get__(kind))


def circumstances() -> dict[str, str]:
    """Return what besides the arguments a compiled variant depends on."""
    import torch

    return {
        "grad mode": str(torch.is_grad_enabled()),
        "inference mode": str(torch.is_inference_mode_enabled()),
        "autocast": str(torch.is_autocast_enabled() or torch.is_autocast_enabled("cpu")),
        "threads": str(torch.get_num_threads()),
        "deterministic algorithms": str(torch.are_deterministic_algorithms_enabled()),
        "default dtype": str(torch.get_default_dtype()),
    }


def signature(arguments: Mapping[str, Any], names: Iterable[str]) -> dict[str, str]:
    """Return the description of each argument of a call, by name."""
    return {name: described(arguments[name]) for name in names if name in arguments}


def told(arguments: Mapping[str, str]) -> str:
    """Return a signature in one line."""
    return ", ".join(f"{name}: {what}" for name, what in arguments.items())


def changes(now: Mapping[str, str], before: Mapping[str, str]) -> list[str]:
    """Return how one signature differs from another, an entry for each argument.

    Examples
    --------
    >>> changes({"x": "float32[3]", "n": "2"}, {"x": "float32[3]", "n": "1"})
    ['n: 1 -> 2']
    """
    return [
        f"{name}: {before.get(name, 'absent')} -> {what}"
        for name, what in now.items()
        if before.get(name) != what
    ]


def nearest(now: Mapping[str, str], variants: Iterable[Mapping[str, str]]) -> list[str]:
    """Return the changes from the variant that differs least; the latest among equals."""
    best: list[str] | None = None
    for variant in variants:
        found = changes(now, variant)
        if best is None or len(found) <= len(best):
            best = found
    return best or []
