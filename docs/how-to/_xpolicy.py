"""xpolicy if it is installed, and otherwise nothing: functions stay as they are.

Copy this file into your package. It needs the standard library only.
"""

from __future__ import annotations

__all__ = ["compile", "override"]

try:
    import xpolicy
except ImportError:
    xpolicy = None  # type: ignore[assignment]  # not installed


def compile(fn=None, /, **options):
    """Put a function under policy, as ``xpolicy.compile`` does, or return it unchanged."""
    if xpolicy is not None:
        return xpolicy.compile(fn, **options)
    if fn is None:
        return lambda fn: fn
    return fn


class _NoOverride:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


def override(function=None, namespace=None, /, *, everywhere=False, **options):
    """Override options in a ``with`` block, as ``xpolicy.override`` does, or do nothing."""
    if xpolicy is not None:
        return xpolicy.override(function, namespace, everywhere=everywhere, **options)
    return _NoOverride()
