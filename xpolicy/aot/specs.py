"""Arrays of which only dtype and shape are known."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xpolicy.errors import Problem, _ProblemsError
from xpolicy.policy.options import DEVICES, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DTYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
)
_FORM = re.compile(r"\s*(?P<weak>~?)(?P<dtype>\w+)\s*\[(?P<shape>[\d\s,]*)\]\s*")
#: No deeper into containers than this.
_DEPTH = 64


class SpecError(_ProblemsError, ValueError):
    """A spec can't be read."""


@dataclass(frozen=True, slots=True)
class Spec:
    """Stands for an array in ``f.lower``; made by `spec`."""

    dtype: str
    shape: tuple[int, ...]
    weak: bool = False
    namespace: str | None = None
    device: str | None = None

    def __str__(self) -> str:
        return f"{'~' if self.weak else ''}{self.dtype}[{', '.join(map(str, self.shape))}]"


def spec(text: str, /, *, namespace: str | None = None, device: str | None = None) -> Spec:
    """Describe an array by dtype and shape, to lower a function for it.

    Parameters
    ----------
    text : str
        ``"float32[128, 64]"``; ``"float32[]"`` has no dimension. A ``~`` in front says
        that the type is weak, as that of a Python number is to jax.
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
    found = _FORM.fullmatch(text)
    if found is None:
        raise SpecError(
            [
                Problem(
                    f"{text!r} is no spec",
                    allowed='a dtype and a shape: "float32[128, 64]", "int64[]"',
                )
            ]
        )
    dtype = found["dtype"]
    if dtype not in DTYPES:
        near = nearest(dtype, DTYPES)
        raise SpecError(
            [
                Problem(
                    f"{text!r}: there is no dtype {dtype!r}",
                    allowed=", ".join(DTYPES),
                    nearest=near,
                )
            ]
        )
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
    sizes = [size.strip() for size in found["shape"].split(",")]
    if sizes[-1] == "":  # "[]", and a comma at the end
        sizes.pop()
    if not all(size.isdecimal() for size in sizes):
        raise SpecError([Problem(f"{text!r}: a shape is made of numbers", value=found["shape"])])
    return Spec(dtype, tuple(map(int, sizes)), bool(found["weak"]), namespace, device)


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
