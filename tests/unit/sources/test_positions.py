"""Where keys and values are: one test for each way that TOML has of saying a thing."""

from __future__ import annotations

import sys
import threading
import time

import pytest

from xpolicy._origin import Origin
from xpolicy.sources import positions
from xpolicy.sources.positions import POSITIONS_HINT, located, positions_available

DOCUMENT = '''\
top = 1
torch.options."triton.cudagraphs" = true
"quoted é" = { a = 1, b.c = [10, { d = "😀", e = 2 }] }
text = """
[not.a.table]
é = """  # comment
after = [
  1,  # 2, 3
  "😀", 4,
  [ [5] ],
]
"é😀" = "x"

[a.b.c]
k = 1

[[when]]
x = 1
[when.torch]
y = 2
[[when.inner]]
z = 3
[[when.inner]]
z = 4

[[when]]
x = 5
  [when.torch]
  y = 6
[[when.inner]]
z = 7

[a]
own = 1
'''


@pytest.mark.parametrize(
    ("key", "key_place", "value_place"),
    [
        (("top",), (1, 1), (1, 7)),
        (("torch",), (2, 1), (2, 1)),  # implied by a dotted key
        (("torch", "options"), (2, 7), (2, 1)),
        (("torch", "options", "triton.cudagraphs"), (2, 15), (2, 37)),
        (("quoted é",), (3, 1), (3, 14)),
        (("quoted é", "a"), (3, 16), (3, 20)),
        (("quoted é", "b"), (3, 23), (3, 23)),
        (("quoted é", "b", "c"), (3, 25), (3, 29)),
        (("quoted é", "b", "c", 0), (3, 30), (3, 30)),
        (("quoted é", "b", "c", 1), (3, 34), (3, 34)),
        (("quoted é", "b", "c", 1, "d"), (3, 36), (3, 40)),
        (("quoted é", "b", "c", 1, "e"), (3, 45), (3, 49)),  # one column for the emoji
        (("text",), (4, 1), (4, 8)),
        (("after",), (7, 1), (7, 9)),
        (("after", 0), (8, 3), (8, 3)),
        (("after", 1), (9, 3), (9, 3)),
        (("after", 2), (9, 8), (9, 8)),  # behind the emoji
        (("after", 3, 0, 0), (10, 6), (10, 6)),
        (("é😀",), (12, 1), (12, 8)),
        (("a", "b"), (14, 4), (14, 1)),  # implied by a header: the header's place
        (("a", "b", "c"), (14, 6), (14, 1)),
        (("a", "b", "c", "k"), (15, 1), (15, 5)),
        (("when",), (17, 3), (17, 1)),
        (("when", 0), (17, 3), (17, 1)),
        (("when", 0, "x"), (18, 1), (18, 5)),
        (("when", 0, "torch"), (19, 7), (19, 1)),
        (("when", 0, "torch", "y"), (20, 1), (20, 5)),
        (("when", 0, "inner"), (21, 8), (21, 1)),
        (("when", 0, "inner", 1), (23, 8), (23, 1)),
        (("when", 0, "inner", 1, "z"), (24, 1), (24, 5)),
        (("when", 1), (26, 3), (26, 1)),
        (("when", 1, "x"), (27, 1), (27, 5)),
        (("when", 1, "torch"), (28, 9), (28, 3)),
        (("when", 1, "torch", "y"), (29, 3), (29, 7)),
        (("when", 1, "inner", 0, "z"), (31, 1), (31, 5)),
        (("a",), (33, 2), (33, 1)),  # implied above, but told here
        (("a", "own"), (34, 1), (34, 7)),
    ],
)
@pytest.mark.parametrize("spelling", ["lf", "crlf", "bom"])
def test_position(key, key_place, value_place, spelling):
    text = {"lf": DOCUMENT, "crlf": DOCUMENT.replace("\n", "\r\n"), "bom": "\ufeff" + DOCUMENT}
    origin = Origin("file", "p.toml", key=key, text=text[spelling])
    found = located(origin, of="key")
    assert (found.line, found.column) == key_place
    found = located(origin)
    assert (found.line, found.column) == value_place
    assert (found.kind, found.label, found.key) == (origin.kind, origin.label, origin.key)


@pytest.mark.parametrize(
    ("key", "place"),
    [
        (("a", "b", "missing", "deeper"), (14, 1)),
        (("top", "missing"), (1, 7)),
        (("when", 2), (17, 1)),
        (("when", "0"), (17, 1)),  # a name is no index
        (("after", 9), (7, 9)),
        (("missing",), (1, 1)),
        ((), (1, 1)),
    ],
)
def test_a_path_that_is_not_there_has_its_nearest_ancestors_position(key, place):
    found = located(Origin("file", "p.toml", key=key, text=DOCUMENT))
    assert (found.line, found.column) == place


@pytest.mark.parametrize("spelling", ['"a\\u002Eb"', "'a.b'", '"a.b"'])
def test_a_quoted_key_is_found_by_what_it_means(spelling):
    text = f'\n["c d".{spelling}]\n{spelling} = 1'
    found = located(Origin("file", "p", key=("c d", "a.b", "a.b"), text=text), of="value")
    assert (found.line, found.column) == (3, len(spelling) + 4)


def test_of_a_dotted_table_the_first_line_that_implies_it_is_told():
    text = "x = 0\na.b = 1\na.c = 2\n"
    assert str(located(Origin("file", "p", key=("a",), text=text))) == "p:2:1"


def test_a_position_that_is_known_is_kept():
    origin = Origin("file", "p", key=("top",), text=DOCUMENT).at(7, 8)
    assert located(origin) is origin


def test_without_text_the_origin_comes_back():
    origin = Origin("code", "module.py", key=("top",))
    assert located(origin) is origin


@pytest.mark.parametrize("module", ["tree_sitter", "tree_sitter_toml"])
def test_without_the_cli_extra_the_origin_comes_back(monkeypatch, module):
    assert positions_available()
    monkeypatch.setitem(sys.modules, module, None)
    origin = Origin("file", "p", key=("top",), text=DOCUMENT)
    assert located(origin) is origin
    assert not positions_available()
    assert 'pip install "xpolicy[cli]"' in POSITIONS_HINT


def test_a_grammar_that_does_not_fit_the_library_counts_as_not_installed(monkeypatch):
    import tree_sitter

    def refuse(pointer):
        raise ValueError("Incompatible Language version 99")

    monkeypatch.setattr(tree_sitter, "Language", refuse)
    origin = Origin("file", "p", key=("top",), text=DOCUMENT)
    assert not positions_available()
    assert located(origin) is origin


@pytest.mark.parametrize(
    "text",
    [
        "a = [1,\nb = {",
        "[a\nb = 1",
        '= 1\n[]\n[[]]\na.=1\n"\\q" = 2',
        "a = 1\na = 2\na.b = 3\n[a]\n[[a]]\n[a.c]\nd=1",
        "\x00\udcff = 1",
        "x=" + "[" * 50_000,
        "x=" + "{a=" * 50_000,
        "a." * 50_000 + "b = 1",
    ],
)
def test_broken_or_hostile_text_gets_some_position(text):
    found = located(Origin("file", "p", key=("a", "b"), text=text))
    assert found.line is not None


def test_of_a_key_that_stands_twice_the_first_is_told():
    text = "a = 1\na = 2\n"
    assert located(Origin("file", "p", key=("a",), text=text)).line == 1


@pytest.mark.parametrize("newline", ["\n", ", "])
def test_ten_thousand_positions_cost_one_reading(newline):
    """Also when the whole text is one line, in which each column needs a count."""
    if newline == "\n":
        text = "".join(f'k{i} = "é😀"\n' for i in range(10_000))
        root: tuple[str, ...] = ()
    else:
        text = '"é" = {' + ", ".join(f'k{i} = "é😀"' for i in range(10_000)) + "}"
        root = ("é",)
    started = time.process_time()
    located(Origin("file", "p", key=(*root, "k0"), text=text))
    one = time.process_time() - started
    started = time.process_time()
    for i in range(10_000):
        located(Origin("file", "p", key=(*root, f"k{i}"), text=text))
    # A fresh reading for each would be 10,000 times the first; the measured ratio is
    # under 1. The bound leaves room for a busy machine.
    assert time.process_time() - started < 20 * one


def test_threads_get_the_same_positions():
    texts = [f"{'#' * n}\nk = {n}\n" for n in range(20)]  # more than the cache holds
    wrong: list[object] = []

    def look():
        for _ in range(20):
            for text in texts:
                found = located(Origin("file", "p", key=("k",), text=text))
                if (found.line, found.column) != (2, 5):
                    wrong.append(found)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_cache_is_bounded():
    for n in range(50):
        located(Origin("file", "p", key=("k",), text=f"k = {n}"))
    assert positions._index.cache_info().currsize <= 16
