"""See which functions compute lazy dask arrays, by dask's own callbacks."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from xpolicy.runtime.entry import Entry

if TYPE_CHECKING:
    from collections.abc import Callable

#: Packages whose frames stand between a function's line and dask's scheduler.
_INSIDE = frozenset({"dask", "distributed", "xpolicy"})


def see_computing(take: Callable[[Entry, str, int], None]) -> Callable[[], None]:
    """Tell of each computation of a lazy array that a function under policy asks for.

    A process that has not imported dask has no lazy array: nothing is told then.

    Parameters
    ----------
    take : callable
        Called with each function that is being called, and the file and line that asked.

    Returns
    -------
    callable
        Ends it.
    """
    if "dask" not in sys.modules:
        return lambda: None

    def started(_: Any) -> None:
        # dask calls this in the thread that asks, before it hands out any work.
        found, place = _callers()
        for entry in found:
            take(entry, *place)

    callback = importlib.import_module("dask.callbacks").Callback(start=started)
    callback.register()
    end: Callable[[], None] = callback.unregister
    return end


def _callers() -> tuple[list[Entry], tuple[str, int]]:
    """Return the functions under policy on the way here, and the line that asked dask."""
    found: dict[int, Entry] = {}
    place = ("?", 0)
    frame: Any = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith("<xpolicy dispatch("):
            for value in frame.f_locals.values():
                if type(value) is Entry:
                    found.setdefault(id(value), value)
        elif place[0] == "?" and not code.co_filename.startswith("<") and _outside(frame):
            place = (code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return list(found.values()), place


def _outside(frame: Any) -> bool:
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return package not in _INSIDE
