"""What a compiled variant was compiled for, and how a later call differs from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

#: Arguments are described this deep into containers.
_DEPTH = 2
#: and this many entries of each.
_ENTRIES = 8


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

    Examples
    --------
    >>> described((1, "a"))
    "(1, 'a')"
    """
    import torch

    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        text = repr(value)
        return text if len(text) <= 60 else text[:57] + "..."
    if depth and isinstance(value, tuple | list):
        told = ", ".join(described(item, depth - 1) for item in value[:_ENTRIES])
        told += ", ..." if len(value) > _ENTRIES else ""
        return f"({told})" if isinstance(value, tuple) else f"[{told}]"
    if depth and isinstance(value, Mapping):
        items = list(value.items())[:_ENTRIES]
        return "{" + ", ".join(f"{k!r}: {described(v, depth - 1)}" for k, v in items) + "}"
    named = getattr(value, "__qualname__", None)
    return str(named) if named else f"{type(value).__qualname__} object"


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
