"""``xpolicy cache``: where compilers keep what they compiled; in a file, and out of it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from xpolicy.aot.shipping import export_caches, import_caches
from xpolicy.backends.caches import TAG, made_here
from xpolicy.cli.output import problems_to, write, write_json
from xpolicy.cli.usage import UsageError
from xpolicy.errors import Problem, XPolicyError
from xpolicy.policy.options import nearest
from xpolicy.policy.writing import show
from xpolicy.runtime.caches import planned, policy
from xpolicy.runtime.explain import columns, where
from xpolicy.runtime.session import raise_problems, session

if TYPE_CHECKING:
    from xpolicy.aot.shipping import Shipped
    from xpolicy.backends.caches import CacheUse

cache = App(
    name="cache",
    help="Where compilers keep what they compiled; carry that to another machine.",
    help_format="plaintext",
)


@cache.command
def info(*, json: Annotated[bool, Parameter(negative="")] = False) -> None:
    """Show where each compiler's cache is, what it holds, and who decided that.

    Parameters
    ----------
    json
        Print JSON.
    """
    uses = _planned()
    found = [_held(use) for use in uses]
    if json:
        write_json(
            [
                {**use.as_dict(), "entries": entries, "bytes": size}
                for use, (entries, size) in zip(uses, found, strict=True)
            ]
        )
        return
    rows = [("compiler", "cache", "folder", "entries", "size", "why")]
    rows += [
        (
            use.namespace,
            use.state,
            use.folder or "",
            "" if size is None else str(entries),
            "" if size is None else _size(size),
            use.reason,
        )
        for use, (entries, size) in zip(uses, found, strict=True)
    ]
    said = policy()
    lines = columns(rows)
    lines += [
        f"  {use.namespace}: {note}" for use in uses for note in (*use.notes, use.warning) if note
    ]
    lines += [
        f"  {use.namespace}: it is larger than cache.max-size, which nothing enforces for torch; "
        "xpolicy cache clear torch empties it"
        for use, (_, size) in zip(uses, found, strict=True)
        if use.namespace == "torch"
        and size
        and said.max_bytes is not None
        and size > said.max_bytes
    ]
    lines += ["", "settings:" if said.settings else "settings: none"]
    lines += columns(
        [
            (f"  cache.{name.replace('_', '-')}", show(setting.value), where(setting.origin))
            for name, setting in said.settings.items()
        ]
        or [("",)]
    )
    write("\n".join(lines).rstrip())


@cache.command(name="export")
def export_(file: Path, /, *, dir: Annotated[Path | None, Parameter(name="--dir")] = None) -> None:  # noqa: A002  # the table's own word
    """Write compilers' caches to one file, for `xpolicy cache import` on another machine.

    Parameters
    ----------
    file
        The file to write.
    dir
        Take the folders below this one instead of those in use here.
    """
    folders = {name: folder for name, folder in _folders(dir).items() if folder.is_dir()}
    try:
        told = export_caches(file, folders)
    except OSError as error:
        raise XPolicyError(f"{file} can't be written: {error.strerror or error}") from error
    _tell("exported", told)


@cache.command(name="import")
def import_(file: Path, /, *, dir: Annotated[Path | None, Parameter(name="--dir")] = None) -> None:  # noqa: A002  # as above
    """Put the caches in a file where compilers look for them.

    The file holds code, and compilers run it: import only what you, or somebody whom you
    trust, have written. What was made by another version of a compiler, or for another
    kind of processor, is skipped.

    Parameters
    ----------
    file
        What `xpolicy cache export` wrote.
    dir
        Put them below this folder, not where they are looked for here.
    """
    try:
        told = import_caches(file, _folders(dir))
    except OSError as error:
        raise XPolicyError(f"{file} can't be read: {error.strerror or error}") from error
    for name, why in told.skipped.items():
        problems_to(sys.stderr, [Problem(f"{name} was skipped: {why}", severity="warning")])
    _tell("imported", told)


@cache.command
def clear(*compilers: str) -> None:
    """Empty the folders that the policy gives to compilers; others are left alone.

    Parameters
    ----------
    compilers
        torch or jax; both by default.
    """
    uses = _planned()
    known = [use.namespace for use in uses]
    for name in compilers:
        if name not in known:
            raise UsageError(
                Problem(
                    f"unknown compiler {name!r}",
                    allowed=", ".join(known),
                    nearest=nearest(name, known),
                )
            )
    for use in uses:
        if compilers and use.namespace not in compilers:
            continue
        folder = Path(use.folder) if use.folder is not None else None
        if use.state != "on" or folder is None or not folder.exists():
            write(f"{use.namespace}: nothing to clear ({use.reason})")
        elif folder.is_symlink():
            raise XPolicyError(f"{folder} is a link: nothing is removed")
        elif not made_here(folder):
            raise XPolicyError(
                f"{folder} was not made by xpolicy (there is no {TAG} of its own): "
                "nothing is removed"
            )
        else:
            entries, size = _held(use)
            shutil.rmtree(folder)
            write(f"{use.namespace}: {entries} entries removed, {_size(size or 0)}")


def _planned() -> tuple[CacheUse, ...]:
    raise_problems(list(session.loaded().problems))
    return planned()


def _folders(root: Path | None) -> dict[str, Path]:
    if root is not None:
        return {name: root.absolute() / name for name in ("torch", "jax")}
    found = {use.namespace: Path(use.folder) for use in _planned() if use.folder is not None}
    if not found:
        raise XPolicyError(
            "no folder is named for caches\n"
            "  fix: set cache.dir in a policy (XPOLICY_CACHE__DIR=/a/folder), or --dir"
        )
    return found


def _held(use: CacheUse) -> tuple[int, int | None]:
    """Return how many compiled functions a folder has, and its size in bytes."""
    folder = Path(use.folder) if use.folder is not None else None
    if folder is None or not folder.is_dir():
        return 0, None
    size = sum(found.stat().st_size for found in folder.rglob("*") if found.is_file())
    graphs = "fxgraph/*/*" if use.namespace == "torch" else "*-cache"
    return sum(1 for _ in folder.glob(graphs)), size


def _tell(what: str, told: Shipped) -> None:
    for name, number in told.files.items():
        known = told.known.get(name, 0)
        there = f", {known} of them there already" if known else ""
        write(f"{name}: {number} files {what}, {_size(told.size[name])}{there}")


def _size(number: float) -> str:
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"
