"""What is measured, and how: interleaved medians, peak memory, break-even."""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Measurement", "interleaved_medians", "peak_memory", "timed"]


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One process's figures for one namespace.

    Parameters
    ----------
    namespace : str
        Of the arrays.
    mode : str
        What the policy resolved to: ``"eager"``, ``"compile"`` or ``"fullgraph"``.
    compiler : str or None
        What compiled the function in this process; None if nothing did.
    compilations : int
        How many graphs, by the compiler's own count.
    reported : int
        How many variants, by ``xpolicy.stats``.
    accuracy : float
        Share of the queries that were classified right.
    predictions : str
        A digest of all predictions, to compare namespaces by more than a mean.
    eager : float
        Median seconds of a call of the undecorated function.
    decorated : float
        Median seconds of a call of the decorated one.
    first_call : float
        Seconds of the first call of the decorated one, with all that it imports and compiles.
    memory_before, memory_after : int or None
        Peak bytes of the process before the first call, and after the decorated calls but before
        any undecorated one.
    calls : int
        Calls behind each median.
    """

    namespace: str
    mode: str
    compiler: str | None
    compilations: int
    reported: int
    accuracy: float
    predictions: str
    eager: float
    decorated: float
    first_call: float
    memory_before: int | None
    memory_after: int | None
    calls: int

    @property
    def compile_time(self) -> float | None:
        """Seconds that the first call took beyond an ordinary one; None if nothing compiled."""
        return None if self.compiler is None else max(0.0, self.first_call - self.decorated)

    @property
    def saved(self) -> float:
        """Seconds that a call of the decorated function saves; negative if it costs."""
        return self.eager - self.decorated

    @property
    def break_even(self) -> float | None:
        """Calls after which compiling has paid; infinite if never, None if nothing compiled."""
        if self.compile_time is None:
            return None
        return self.compile_time / self.saved if self.saved > 0 else float("inf")


def timed(call: Callable[[], object]) -> float:
    """Return the seconds of one call, which must wait for its own result."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def interleaved_medians(
    first: Callable[[], object],
    second: Callable[[], object],
    *,
    at_least: int = 5,
    at_most: int = 31,
    seconds: float = 1.5,
) -> tuple[float, float, int]:
    """Return the median seconds of both, and of how many calls.

    The two take turns, so that what else the machine does falls on both alike. After `at_least`
    calls of each it stops when `seconds` have gone.

    Examples
    --------
    >>> first, second, calls = interleaved_medians(lambda: None, lambda: None, at_most=9)
    >>> calls
    9
    """
    times: tuple[list[float], list[float]] = ([], [])
    start = time.perf_counter()
    while len(times[0]) < at_most:
        if len(times[0]) >= at_least and time.perf_counter() - start > seconds:
            break
        times[0].append(timed(first))
        times[1].append(timed(second))
    return statistics.median(times[0]), statistics.median(times[1]), len(times[0])


def peak_memory() -> int | None:
    """Return the most resident memory that this process has had so far, in bytes.

    It counts what array libraries allocate by themselves, which ``tracemalloc`` does not see, and
    not the compilers that inductor starts as processes of their own. On Linux it is ``VmHWM``,
    elsewhere ``ru_maxrss``: on Linux a new process inherits ``ru_maxrss`` from the one that
    started it (499 MB for a bare Python started by one of 500 MB). None on Windows, which has no
    ``resource`` module.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024  # "VmHWM:     8824 kB"
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # bytes there, kilobytes elsewhere
