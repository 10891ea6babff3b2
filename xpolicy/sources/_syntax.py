"""Where TOML text is broken, and which edit would mend it.

A light reader of TOML's surface: it knows strings, comments, brackets and keys apart,
in one pass whose time is linear in the text, whatever the text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xpolicy.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

_MARK = re.compile(r"\"\"\"|'''|[\"'\n#\[\]{}.,=]")
_REST_OF_STRING = {
    '"': re.compile(r'[^"\\\n]*+(?:\\[^\n][^"\\\n]*+)*+(")?'),
    "'": re.compile(r"[^'\n]*+(')?"),
    # A closing delimiter may have one or two quotes of the content in front of it.
    '"""': re.compile(r'[^"\\]*+(?:(?:\\.|"{1,2}(?!"))[^"\\]*+)*+("{3,5})?', re.DOTALL),
    "'''": re.compile(r"[^']*+(?:'{1,2}(?!')[^']*+)*+('{3,5})?"),
}
# Of a text without escapes and long strings, these tell strings, headers and innermost
# brackets. Small patterns: one for all of plain TOML takes 30 ms to compile.
_STRING_OR_COMMENT = re.compile(r"""\"[^"\n]*+\"|'[^'\n]*+'|#[^\n]*+""")
_HEADER = re.compile(r"^[ \t]*+\[{1,2}[^\[\]\n]*+\]{1,2}[ \t\r]*+$", re.MULTILINE)
_INNERMOST = re.compile(r"\[[^\[\]{}]*+\]|\{[^\[\]{}\n]*+\}")
_DOTS = 5  # in a line, outside strings: six parts of a key
_LEVELS = 3  # of brackets: an array of inline tables with arrays in them
_LONG_INTEGER = re.compile(r"[0-9][0-9A-Fa-f_ox]{18}")
_LAST_COMMA = re.compile(r",[ \t]*+\}")
_PLACE = re.compile(
    r"^(?P<what>.*) \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)$",
    re.DOTALL,
)
_LONG_NUMBER = re.compile(r"[0-9_]{640,}")
_WORD = re.compile(r"[^\s,\]}#]+")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_TWICE = "the same key or table is set in two places: keep one of them"
_OPEN_STRING = "close the string: the closing quote is missing"
_HINTS = (
    ("Cannot overwrite", _TWICE),
    ("Cannot declare", _TWICE),
    ("Cannot mutate", _TWICE),
    ("Cannot redefine", _TWICE),
    ("Duplicate", _TWICE),
    ("Unescaped", "write \\\\ for a backslash, or put the string in single quotes: 'C:\\dir'"),
    ("Expected '\"", _OPEN_STRING),
    ("Expected \"'", _OPEN_STRING),
    ("Unterminated string", _OPEN_STRING),
    ("Unclosed", "close it: the closing bracket is missing"),
    ("Expected '='", "write key = value; a key with blanks or dots of its own goes in quotes"),
    (
        "Illegal character '\\n'",
        'close the string on the same line, or write it between three quotes: """',
    ),
    ("Illegal character", "write a control character as an escape, such as \\u0007, or remove it"),
    ("Invalid date", "there is no such day or time; put it in quotes if it is text"),
    ("Expected newline", "write one key = value a line, text in quotes and dates as 2030-12-31"),
)
_ENDS_TOO_SOON = ("Invalid value", "Unclosed", "Unterminated", "Expected '\"", "Expected \"'")
_CURLY = "\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}"
_CURLY += "\N{LEFT SINGLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}"
_SHOWN = 100  # characters of a line that a message shows


def place(text: str, offset: int) -> tuple[int, int]:
    """Return the one-based line and column (in code points) of an offset."""
    start = text.rfind("\n", 0, offset) + 1
    return text.count("\n", 0, offset) + 1, offset - start + 1


def dotted(key: tuple[str | int, ...]) -> str:
    """Spell a path of keys as a person would write it: ``a."b.c"[0].d``."""
    spelled = ""
    for part in key:
        if isinstance(part, int):
            spelled += f"[{part}]"
        else:
            quoted = part if _BARE.fullmatch(part) else '"{}"'.format(part.replace('"', '\\"'))
            spelled += f".{quoted}" if spelled else quoted
    return spelled


def _marks(text: str) -> Iterator[tuple[str, int]]:
    """Yield what stands outside strings and comments: brackets, dots, ``= ,``, line ends.

    A string that is never closed is yielded as its opening delimiter.
    """
    offset = 0
    while (found := _MARK.search(text, offset)) is not None:
        mark, offset = found[0], found.end()
        if mark in _REST_OF_STRING:
            rest = _REST_OF_STRING[mark].match(text, offset)
            assert rest is not None  # every part of it is optional
            offset = rest.end()
            if rest[1] is None:
                yield mark, found.start()
        elif mark == "#":
            end = text.find("\n", offset)
            offset = len(text) if end < 0 else end
        else:
            yield mark, found.start()


def is_plain(text: str) -> bool:
    """Return whether a text needs no care: no is always a safe answer.

    Plain text has no key of more than six parts, no integer of more than 18 digits, three
    brackets within one another at most, no string over several lines, no escapes and no
    times: nothing that is nested too deep, or that TOML 1.1 reads in another way than 1.0.
    It takes 0.2 ms to see that of a hundred rules, and `too_deep_at` 0.7 ms.
    """
    if "\\" in text or '"""' in text or "'''" in text:
        return False
    # Without escapes and long strings this is what a parser sees as strings, too, as far
    # as the text is TOML; further it doesn't read.
    bare = _STRING_OR_COMMENT.sub("s", text)
    if ":" in bare or _LONG_INTEGER.search(bare) or _LAST_COMMA.search(bare):
        return False
    if any(line.count(".") > _DOTS for line in bare.split("\n")):
        return False
    bare = _HEADER.sub("", bare)
    for _ in range(_LEVELS if "[" in bare or "{" in bare else 0):
        bare = _INNERMOST.sub("v", bare)
    return not ("[" in bare or "{" in bare or "]" in bare or "}" in bare)


def too_deep_at(text: str, limit: int) -> int | None:
    """Find where brackets or the parts of one key go deeper than a limit.

    Parameters
    ----------
    text : str
        Any text.
    limit : int
        How deep is still allowed.

    Returns
    -------
    int or None
        The offset. None bounds the parser's recursion, not the depth of the data: that
        is at most the product of both kinds of nesting.
    """
    depth = dots = 0
    in_header = False
    at_start = True  # of a statement, but for blanks
    previous = 0
    for mark, offset in _marks(text):
        at_start = at_start and not text[previous:offset].strip()
        previous = offset + 1
        if mark == ".":
            dots += 1
            if dots > limit:
                return offset
        else:
            dots = 0
        if mark == "\n" and (in_header or depth == 0):
            in_header, at_start = False, True
            continue
        if mark == "[" and at_start and depth == 0:
            in_header = True
        elif mark in "[{" and not in_header:
            depth += 1
            if depth > limit:
                return offset
        elif mark in "]}" and not in_header:
            depth = max(depth - 1, 0)
        at_start = False
    return None


def explain(text: str, error: ValueError) -> tuple[tuple[int, int], Problem]:
    """Say what is wrong with a text that the parser refused, where, and what mends it.

    Parameters
    ----------
    text : str
        What it was given.
    error : ValueError
        What it raised.

    Returns
    -------
    place : tuple of int
        Line and column.
    problem : Problem
        Without origin and layer.
    """
    found = _PLACE.match(str(error))
    if found is None:
        return _number_place(text), integer_too_long("a decimal number of over 640 digits")
    what = found["what"]
    if found["line"] is not None:
        where = (int(found["line"]), int(found["column"]))
        if what.startswith("Unescaped"):
            where = (where[0], max(1, where[1] - 2))  # the parser stands behind the escape
    else:
        where = place(text, len(text))
        opened = _opened(text)
        # At the end of the text, what misses its end is told where it begins.
        if opened is not None and what.startswith(_ENDS_TOO_SOON):
            if what == "Invalid value":
                what = "Unclosed array" if text[opened] == "[" else "Unclosed inline table"
            where = place(text, opened)
    line = text.split("\n")[where[0] - 1].removesuffix("\r")
    if "\0" in text:
        fix: str | None = "the file looks like UTF-16, or is no text: save it as UTF-8"
    elif what.startswith("Unclosed") and found["line"] is not None:
        opened = _opened("\n".join([*text.split("\n")[: where[0] - 1], line[: where[1] - 1]]))
        fix = "a comma or the closing bracket is missing here"
        if opened is not None:
            began = place(text, opened)
            fix += f"; the bracket was opened in line {began[0]}, column {began[1]}"
    else:
        fix = _hint(what, line, where[1])
    problem = Problem(
        f"this is not TOML: {what[:1].lower()}{what[1:]}",
        value=_window(line, where[1]) or None,
        fix=fix,
    )
    if _is_newer_toml(text):
        problem = problem.replace(
            message=f"the file uses TOML 1.1 syntax ({_newer_syntax(what)}); "
            "policy files are TOML 1.0",
            allowed="TOML 1.0",
            fix="write an inline table on one line with no comma at its end, \\u00e9 in place"
            " of \\xe9 or \\e, and times with seconds",
        )
    return where, problem


def integer_too_long(value: str) -> Problem:
    """Return the problem of an integer that Python itself will not print."""
    return Problem(
        "the integer has too many digits",
        value=value,
        allowed="TOML's integers: 64 bits, -9223372036854775808 to 9223372036854775807",
        fix="shorten it",
    )


def _number_place(text: str) -> tuple[int, int]:
    found = _LONG_NUMBER.search(text)
    return place(text, found.start() if found else 0)


def _window(line: str, column: int) -> str:
    """Cut a long line to what stands around a column."""
    start = max(0, column - 1 - _SHOWN // 2) if len(line) > _SHOWN else 0
    end = start + _SHOWN
    shown = ("…" if start else "") + line[start:end].strip() + ("…" if end < len(line) else "")
    # Control characters could move a terminal's cursor, or hide what is wrong.
    return "".join(
        c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode() for c in shown
    )


def _opened(text: str) -> int | None:
    """Find the string or bracket that is open at the end of a text."""
    waiting: list[int] = []
    for mark, offset in _marks(text):
        if mark in _REST_OF_STRING:
            return offset
        if mark in "[{":
            waiting.append(offset)
        elif mark in "]}" and waiting:
            waiting.pop()
    return waiting[-1] if waiting else None


def _is_newer_toml(text: str) -> bool:
    # tomli reads TOML 1.1 from version 2.4; an older one refuses here too, and then the
    # parser's own message stands.
    import tomli

    try:
        tomli.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _newer_syntax(what: str) -> str:
    if what.startswith("Unescaped"):
        return "an escape such as \\e or \\xe9"
    if "inline table" in what or "key part" in what:
        return "an inline table over several lines, or with a comma at its end"
    return "such as an inline table over several lines, or a time without seconds"


def _hint(what: str, line: str, column: int) -> str | None:
    """Name the edit that mends the commonest mistakes."""
    rest = line[column - 1 :]
    if what == "Invalid value":
        return _value_hint(rest, line[: column - 1])
    if rest.startswith("\r"):
        return "save the file with line ends of \\n or \\r\\n"
    if what.startswith("Expected '='") and rest.lstrip().startswith(":"):
        return "TOML writes key = value, with = in place of :"
    if what.startswith("Expected ']'") and "]" not in line:
        return "close the table's name with ]"
    for begins, hint in _HINTS:
        if what.startswith(begins):
            return hint
    if "key part" in what or what.startswith(("Invalid statement", "Expected ']'")):
        return _key_hint(line)
    return None


def _key_hint(line: str) -> str:
    if any(quote in line for quote in _CURLY):
        return "use plain quotes: \" or '"
    if "*" in line:
        return 'put the pattern in quotes, for example functions."mylib.*".jax'
    return "put the key in quotes: bare keys take A-Z, a-z, 0-9, _ and - only"


def _value_hint(rest: str, before: str) -> str | None:
    found = _WORD.match(rest)
    if found is None:
        return "write a value after the =" if before.rstrip().endswith("=") else None
    word = found[0]
    if word[0] in _CURLY:
        return "use plain quotes: \" or '"
    if word.lower() in {"true", "false"}:
        return f"TOML writes booleans in small letters: {word.lower()}"
    if word.lower() in {"yes", "no", "on", "off"}:
        return "TOML's booleans are true and false"
    if word.lower() in {"none", "null", "nil", "~"}:
        return 'TOML has no null: leave the key out, or write "unset"'
    if "=" in word:
        return "write text in quotes; if this is a line of its own, close the bracket before it"
    if _BARE.match(word):
        return f'put text in quotes: "{word[:_SHOWN]}"'
    return None
