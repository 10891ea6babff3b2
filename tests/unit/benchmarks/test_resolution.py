"""A large policy loads in bounded time, and its size costs a call nothing."""

from __future__ import annotations

import json

import pytest

from benchmarks import resolution


@pytest.mark.usefixtures("untraced")
def test_the_ratios_hold_with_a_generous_margin():
    # The bars are 5 and 2 on a quiet machine; a scan would give hundreds.
    assert resolution.loading(rounds=2).ratio < 10
    assert resolution.resolving(rounds=5, calls=20).ratio < 5


def test_what_is_measured_is_what_is_meant():
    layer = resolution.load(resolution.policy_text(resolution.RULES))
    assert len(layer.rules) == resolution.RULES
    assert len(list(layer.patterns())) == resolution.RULES


def test_rows_print_as_ratios_and_fail_above_their_bars(monkeypatch, capsys):
    fast = resolution.Row("one thing", 0.002, "another", 0.001, bar=5.0)
    slow = resolution.Row("a third", 0.02, "another", 0.001, bar=5.0)
    monkeypatch.setattr(resolution, "rows", lambda: [fast])
    assert resolution.main(["--check"]) == 0
    assert "one thing: 2.00 times another (at most 5)" in capsys.readouterr().out
    monkeypatch.setattr(resolution, "rows", lambda: [fast, slow])
    assert resolution.main([]) == 0
    assert resolution.main(["--check"]) == 1
    capsys.readouterr()
    resolution.main(["--json"])
    assert [row["ratio"] for row in json.loads(capsys.readouterr().out)] == [2.0, 20.0]
