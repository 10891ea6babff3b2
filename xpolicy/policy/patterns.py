"""Function patterns: what they may look like, what they match, which is more specific.

A pattern is a function key (``"a.b.f"``), everything below a prefix (``"a.b.*"``, which
does not match ``a.b`` itself), or ``"*"``. There is nothing else, so any two patterns that
match one function are ordered by length.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Specificity of a function key; prefixes count their segments and stay far below.
EXACT = 1_000_000

_SEGMENT = r"(?:[^\W\d]\w*|<locals>|<lambda>)"
_KEY = re.compile(rf"{_SEGMENT}(?:\.{_SEGMENT})*")


def is_key(text: str) -> bool:
    """Return whether a text is a function key: dotted Python names.

    Examples
    --------
    >>> is_key("mylib.linalg.norm"), is_key("mylib.*"), is_key("mylib..f")
    (True, False, False)
    """
    return _KEY.fullmatch(text) is not None


def is_pattern(text: str) -> bool:
    """Return whether a text is a function key or a pattern.

    Examples
    --------
    >>> is_pattern("mylib.*"), is_pattern("*"), is_pattern("my*"), is_pattern("*.f")
    (True, True, False, False)
    """
    return text == "*" or is_key(text.removesuffix(".*"))


def matches(pattern: str | None, key: str) -> bool:
    """Return whether a pattern (None: all functions) matches a function key."""
    return pattern is None or pattern in prefixes(key)


def prefixes(key: str) -> Iterator[str]:
    """Yield every pattern that can match a key, least specific first.

    Examples
    --------
    >>> list(prefixes("a.b.f"))
    ['*', 'a.*', 'a.b.*', 'a.b.f']
    """
    yield "*"
    end = key.find(".")
    while end != -1:
        yield key[:end] + ".*"
        end = key.find(".", end + 1)
    yield key


def specificity(pattern: str | None) -> int:
    """Return a pattern's place: none < ``"*"`` < shorter < longer prefix < function key."""
    if pattern is None:
        return -1
    if pattern == "*":
        return 0
    if pattern.endswith(".*"):
        return pattern.count(".")
    return EXACT
