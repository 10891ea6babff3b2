"""The names of registered backends, found without importing any of them, or pydantic."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.metadata import EntryPoint

GROUP = "xpolicy.backends"
#: The entry points of our own distribution, for where its metadata can't be read (a zip
#: archive on the path, a source tree).
OURS = {"torch": "xpolicy.backends.torch:backend", "jax": "xpolicy.backends.jax:backend"}

_points: dict[str, EntryPoint] | None = None


def points() -> dict[str, EntryPoint]:
    """Return the entry points that other distributions register, by namespace.

    They are looked for the first time that somebody uses a namespace which is not ours.
    With 93 distributions installed, importing `importlib.metadata` takes 50 to 100 ms and
    reading them with it 25; to find that none of them has the group takes 1.5.
    """
    global _points
    if _points is None:
        found: dict[str, EntryPoint] = {}
        if _maybe_installed():
            from importlib.metadata import entry_points

            found = {point.name: point for point in entry_points(group=GROUP)}
            for name in OURS:
                found.pop(name, None)
        _points = found
    return _points


#: The finder of the standard library, which looks through `sys.path`.
_STANDARD = ("_frozen_importlib_external", "PathFinder")


def _maybe_installed() -> bool:
    """Return False if no distribution but ours can have registered a backend.

    Only folders are judged, and what the standard library would find there. With anything
    else (an archive on the path, another finder of distributions) the answer is True.
    """
    for finder in sys.meta_path:
        name = (getattr(finder, "__module__", None), getattr(finder, "__name__", None))
        if hasattr(finder, "find_distributions") and name != _STANDARD:
            return True
    group = GROUP.encode()
    for place in sys.path:
        try:
            for file in _entry_point_files(place):
                if group in _content(file):
                    return True
        except FileNotFoundError:  # most paths name an archive that isn't there
            continue
        except (OSError, TypeError, ValueError):
            return True
    return False


def _entry_point_files(place: str) -> Iterator[str]:
    """Yield where the distributions in one folder of the path would keep entry points."""
    # By `os`: importing pathlib would take longer than all of this.
    with os.scandir(place or ".") as entries:
        for entry in entries:
            name = entry.name.lower()
            # The last one is inside of an egg. Ours names its backends, and they are known.
            if (
                name.endswith((".dist-info", ".egg-info")) and name.partition("-")[0] != "xpolicy"
            ) or name == "egg-info":
                yield f"{entry.path}/entry_points.txt"


def _content(file: str) -> bytes:
    try:
        with open(file, "rb") as opened:  # noqa: PTH123
            return opened.read()
    except (FileNotFoundError, NotADirectoryError):  # it registers nothing
        return b""


def registered(namespace: str) -> bool:
    """Return whether anything compiles for a namespace."""
    return namespace in OURS or namespace in points()
