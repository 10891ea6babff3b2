"""Whose policy files are read: those of people who could change what runs here anyway."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from stat import S_ISLNK
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_MAX_LINKS = 40  # as many as Linux follows in one path


@dataclass(frozen=True, slots=True)
class Trust:
    """Whether a file may be read, and why.

    Parameters
    ----------
    ok : bool
        Whether it may.
    reason : str
        Why, or why not.
    """

    ok: bool
    reason: str


def effective_uid() -> int | None:
    """Return the user with whose rights the process runs, or None if there is no such thing."""
    geteuid = getattr(os, "geteuid", None)
    return None if geteuid is None else int(geteuid())


def ownership(
    path: Path,
    search_start: Path,
    *,
    uid: Callable[[], int | None] = effective_uid,
    stat: Callable[[Path], os.stat_result] = os.stat,
    lstat: Callable[[Path], os.stat_result] = os.lstat,
) -> Trust:
    """Judge a project file by its owner.

    It is read if its owner is me, root, or the owner of the folder that the search began
    in: root works in a user's checkout, a user runs an image that root built, and a bind
    mount that everybody may write to belongs to whoever owns the folder mounted. What is
    kept out is a file that a stranger put above that folder, such as
    ``/tmp/xpolicy.toml``.

    Each symbolic link at the end of the path is judged like the file that it leads to: a
    stranger's link could lead to any file of mine that can be read as a policy.

    Parameters
    ----------
    path : Path
        The file.
    search_start : Path
        The folder that the search began in.
    uid, stat, lstat : callable
        How to ask the system; `uid` returns None where files have no owner.

    Returns
    -------
    Trust
        With the reason in words.
    """
    me = uid()
    if me is None:
        return Trust(ok=True, reason="not checked: this platform has no owners of files")
    trusted = {0: "root", me: "you"}
    # Gone or out of reach, it adds nobody: me and root remain.
    with suppress(OSError):
        trusted.setdefault(stat(search_start).st_uid, f"the owner of {search_start}")
    try:
        owners = [("it", stat(path).st_uid), *_links(path, lstat)]
    except OSError as error:
        return Trust(ok=False, reason=f"its owner can't be found out: {error.strerror or error}")
    for what, owner in reversed(owners):
        if owner not in trusted:
            return Trust(
                ok=False,
                reason=f"{what} belongs to user {owner}, who is not you (user {me}), root or"
                f" the owner of {search_start}",
            )
    return Trust(ok=True, reason=f"it belongs to {trusted[owners[0][1]]}")


def _links(path: Path, lstat: Callable[[Path], os.stat_result]) -> list[tuple[str, int]]:
    """List the symbolic links that a path leads through at its end, with their owners."""
    links: list[tuple[str, int]] = []
    for _ in range(_MAX_LINKS):
        found = lstat(path)
        if not S_ISLNK(found.st_mode):
            break
        links.append((f"the link {path}", found.st_uid))
        path = path.parent / os.readlink(path)  # noqa: PTH115 (absolute ones replace the left)
    return links


def world_writable(
    path: Path,
    *,
    uid: Callable[[], int | None] = effective_uid,
    stat: Callable[[Path], os.stat_result] = os.stat,
) -> bool:
    """Say whether everybody may change a file, as ``xpolicy check`` reports.

    Parameters
    ----------
    path : Path
        The file; links are followed (a link's own mode means nothing).
    uid, stat : callable
        How to ask the system. Where `uid` returns None the mode bits are made up from
        the read-only flag and mean nothing: never.

    Returns
    -------
    bool
        Also False if the file can't be looked at.
    """
    if uid() is None:
        return False
    try:
        return bool(stat(path).st_mode & 0o002)
    except OSError:
        return False
