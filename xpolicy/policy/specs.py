"""Arrays of which only dtype, shape and device are known, and how they are written."""

from __future__ import annotations

import re
from dataclasses import dataclass

from xpolicy.errors import Problem
from xpolicy.policy.options import DEVICES, nearest
from xpolicy.policy.writing import show

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
#: A text that begins like this is meant as a spec: `is_spec`.
BEGINNING = r"\s*~?\w+\s*\["
_BEGINNING = re.compile(BEGINNING, re.ASCII)
_FORM = re.compile(
    r"\s*(?P<weak>~?)(?P<dtype>\w+)\s*\[(?P<shape>[\d\s,]*)\]\s*(?:on\s+(?P<device>\w+)\s*)?",
    re.ASCII,
)
# No more than 18 digits: Python refuses to read an integer of more than 4,300.
_SHAPE = re.compile(r"\s*(?:\d{1,18}\s*(?:,\s*\d{1,18}\s*)*,?\s*)?", re.ASCII)
#: A text that is a right one, in words that all dialects of regular expressions share.
WHOLE = (
    rf"^\s*~?(?:{'|'.join(DTYPES)})\s*\[\s*(?:[0-9]{{1,18}}\s*(?:,\s*[0-9]{{1,18}}\s*)*,?\s*)?\]"
    rf"\s*(?:on\s+(?:{'|'.join(DEVICES)})\s*)?$"
)
ALLOWED = 'a dtype and a shape: "float32[128, 64]", "int64[]", "float32[4] on cuda"'


@dataclass(frozen=True, slots=True)
class Spec:
    """Stands for an array in ``f.lower``; made by `xpolicy.spec`."""

    dtype: str
    shape: tuple[int, ...]
    weak: bool = False
    namespace: str | None = None
    device: str | None = None

    def __str__(self) -> str:
        return f"{'~' if self.weak else ''}{self.dtype}[{', '.join(map(str, self.shape))}]"


def is_spec(text: str) -> bool:
    """Return whether a text is meant as a spec, a right one or a wrong one.

    Examples
    --------
    >>> is_spec("float32[4]"), is_spec("flaot32[4"), is_spec("float32"), is_spec("a [b]")
    (True, True, False, True)
    """
    return _BEGINNING.match(text) is not None


def read_spec(text: str) -> Spec | Problem:
    """Read a spec; of a text that is none, say what is wrong.

    Parameters
    ----------
    text : str
        Such as ``"~float32[128, 64] on cuda"``.

    Examples
    --------
    >>> read_spec("int64[2] on cpu")
    Spec(dtype='int64', shape=(2,), weak=False, namespace=None, device='cpu')
    >>> read_spec("flaot32[2]").nearest
    'float32'
    """
    found = _FORM.fullmatch(text)
    if found is None:
        return Problem(f"{text!r} is no spec", value=show(text), allowed=ALLOWED)
    dtype, device = found["dtype"], found["device"]
    for what, name, names in (("dtype", dtype, DTYPES), ("device", device, DEVICES)):
        if name is not None and name not in names:
            # By its letters "gpu" is nearest to "xpu", which few people mean.
            near = "cuda" if name == "gpu" else nearest(name, names)
            return Problem(
                f"{text!r}: there is no {what} {name!r}",
                value=show(text),
                allowed=", ".join(names),
                nearest=near,
                fix=f"write {show(text.replace(name, near))}" if near else None,
            )
    if _SHAPE.fullmatch(found["shape"]) is None:
        shape = found["shape"]
        return Problem(f"{text!r}: a shape is made of numbers", value=show(shape), allowed=ALLOWED)
    sizes = [size.strip() for size in found["shape"].split(",")]
    if sizes[-1] == "":  # "[]", and a comma at the end
        sizes.pop()
    return Spec(dtype, tuple(map(int, sizes)), bool(found["weak"]), device=device)
