"""Arrays of which only dtype and shape are known."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from xpolicy.errors import Problem, _ProblemsError
from xpolicy.policy.options import DEVICES, nearest
from xpolicy.policy.specs import Spec, read_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Spec", "SpecError", "inside", "replaced", "spec", "specs_in"]

#: No deeper into containers than this.
_DEPTH = 64


class SpecError(_ProblemsError, ValueError):
    """A spec can't be read."""


def spec(text: str, /, *, namespace: str | None = None, device: str | None = None) -> Spec:
    """Describe an array by dtype and shape, to lower a function for it.

    Parameters
    ----------
    text : str
        ``"float32[128, 64]"``; ``"float32[]"`` has no dimension. A ``~`` in front says
        that the type is weak, as that of a Python number is to jax; ``on cuda`` behind it
        says the device.
    namespace : str, optional
        The array library; needed only if no other argument tells it and several are
        imported.
    device : str, optional
        ``"cpu"``, ``"cuda"``, … as in conditions. Default: the library's own default.

    Returns
    -------
    Spec
        To be given to ``f.lower`` in an array's place, in containers too.

    Raises
    ------
    SpecError
        If the text is no spec.

    Examples
    --------
    >>> spec("float32[128, 64]")
    Spec(dtype='float32', shape=(128, 64), weak=False, namespace=None, device=None)
    """
    found = read_spec(text)
    if isinstance(found, Problem):
        raise SpecError([found])
    if device is not None and device not in DEVICES:
        raise SpecError(
            [
                Problem(
                    f"device={device!r} is no device",
                    allowed=", ".join(DEVICES),
                    nearest=nearest(device, DEVICES),
                )
            ]
        )
    if device is not None and found.device not in (None, device):
        raise SpecError([Problem(f"{text!r} says another device than device={device!r}")])
    return dataclasses.replace(found, namespace=namespace, device=device or found.device)


def replaced(value: Any, make: Callable[[Spec], Any], depth: int = _DEPTH) -> Any:
    """Return a value with something else in place of each spec, containers opened."""
    if isinstance(value, Spec):
        return make(value)
    if not depth or not any(True for _ in specs_in(value, depth)):
        return value

    def inner(item: Any) -> Any:
        return replaced(item, make, depth - 1)

    kind: Any = type(value)
    if isinstance(value, Mapping):
        return kind((key, inner(item)) for key, item in value.items())
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return kind(*map(inner, value))
    if isinstance(value, list | tuple):
        return kind(map(inner, value))
    changed = {f.name: inner(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
    return dataclasses.replace(value, **changed)


def specs_in(value: Any, depth: int = _DEPTH) -> Iterator[Spec]:
    """Yield every spec in a value, containers opened."""
    if isinstance(value, Spec):
        yield value
    elif depth:
        for item in inside(value):
            yield from specs_in(item, depth - 1)


def inside(value: Any) -> list[Any]:
    """Return what a container of the usual kinds holds; nothing for anything else."""
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple):
        return list(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, f.name, None) for f in dataclasses.fields(value)]
    return []
