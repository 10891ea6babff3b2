"""Policies for compiling array-API functions.

Code says *what* may be compiled, policy files say *how*, anyone can see *why*.
Importing this module imports the standard library only, and little of that: the names
below are looked up when they are first used.
"""

from __future__ import annotations

import os as _os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from xpolicy.aot import load, lower, seal, spec
    from xpolicy.aot.warmup import warmup
    from xpolicy.errors import (
        BackendOptionError,
        DecorationError,
        EnvironmentPolicyError,
        GraphBreakLimitError,
        PolicyFileError,
        RecompileLimitError,
        SealedError,
        StructureMismatchError,
        XPolicyError,
        XPolicyWarning,
    )
    from xpolicy.runtime.apply import apply
    from xpolicy.runtime.caches import caches
    from xpolicy.runtime.decorate import compile  # the public name
    from xpolicy.runtime.events import subscribe
    from xpolicy.runtime.explain import explain
    from xpolicy.runtime.install import install
    from xpolicy.runtime.overrides import override
    from xpolicy.runtime.questions import (
        capabilities,
        check,
        fingerprint,
        reload,
        resolve,
        stats,
    )
    from xpolicy.runtime.snapshot import snapshot

__version__ = "0.1.0"

__all__ = [
    "BackendOptionError",
    "DecorationError",
    "EnvironmentPolicyError",
    "GraphBreakLimitError",
    "PolicyFileError",
    "RecompileLimitError",
    "SealedError",
    "StructureMismatchError",
    "XPolicyError",
    "XPolicyWarning",
    "__version__",
    "apply",
    "caches",
    "capabilities",
    "check",
    "compile",
    "explain",
    "fingerprint",
    "install",
    "load",
    "lower",
    "override",
    "reload",
    "resolve",
    "seal",
    "snapshot",
    "spec",
    "stats",
    "subscribe",
    "warmup",
]

_HOME = {
    "apply": "xpolicy.runtime.apply",
    "caches": "xpolicy.runtime.caches",
    "capabilities": "xpolicy.runtime.questions",
    "check": "xpolicy.runtime.questions",
    "compile": "xpolicy.runtime.decorate",
    "explain": "xpolicy.runtime.explain",
    "fingerprint": "xpolicy.runtime.questions",
    "install": "xpolicy.runtime.install",
    "load": "xpolicy.aot",
    "lower": "xpolicy.aot",
    "override": "xpolicy.runtime.overrides",
    "reload": "xpolicy.runtime.questions",
    "resolve": "xpolicy.runtime.questions",
    "seal": "xpolicy.aot",
    "snapshot": "xpolicy.runtime.snapshot",
    "spec": "xpolicy.aot",
    "stats": "xpolicy.runtime.questions",
    "subscribe": "xpolicy.runtime.events",
    "warmup": "xpolicy.aot.warmup",
}

# The project is looked for from here; a later chdir doesn't change policies.
try:
    _cwd: str | None = _os.getcwd()  # noqa: PTH109  # pathlib costs more than this package
except OSError:  # the directory is gone
    _cwd = None


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        if name not in __all__:
            raise AttributeError(f"module 'xpolicy' has no attribute {name!r}")
        home = "xpolicy.errors"
    # `import a.b` in full, since importlib is not among what is loaded already.
    value = getattr(__import__(home, fromlist=[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
