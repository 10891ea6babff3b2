"""What is read the quick way says what TOML 1.0 says."""

from __future__ import annotations

import time
import tomllib

import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as st

from xpolicy.sources import _syntax
from xpolicy.sources.toml import MAX_DEPTH, parse

PIECES = (
    *("a", "b-1", "'c'", '"d.e"', ".", "=", " = ", "[", "]", "[[", "]]", "{", "}", ",", ", "),
    *("1", "-0", "+2", "007", "1.5", "1.", ".5", "1e3", "1_0", "0x1f", "true", "false", "inf"),
    *('"s"', "'t'", '"', "'", '"""', "'''", '"\\n"', '"\\e"', '"\\xe9"', '"\\u00e9"', "é", "#"),
    *("\n", "\r\n", "\r", "\t", " ", "# remark\n", "\\", "07:32", "1979-05-27", "\x00", "\x7f"),
)
ANY = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)

SCALARS = st.sampled_from(["1", "-7", "2.5", "true", '"x y"', "'#'", '"tab\\t"', '"[{"'])
KEYS = st.lists(st.sampled_from(["a", "b", '"c.d"', "'e'"]), min_size=1, max_size=4).map(".".join)
ARRAYS = st.lists(SCALARS, max_size=4).flatmap(
    lambda items: st.sampled_from([", ", ",", " ,\n  ", ", # why\n"]).map(
        lambda comma: f"[{comma.join(items)}]"
    )
)
INLINE = st.lists(st.tuples(KEYS, SCALARS | ARRAYS), max_size=3).map(
    lambda pairs: "{ " + ", ".join(f"{key} = {value}" for key, value in pairs) + " }"
)
STATEMENTS = st.one_of(
    st.tuples(KEYS, SCALARS | ARRAYS | INLINE).map(" = ".join),
    KEYS.map("[{}]".format),
    KEYS.map("[[{}]]".format),
    st.just("# remark"),
    st.just(""),
)
LIKELY = st.lists(STATEMENTS, max_size=8).flatmap(
    lambda lines: st.sampled_from(["\n", "\r\n"]).map(lambda end: end.join(lines))
)


def _read(module: object, text: str) -> object:
    try:
        return module.loads(text)  # type: ignore[attr-defined]  # tomllib and tomli have it
    except ValueError:
        return ValueError


@given(ANY | LIKELY)
def test_plain_text_is_the_same_in_both_versions_of_toml(text: str) -> None:
    if _syntax.is_plain(text):
        assert repr(_read(tomli, text)) == repr(_read(tomllib, text))
        assert _syntax.too_deep_at(text, MAX_DEPTH) is None
        assert depth(_read(tomllib, text)) <= MAX_DEPTH


def depth(value: object) -> int:
    """Return how many tables and arrays stand within one another."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return max((1 + depth(item) for item in inner), default=0)


def test_the_deepest_plain_text_is_not_too_deep() -> None:
    names = ["a", "a.a", "a.a.a", "a.a.a.a", "a.a.a.a.a", "a.a.a.a.a.a"]
    text = "\n".join(f"[[{name}]]" for name in names)
    text += f"\n{names[-1].replace('a', 'b')} = [\n{{ {names[-1]} = [1] }}]"
    assert _syntax.is_plain(text)
    assert 20 < depth(tomllib.loads(text)) <= MAX_DEPTH
    assert parse(text, "xpolicy.toml", "project").data == tomllib.loads(text)


@given(LIKELY)
def test_what_policies_are_written_in_is_plain(text: str) -> None:
    found = _read(tomllib, text)
    if found is not ValueError:
        assert _syntax.is_plain(text) or "\\" in text or text.count(".") > 5
        assert parse(text, "xpolicy.toml", "project").data == found


@pytest.mark.parametrize(
    "text",
    [
        "a = { b = 1,\n c = 2 }",  # TOML 1.1
        "a = { b = 1, }",
        'a = "\\e"',
        "a = 07:32",
        "a = [[[[1]]]]",
        'a = """\n[[[\n"""',
        "a" + ".a" * 6 + " = 1",
        "a = 1" + "0" * 18,
    ],
)
def test_what_needs_care_is_not_plain(text: str) -> None:
    assert not _syntax.is_plain(text)


@pytest.mark.parametrize(
    "piece",
    [
        "a.",
        "[",
        "{a=",
        '"',
        "'",
        "#",
        " ",
        "a = 1, ",
        "[1,",
        "[a]",
        '"\\',
        "[ # \n",
        "\t",
        "a",
        "1",
    ],
)
def test_it_is_linear_whatever_the_text(piece: str) -> None:
    def least(size: int) -> float:
        text = piece * (size // len(piece))
        times = []
        for _ in range(5):
            start = time.perf_counter()
            _syntax.is_plain(text)
            times.append(time.perf_counter() - start)
        return min(times)

    assert least(200_000) < 100 * least(20_000) + 1e-3
