"""What worker processes run in the tests: must be importable there."""

from __future__ import annotations

import xpolicy


def seen(data: xpolicy.runtime.snapshot.Snapshot | None = None) -> tuple[str, str, str]:
    """Return what a worker's policies look like, under a snapshot if one is given."""
    if data is None:
        return look()
    with data.activate():
        return look()


def look() -> tuple[str, str, str]:
    policy = xpolicy.resolve("snapped.f", "torch")
    return xpolicy.fingerprint(), policy.fingerprint, policy.mode
