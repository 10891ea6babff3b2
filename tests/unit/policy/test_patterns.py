from __future__ import annotations

import pytest

from tests.unit.policy.building import KEY, messages, policy
from xpolicy.policy.patterns import is_pattern, matches


@pytest.mark.parametrize(
    "text", ["f", "a.f", "a.b.*", "a.*", "*", "a.<locals>.f", "módulo.f", "_a.f1"]
)
def test_what_a_pattern_may_be(text):
    assert is_pattern(text)
    assert messages(f"[functions.'{text}']\nmode = 'eager'") == []


@pytest.mark.parametrize(
    "text",
    ["", ".", ".*", "**", "*.f", "a.*.f", "a*", "a.b*", "a..f", "a.", ".a", "a.?", "a.[bc]", "a b",
     "a.1f", "a.f\n", "*.*", "a-b.f", "a:f", "a.f()"],
)  # fmt: skip
def test_what_no_pattern_is(text):
    assert not is_pattern(text)
    quoted = '"' + text.replace("\n", "\\n") + '"'
    assert messages(f"[functions.{quoted}]\nmode = 'eager'") == ["not a function key or pattern"]


@pytest.mark.parametrize(
    ("pattern", "key", "answer"),
    [
        ("a.b.*", "a.b.f", True),
        ("a.b.*", "a.b.c.f", True),
        ("a.b.*", "a.b", False),  # not itself
        ("a.b.*", "a.bc.f", False),  # whole names only
        ("a.b.*", "x.a.b.f", False),  # from the start only
        ("*", "f", True),
        ("*", "a.b.f", True),
        ("a.b.f", "a.b.f", True),
        ("a.b.f", "a.b.f.g", False),
        ("a.b.f", "a.b", False),
        (None, "f", True),
    ],
)
def test_what_a_pattern_matches(pattern, key, answer):
    assert matches(pattern, key) is answer
    if pattern is not None:
        said = policy(f'[functions."{pattern}"]\non-failure = "eager"', key=key)
        assert (said.on_failure == "eager") is answer


@pytest.mark.parametrize(
    ("text", "meant"),
    [("mylib.fft*", "mylib.*"), ("mylib.*.norm", "mylib.*"), ("mylib.norm()", "mylib.norm"),
     ("mylib:norm", "mylib.norm"), ("mylib.linalg.[ab]", "mylib.linalg.*")],
)  # fmt: skip
def test_what_was_meant_is_offered(text, meant):
    from tests.unit.policy.building import problems_of

    (problem,) = problems_of(f'[functions."{text}"]\nmode = "eager"')
    assert problem.fix == f'write [functions."{meant}"]'


def test_a_key_of_many_parts_and_of_one():
    assert policy('[functions.f]\nmode = "eager"', key="f").mode == "eager"
    deep = ".".join("abcdefgh")
    text = f'[functions."a.b.c.*"]\nmode = "eager"\n[functions."{deep}"]\nmode = "fullgraph"'
    assert policy(text, key=deep).mode == "fullgraph"
    assert policy(text, key="a.b.c.x").mode == "eager"
    assert policy(text, key=KEY).mode == "compile"
