"""jax's events about its persistent compilation cache, as `jax.monitoring` tells them."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import jax

from xpolicy.backends.hits import CacheCounts

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Told for whatever is compiled, also if that comes to reading it from the cache.
COMPILED = "/jax/core/compile/backend_compile_duration"
ASKED = "/jax/compilation_cache/compile_requests_use_cache"
#: (There is an event for misses, which only comes for what took long enough to be stored.)
FOUND = "/jax/compilation_cache/cache_hits"
FOLDER = "jax_compilation_cache_dir"
#: Ours: whether we are told anything. Others may clear all listeners.
LISTENING = "/xpolicy/listening"


class _Here(threading.local):
    """What this thread has been told: jax compiles in the thread that asks for it."""

    seen: dict[str, int] | None = None


_here = _Here()
_lock = threading.Lock()


def _event(event: str, **_: Any) -> None:
    if _here.seen is not None:
        _here.seen[event] = _here.seen.get(event, 0) + 1


def _lasted(event: str, duration_secs: float, **_: Any) -> None:
    _event(event)


@contextmanager
def watched() -> Iterator[CacheCounts]:
    """Count what jax says while this thread compiles."""
    counts = CacheCounts()
    _listen()
    seen = _here.seen = {}
    try:
        yield counts
    finally:
        _here.seen = None
        counts.compiled = seen.get(COMPILED, 0)
        counts.hits = seen.get(FOUND, 0)
        # jax asks a cache that has no place, too.
        asked = seen.get(ASKED, 0) if getattr(jax.config, FOLDER, None) else 0
        counts.misses = max(0, asked - counts.hits)


def _listen() -> None:
    """Have jax tell us, once for the process: it has no safe way to stop while it tells."""
    with _lock:
        seen = _here.seen = {}
        jax.monitoring.record_event(LISTENING)
        if not seen:
            jax.monitoring.register_event_listener(_event)
        seen.clear()
        jax.monitoring.record_event_duration_secs(LISTENING, 0.0)
        if not seen:
            jax.monitoring.register_event_duration_secs_listener(_lasted)
