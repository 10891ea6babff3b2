"""Torch's own warnings while it compiles, kept from warnings filters that raise."""

from __future__ import annotations

import importlib
import re
import sys
import threading
import warnings
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from xpolicy.errors import XPolicyWarning

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Modules whose warnings are torch's own. The comment makes the filter ours alone.
_TORCH = r"torch(\.|$)(?#while xpolicy compiles)"
_INTERNAL = re.compile(r"(xpolicy|torch|contextlib|functools)(\.|$)")

#: Among events: a warning to be given once no lock is held, since whoever shows warnings may
#: run anything.
WARNING = "warning"

_lock = threading.Lock()
_depth = 0


@contextmanager
def torch_warnings_ignored() -> Iterator[None]:
    """Ignore what torch warns of itself. The user's own warnings pass.

    Under ``-W error`` torch 2.13 can't compile a function that calls
    ``array_api_compat.array_namespace``: dynamo warns of its ``functools.lru_cache``.

    Not by `warnings.catch_warnings`: filters belong to the process, and leaving that
    would put back what another thread has changed meanwhile. Here one filter of our own
    is added and taken out again.

    Nor by `warnings.filterwarnings`: it makes every module forget which warnings it has
    shown, and those that are shown once for each place would come again. What our filter
    ignores is never remembered as shown, so the records stay right without that.
    """
    global _depth
    with _lock:
        _depth += 1
        filters = warnings.filters
        _take_out(filters)
        filters.insert(0, ("ignore", None, Warning, re.compile(_TORCH), 0))  # type: ignore[attr-defined]
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                for each in (filters, warnings.filters):
                    _take_out(each)


def _take_out(filters: Any) -> None:
    for item in [item for item in filters if getattr(item[3], "pattern", None) == _TORCH]:
        filters.remove(item)


def warn_caller(text: str) -> None:
    """Warn at the line that called the function: the first outside of xpolicy and torch."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and (
        _INTERNAL.match(frame.f_globals.get("__name__", ""))
        or frame.f_code.co_filename.startswith("<xpolicy")  # a dispatcher: its globals are others'
    ):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, XPolicyWarning, stacklevel=level + 1)


_importing = threading.Lock()


@cache
def import_inductor() -> None:
    """Import inductor, without its warnings.

    Importing takes two seconds and uses torch's own deprecated ``torch.jit``, which under
    ``-W error`` would surface as a failure to compile.
    """
    with _importing, torch_warnings_ignored():
        importlib.import_module("torch._inductor.compile_fx")
