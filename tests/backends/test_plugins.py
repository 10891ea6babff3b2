"""A backend in a distribution of its own: options, errors and explain as ours have them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "tests" / "distributions" / "xpolicy-recorder"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Build the distribution and unpack it as an installer would."""
    folder = tmp_path_factory.mktemp("site")
    wheels = tmp_path_factory.mktemp("wheels")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)],
        cwd=SOURCE,
        check=True,
        capture_output=True,
    )
    (wheel,) = wheels.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def run(site: Path | None, program: str, tmp_path: Path, **variables: str):
    path = [str(ROOT)] if site is None else [str(site), str(ROOT)]
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if not k.startswith("XPOLICY_")}
        | {"PYTHONPATH": os.pathsep.join(path)}
        | variables,
        capture_output=True,
        text=True,
        check=False,
    )


CALL = """
import json, sys
import array_api_strict as xp
import numpy as np
import xpolicy

@xpolicy.compile(name="mylib.f", array_api_strict={"label": "mine"})
def f(x):
    return x + 1

value = f(xp.asarray([1.0]))
f(xp.asarray([2.0]))
policy = xpolicy.resolve(f, "array_api_strict")
print(json.dumps({
    "value": float(value[0]),
    "keep": policy.array_api_strict.keep,
    "label": policy.array_api_strict.label,
    "calls": f.stats()["array_api_strict"].compilations,
    "explain": str(xpolicy.explain(f, "array_api_strict")),
    "numpy": float(f(np.ones(1))[0]),
}))
"""


def test_a_plugin_is_chosen_by_its_namespace(site, tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "xpolicy.toml").write_text("[array_api_strict]\nkeep = 3\n")
    done = run(site, CALL, tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["value"], told["numpy"]) == (2.0, 2.0)
    assert (told["keep"], told["label"], told["calls"]) == (3, "mine", 1)
    rows = told["explain"].splitlines()
    assert any(
        "array_api_strict.keep" in row and "xpolicy.toml:2:8" in row and "10 (built-in)" in row
        for row in rows
    )
    assert any(row.split() == ["keep", "3", "array_api_strict.keep"] for row in rows)
    assert "nothing is compiled: calls are recorded" in told["explain"]


def test_its_options_are_checked_like_ours(site, tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "xpolicy.toml").write_text("[array_api_strict]\nkep = 3\nlabel = 4\n")
    done = run(site, CALL, tmp_path)
    assert "PolicyFileError" in done.stderr
    assert "xpolicy.toml:2:1" in done.stderr
    assert "did you mean: keep" in done.stderr
    assert "xpolicy.toml:3" in done.stderr


def test_its_variables_are_read_like_ours(site, tmp_path):
    done = run(site, CALL, tmp_path, XPOLICY_ARRAY_API_STRICT__KEEP="7")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["keep"] == 7
    done = run(site, CALL, tmp_path, XPOLICY_ARRAY_API_STRICT__KEEP="many")
    assert "EnvironmentPolicyError" in done.stderr


def test_what_its_lowering_refuses_names_the_line(site, tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "xpolicy.toml").write_text("[array_api_strict]\nkeep = 3000\n")
    done = run(site, CALL, tmp_path)
    assert "BackendOptionError" in done.stderr
    assert "xpolicy.toml:2:" in done.stderr
    assert "at most 1000" in done.stderr


def test_without_it_the_same_file_is_told_to_be_wrong(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "xpolicy.toml").write_text("[array_api_strict]\nkeep = 3\n")
    done = run(None, "import xpolicy; xpolicy.resolve('mylib.f', 'torch')", tmp_path)
    assert "keep" in done.stderr
