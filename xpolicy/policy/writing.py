"""How keys and values are written in messages: as TOML would, and safe to print."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
LONGEST = 80


def _quoted(text: str) -> str:
    # A file may hold what would move a terminal's cursor: it is shown, not sent.
    inside = "".join(
        _ESCAPES.get(c) or (c if c.isprintable() else f"\\u{ord(c):04X}") for c in text
    )
    return f'"{inside}"'


def show(value: Any) -> str:
    """Return a value as TOML would show it, cut to a readable length.

    Examples
    --------
    >>> show({"cpp.cxx": ["g++", True]})
    '{ "cpp.cxx" = ["g++", true] }'
    """
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, str):
        text = _quoted(value[: LONGEST + 1])
    elif isinstance(value, Mapping):
        items = [f"{dotted((str(k),))} = {show(v)}" for k, v in list(value.items())[:5]]
        items += ["..."] if len(value) > len(items) else []
        text = f"{{ {', '.join(items)} }}" if items else "{}"
    elif isinstance(value, (list, tuple)):
        shown = [show(v) for v in value[:10]]
        shown += ["..."] if len(value) > len(shown) else []
        text = f"[{', '.join(shown)}]"
    elif isinstance(value, int):
        # Python refuses to print an integer of more than 4,300 digits.
        text = str(value) if value.bit_length() < 1000 else f"a {value.bit_length()}-bit integer"
    elif callable(value):  # its own text would hold an address
        named = value if hasattr(value, "__qualname__") else type(value)
        text = f"{getattr(named, '__module__', None)}.{named.__qualname__}"
    else:
        text = str(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def dotted(path: tuple[str | int, ...]) -> str:
    """Return a path as TOML spells it.

    Examples
    --------
    >>> dotted(("functions", "mylib.f", "torch")), dotted(("when", 0, "device"))
    ('functions."mylib.f".torch', 'when[0].device')
    """
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            if len(part) > LONGEST:
                part = f"{part[: LONGEST - 3]}..."  # noqa: PLW2901  # for reading only
            written = part if _BARE.fullmatch(part) else _quoted(part)
            text += f".{written}" if text else written
    return text
