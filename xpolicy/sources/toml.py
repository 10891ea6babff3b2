"""Policy text, read within bounds and parsed as TOML 1.0."""

from __future__ import annotations

import errno
import os
import stat
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from xpolicy._origin import Origin
from xpolicy.errors import PolicyFileError, Problem
from xpolicy.sources import _syntax
from xpolicy.sources.positions import located

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES = 1 << 20
"""The largest policy file that is read, in bytes."""

MAX_DEPTH = 32
"""How many tables and arrays may stand one inside the other."""

# Decimal text is refused by int() above sys.get_int_max_str_digits(), which nobody can
# set below 640 digits (2126 bits): an integer within this can always be printed.
_MAX_INTEGER_BITS = 2048

_BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class Document:
    """One parsed policy text.

    Parameters
    ----------
    data : dict
        The document, as `tomllib` nests it.
    origin : Origin
        Its root: the file or variable, with the text and an empty key.
    text : str
        The text, without a byte order mark.
    """

    data: dict[str, Any]
    origin: Origin
    text: str


def read_bytes(path: Path, layer: str) -> bytes:
    """Return what a policy file holds, or say why it can't be read.

    Parameters
    ----------
    path : Path
        The file. A pipe or device is refused before it is opened: reading one may
        never end.
    layer : str
        The layer that it is read for, as errors name it.

    Returns
    -------
    bytes
        At most `MAX_BYTES` of them.

    Raises
    ------
    PolicyFileError
        If it is missing, not a regular file, unreadable or over `MAX_BYTES`.
    """
    try:
        _refuse_irregular(path, layer, path.stat())
        # Opened without blocking and looked at again: it may have been replaced by a
        # pipe since. Windows has neither flag, and its text mode is off for os.open
        # only with O_BINARY.
        flags = os.O_RDONLY
        for name in ("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"):
            flags |= getattr(os, name, 0)
        with os.fdopen(os.open(path, flags), "rb") as file:
            found = os.fstat(file.fileno())
            _refuse_irregular(path, layer, found)
            # A file in /proc says size 0 and a growing one lies: the read is bounded too.
            data = b"" if found.st_size > MAX_BYTES else file.read(MAX_BYTES + 1)
            size = max(found.st_size, len(data))
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        raise PolicyFileError([unreadable(path, layer, error)]) from error
    if size > MAX_BYTES:
        raise PolicyFileError([_too_large(Origin("file", str(path)), layer, size)])
    return data


def parse(
    data: bytes | str, label: str, layer: str, *, kind: Literal["file", "variable"] = "file"
) -> Document:
    """Parse a policy text.

    Parameters
    ----------
    data : bytes or str
        The text: UTF-8, with or without a byte order mark.
    label : str
        The file's path or the variable's name.
    layer : str
        The layer that it belongs to, as errors name it.
    kind : {"file", "variable"}
        What the label names.

    Returns
    -------
    Document
        The data and the place that it came from. Values are as TOML has them (dates,
        ``nan``, any integer that can be printed); what an option takes is checked later.

    Raises
    ------
    PolicyFileError
        If it is over `MAX_BYTES`, not UTF-8, not TOML 1.0, or nested deeper than
        `MAX_DEPTH`. Nothing else is raised, whatever the text.

    Examples
    --------
    >>> parse('torch.fullgraph = true', "xpolicy.toml", "project").data
    {'torch': {'fullgraph': True}}
    """
    if len(data) > MAX_BYTES:
        raise PolicyFileError([_too_large(Origin(kind, label), layer, len(data))])
    text = _decoded(data, Origin(kind, label), layer)
    origin = Origin(kind, label, text=text)
    parsed = _plain(text)
    if parsed is None:
        parsed = _parsed(text, origin, layer)
        _check_values(parsed, origin, layer)
    return Document(parsed, origin, text)


def unreadable(path: Path, layer: str, error: OSError | ValueError) -> Problem:
    """Say why a file could not be read.

    Parameters
    ----------
    path : Path
        The file.
    layer : str
        The layer that it was wanted for.
    error : OSError or ValueError
        What the system said.

    Returns
    -------
    Problem
        With the edit that mends it.
    """
    number = getattr(error, "errno", None)
    reason = str(getattr(error, "strerror", None) or error)
    if number in {errno.ENOENT, errno.ENOTDIR}:
        message = "there is no such file"
        fix = "create it, or correct the path"
        if path.parts[:1] and path.parts[0].startswith("~"):
            fix = "write the whole path: ~ is a shell's shorthand and is not expanded here"
        elif path.is_symlink():
            fix = f"it is a symbolic link to a file that is gone: {_link_target(path)}"
    elif number in {errno.EACCES, errno.EPERM}:
        message = "the file may not be read: permission denied"
        fix = f"make it readable, for example with: chmod a+r {path}"
    else:
        message, fix = f"the file can't be read: {reason}", "correct the path or replace the file"
    return Problem(message, origin=Origin("file", str(path)), layer=layer, fix=fix)


def _link_target(path: Path) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115 (str, as it was written)
    except OSError:
        return "(unknown)"


def _refuse_irregular(path: Path, layer: str, found: os.stat_result) -> None:
    if stat.S_ISREG(found.st_mode):
        return
    if stat.S_ISDIR(found.st_mode):
        what, fix = "a directory", f"name the file itself, for example {path / 'xpolicy.toml'}"
    else:
        what = "a pipe" if stat.S_ISFIFO(found.st_mode) else "a device or socket"
        fix = "write the policy to a regular file"
    raise PolicyFileError(
        [
            Problem(
                f"this is {what}, not a regular file",
                origin=Origin("file", str(path)),
                layer=layer,
                fix=fix,
            )
        ]
    )


def _too_large(origin: Origin, layer: str, size: int) -> Problem:
    return Problem(
        "the policy is too large",
        origin=origin,
        layer=layer,
        value=f"{size} bytes" if size > MAX_BYTES else f"over {MAX_BYTES} bytes",
        allowed=f"at most {MAX_BYTES} bytes (1 MiB)",
        fix='shorten it; use patterns such as "mylib.*" in place of one rule a function',
    )


def _decoded(data: bytes | str, origin: Origin, layer: str) -> str:
    try:
        # Variables are text already, in which Python keeps undecodable bytes as lone
        # surrogates: encoding them finds those.
        raw = data.encode() if isinstance(data, str) else data
        return raw.decode().removeprefix(_BOM)
    except UnicodeDecodeError as error:
        before, bad = error.object[: error.start], f"byte 0x{error.object[error.start]:02x}"
        before_text = before.decode("utf-8-sig")
        fix = "save the file as UTF-8"
        if before == b"" and error.object.startswith(_UTF16_MARKS):
            fix = "the file looks like UTF-16, as PowerShell's > writes it: save it as UTF-8"
    except UnicodeEncodeError as error:
        before_text = error.object[: error.start].removeprefix(_BOM)
        bad = f"byte 0x{ord(error.object[error.start]) & 0xFF:02x}"
        fix = "set the variable to UTF-8 text"
    line, column = _syntax.place(before_text, len(before_text))
    raise PolicyFileError(
        [
            Problem(
                "the text is not UTF-8",
                origin=origin.at(line, column),
                layer=layer,
                value=bad,
                allowed="UTF-8, as TOML requires",
                fix=fix,
            )
        ]
    )


def _plain(text: str) -> dict[str, Any] | None:
    """Parse a text that needs no care, as nearly every policy; None if it does need it.

    Six parts of a header, each a table in an array, make 12 levels; a line of six more
    dotted parts with brackets, and one of a table within its array, 14 more: fewer than
    `MAX_DEPTH`.
    """
    if not _syntax.is_plain(text):
        return None
    # Often compiled, and then three times as fast as tomllib. It takes TOML 1.1 too, which
    # in plain text is the same as 1.0.
    import tomli

    try:
        return tomli.loads(text)
    except (ValueError, RecursionError):  # to be told as ever, in tomllib's words
        return None


def _parsed(text: str, origin: Origin, layer: str) -> dict[str, Any]:
    import tomllib

    # Looked for before parsing: on `a.a.a.…` the parser's time and memory grow with the
    # square of the depth (a 200 kB line took over 30 GB), and on `[[[…` it recurses.
    deep = _syntax.too_deep_at(text, MAX_DEPTH)
    shallow = text if deep is None else text[:deep]
    try:
        parsed = tomllib.loads(shallow)
    except RecursionError as error:
        # Within MAX_DEPTH only when the caller itself stands near the stack's end.
        raise PolicyFileError([_no_stack(origin, layer)]) from error
    except ValueError as error:  # TOMLDecodeError is one; int() raises a bare one
        # What stands in front of a nesting that is too deep ends in the middle of a
        # value or key. That is our own doing; an error before its end is the text's.
        if deep is None or not str(error).endswith("(at end of document)"):
            place, problem = _syntax.explain(shallow, error)
            problem = problem.replace(origin=origin.at(*place), layer=layer)
            raise PolicyFileError([problem]) from error
        parsed = {}
    if deep is not None:
        raise PolicyFileError([_too_deep(origin.at(*_syntax.place(text, deep)), layer)])
    return parsed


def _check_values(data: dict[str, Any], origin: Origin, layer: str) -> None:
    """Refuse, without recursion, nesting and integers that later steps can't handle."""
    waiting: list[tuple[Any, tuple[str | int, ...], int]] = [(data, (), 0)]
    while waiting:
        value, key, depth = waiting.pop()
        if isinstance(value, dict | list):
            if depth > MAX_DEPTH:
                where = located(origin.child(*key))
                raise PolicyFileError([_too_deep(where, layer, _syntax.dotted(key))])
            items = value.items() if isinstance(value, dict) else enumerate(value)
            # Only containers and long integers are of interest: a list of 400,000
            # numbers makes no 400,000 paths.
            waiting += [
                (item, (*key, name), depth + 1)
                for name, item in items
                if isinstance(item, dict | list)
                or (isinstance(item, int) and item.bit_length() > _MAX_INTEGER_BITS)
            ]
        else:
            problem = _syntax.integer_too_long(f"an integer of {value.bit_length()} bits")
            raise PolicyFileError(
                [
                    problem.replace(
                        origin=located(origin.child(*key)), layer=layer, key=_syntax.dotted(key)
                    )
                ]
            )


def _too_deep(origin: Origin, layer: str, key: str = "") -> Problem:
    return Problem(
        f"tables and arrays are nested deeper than {MAX_DEPTH}",
        origin=origin,
        layer=layer,
        key=key if len(key) <= 100 else f"{key[:100]}…",
        allowed=f"at most {MAX_DEPTH} levels; each part of a dotted key counts as one",
        fix="no policy needs this many levels: look for a bracket that is not closed",
    )


def _no_stack(origin: Origin, layer: str) -> Problem:
    return Problem(
        "there was no room left on Python's stack to read the policy",
        origin=origin,
        layer=layer,
        value=f"sys.getrecursionlimit() is {sys.getrecursionlimit()}",
        fix="call the function from less deep in a recursion, or raise the recursion limit",
    )
