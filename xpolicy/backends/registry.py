"""Which backends there are: ours, and those that other distributions register.

Ours are known by name, so that a process which uses only them never scans the installed
distributions (5 to 30 ms). Everything else is looked up in the entry point group
``xpolicy.backends`` the first time somebody uses a namespace that isn't ours.
"""

from __future__ import annotations

import importlib
import sys
import threading
import warnings
from typing import TYPE_CHECKING

from xpolicy.backends.plugins import OURS, points
from xpolicy.errors import XPolicyWarning
from xpolicy.policy.options import DEVICES, RESERVED, OptionTable

if TYPE_CHECKING:
    from xpolicy.backends.base import Backend

#: Namespaces that can't be a plugin's: they are words of the policy language.
TAKEN = frozenset({*RESERVED, *DEVICES, "device", "python", "versions"})

_lock = threading.RLock()
_backends: dict[str, Backend] = {}
_scanned = False
_table: OptionTable | None = None


def _ours() -> None:
    for namespace, target in OURS.items():
        if namespace not in _backends:
            module, _, name = target.partition(":")
            _backends[namespace] = getattr(importlib.import_module(module), name)


def _scan() -> None:
    global _scanned, _table
    with _lock:
        if _scanned:
            return
        _ours()
        general = OptionTable().general
        before = len(_backends)
        for point in points().values():
            if point.name in TAKEN or point.name in general:
                warnings.warn(
                    f"backend {point.value!r} was not registered: {point.name!r} is a word "
                    f"of the policy language",
                    XPolicyWarning,
                    stacklevel=2,
                )
                continue
            try:
                _backends[point.name] = point.load()
            except Exception as error:  # noqa: BLE001  # a broken plugin must not break the rest
                warnings.warn(
                    f"backend {point.name!r} ({point.value}) can't be loaded: {error!r}",
                    XPolicyWarning,
                    stacklevel=2,
                )
        if len(_backends) != before:
            _table = None
        _scanned = True


def backend_for(namespace: str) -> Backend | None:
    """Return the backend of a namespace, or None if nothing compiles for it."""
    with _lock:
        _ours()
        if namespace not in _backends:
            _scan()
        return _backends.get(namespace)


def option_table(*, plugins: bool = False) -> OptionTable:
    """Return the option table of ours, or of every installed backend.

    The table of a process that has used a plugin includes it from then on.
    """
    global _table
    with _lock:
        _ours()
        if plugins:
            _scan()
        if _table is None:
            _table = OptionTable(backend.spec for backend in _backends.values())
        return _table


def imported(backend: Backend) -> bool:
    """Return whether the process has imported a backend's library."""
    return backend.module in sys.modules
