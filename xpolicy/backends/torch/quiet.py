"""Torch's own warnings while it compiles, kept from warnings filters that raise."""

from __future__ import annotations

import importlib
import re
import sys
import threading
import warnings
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from xpolicy.errors import XPolicyWarning

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Modules whose warnings are torch's own.
_TORCH = r"torch(\.|$)"
_INTERNAL = re.compile(r"(xpolicy|torch|contextlib|functools)(\.|$)")


@contextmanager
def torch_warnings_ignored() -> Iterator[None]:
    """Ignore what torch warns of itself. The user's own warnings pass.

    Under ``-W error`` torch 2.13 can't compile a function that calls
    ``array_api_compat.array_namespace``: dynamo warns of its ``functools.lru_cache``.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=_TORCH)
        yield


def warn_caller(text: str) -> None:
    """Warn at the line that called the function: the first outside of xpolicy and torch."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and _INTERNAL.match(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, XPolicyWarning, stacklevel=level + 1)


_importing = threading.Lock()


@cache
def import_inductor() -> None:
    """Import inductor, without its warnings.

    Importing takes two seconds and uses torch's own deprecated ``torch.jit``, which under
    ``-W error`` would surface as a failure to compile.
    """
    with _importing, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("torch._inductor.compile_fx")
