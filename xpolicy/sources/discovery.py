"""Which policy files there are: the user's, the project's, and those that are named."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from xpolicy._origin import Origin
from xpolicy.errors import Problem
from xpolicy.sources._presence import look, look_into_pyproject
from xpolicy.sources.trust import Trust, ownership

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

POLICY_FILE = "xpolicy.toml"
PYPROJECT = "pyproject.toml"
PYPROJECT_PREFIX = ("tool", "xpolicy")

_REPOSITORY_MARKS = (".git", ".hg")  # a file in a worktree or submodule, else a folder


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that was looked for.

    Parameters
    ----------
    layer : {"user", "project", "file"}
        The layer that it would make.
    path : Path
        Where it was looked for.
    prefix : tuple of str
        The table of the file that holds the policy: ``("tool", "xpolicy")`` in a
        ``pyproject.toml``, nothing elsewhere.
    status : {"found", "absent", "skipped"}
        Whether it is to be read. A found file may still turn out to be unreadable.
    reason : str
        Why it has that status.
    """

    layer: Literal["user", "project", "file"]
    path: Path
    prefix: tuple[str, ...]
    status: Literal["found", "absent", "skipped"]
    reason: str


@dataclass(frozen=True, slots=True)
class Discovery:
    """What a search found.

    Parameters
    ----------
    candidates : tuple of Candidate
        Every file looked for, in the order of layers, low to high.
    problems : tuple of Problem
        Everything that is wrong, warnings included.
    """

    candidates: tuple[Candidate, ...]
    problems: tuple[Problem, ...]


def discover(
    environ: Mapping[str, str],
    cwd: Path | None,
    home: Path | None,
    user_config_dir: Path,
    *,
    trust: Callable[[Path, Path], Trust] = ownership,
) -> Discovery:
    """Look for policy files.

    Parameters
    ----------
    environ : mapping of str to str
        The environment: ``XPOLICY_PROJECT`` and ``XPOLICY_FILE`` are read from it.
    cwd : Path or None
        The working directory, absolute; None if it has been deleted.
    home : Path or None
        The home directory, where the search for a project ends.
    user_config_dir : Path
        The folder of the user's own policy file.
    trust : callable
        Judges a project file that was found by searching: of the file, and the folder
        that the search began in.

    Returns
    -------
    Discovery
        Nothing is raised.
    """
    user = user_config_dir / POLICY_FILE
    presence = look(user)
    candidates = [Candidate("user", user, (), presence.status, presence.reason)]
    problems: list[Problem] = []
    search = _Search(trust, candidates, problems)
    search.project(environ.get("XPOLICY_PROJECT", ""), cwd, home)
    search.named_files(environ.get("XPOLICY_FILE", ""), cwd)
    return Discovery(tuple(candidates), tuple(problems))


class _Search:
    """One search, adding to the lists that it was given."""

    def __init__(
        self,
        trust: Callable[[Path, Path], Trust],
        candidates: list[Candidate],
        problems: list[Problem],
    ) -> None:
        self._trust = trust
        self._candidates = candidates
        self._problems = problems

    def project(self, named: str, cwd: Path | None, home: Path | None) -> None:
        """Look for the project's file, in the folder that is named or from `cwd` upwards."""
        named = named.strip()
        if named.lower() == "none":
            self._no_project(cwd, "XPOLICY_PROJECT=none: no project file is looked for")
        elif named:
            self._named_project(named, cwd)
        elif cwd is None:
            self._no_project(cwd, "the working directory is gone or can't be found out")
        else:
            for folder in _upwards(cwd, home):
                if self._folder(folder, cwd):
                    break

    def _no_project(self, cwd: Path | None, reason: str) -> None:
        path = Path(POLICY_FILE) if cwd is None else cwd / POLICY_FILE
        self._candidates.append(Candidate("project", path, (), "skipped", reason))

    def _named_project(self, named: str, cwd: Path | None) -> None:
        origin = Origin("variable", "XPOLICY_PROJECT")
        folder = self._absolute(named, cwd, origin, "project")
        if folder is None:
            return
        if not _is_folder(folder):
            is_file = look(folder).status == "found"
            self._error(
                "the project folder is a file" if is_file else "there is no such project folder",
                origin,
                "project",
                value=named,
                fix="name the file's folder, or the file itself in XPOLICY_FILE"
                if is_file
                else "correct XPOLICY_PROJECT; none means no project",
            )
            self._candidates.append(
                Candidate("project", folder / POLICY_FILE, (), "absent", "there is no such folder")
            )
        elif not self._folder(folder, None):
            self._error(
                "the project folder has no policy file",
                origin,
                "project",
                value=named,
                allowed=f"a folder with {POLICY_FILE}, or {PYPROJECT} with [tool.xpolicy]",
                fix=f"create {folder / POLICY_FILE}, or set XPOLICY_PROJECT=none",
            )

    def _folder(self, folder: Path, start: Path | None) -> bool:
        """Look into one folder; say whether the search ends there.

        Without `start` the folder was named, and naming is trusting.
        """
        path, pyproject = folder / POLICY_FILE, folder / PYPROJECT
        first, second = look(path), look_into_pyproject(pyproject)
        found = [
            self._judged(Candidate("project", path, (), first.status, first.reason), start),
            self._judged(
                Candidate("project", pyproject, PYPROJECT_PREFIX, second.status, second.reason),
                start,
            ),
        ]
        usable = [candidate for candidate in found if candidate.status == "found"]
        if len(usable) == 2:
            reason = f"{POLICY_FILE} and {PYPROJECT} with [tool.xpolicy] are both in {folder}"
            self._error(
                reason,
                Origin("file", str(path)),
                "project",
                value=f"{path} and {pyproject}",
                allowed="one policy file a folder",
                fix=f"move [tool.xpolicy] of {pyproject} into {path}, or the reverse",
            )
            found = [_as(candidate, "skipped", reason) for candidate in found]
        elif usable and usable[0] is found[1] and second.problems:
            self._problems += second.problems
            found[1] = _as(found[1], "skipped", "it mentions tool.xpolicy and can't be read")
        self._candidates += found
        return bool(usable)

    def _judged(self, candidate: Candidate, start: Path | None) -> Candidate:
        if candidate.status != "found" or start is None:
            return candidate
        verdict = self._trust(candidate.path, start)
        if verdict.ok:
            return _as(candidate, "found", f"{candidate.reason}; {verdict.reason}")
        self._problems.append(
            Problem(
                f"a project file was skipped: {verdict.reason}",
                origin=Origin("file", str(candidate.path)),
                layer="project",
                fix=f"if you trust it, name it: XPOLICY_PROJECT={candidate.path.parent}",
                severity="warning",
            )
        )
        return _as(candidate, "skipped", verdict.reason)

    def named_files(self, listed: str, cwd: Path | None) -> None:
        """Add each file that ``XPOLICY_FILE`` lists."""
        origin = Origin("variable", "XPOLICY_FILE")
        for entry in listed.split(os.pathsep):
            if not entry.strip():
                continue
            path = self._absolute(entry, cwd, origin, "file")
            if path is None:
                continue
            prefix = PYPROJECT_PREFIX if path.name == PYPROJECT else ()
            presence = look(path)
            candidate = Candidate("file", path, prefix, presence.status, presence.reason)
            if presence.status != "found":
                self._error(
                    f"a file that is named can't be had: {presence.reason}",
                    origin,
                    "file",
                    value=entry,
                    fix="write the whole path: ~ is a shell's shorthand and is not expanded here"
                    if entry.startswith("~")
                    else f"create {path}, or take it out of XPOLICY_FILE",
                )
            elif prefix:
                candidate = self._named_pyproject(candidate, entry, origin)
            self._candidates.append(candidate)

    def _named_pyproject(self, candidate: Candidate, entry: str, origin: Origin) -> Candidate:
        looked = look_into_pyproject(candidate.path)
        if looked.status == "found":
            return candidate  # if it is broken, reading it tells how
        self._error(
            f"a file that is named holds no policy: {looked.reason}",
            origin,
            "file",
            value=entry,
            fix="add a [tool.xpolicy] table to it, or take it out of XPOLICY_FILE",
        )
        return _as(candidate, "skipped", looked.reason)

    def _absolute(
        self, named: str, cwd: Path | None, origin: Origin, layer: Literal["project", "file"]
    ) -> Path | None:
        path = Path(named)
        if path.is_absolute() or cwd is not None:
            return path if cwd is None else cwd / path
        reason = "it is relative, and the working directory is gone or can't be found out"
        self._error(
            f"a path can't be made absolute: {reason}",
            origin,
            layer,
            value=named,
            fix=f"write an absolute path in {origin.label}",
        )
        self._candidates.append(Candidate(layer, path, (), "skipped", reason))
        return None

    def _error(
        self,
        message: str,
        origin: Origin,
        layer: str,
        *,
        value: str,
        fix: str,
        allowed: str | None = None,
    ) -> None:
        self._problems.append(
            Problem(message, origin=origin, layer=layer, value=value, allowed=allowed, fix=fix)
        )


def _as(
    candidate: Candidate, status: Literal["found", "absent", "skipped"], reason: str
) -> Candidate:
    return Candidate(candidate.layer, candidate.path, candidate.prefix, status, reason)


def _upwards(cwd: Path, home: Path | None) -> Iterator[Path]:
    """Yield the folders to look into: up to a repository's root, home, or the root."""
    # Compared with links resolved: a home reached through one is still home.
    end = None if home is None else os.path.realpath(home)
    for folder in (cwd, *cwd.parents):
        yield folder
        # `lexists` is False for what may not be looked at, and never raises.
        if any(os.path.lexists(folder / mark) for mark in _REPOSITORY_MARKS):
            return
        if end is not None and os.path.realpath(folder) == end:
            return


def _is_folder(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 (never raises, also for a null character)
