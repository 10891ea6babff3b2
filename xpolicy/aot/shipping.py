"""Compilers' caches in one file: what one machine has compiled, for the next to begin with."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import stat
import sys
import tarfile
import tempfile
import zlib
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import xpolicy
from xpolicy.aot.archive import CompiledFileError, refuse_writable
from xpolicy.backends.caches import TAG, open_to_others, unusable
from xpolicy.backends.jax.caches import stamp

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import IO, BinaryIO

MAGIC = b"xpolicy caches 1\n"
#: A header is a line of JSON no longer than this; a file without one is not read further.
_HEADER = 1 << 20
_CHUNK = 1 << 20

#: What must be the same for a compiler to find what is in its cache. Their own keys hold
#: more than that; a cache that is not for here would only lie around.
DISTRIBUTIONS = {"torch": ("torch", "triton"), "jax": ("jax", "jaxlib")}


class CacheFileError(CompiledFileError):
    """A file of caches can't be read, must not be, or doesn't fit here."""


@dataclass
class Shipped:
    """What became of the caches in a file.

    Attributes
    ----------
    files, size : dict of str to int
        How many files, and bytes, there are of each compiler's.
    known : dict of str to int
        Of them, how many the folder had already.
    skipped : dict of str to str
        Compilers whose caches were left out, and why.
    """

    files: dict[str, int] = field(default_factory=dict)
    size: dict[str, int] = field(default_factory=dict)
    known: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def export_caches(path: str | os.PathLike[str], folders: Mapping[str, Path]) -> Shipped:
    """Write compilers' caches to one file.

    Whole folders are taken, as they are: ``torch.compiler.save_cache_artifacts`` has what
    its own process compiled, which a command's process has not.

    Parameters
    ----------
    path : path-like
        The file. It is written whole or not at all.
    folders : mapping of str to Path
        The folder of each compiler (``"torch"``, ``"jax"``).

    Returns
    -------
    Shipped

    Raises
    ------
    CacheFileError
        If there is nothing in the folders.
    """
    told = Shipped()
    target = Path(path)
    # mkstemp makes them the owner's alone to write.
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=target.name)
    try:
        with tempfile.TemporaryFile(dir=target.parent) as content, os.fdopen(handle, "wb") as file:
            with tarfile.open(fileobj=content, mode="w:gz", compresslevel=1) as tar:
                for namespace, folder in folders.items():
                    _pack(tar, namespace, folder, told)
            if not told.files:
                places = ", ".join(map(str, folders.values())) or "no folder is named"
                raise CacheFileError(f"there is nothing to export: nothing is kept in {places}")
            header = _facts(told.files)
            header["files"], header["bytes"] = told.files, told.size
            content.seek(0)
            header["sha256"] = _digest(content)
            file.write(MAGIC + json.dumps(header).encode() + b"\n")
            content.seek(0)
            while chunk := content.read(_CHUNK):
                file.write(chunk)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return told


def import_caches(path: str | os.PathLike[str], folders: Mapping[str, Path]) -> Shipped:
    """Put the caches in a file where compilers look for them.

    .. warning::
       Such a file holds executable code, and compilers run it: import only files that you,
       or somebody whom you trust, have written.

    Parameters
    ----------
    path : path-like
        What `export_caches` wrote. It must not be writable for everybody, nor belong to
        somebody else, nor stand in a folder in which everybody may replace it.
    folders : mapping of str to Path
        Where each compiler looks. What is there already stays.

    Returns
    -------
    Shipped
        A compiler whose version, or a processor whose instructions, are not those that the
        cache is for is skipped.

    Raises
    ------
    CacheFileError
        If the file must not be trusted, is damaged, or has nothing for this machine.
    """
    source = Path(path)
    if source.exists() and not source.is_file():  # to open a pipe is to wait for its writer
        raise CacheFileError(f"{path} is no regular file")
    with source.open("rb") as file:
        refuse_writable(source, os.fstat(file.fileno()))
        why = open_to_others(source)
        if why is not None:
            raise CacheFileError(why)
        header = _header(source, file)
        told = Shipped(skipped=_unfit(header, folders))
        fits = {name: folders[name] for name in header["files"] if name not in told.skipped}
        if not fits:
            reasons = "\n".join(f"  {name}: {why}" for name, why in told.skipped.items())
            raise CacheFileError(f"{path} has nothing for this machine:\n{reasons}")
        for folder in fits.values():
            why = unusable(folder)
            if why is not None:
                raise CacheFileError(why)
        try:
            _unpack(source, file, fits, header, told)
        except (tarfile.TarError, EOFError, zlib.error) as error:
            raise CacheFileError(f"{path} is damaged: {error}") from error
    if "jax" in fits:
        stamp(fits["jax"])
    return told


def _pack(tar: tarfile.TarFile, namespace: str, folder: Path, told: Shipped) -> None:
    for found in _kept(folder):
        status = found.stat()
        info = tarfile.TarInfo(f"{namespace}/{found.relative_to(folder).as_posix()}")
        info.size, info.mtime = status.st_size, int(status.st_mtime)
        with found.open("rb") as file:
            tar.addfile(info, file)
        told.files[namespace] = told.files.get(namespace, 0) + 1
        told.size[namespace] = told.size.get(namespace, 0) + status.st_size


def _kept(folder: Path) -> Iterator[Path]:
    """Yield the files of a cache, without locks, times of use and what is half written."""
    for found in sorted(folder.rglob("*")):
        if found.is_symlink() or not found.is_file() or found.name == TAG:
            continue
        if found.suffix in (".lock", ".tmp") or found.name == ".lockfile":
            continue
        if found.name.endswith("-atime") or found.relative_to(folder).parts[0].startswith("tmp"):
            continue
        yield found


def _unpack(
    source: Path, file: BinaryIO, folders: Mapping[str, Path], header: dict[str, Any], told: Shipped
) -> None:
    start = file.tell()
    # Everything is looked at before anything is written.
    for _ in _members(source, file, header):
        pass
    file.seek(start)
    for namespace, inside, size, content in _members(source, file, header):
        if namespace not in folders:
            continue
        told.files[namespace] = told.files.get(namespace, 0) + 1
        told.size[namespace] = told.size.get(namespace, 0) + size
        if not _place(folders[namespace], inside, content):
            told.known[namespace] = told.known.get(namespace, 0) + 1


def _members(
    source: Path, file: BinaryIO, header: dict[str, Any]
) -> Iterator[tuple[str, PurePosixPath, int, IO[bytes]]]:
    """Yield whose file each member is, its place in the folder, its size and content."""
    allowed = dict(header["bytes"])
    with tarfile.open(fileobj=file, mode="r|gz") as tar:
        for member in tar:
            namespace, _, name = member.name.partition("/")
            inside = PurePosixPath(name)
            content = tar.extractfile(member) if member.isreg() else None
            if (
                content is None
                or not name
                or inside.is_absolute()
                or ".." in inside.parts
                or any(letter in name for letter in ":\\\0")
                or namespace not in header["files"]
            ):
                raise CacheFileError(f"{source} is damaged, or made to do harm: {member.name!r}")
            allowed[namespace] -= member.size
            if allowed[namespace] < 0:
                raise CacheFileError(f"{source} is damaged: it holds more than its header says")
            yield namespace, inside, member.size, content


def _place(folder: Path, inside: PurePosixPath, content: Any) -> bool:
    """Write one file, whole or not at all; return False if it is there already."""
    target = folder / inside
    if target.exists():
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.parent.resolve().is_relative_to(folder.resolve()):
        raise CacheFileError(f"{target.parent} leads out of the cache")
    handle, name = tempfile.mkstemp(dir=target.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            while chunk := content.read(_CHUNK):
                file.write(chunk)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return True


def _facts(namespaces: Mapping[str, Any]) -> dict[str, Any]:
    """Return what decides where caches are of use."""
    return {
        "xpolicy": xpolicy.__version__,
        "python": sys.implementation.cache_tag,
        "platform": f"{platform.system()} {platform.machine()}",
        "instructions": instructions(),
        "versions": {name: _versions(name) for name in namespaces},
    }


def _versions(namespace: str) -> dict[str, str]:
    found = {}
    for distribution in DISTRIBUTIONS.get(namespace, ()):
        try:
            found[distribution] = version(distribution)
        except PackageNotFoundError:
            continue
    return found


def instructions() -> list[str]:
    """Return the extensions that the processor has, where the system tells (Linux)."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return sorted(set(value.split()))
    return []


def _unfit(header: dict[str, Any], folders: Mapping[str, Path]) -> dict[str, str]:
    """Say of each compiler's cache that is of no use here why."""
    here = _facts(header["files"])
    why = ""
    if header["platform"] != here["platform"]:
        why = f"made on {header['platform']}, this is {here['platform']}"
    missing = set(header["instructions"]) - set(here["instructions"])
    if not why and here["instructions"] and missing:
        # The compilers themselves would run it, and the processor would stop.
        why = f"made for a processor with {', '.join(sorted(missing)[:6])}, which this one lacks"
    told = dict.fromkeys(header["files"], why) if why else {}
    for name in header["files"]:
        if name in told:
            continue
        there, local = header["versions"].get(name, {}), here["versions"][name]
        if name not in folders:
            told[name] = "no folder is named for it"
        elif not local:
            told[name] = f"{name} is not installed here"
        elif there != local:
            told[name] = f"made by {_said(there)}, and {_said(local)} is installed here"
        elif name == "torch" and header["python"] != here["python"]:
            told[name] = f"made under {header['python']}, this is {here['python']}"
    return told


def _said(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in versions.items())


def _digest(file: BinaryIO) -> str:
    """Return the digest of a file from where it stands to its end."""
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


def _well_formed(header: Any) -> bool:
    def each(value: Any, kind: type) -> bool:
        found = value.values() if isinstance(value, dict) else value
        return isinstance(value, dict | list) and all(type(one) is kind for one in found)

    return (
        isinstance(header, dict)
        and all(isinstance(header[name], dict) for name in ("files", "bytes", "versions"))
        and each(header["files"], int)
        and each(header["bytes"], int)
        and each(header["versions"], dict)
        and all(each(found, str) for found in header["versions"].values())
        and isinstance(header["instructions"], list)
        and each(header["instructions"], str)
        and set(header["files"]) == set(header["bytes"])
        and each([header["python"], header["platform"]], str)
    )


def _header(path: Path, file: BinaryIO) -> dict[str, Any]:
    """Read what a file says of itself, and leave it where its content begins."""
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        raise CacheFileError(f"{path} is no regular file")
    if file.read(len(MAGIC)) != MAGIC:
        raise CacheFileError(f"{path} is no file of caches, or of another format")
    try:
        header: dict[str, Any] = json.loads(file.readline(_HEADER))
        start = file.tell()
        whole = _digest(file) == header["sha256"]
        whole_header = _well_formed(header)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CacheFileError(f"{path} is damaged: its header can't be read") from error
    if not whole_header or not set(header["files"]) <= set(DISTRIBUTIONS):
        raise CacheFileError(f"{path} is damaged: its header can't be read")
    if not whole:
        raise CacheFileError(f"{path} is damaged: its content is not what its header says")
    file.seek(start)
    return header
