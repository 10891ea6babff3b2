"""Assertions about compiled functions, for any test runner; the pytest plugin uses them.

Names are looked up when they are first used: importing this module imports nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from xpolicy.testing.assertions import assert_compiles_once, assert_no_graph_breaks
    from xpolicy.testing.capabilities import from_xp_capabilities
    from xpolicy.testing.lazy import lazy_xp_function, patch_lazy_xp_functions
    from xpolicy.testing.same import assert_same_in_all_modes
    from xpolicy.testing.watching import Seen, watch

__all__ = [
    "Seen",
    "assert_compiles_once",
    "assert_no_graph_breaks",
    "assert_same_in_all_modes",
    "from_xp_capabilities",
    "lazy_xp_function",
    "patch_lazy_xp_functions",
    "watch",
]

_HOME = {
    "Seen": "xpolicy.testing.watching",
    "assert_compiles_once": "xpolicy.testing.assertions",
    "assert_no_graph_breaks": "xpolicy.testing.assertions",
    "assert_same_in_all_modes": "xpolicy.testing.same",
    "from_xp_capabilities": "xpolicy.testing.capabilities",
    "lazy_xp_function": "xpolicy.testing.lazy",
    "patch_lazy_xp_functions": "xpolicy.testing.lazy",
    "watch": "xpolicy.testing.watching",
}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'xpolicy.testing' has no attribute {name!r}")
    value = getattr(__import__(home, fromlist=[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
