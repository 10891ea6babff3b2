"""One text for one value, the same on every machine: what fingerprints and ties compare by."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any


def canonical(value: Any) -> str:
    """Return a text that two values share if, and only if, they say the same in a policy.

    ``True`` and ``1`` are equal in Python, ``0.0`` and ``-0.0`` too; in a policy they are
    different things to say. A Python object that no file can hold stands as its type's
    name: its address would differ in every process.

    Examples
    --------
    >>> canonical({"b": (1, True), "a": 1.0})
    '{"a":1.0,"b":[1,true]}'
    >>> canonical(frozenset("ba"))
    'set["a","b"]'
    """
    if value is None or isinstance(value, (bool, str, float)):
        return json.dumps(value)
    if isinstance(value, int):
        # Python refuses to write an integer of more than 4,300 digits as a decimal.
        return str(int(value)) if value.bit_length() < 1000 else hex(value)
    if isinstance(value, Mapping):
        items = sorted((canonical(name), canonical(inner)) for name, inner in value.items())
        return "{" + ",".join(f"{name}:{inner}" for name, inner in items) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, AbstractSet):
        return "set[" + ",".join(sorted(map(canonical, value))) + "]"
    if isinstance(value, (dt.date, dt.time)):
        return f"{type(value).__name__}({value.isoformat()})"
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"<{getattr(named, '__module__', None)}.{named.__qualname__}>"
