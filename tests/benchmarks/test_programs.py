"""The benchmarks that start processes, compile, and draw."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xpolicy
from benchmarks import __main__ as program
from benchmarks import peers, plot, startup
from benchmarks.interleaved import Row, times
from benchmarks.startup import Figure

if TYPE_CHECKING:
    from pathlib import Path

ROWS = [
    Row("first", 100.0, {"bare": 50.0, "xpolicy": 40.0}, {"bare": 0.8, "raw": 1.4}, {"bare": 1.0}),
    Row("second & last", 9.0, {"xpolicy": 5e4}, {"raw": 1.2}, {"raw": 1.05}),
]


def test_what_is_above_its_bar_is_named() -> None:
    figures = [
        Figure("small", 1.0, "ms", 2.0),
        Figure("dear", 3.0, "ms", 2.0),
        Figure("free", 9.0, "ms"),
    ]
    told = program.above({"dispatch": ROWS, "compiled": []}, figures)
    assert told == ["second & last: 1.200 of raw, bar 1.05", "dear: 3.00 ms, bar 2"]


def test_the_table_shows_rows_figures_and_what_is_above() -> None:
    text = program.table({"dispatch": ROWS, "compiled": []}, [Figure("dear", 3.0, "ms", 2.0, "!")])
    assert re.search(r"^first +100 +\+50 +\+40 +0\.80 +1\.00$", text, re.MULTILINE)
    assert re.search(r"^second & last +9 +\+50,000 +1\.20\* +1\.05$", text, re.MULTILINE)
    assert re.search(r"^dear +3\.00 ms +2  !$", text, re.MULTILINE)
    assert "above its bar: dear" in text


def test_the_picture_has_a_bar_for_each_figure() -> None:
    picture = ET.fromstring(plot.svg(ROWS, "a <machine>"))
    space = "{http://www.w3.org/2000/svg}"
    bars = [rect for rect in picture.iter(f"{space}rect") if rect.get("x")]
    widths = [float(bar.get("width", 0)) for bar in bars]
    assert len(widths) == 3
    assert widths[1] < widths[0] < widths[2]
    assert any("a <machine>" in (text.text or "") for text in picture.iter(f"{space}text"))


def test_peers_are_measured_beside_xpolicy_and_raw_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def decorate(peer: str, function: Any) -> Any:
        made.append(peer)
        inner = jax.jit(function)

        def slow(*args: Any, **kwargs: Any) -> Any:
            for _ in range(5000):
                pass
            return inner(*args, **kwargs)

        return slow

    monkeypatch.setattr(peers, "installed", lambda: {"equinox": "1"})
    monkeypatch.setattr(peers, "decorate", decorate)
    case = peers.Compiled(
        "one", peers.nothing, jax.jit, (jnp.ones(2),), peers=peers.PEERS, bars=peers.JAX_BARS
    )
    row = peers.measure(case, calls=20, rounds=9)
    assert made == ["equinox"]  # those that are not installed have no column
    assert set(row.added) == {"bare", "xpolicy", "equinox"}
    assert row.added["equinox"] > 20_000
    assert row.bars == {"equinox": 1 / 50}


def test_calls_are_measured_under_the_callers_override() -> None:
    seen = []

    def f(x: Any) -> None:
        seen.append(xpolicy.resolve("mylib.f", "torch").mode)

    with xpolicy.override(mode="eager"):
        times({"raw": f}, (1,), {}, calls=1, rounds=1)
    assert set(seen) == {"eager"}


def test_every_compiled_case_is_a_call_that_its_function_takes() -> None:
    for case in peers.cases():
        case.function(*case.args, **case.kwargs)
        assert set(case.peers) <= set(peers.PEERS)


@pytest.mark.slow
def test_imports_decoration_and_the_first_call_are_measured(tmp_path: Path) -> None:
    python = startup.Python(tmp_path)
    found = [
        *startup.imports(python, runs=1),
        *startup.decoration(python),
        *startup.first_call(python, runs=1),
    ]
    values = {figure.name.strip(): figure for figure in found}
    assert len(values) == len(found) == 9
    assert all(figure.value > 0 for figure in found)
    assert values["memory of a decorated function"].value < 2000
    resolution = values["of it, policy resolution"]
    assert resolution.value < values["first call with torch, 100 rules"].value
    assert resolution.bar == 5.0


def test_a_part_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        program.main(["dispach"])
    assert "no part 'dispach'" in capsys.readouterr().err


def test_the_policy_that_is_measured_has_a_hundred_rules() -> None:
    import tomllib

    text = startup.policy_text()
    functions = tomllib.loads(text)["functions"]
    assert len(functions) == startup.RULES
    assert json.dumps(functions).count("recompile-limit") == startup.RULES // 2
    assert np.all([len(options) == 1 for options in functions.values()])
