"""`explain` shows who decided, what was beaten, and what every condition came to."""

from __future__ import annotations

import json

import pytest

import xpolicy

WHEN = """
[[when]]
python = ">=3.11"
torch.dynamic = true
[[when]]
versions = { no-such-distribution = ">=1" }
mode = "eager"
[[when]]
device = "cuda"
torch.cudagraphs = true
[[when]]
device = "cpu"
python = ">=3"
functions."other.f".mode = "eager"
"""


def rows(text: str, heading: str) -> list[str]:
    """Return the lines below a heading of the table."""
    lines = text.splitlines()
    start = lines.index(heading) + 1
    end = next((i for i in range(start, len(lines)) if not lines[i].strip()), len(lines))
    return [" ".join(line.split()) for line in lines[start:end]]


def test_conditions_that_hold_and_that_do_not_with_the_reason(project):
    project(WHEN)
    text = str(xpolicy.explain("mylib.f", "torch"))
    (held,) = rows(text, "conditions that hold:")
    assert 'python = ">=3.11" python is 3.' in held
    assert "xpolicy.toml:2:1" in held
    missing, device = rows(text, "conditions that do not hold:")
    assert missing.endswith("no-such-distribution is not installed")
    assert device.endswith('device = "cuda" no device was said: pass device=')


@pytest.mark.parametrize(
    ("device", "place"), [("cuda", "that hold:"), ("cpu", "that do not hold:")]
)
def test_a_device_settles_its_blocks(project, device, place):
    project(WHEN)
    found = xpolicy.explain("mylib.f", "torch", device=device)
    told = [row for row in rows(str(found), f"conditions {place}") if 'device = "cuda"' in row]
    assert len(told) == 1
    assert told[0].endswith(f"the device is {device}")
    assert found.policy.torch.cudagraphs is (True if device == "cuda" else None)


def test_blocks_that_reach_only_other_functions_are_not_shown(project):
    project(WHEN)
    assert 'python = ">=3"' not in str(xpolicy.explain("mylib.f", "torch", device="cpu"))
    assert 'python = ">=3"' in str(xpolicy.explain("other.f", "torch", device="cpu"))


def test_everything_that_was_beaten_nearest_first(project, monkeypatch):
    project('mode = "fullgraph"\n[functions."mylib.*"]\nmode = "eager"\n')
    monkeypatch.setenv("XPOLICY_MODE", "compile")
    found = xpolicy.explain("mylib.f", "torch")
    (row,) = [row for row in found.rows if row.option == "mode"]
    assert row.said.origin == "XPOLICY_MODE"
    assert [(said.value, said.rule) for said in row.beat] == [
        ('"eager"', 'functions."mylib.*"'),
        ('"fullgraph"', "all functions"),
        ('"compile"', "all functions"),
    ]
    assert row.beat[0].origin.endswith("xpolicy.toml:3:8")


def test_plain_data_is_json(project):
    project(WHEN)
    data = xpolicy.explain("mylib.f", "torch", device="cuda").as_dict()
    assert json.loads(json.dumps(data)) == data
    assert {told["condition"] for told in data["conditions-met"]} == {
        'python = ">=3.11"',
        'device = "cuda"',
    }


def test_a_mode_that_an_option_made_strict_says_so(project):
    project('mode = "compile"\n[torch]\nfullgraph = true\n')
    text = str(xpolicy.explain("mylib.f", "torch"))
    assert text.startswith("mylib.f for torch: fullgraph")
    assert "fullgraph = true of torch (project layer) decides how strictly" in text


def test_an_unknown_namespace_names_the_known_ones():
    with pytest.raises(xpolicy.BackendOptionError, match="unknown namespace 'troch'") as caught:
        xpolicy.explain("mylib.f", "troch")
    assert "did you mean: torch" in str(caught.value)
