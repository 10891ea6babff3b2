"""inductor's counts of hits and misses in its cache of compiled graphs."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from xpolicy.backends.hits import CacheCounts

if TYPE_CHECKING:
    from collections.abc import Iterator

HIT = "fxgraph_cache_hit"
#: A graph that inductor doesn't cache at all (``bypass``) is a miss each time.
MISSES = ("fxgraph_cache_miss", "fxgraph_cache_bypass")

#: The counts are the process's. Dynamo compiles one thing at a time anyway.
_one_at_a_time = threading.Lock()


@contextmanager
def watched() -> Iterator[CacheCounts]:
    """Count what inductor says meanwhile, of whatever thread's compilations.

    Only inductor has such a cache: of other backends nothing is known.
    """
    from torch._dynamo.utils import counters

    counts = CacheCounts()
    with _one_at_a_time:
        before = dict(counters["inductor"])
        try:
            yield counts
        finally:
            after = counters["inductor"]
            counts.hits = after[HIT] - before.get(HIT, 0)
            counts.misses = sum(after[name] - before.get(name, 0) for name in MISSES)
