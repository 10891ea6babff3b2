"""Limits cost a call that hits nothing, within a margin that a busy machine keeps to."""

from __future__ import annotations

import json
import statistics

import pytest

from benchmarks import limits


@pytest.fixture(scope="module")
def rows():
    return limits.rows(calls=50, rounds=21)


def test_every_compiler_mode_and_action_is_measured_against_both(rows):
    assert len({(row.name, row.against) for row in rows}) == len(rows) == 2 * 2 * 3 * 2


def test_the_ratios_hold_with_a_generous_margin(rows):
    # The bar of 1.1 is for a quiet machine; a lookup of the configuration at each call,
    # as torch's public way to be told of a limit needs, gives 3.
    assert statistics.median(row.ratio for row in rows) < 1.3
    assert max(row.ratio for row in rows) < 2


def test_a_ratio_above_its_bar_fails_the_check(monkeypatch, capsys):
    row = limits.Row("call with a limit: jax", "jax.jit", 1.05, 2e-6, 2e-6)
    slow = limits.Row("call with a limit: torch", "torch.compile", 1.2, 2e-6, 2e-6)
    monkeypatch.setattr(limits, "rows", lambda: [row])
    assert limits.main(["--check"]) == 0
    monkeypatch.setattr(limits, "rows", lambda: [row, slow])
    assert limits.main([]) == 0
    assert limits.main(["--check"]) == 1
    capsys.readouterr()
    limits.main(["--json"])
    assert [told["ratio"] for told in json.loads(capsys.readouterr().out)] == [1.05, 1.2]
