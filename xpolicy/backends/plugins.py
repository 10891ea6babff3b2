"""The names of registered backends, found without importing any of them, or pydantic."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "xpolicy.backends"
#: The entry points of our own distribution, for where its metadata can't be read (a zip
#: archive on the path, a source tree).
OURS = {"torch": "xpolicy.backends.torch:backend", "jax": "xpolicy.backends.jax:backend"}

_points: dict[str, EntryPoint] | None = None


def points() -> dict[str, EntryPoint]:
    """Return the entry points that other distributions register, by namespace.

    Reading the metadata of all installed distributions takes 5 to 30 ms; it is done the
    first time that somebody uses a namespace which is not ours.
    """
    global _points
    if _points is None:
        from importlib.metadata import entry_points

        _points = {point.name: point for point in entry_points(group=GROUP)}
        for name in OURS:
            _points.pop(name, None)
    return _points


def registered(namespace: str) -> bool:
    """Return whether anything compiles for a namespace."""
    return namespace in OURS or namespace in points()
