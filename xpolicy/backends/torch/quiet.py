"""Torch's own warnings while it compiles, kept from warnings filters that raise."""

from __future__ import annotations

import threading
import warnings
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Modules whose warnings are torch's own.
_TORCH = r"torch(\.|$)"


@contextmanager
def torch_warnings_ignored() -> Iterator[None]:
    """Ignore what torch warns of itself. The user's own warnings pass.

    Under ``-W error`` torch 2.13 can't compile a function that calls
    ``array_api_compat.array_namespace``: dynamo warns of its ``functools.lru_cache``.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=_TORCH)
        yield


_importing = threading.Lock()


@cache
def import_inductor() -> None:
    """Import inductor, without its warnings.

    Importing takes two seconds and uses torch's own deprecated ``torch.jit``, which under
    ``-W error`` would surface as a failure to compile.
    """
    with _importing, warnings.catch_warnings():
        warnings.simplefilter("ignore")
