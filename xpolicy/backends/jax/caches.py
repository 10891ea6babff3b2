"""jax's compilation cache, as the ``cache`` table has it."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING, Any

from xpolicy.backends.caches import CacheUse, distrusted, folder_for, unusable

if TYPE_CHECKING:
    from pathlib import Path

    from xpolicy.policy.cache import CachePolicy

NAMESPACE = "jax"
DIR, ENABLED = "jax_compilation_cache_dir", "jax_enable_compilation_cache"
MAX_SIZE = "jax_compilation_cache_max_size"
#: What an entry must have taken, and be, to be stored: a second by default, which the
#: compilation of a small function doesn't take.
MIN_SECONDS = "jax_persistent_cache_min_compile_time_secs"
MIN_BYTES = "jax_persistent_cache_min_entry_size_bytes"
#: Caches of XLA's below the folder. Their path gets into the key of every entry (jax 0.10,
#: also on a CPU), and a cache that was carried to another folder would never be hit.
XLA_CACHES = "jax_persistent_cache_enable_xla_caches"
#: jax's own defaults: a setting that has another value is the program's or the user's.
DEFAULTS = {
    DIR: None,
    ENABLED: True,
    MAX_SIZE: -1,
    MIN_SECONDS: 1.0,
    MIN_BYTES: 0,
    XLA_CACHES: "xla_gpu_per_fusion_autotune_cache_dir",
}

_UNUSABLE = "its folder can't be used"
#: What we have set. It is taken back before something else is set.
_ours: dict[str, Any] = {}


def planned(policy: CachePolicy) -> CacheUse:
    """Say what a process started here would do, as far as that shows without jax."""
    if not policy.enabled and ENABLED.upper() not in os.environ:
        return CacheUse(NAMESPACE, "off", None, f"cache.enabled, {policy.origin_of('enabled')}")
    own, wanted = os.environ.get(DIR.upper()), folder_for(policy, NAMESPACE)
    if own:
        return CacheUse(NAMESPACE, "own", own, f"set by {DIR.upper()}")
    if wanted is None:
        return _without_folder(policy)
    why_not = distrusted(wanted)
    if why_not is not None:
        return CacheUse(NAMESPACE, "own", None, _UNUSABLE, warning=why_not)
    return CacheUse(NAMESPACE, "on", str(wanted), f"cache.dir, {policy.origin_of('dir')}")


def use(policy: CachePolicy) -> CacheUse:
    """Let jax keep what it compiles as a policy says, and say what became of that.

    What the program or a variable of jax's own (``JAX_COMPILATION_CACHE_DIR``) has set
    stays, each setting for itself.
    """
    import jax

    _take_back(jax)
    try:
        return _use(jax, policy)
    finally:
        _start_anew()


def _use(jax: Any, policy: CachePolicy) -> CacheUse:
    if not policy.enabled:
        return _off(jax, policy)
    wanted = folder_for(policy, NAMESPACE)
    own = getattr(jax.config, DIR, None)
    notes: list[str] = []
    if own is not None:
        if wanted is not None:
            notes.append(f"cache.dir is not used ({policy.origin_of('dir')})")
        lack = _set_limits(jax, policy, notes, default=None)
        why = f"set by {_by(DIR)}"
        return CacheUse(NAMESPACE, "own", str(own), why, tuple(notes), lack, "max_size")
    if wanted is None:
        return _without_folder(policy)
    if not hasattr(jax.config, DIR):
        why = f"jax {jax.__version__} has no persistent cache"
        return CacheUse(NAMESPACE, "own", None, why, warning=why)
    if not getattr(jax.config, ENABLED, True):
        return CacheUse(NAMESPACE, "off", None, f"turned off by {_by(ENABLED)}")
    why_not = unusable(wanted)
    if why_not is not None:
        return CacheUse(NAMESPACE, "own", None, _UNUSABLE, warning=why_not)
    _set(jax, DIR, str(wanted))
    # Larger entries only, on some file systems, unless it is told not to.
    _set(jax, MIN_BYTES, -1)
    _set(jax, XLA_CACHES, "none")
    lack = _set_limits(jax, policy, notes, default=0.0)
    if getattr(jax.config, MAX_SIZE, -1) != -1:
        stamp(wanted)
    said = f"cache.dir, {policy.origin_of('dir')}"
    return CacheUse(NAMESPACE, "on", str(wanted), said, tuple(notes), lack, "max_size")


def _without_folder(policy: CachePolicy) -> CacheUse:
    notes = [
        f"cache.{name} is not used: it is for jax's cache, which has no folder"
        for key, name in (("min_seconds", "min-seconds"), ("max_size", "max-size"))
        if policy.origin_of(key) is not None
    ]
    why = "jax keeps nothing by itself, and no cache.dir"
    return CacheUse(NAMESPACE, "own", None, why, tuple(notes))


def _off(jax: Any, policy: CachePolicy) -> CacheUse:
    if ENABLED.upper() in os.environ:
        own = getattr(jax.config, DIR, None)
        state = "own" if getattr(jax.config, ENABLED, True) and own else "off"
        return CacheUse(NAMESPACE, state, own, f"decided by {ENABLED.upper()}")
    _set(jax, ENABLED, False)
    return CacheUse(NAMESPACE, "off", None, f"cache.enabled, {policy.origin_of('enabled')}")


def _set_limits(
    jax: Any, policy: CachePolicy, notes: list[str], default: float | None
) -> str | None:
    """Set what may be stored; return what is missing for that."""
    seconds = default if policy.min_seconds is None else policy.min_seconds
    done = seconds is None or _set(jax, MIN_SECONDS, seconds)
    if not done and policy.min_seconds is not None:
        notes.append(f"cache.min-seconds is not used: {_by(MIN_SECONDS)} has set jax's own")
    size = policy.max_bytes
    if size is None:
        return None
    if importlib.util.find_spec("filelock") is None:
        return "jax needs the package filelock for it (pip install filelock)"
    if not _set(jax, MAX_SIZE, size):
        notes.append(f"cache.max-size is not used: {_by(MAX_SIZE)} has set jax's own")
    return None


def _set(jax: Any, name: str, value: Any) -> bool:
    """Set what nobody else has set; say whether that was so."""
    before = getattr(jax.config, name, None)
    if name.upper() in os.environ or before != DEFAULTS[name] or not hasattr(jax.config, name):
        return False
    jax.config.update(name, value)
    _ours[name] = value
    return True


def _take_back(jax: Any) -> None:
    for name, value in _ours.items():
        if getattr(jax.config, name) == value:
            jax.config.update(name, DEFAULTS[name])
    _ours.clear()


def _by(name: str) -> str:
    return name.upper() if name.upper() in os.environ else f"the program (jax.config.{name})"


def _start_anew() -> None:
    """Make jax look at its settings again: it does once, at what it compiles first."""
    from jax.experimental.compilation_cache import compilation_cache

    reset = getattr(compilation_cache, "reset_cache", None)
    if reset is not None:
        reset()


def stamp(folder: Path) -> None:
    """Give entries that were stored without a limit the time of their use that one needs.

    jax 0.10 fails to store anything beside an entry without one.
    """
    for entry in folder.glob("*-cache"):
        stamp = entry.with_name(f"{entry.name.removesuffix('-cache')}-atime")
        if not stamp.exists():
            stamp.write_bytes(entry.stat().st_mtime_ns.to_bytes(8, "little"))
