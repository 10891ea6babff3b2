"""What the caches of all compilers have in common: a folder, and who decided about it."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xpolicy.policy.cache import CachePolicy

#: Marks a folder as one that was made to be a cache; backup programs know it, too
#: (the name and the signature are those of the Cache Directory Tagging Specification).
TAG = "CACHEDIR.TAG"
_SIGNATURE = "Signature: 8a477f597d28d172789f06886806bc55\n# Compiled code, kept by xpolicy.\n"


#: As many links as Linux follows.
_MOST_LINKS = 40


@dataclass(frozen=True)
class CacheUse:
    """What one compiler does about its cache in this process.

    Attributes
    ----------
    namespace : str
        Whose compiler.
    state : {"on", "off", "own"}
        It uses the policy's folder, none at all, or what it would without a policy.
    folder : str or None
        Where what it compiles is kept, if that is known.
    reason : str
        Who decided that.
    notes : tuple of str
        What else there is to know.
    warning : str or None
        Why what the policy says can't be done.
    about : str
        The setting that the warning is about, as Python spells it.
    """

    namespace: str
    state: str
    folder: str | None
    reason: str
    notes: tuple[str, ...] = ()
    warning: str | None = None
    about: str = "dir"

    def __str__(self) -> str:
        lines = [f"{self.namespace}: {self.state}, {self.folder or 'nowhere'} ({self.reason})"]
        lines += [f"  - {note}" for note in (*self.notes, self.warning) if note]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "compiler": self.namespace,
            "state": self.state,
            "folder": self.folder,
            "reason": self.reason,
            "notes": list(self.notes),
            "warning": self.warning,
        }


def folder_for(policy: CachePolicy, namespace: str) -> Path | None:
    """Return the folder that a policy gives a compiler, or None if it gives none."""
    if policy.dir is None:
        return None
    # Not `Path.expanduser`, which raises where a user has no home directory.
    return Path(os.path.expanduser(policy.dir)) / namespace  # noqa: PTH111


def unusable(folder: Path) -> str | None:
    """Make a folder if need be, and say why it can't be used; None if it can.

    What it holds will be run, so nobody else may be able to put anything there.
    """
    if not folder.is_absolute():
        return f"{folder} is not the whole path of a folder on this machine"
    made = not folder.exists()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        return f"{folder} can't be made: {error.strerror or error}"
    if made:
        with suppress(OSError):  # without it the folder works all the same
            (folder / TAG).write_text(_SIGNATURE, encoding="utf-8")
    why = open_to_others(folder) or replaceable(folder)
    if why is not None:
        return why
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"{folder} can't be written to"
    return None


def distrusted(folder: Path) -> str | None:
    """Say why a folder that is there can't be used, without making one that is not."""
    return (open_to_others(folder) or replaceable(folder)) if folder.exists() else None


def open_to_others(path: Path) -> str | None:
    """Say why others could put code of theirs into a folder or file; None if they can't."""
    geteuid = getattr(os, "geteuid", None)
    if geteuid is None:  # Windows has no such bits; its access lists are not read
        return None
    status = path.stat()
    if status.st_mode & stat.S_IWOTH:
        return f"{path} is writable for everybody, and what it holds would run: chmod o-w {path}"
    if status.st_uid not in (0, geteuid()):
        return f"{path} belongs to user {status.st_uid}, not to you, and what it holds would run"
    return None


def replaceable(path: Path) -> str | None:
    """Say why others could put something else in a file's or folder's place; None if not."""
    geteuid = getattr(os, "geteuid", None)
    if geteuid is None:
        return None
    for folder in dict.fromkeys(_above(path)):
        mode = folder.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return (
                f"{folder} is writable for everybody, and what it holds would run: "
                f"chmod o-w {folder}"
            )
    parent = path.resolve().parent
    if parent.stat().st_uid not in (0, geteuid()):  # who may rename what is in it
        owner = parent.stat().st_uid
        return f"{parent} belongs to user {owner}, not to you, and what it holds would run"
    return None


def _above(path: Path) -> Iterator[Path]:
    """Yield the folders that decide what a path leads to, those of links included."""
    place = Path(os.path.abspath(path))  # noqa: PTH100  # `resolve` would follow the link
    for _ in range(_MOST_LINKS):
        yield from place.parents
        if not place.is_symlink():
            break
        place = Path(os.path.abspath(place.parent / place.readlink()))  # noqa: PTH100  # as above
    yield from path.resolve().parents


def made_here(folder: Path) -> bool:
    """Return whether a folder was made by `unusable`: others tag their caches, too."""
    try:
        return (folder / TAG).read_text(encoding="utf-8") == _SIGNATURE
    except (OSError, ValueError):
        return False
