"""The benchmark of dispatch measures what it says."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from benchmarks import __main__ as program
from benchmarks import dispatch
from benchmarks.dispatch import Case, measure


def test_undecorated_bare_and_decorated_calls_all_reach_the_function() -> None:
    calls = []

    def slow(x: Any, *, k: Any) -> None:
        calls.append((x, k))
        for _ in range(2000):
            pass

    cost = measure(Case("slow", slow, (1,), {"k": 2}), calls=20, rounds=5)
    assert set(cost.added) == {"bare", "xpolicy"}
    # To warm up, to see how many fit into a turn, and in turn.
    assert 3 * (20 + 5 * 5 + 5) <= len(calls) <= 3 * (20 + 5 * 5 + 5 * 20)
    assert set(calls) == {(1, 2)}
    assert cost.raw > 5_000  # two thousand turns take 10 µs at the very least


def test_every_case_is_a_call_that_its_function_takes() -> None:
    cases = list(dispatch.cases())
    assert len({case.name for case in cases}) == len(cases)
    for case in cases:
        assert case.function(*case.args, **case.kwargs or {}) is None


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("XPOLICY_PROJECT", "none")  # and restored: main() sets it
    return ["dispatch", "--only", "numpy, 2", "--calls", "50", "--rounds", "5"]


def test_the_table_and_the_json_tell_the_same_cases(
    quick: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(quick) == 0
    text = capsys.readouterr().out
    assert re.search(
        r"^numpy, 2 positional +\d+ +\+\d+ +\+\d+ +\d+\.\d\d +1\.5", text, re.MULTILINE
    )
    assert program.main([*quick, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    (cost,) = report["dispatch"]
    assert cost["name"] == "numpy, 2 positional"
    assert report["figures"] == report["compiled"] == []
    assert set(report["machine"]) >= {"python", "processor", "cores", "torch", "jax"}


def test_check_fails_when_a_ratio_is_above_its_bar(
    quick: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = next(case for case in dispatch.cases() if case.name == "numpy, 2 positional")
    impossible = Case(case.name, case.function, case.args, bar=-1e9)
    monkeypatch.setattr(dispatch, "cases", lambda: [impossible])
    assert program.main([*quick, "--check"]) == 1
    assert program.main(quick) == 0
