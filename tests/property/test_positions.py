"""Positions in generated documents, checked against an emitter that knows where it wrote."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xpolicy._origin import Origin
from xpolicy.sources.positions import located

pytest.importorskip("tree_sitter_toml", reason="positions need the cli extra")

_NAMES = [
    "a",
    "b",
    "torch",
    "static-argnames",
    "1",
    "true",
    "mylib.*",
    "é",
    "😀 x",
    'q"q',
    "",
    "\\",
]
_SCALARS = [
    "1",
    "0x1F",
    "true",
    "1.5e3",
    "inf",
    '"plain"',
    '"# no comment, [no] = {array}"',
    "'C:\\dir'",
    '"é😀"',
    '"\\u00e9\\""',
    "1979-05-27T07:32:00Z",
    "1979-05-27 07:32:00",
    "07:32:00",
    '"""one\ntwo é\n"""',
    "'''x''\n[y]\n'''",
    '"""a""b\\\n   c"""""',
]


class Table(dict[str, Any]):
    """A table; a plain list is an array, a list of `Table` may be an array of tables."""


scalars = st.sampled_from(_SCALARS)
names = st.sampled_from(_NAMES)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(names, inner, max_size=3).map(Table),
        st.lists(st.dictionaries(names, inner, max_size=2).map(Table), min_size=1, max_size=2),
    ),
    max_leaves=12,
)
documents = st.dictionaries(names, values, max_size=4).map(Table)


class Emitter:
    """Writes a document in a drawn style and records where each key and value begins."""

    def __init__(self, draw: Any, newline: str) -> None:
        self.draw = draw
        self.newline = newline
        self.text = ""
        self.places: dict[tuple[str | int, ...], dict[str, tuple[int, int]]] = {}

    def choose(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def here(self) -> tuple[int, int]:
        lines = self.text.split("\n")
        return len(lines), len(lines[-1]) + 1

    def write(self, text: str) -> None:
        self.text += text.replace("\n", self.newline)

    def blank(self) -> None:
        self.write(self.choose("", "", " ", "\t"))

    def end_line(self) -> None:
        self.blank()
        self.write(self.choose("\n", "\n", " # é = [1]\n", "\n\n# [x]\n"))

    def record(self, path: tuple[str | int, ...], key: Any, value: Any, *, weak: bool) -> None:
        if not weak or path not in self.places:
            self.places[path] = {"key": key, "value": value}

    def key_part(self, name: str) -> tuple[int, int]:
        place = self.here()
        styles = []
        if name and all(c.isascii() and (c.isalnum() or c in "_-") for c in name):
            styles += [name, name]
        styles.append('"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"')
        styles.append('"' + "".join(f"\\U{ord(c):08x}" for c in name) + '"')
        styles.append(f"'{name}'")
        self.write(self.choose(*styles))
        return place

    def dotted(self, parts: list[str]) -> list[tuple[int, int]]:
        places = []
        for number, part in enumerate(parts):
            if number:
                self.blank()
                self.write(".")
                self.blank()
            places.append(self.key_part(part))
        return places

    def value(self, path: tuple[str | int, ...], value: Any) -> None:
        """Write a value in one piece, recording what is inside it."""
        if isinstance(value, str):
            self.write(value)
        elif isinstance(value, list):
            self.write("[")
            for number, item in enumerate(value):
                self.array_gap()
                place = self.here()
                self.record((*path, number), place, place, weak=False)
                self.value((*path, number), item)
                self.array_gap()
                if number + 1 < len(value) or self.choose(True, False):
                    self.write(",")
            self.array_gap()
            self.write("]")
        else:
            self.write("{")
            for number, (name, item) in enumerate(value.items()):
                self.write(", " if number else self.choose("", " "))
                self.pair(path, [name], item)
            self.write(self.choose("", " ") + "}")

    def array_gap(self) -> None:
        self.write(self.choose("", "", " ", "\n", " # 1, é\n\t"))

    def pair(self, table: tuple[str | int, ...], parts: list[str], value: Any) -> None:
        """Write ``parts = value``; the whole path to the value is recorded."""
        places = self.dotted(parts)
        for end in range(1, len(parts)):
            self.record((*table, *parts[:end]), places[end - 1], places[0], weak=True)
        self.blank()
        self.write("=")
        self.blank()
        path = (*table, *parts)
        self.record(path, places[-1], self.here(), weak=False)
        self.value(path, value)

    def pairs(self, table: tuple[str | int, ...], parts: list[str], body: Table) -> None:
        """Write lines of a table, its own tables dotted or inline."""
        for name, value in body.items():
            if isinstance(value, Table) and value and self.choose(True, False):
                self.pairs(table, [*parts, name], value)
            else:
                self.write(self.choose("", "  "))
                self.pair(table, [*parts, name], value)
                self.end_line()

    def header(self, path: tuple[str | int, ...], *, array: bool) -> None:
        """Write ``[path]`` or ``[[path]]`` (then the path ends with the element's index)."""
        self.blank()
        start = self.here()
        self.write("[[" if array else "[")
        self.blank()
        named = [number for number, part in enumerate(path) if isinstance(part, str)]
        places = self.dotted([str(path[number]) for number in named])
        for number, place in zip(named, places, strict=True):
            last = number == named[-1]
            self.record(path[: number + 1], place, start, weak=array or not last)
        if array:
            self.record(path, places[-1], start, weak=False)
        self.blank()
        self.write("]]" if array else "]")
        self.end_line()

    def table(self, path: tuple[str | int, ...], body: Table) -> None:
        """Write the body of a table whose header (if it has one) is written or left out."""
        lines, tables, arrays = Table(), Table(), Table()
        for name, value in body.items():
            if isinstance(value, Table) and self.choose(True, False):
                tables[name] = value
            elif self.is_tables(value) and self.choose(True, False):
                arrays[name] = value
            else:
                lines[name] = value
        # A table may be declared after tables inside it, unless it is an array's element.
        named = bool(path) and isinstance(path[-1], str)
        late = named and bool(tables or arrays) and self.choose(True, False)
        if named and not late and (lines or not (tables or arrays) or self.choose(True, False)):
            self.header(path, array=False)
        if not late:
            self.pairs(path, [], lines)
        for name, value in tables.items():
            self.table((*path, name), value)
        for name, elements in arrays.items():
            for number, element in enumerate(elements):
                self.header((*path, name, number), array=True)
                self.table((*path, name, number), element)
        if late:
            self.header(path, array=False)
            self.pairs(path, [], lines)

    @staticmethod
    def is_tables(value: Any) -> bool:
        return isinstance(value, list) and bool(value) and all(isinstance(v, Table) for v in value)


def plain(value: Any) -> Any:
    """Return the data that a document must be read as."""
    if isinstance(value, str):
        return tomllib.loads(f"x = {value}")["x"]
    if isinstance(value, list):
        return [plain(item) for item in value]
    return {name: plain(item) for name, item in value.items()}


@st.composite
def written(draw: Any) -> tuple[Table, Emitter]:
    document = draw(documents)
    emitter = Emitter(draw, draw(st.sampled_from(["\n", "\r\n"])))
    emitter.table((), document)
    return document, emitter


@given(written(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_every_key_and_value_is_found_where_it_was_written(
    case: tuple[Table, Emitter], marked: bool
) -> None:
    document, emitter = case
    assert tomllib.loads(emitter.text) == plain(document), "the emitter itself is wrong"
    text = "\ufeff" * marked + emitter.text
    for path, expected in emitter.places.items():
        for of in ("key", "value"):
            found = located(Origin("file", "f", key=path, text=text), of=of)  # type: ignore[arg-type]
            assert (found.line, found.column) == expected[of], (path, of)


@given(written(), st.data())
@settings(max_examples=50, deadline=None)
def test_a_path_that_is_not_there_gets_its_nearest_ancestor(
    case: tuple[Table, Emitter], data: st.DataObject
) -> None:
    _, emitter = case
    path = data.draw(st.sampled_from([(), *emitter.places]))
    expected = emitter.places[path]["value"] if path else (1, 1)
    found = located(Origin("file", "f", key=(*path, "no such key", 3), text=emitter.text))
    assert (found.line, found.column) == expected
