"""Two rules of equal rank that differ are an error when the file is read, at both places."""

from __future__ import annotations

import time

import pytest

from tests.unit.policy.building import KEY, messages, policy, problems_of
from xpolicy.runtime.session import place

# Each holds, and counts one condition.
ONE, OTHER = 'python = ">=3"', 'versions.torch = ">=2"'


def blocks(first, second, one=ONE, other=OTHER):
    return f"[[when]]\n{one}\n{first}\n\n[[when]]\n{other}\n{second}\n"


def tied(first, second, **how):
    found = problems_of(blocks(first, second, **how), "file")
    assert all("of the same rank" in p.message for p in found)
    # whichever comes first
    assert len(problems_of(blocks(second, first, **how), "file")) == len(found)
    # The key has the rule before it: functions."mylib.*".torch.mode
    return [p.key.removeprefix(before(p.key)) for p in found]


def before(key):
    for word in ("torch.", "jax."):
        if word in key:
            return key[: key.index(word) + len(word)]
    return key[: key.rindex(".") + 1] if key.startswith("functions") else ""


def test_a_tie_shows_both_places():
    (problem,) = problems_of(blocks('mode = "eager"', 'mode = "compile"'))
    problem = place(problem)
    assert (problem.origin.line, problem.origin.column) == (7, 1)
    assert (problem.other.line, problem.other.column) == (3, 1)
    assert problem.value == '"compile" here, "eager" there'
    assert "  --> xpolicy.toml:7:1 (project layer)\n  and at xpolicy.toml:3:1" in str(problem)


@pytest.mark.parametrize(
    "body",
    ['mode = "{}"', 'torch.mode = "{}"', 'functions."mylib.*".mode = "{}"',
     f'functions."{KEY}".torch.mode = "{{}}"'],
)  # fmt: skip
def test_the_same_pattern_and_namespace_tie(body):
    assert tied(body.format("eager"), body.format("compile")) == ["mode"]
    assert tied(body.format("eager"), body.format("eager")) == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('mode = "eager"', 'torch.mode = "compile"'),  # another namespace
        ('mode = "eager"', 'functions."*".mode = "compile"'),  # another pattern
        ('functions."mylib.*".mode = "eager"', 'functions."mylib.a.*".mode = "compile"'),
        ('mode = "eager"', 'on-failure = "eager"'),  # another option
        ("torch.options.a = 1", "torch.options.b = 2"),  # another key of a table
        ("torch.recompile-limit = 1", "jax.recompile-limit = 2"),
    ],
)
def test_what_does_not_tie(first, second):
    assert tied(first, second) == []


def test_tables_tie_by_key():
    assert tied("torch.options = {a = 1, b = 1}", "torch.options = {a = 2, b = 1}") == ["options.a"]
    assert tied("torch.options.a-b = 1", "torch.options.a_b = 2") == ["options.a_b"]


def test_a_table_that_is_unset_ties_with_its_entries():
    assert tied('torch.options = "unset"', "torch.options.a = 1")
    assert tied('torch.options = "unset"', 'torch.options.a = "unset"') == []
    assert tied('torch.options = "unset"', 'torch.options = "unset"') == []


def test_spellings_of_one_option_tie():
    assert tied("torch.cudagraphs = true", "torch.options.triton.cudagraphs = false") == [
        "cudagraphs"
    ]


@pytest.mark.parametrize(("one", "other"), [("1", "true"), ("0", "false"), ("1", "1.0"),
                                            ("[1]", "[true]"), ("0.0", "-0.0")])  # fmt: skip
def test_what_is_equal_in_python_only_ties(one, other):
    assert tied(f"torch.options.a = {one}", f"torch.options.a = {other}") == ["options.a"]


def test_lists_tie_as_wholes():
    one, other = 'jax.donate-argnames = ["a"]', 'jax.donate-argnames = ["b"]'
    assert tied(one, other) == ["donate-argnames"]


def test_more_conditions_decide():
    text = blocks('mode = "eager"', 'mode = "compile"', other=f"{ONE}\n{OTHER}")
    assert messages(text) == []
    assert policy(text).mode == "compile"


def test_each_key_of_versions_counts():
    one, other = 'versions = { torch = ">=2", jax = ">=0" }', 'python = ">=3"\n' + OTHER
    assert tied('mode = "eager"', 'mode = "compile"', one=one, other=other) == ["mode"]


def test_devices():
    def on(first, second):
        return tied('mode = "eager"', 'mode = "compile"', one=first, other=second)

    cuda, cpu = 'device = "cuda"', 'device = "cpu"'
    assert on(cuda, cpu) == []
    assert on(cuda, cuda) == ["mode"]
    assert on(cuda, ONE) == ["mode"]
    assert on(f"{cuda}\n{ONE}", f"{cpu}\n{OTHER}") == []
    assert on(f"{cuda}\n{ONE}", f"{cuda}\n{OTHER}") == ["mode"]


def test_a_block_that_does_not_hold_ties_with_nothing():
    assert tied('mode = "eager"', 'mode = "compile"', other='versions.cupy = ">=1"') == []


def test_two_names_of_one_namespace_tie():
    assert messages('[jax]\nmode = "eager"\n["jax.numpy"]\nmode = "eager"') == []
    assert len(messages('[jax]\nmode = "eager"\n["jax.numpy"]\nmode = "compile"')) == 1


def test_a_tie_of_three_is_told_once_for_each_that_differs_from_the_first():
    third = '\n[[when]]\nversions.jax = ">=0"\nmode = "fullgraph"'
    assert len(messages(blocks('mode = "eager"', 'mode = "compile"') + third)) == 2


def seconds(count):
    text = "\n".join(
        f'[[when]]\npython = ">=3"\ntorch.options.a = 1\ntorch.options.b{n} = {n}'
        for n in range(count)
    )
    assert problems_of(text, "file") == []  # once to warm up
    times = []
    for _ in range(3):
        began = time.process_time()  # of this process: whatever else a machine does
        problems_of(text, "file")
        times.append(time.process_time() - began)
    return min(times)


def test_looking_for_ties_takes_linear_time():
    few, many = seconds(200), seconds(2000)
    assert many < 40 * few  # ten times the rules; every pair would take a hundred times
