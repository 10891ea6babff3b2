"""Inductor's caches, as the ``cache`` table has it.

Inductor keeps everything in one folder: compiled graphs, code, libraries, kernels. torch
takes it from ``TORCHINDUCTOR_CACHE_DIR``, and where nobody has set that, writes its own
default there; that happens when ``torch._dynamo`` is imported. So what torch has written
is not taken for the user's word, and what the user has said stays.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from xpolicy.backends.caches import CacheUse, distrusted, folder_for, unusable
from xpolicy.backends.torch import private

if TYPE_CHECKING:
    from xpolicy.policy.cache import CachePolicy

NAMESPACE = "torch"
VARIABLE = private.CACHE_VARIABLE
SWITCHES = ("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "TORCH_COMPILE_FORCE_DISABLE_CACHES")

#: Read whenever a function gets its backend (`xpolicy.backends.torch.graphs`).
disabled = False


def use(policy: CachePolicy) -> CacheUse:
    """Let inductor keep what it compiles as a policy says, and say what became of that."""
    global disabled
    disabled = False
    switch = next((name for name in SWITCHES if name in os.environ), None)
    if not policy.enabled and switch is None:
        private.redirect_cache(None)
        disabled = True
        said = f"cache.enabled, {policy.origin_of('enabled')}"
        return CacheUse(NAMESPACE, "off", None, said)
    if switch is not None and os.environ[switch] == "1":
        return CacheUse(NAMESPACE, "off", None, f"turned off by {switch}")
    notes = _for_jax_only(policy)
    wanted = folder_for(policy, NAMESPACE)
    own = private.own_cache_folder()
    if own is not None and (wanted is None or own != os.path.abspath(wanted)):  # noqa: PTH100  # as text
        if wanted is not None:
            notes = (*notes, f"cache.dir is not used ({policy.origin_of('dir')})")
        return CacheUse(NAMESPACE, "own", own, f"set by {VARIABLE}", notes)
    if wanted is None:
        private.redirect_cache(None)
        folder = private.default_cache_folder()
        return CacheUse(NAMESPACE, "own", folder, "torch's default, no cache.dir", notes)
    why_not = unusable(wanted)
    if why_not is None and own is None and not private.redirect_cache(str(wanted)):
        why_not = f"this torch can't be told where to keep its caches; set {VARIABLE}={wanted}"
    if why_not is not None:
        return CacheUse(
            NAMESPACE,
            "own",
            private.default_cache_folder(),
            "torch's default",
            notes,
            why_not,
        )
    if _compiled_before():
        notes = (*notes, "what torch compiled before the policy was read is in its own folder")
    said = f"cache.dir, {policy.origin_of('dir')}"
    return CacheUse(NAMESPACE, "on", str(wanted), said, notes)


def planned(policy: CachePolicy) -> CacheUse:
    """Say what a process started here would do, as far as that shows without torch."""
    switch = next((name for name in SWITCHES if name in os.environ), None)
    if not policy.enabled and switch is None:
        return CacheUse(NAMESPACE, "off", None, f"cache.enabled, {policy.origin_of('enabled')}")
    if switch is not None and os.environ[switch] == "1":
        return CacheUse(NAMESPACE, "off", None, f"turned off by {switch}")
    notes, wanted = _for_jax_only(policy), folder_for(policy, NAMESPACE)
    own = os.environ.get(VARIABLE)
    if own is not None and wanted is not None and own != str(wanted):
        own = private.own_cache_folder()  # torch's default there is nobody's word
    if own is not None and own != str(wanted):
        return CacheUse(NAMESPACE, "own", own, f"set by {VARIABLE}", notes)
    if wanted is None:
        return CacheUse(NAMESPACE, "own", None, "torch's default, no cache.dir", notes)
    why_not = distrusted(wanted)
    if why_not is not None:
        return CacheUse(NAMESPACE, "own", None, "torch's default", notes, why_not)
    return CacheUse(NAMESPACE, "on", str(wanted), f"cache.dir, {policy.origin_of('dir')}", notes)


def _for_jax_only(policy: CachePolicy) -> tuple[str, ...]:
    return tuple(
        f"cache.{name} is for jax only: {why} ({policy.origin_of(key)})"
        for key, name, why in (
            ("min_seconds", "min-seconds", "torch keeps everything, however quick it was"),
            ("max_size", "max-size", "torch's cache has no limit"),
        )
        if policy.origin_of(key) is not None
    )


def _compiled_before() -> bool:
    utils = sys.modules.get("torch._dynamo.utils")
    counters = getattr(utils, "counters", {})
    return any("cache" in name for name in counters.get("inductor", ()))
