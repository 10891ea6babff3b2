"""Ahead of time: lower a function for given arguments, look at it, compile it, call it.

The names follow ``jax.stages``: ``f.lower(*args)`` gives a `Lowered`, its ``compile()`` a
`Compiled`. What `Compiled` compiled, later calls of the function find.
"""

from __future__ import annotations

from xpolicy.aot.archive import CompiledFileError, load
from xpolicy.aot.lowering import lower
from xpolicy.aot.sealed import Seal, seal
from xpolicy.aot.specs import Spec, spec
from xpolicy.aot.stages import Compiled, Lowered

__all__ = [
    "Compiled",
    "CompiledFileError",
    "Lowered",
    "Seal",
    "Spec",
    "load",
    "lower",
    "seal",
    "spec",
]
