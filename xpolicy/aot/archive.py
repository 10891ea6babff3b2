"""Compiled calls in files: a header that says what they are for, and executable code."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import pickle
import stat
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

import xpolicy
from xpolicy.aot.mismatch import Expected, signature_of
from xpolicy.aot.stages import Compiled
from xpolicy.backends.caches import replaceable
from xpolicy.backends.registry import backend_for
from xpolicy.errors import XPolicyError
from xpolicy.runtime.binding import make, request_for
from xpolicy.runtime.entry import Entry, entries
from xpolicy.runtime.session import find, session

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

    from xpolicy.backends.base import Backend
    from xpolicy.backends.stages import CompiledCall
    from xpolicy.policy.resolve import ResolvedPolicy

MAGIC = b"xpolicy compiled 1\n"
#: A header is a line of JSON no longer than this; a file without one is not read further.
_HEADER = 1 << 20


class CompiledFileError(XPolicyError):
    """A file of a compiled call can't be read, must not be, or doesn't fit here."""


def save(
    entry: Entry,
    policy: ResolvedPolicy | None,
    expected: Expected,
    stage: CompiledCall,
    path: str | os.PathLike[str],
) -> None:
    """Write a compiled call to a file; see `Compiled.save`."""
    backend = backend_for(expected.namespace)
    if backend is None or policy is None:
        raise XPolicyError(f"{entry.key} can't be saved: nothing is compiled for these arguments")
    data = stage.serialize()
    try:
        payload = pickle.dumps((expected, data))
    except Exception as error:  # any object may be a static argument, and raise what it likes
        raise XPolicyError(f"{entry.key}: its static arguments can't be saved: {error}") from error
    header = _facts(entry, policy, backend)
    header["signature"] = [f"{place}: {item}" for place, item in expected.call.items.items()]
    header["device"] = expected.device
    header["sha256"] = hashlib.sha256(payload).hexdigest()
    target = Path(path)
    # Whole or not at all; mkstemp makes it the owner's alone to write.
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=target.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(MAGIC + json.dumps(header).encode() + b"\n" + payload)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def load(path: str | os.PathLike[str], function: Callable[..., Any] | None = None) -> Compiled:
    """Load what `Compiled.save` wrote.

    .. warning::
       Such a file holds executable code, and loading it runs that code: load only files
       that you, or somebody whom you trust, have written. Nothing loads them by itself.

    Parameters
    ----------
    path : path-like
        The file. It must not be writable for everybody, nor stand in a folder in which
        everybody may replace it.
    function : callable, optional
        The decorated function. Default: the one with the file's function key; its module
        is imported if need be.

    Returns
    -------
    Compiled
        Takes the arguments that it was compiled for. Calls of the function itself don't
        find it.

    Raises
    ------
    CompiledFileError
        If the file must not be trusted, is damaged, or was made for something else:
        another function or version of it, another policy, other versions of Python,
        xpolicy or the compiler, other hardware. All differences are told.

    Notes
    -----
    The function's own bytecode is compared, not that of what it calls.
    """
    if Path(path).exists() and not Path(path).is_file():  # to open a pipe is to wait for it
        raise CompiledFileError(f"{path} is no regular file")
    with Path(path).open("rb") as file:
        refuse_writable(Path(path), os.fstat(file.fileno()))
        header, payload = _read(Path(path), file)
    entry = _entry(header, function, path)
    backend = backend_for(header["namespace"])
    if backend is None:
        raise CompiledFileError(f"{path}: there is no backend for {header['namespace']!r} here")
    importlib.import_module(backend.module)
    policy = session.resolve(entry.key, header["namespace"], entry, header["device"])
    _compare(path, header, _facts(entry, policy, backend))
    if policy.mode == "eager":
        raise CompiledFileError(f"{path}: the mode of {entry.key} is eager here")
    try:
        expected, data = pickle.loads(payload)
        expected = replace(expected, file=entry.file, line=entry.line)
    except Exception as error:  # pickle raises whatever what it reads raises
        raise CompiledFileError(f"{path} is damaged: {type(error).__name__}: {error}") from error
    call = make(entry, backend, policy)
    try:
        stage = backend.load_call(request_for(entry, policy), backend.lower(policy), call, data)
    except XPolicyError:
        raise
    except Exception as error:  # the compiler's own word on why it can't
        raise CompiledFileError(
            f"{path}: {header['namespace']} can't load it: {type(error).__name__}: {error}"
        ) from error
    return Compiled(entry, policy, expected, signature_of(entry.fn), stage)


def _facts(entry: Entry, policy: ResolvedPolicy, backend: Backend) -> dict[str, Any]:
    """Return what must be the same where a file is loaded."""
    return {
        "function": entry.key,
        "module": getattr(entry.fn, "__module__", None),
        "code": code_hash(entry.fn),
        "namespace": policy.namespace,
        "policy": policy.fingerprint,
        "xpolicy": xpolicy.__version__,
        "backend": backend.version(),
        "python": f"{sys.implementation.cache_tag}",
        "hardware": backend.hardware(),
    }


#: What each part of a header is called in an error.
_TOLD = {
    "function": "function key",
    "code": "the function's bytecode",
    "policy": "policy fingerprint",
    "xpolicy": "version of xpolicy",
    "backend": "version of the compiler",
    "python": "Python",
    "hardware": "hardware",
}


def _compare(path: Any, header: dict[str, Any], here: dict[str, Any]) -> None:
    lines = [
        f"  {told}: {header.get(name)} in the file, {here[name]} here"
        for name, told in _TOLD.items()
        if header.get(name) != here[name]
    ]
    if lines:
        head = f"{path} was not compiled for what is here:"
        fix = "  fix: compile and save it again (f.lower(...).compile().save(path))"
        raise CompiledFileError("\n".join([head, *lines, fix]))


def code_hash(function: Callable[..., Any]) -> str:
    """Return a hash of a function's own bytecode; empty if it has none.

    Names, constants and inner functions are in it; files and line numbers are not.
    """
    code = getattr(function, "__code__", None)
    return "" if code is None else hashlib.sha256(repr(_code(code)).encode()).hexdigest()


def _code(code: CodeType) -> tuple[Any, ...]:
    constants = tuple(map(_constant, code.co_consts))
    return (code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars)


def _constant(value: Any) -> Any:
    """Return a constant in a form whose text is the same in every process."""
    if isinstance(value, CodeType):
        return _code(value)
    if isinstance(value, frozenset):  # in the order of hashes, and those of strings vary
        return ("frozenset", sorted(repr(_constant(item)) for item in value))
    if isinstance(value, tuple):
        return tuple(map(_constant, value))
    return value


def refuse_writable(path: Path, status: os.stat_result) -> None:
    """Raise if everybody may change or replace the file: it is about to be run."""
    if os.name != "posix":  # Windows has no such bits; its access lists are not read
        return
    if status.st_mode & stat.S_IWOTH:
        raise CompiledFileError(
            f"{path} is writable for everybody, and it holds code that would run\n"
            f"  fix: find out who wrote it, then chmod o-w {path}"
        )
    why = replaceable(path)
    if why is not None:
        told, _, fix = why.partition(": chmod ")
        fix = f"chmod {fix}" if fix else "keep it in a folder of your own"
        raise CompiledFileError(f"{path} may be replaced by others: {told}\n  fix: {fix}")


def _read(path: Path, file: BinaryIO) -> tuple[dict[str, Any], bytes]:
    if file.read(len(MAGIC)) != MAGIC:
        raise CompiledFileError(f"{path} is no file of a compiled call, or of another format")
    try:
        header = json.loads(file.readline(_HEADER))
        payload = file.read()
        whole = hashlib.sha256(payload).hexdigest() == header["sha256"]
        texts = [header[name] for name in ("function", "namespace")]
        texts += [header[name] for name in ("module", "device") if header[name] is not None]
        well_formed = all(isinstance(found, str) for found in texts)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CompiledFileError(f"{path} is damaged: its header can't be read") from error
    if not well_formed:
        raise CompiledFileError(f"{path} is damaged: its header can't be read")
    if not whole:
        raise CompiledFileError(f"{path} is damaged: its content is not what its header says")
    return header, payload


def _entry(header: dict[str, Any], function: Callable[..., Any] | None, path: Any) -> Entry:
    if function is not None:
        key, entry = find(function)
        if entry is None:
            raise CompiledFileError(f"{key} is not decorated with xpolicy.compile")
        return entry
    key, module = header["function"], header["module"]
    found = _named(key)
    if found is None and module and module != "__main__":
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise CompiledFileError(
                f"{path}: {key} is in {module!r}, which can't be imported: {error}"
            ) from error
        found = _named(key)
    if found is None:
        raise CompiledFileError(
            f"{path} is for {key}, and no function with that key is decorated here\n"
            f"  fix: import its module before, or xpolicy.load({str(path)!r}, function)"
        )
    return found


def _named(key: str) -> Entry | None:
    return next((entry for entry in reversed(tuple(entries())) if entry.key == key), None)
