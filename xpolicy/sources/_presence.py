"""Whether a file is there, and whether a ``pyproject.toml`` holds a policy."""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from xpolicy.errors import PolicyFileError, Problem
from xpolicy.sources.toml import parse, read_bytes

if TYPE_CHECKING:
    from pathlib import Path

_MENTION = re.compile(rb"""\btool["']?\s*\.\s*["']?xpolicy\b""")


@dataclass(frozen=True, slots=True)
class Presence:
    """What there is at a path, and the problems of a ``pyproject.toml`` that is broken."""

    status: Literal["found", "absent", "skipped"]
    reason: str
    problems: tuple[Problem, ...] = ()


def look(path: Path) -> Presence:
    """Say whether something is there; what it is, reading will tell."""
    try:
        path.lstat()
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR}:
            return Presence("absent", "there is no such file")
        return Presence("skipped", f"it can't be looked at: {error.strerror or error}")
    except ValueError as error:  # a null character in the path
        return Presence("skipped", f"it can't be looked at: {error}")
    return Presence("found", "it is there")


def look_into_pyproject(path: Path) -> Presence:
    """Say whether a ``pyproject.toml`` holds a policy.

    Most projects have one that says nothing about xpolicy: whatever is wrong with such a
    file is not our business. Without the word in it, it is not even parsed.
    """
    presence = look(path)
    if presence.status != "found":
        return presence
    try:
        data = read_bytes(path, "project")
    except PolicyFileError as error:
        return Presence("skipped", error.problems[0].message)
    # A key can also be written with escapes; UTF-16, an error, has null bytes between.
    words = data.replace(b"\0", b"")
    if b"xpolicy" not in words and rb"\u" not in words.lower():
        return Presence("skipped", "it has no [tool.xpolicy] table")
    try:
        tool = parse(data, str(path), "project").data.get("tool")
    except PolicyFileError as error:
        if _MENTION.search(words):
            return Presence("found", "it mentions tool.xpolicy", error.problems)
        return Presence("skipped", "it is not valid, and does not mention tool.xpolicy")
    if isinstance(tool, dict) and "xpolicy" in tool:
        return Presence("found", "it has a [tool.xpolicy] table")
    return Presence("skipped", "it has no [tool.xpolicy] table")
