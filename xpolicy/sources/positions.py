"""Line and column of any key or value in a TOML text.

The parser that gives the data keeps no positions. Here a second one, tree-sitter's, reads
the same text when a position is asked for: for an error, or by ``xpolicy explain``.
"""

from __future__ import annotations

import tomllib
from bisect import bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tree_sitter import Language, Node

    from xpolicy._origin import Origin

POSITIONS_HINT = 'pip install "xpolicy[cli]" gives line numbers'
"""What to tell a user whose errors have no line numbers."""

_KEYS = frozenset({"bare_key", "quoted_key", "dotted_key"})
_BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"


def positions_available() -> bool:
    """Say whether `located` can fill in anything (else, see `POSITIONS_HINT`)."""
    return _language() is not None


def located(origin: Origin, *, of: Literal["key", "value"] = "value") -> Origin:
    """Fill in the line and column of an origin.

    Parameters
    ----------
    origin : Origin
        With the text, and in ``key`` the path of what is sought as `tomllib` nests it.
    of : {"key", "value"}
        Whether the key or the value is pointed at. The value of a table is its header,
        or what first implies it: a header or dotted key that goes through it. An
        element of an array has no key: its value is pointed at.

    Returns
    -------
    Origin
        With a one-based position (columns count code points, a byte order mark is not
        one). That of the nearest ancestor if the path itself is not in the text; the
        same origin if it has a line already or no text, or without tree-sitter.

    Examples
    --------
    >>> from xpolicy._origin import Origin
    >>> text = 'mode = "eager"'
    >>> str(located(Origin("file", "xpolicy.toml", key=("mode",), text=text)))
    'xpolicy.toml:1:8'
    """
    if origin.text is None or origin.line is not None:
        return origin
    language = _language()
    if language is None:
        return origin
    index = _index(origin.text)
    place = index.root
    for part in origin.key:
        below = place.below.get(part)
        if below is None:
            break
        place = below
    return origin.at(*index.line_and_column(place.key if of == "key" else place.value))


def _language() -> Language | None:
    try:
        import tree_sitter
        import tree_sitter_toml
    except ImportError:
        return None
    try:
        return tree_sitter.Language(tree_sitter_toml.language())
    except (TypeError, ValueError):
        # Two versions that don't fit each other: the grammar's binary interface, or the
        # kind of pointer that it hands over, is not the one that the library takes.
        return None


class _Place:
    """Where one table, array or value is: byte offsets, and the places inside it."""

    __slots__ = ("below", "implied", "key", "last", "value")

    def __init__(self, key: int, value: int, *, implied: bool = False) -> None:
        self.key = key
        self.value = value
        self.implied = implied  # by a longer header or key; may be told outright later
        self.last: int | None = None  # index of the last element, in an array of tables
        self.below: dict[str | int, _Place] = {}


class _Index:
    """The places of one text."""

    def __init__(self, text: str, language: Language) -> None:
        from tree_sitter import Parser

        data = text.encode("utf-8", "surrogatepass")
        self._line_starts = [0]
        offset = data.find(b"\n")
        while offset >= 0:
            self._line_starts.append(offset + 1)
            offset = data.find(b"\n", offset + 1)
        # Offsets of the bytes that do not begin a character, to turn bytes into columns
        # by bisection: measuring a one-line text anew for each position is quadratic.
        self._inner_bytes = (
            [] if text.isascii() else [i for i, byte in enumerate(data) if byte & 0xC0 == 0x80]
        )
        self.root = _Place(0, 0)
        self._read(Parser(language).parse(data).root_node)

    def line_and_column(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self._line_starts, offset)
        start = self._line_starts[line - 1]
        inner = bisect_right(self._inner_bytes, offset) - bisect_right(self._inner_bytes, start)
        return line, offset - start - inner + 1

    def _read(self, document: Node) -> None:
        for node in document.named_children:
            if node.type == "pair":
                self._read_pairs(self.root, [node])
            elif node.type in {"table", "table_array_element"}:
                children = node.named_children
                key = next((child for child in children if child.type in _KEYS), None)
                if key is not None:
                    place = self._open(node, _parts(key))
                    self._read_pairs(place, children)

    def _open(self, header: Node, parts: list[tuple[str, int]]) -> _Place:
        """Return the place of a header's table, made if it is not there yet."""
        start = header.start_byte
        place = self.root
        for name, at in parts[:-1]:
            place = _last(_step(place, name, at, start))
        name, at = parts[-1]
        if header.type == "table":
            found = _step(place, name, at, start)
            if found.implied:
                found.key, found.value, found.implied = at, start, False
            return found
        array = place.below.setdefault(name, _Place(at, start))
        array.last = 0 if array.last is None else array.last + 1
        element = array.below[array.last] = _Place(at, start)
        return element

    def _read_pairs(self, table: _Place, pairs: Iterable[Node]) -> None:
        # A list of what is still to be read, in place of recursion: a text that no
        # parser of ours has bounded must not end the stack.
        waiting: list[tuple[_Place, Node]] = [(table, pair) for pair in pairs][::-1]
        while waiting:
            inside, pair = waiting.pop()
            if pair.type != "pair":
                continue
            key, *values = pair.named_children
            if key.type not in _KEYS or not values:
                continue  # what the parser could not make sense of
            parts = _parts(key)
            place = inside
            for name, at in parts[:-1]:
                place = _step(place, name, at, parts[0][1])
            name, at = parts[-1]
            if name not in place.below:  # else it stands twice, an error: the first is kept
                place.below[name] = here = _Place(at, values[0].start_byte)
                waiting += _inside(here, values[0])[::-1]


def _inside(place: _Place, value: Node) -> list[tuple[_Place, Node]]:
    """List the pairs in an inline table, and in the tables of an array, with their places."""
    pairs: list[tuple[_Place, Node]] = []
    waiting = [(place, value)]
    while waiting:
        outer, node = waiting.pop()
        if node.type == "inline_table":
            pairs += [(outer, pair) for pair in node.named_children]
        elif node.type == "array":
            elements = (child for child in node.named_children if child.type != "comment")
            for number, child in enumerate(elements):
                start = child.start_byte
                element = outer.below[number] = _Place(start, start)
                if child.type in {"inline_table", "array"}:
                    waiting.append((element, child))
    return pairs


def _step(place: _Place, name: str, at: int, start: int) -> _Place:
    found = place.below.get(name)
    if found is None:
        found = place.below[name] = _Place(at, start, implied=True)
    return found


def _last(place: _Place) -> _Place:
    return place if place.last is None else place.below[place.last]


def _parts(key: Node) -> list[tuple[str, int]]:
    """Return the parts of a key, dotted or not, each with its offset."""
    parts: list[tuple[str, int]] = []
    waiting = [key]
    while waiting:
        node = waiting.pop()
        if node.type == "dotted_key":
            waiting += node.named_children
        else:
            parts.append((_name(node), node.start_byte))
    return parts[::-1]


def _name(key: Node) -> str:
    text = (key.text or b"").decode("utf-8", "surrogatepass")
    if key.type != "quoted_key":
        return text
    if "\\" in text and text.startswith('"'):
        try:
            return next(iter(tomllib.loads(f"{text} = 0")))
        except ValueError:
            return text  # a bad escape: no path leads to it
    return text[1:-1]


@lru_cache(maxsize=8)  # the policy files of one process are a handful
def _index(text: str) -> _Index:
    language = _language()
    assert language is not None  # `located` has asked
    return _Index(text.removeprefix(_BOM), language)
