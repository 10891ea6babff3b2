"""Pointing a warning at the line of the user's that it is about."""

from __future__ import annotations

import sys


def level_of_caller() -> int:
    """Return the ``stacklevel`` that points a warning of our caller at the user's line."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        generated = frame.f_code.co_filename.startswith("<xpolicy")  # a dispatcher or a shim
        if package not in ("xpolicy", "jax") and not generated:
            break
        level, frame = level + 1, frame.f_back
    return level
