"""A slice of another library's own tests passes under policy, as the ratchet says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from benchmarks.suite.__main__ import RATCHET
from benchmarks.suite.library import SLICE, installed

ROOT = Path(__file__).parents[2]


def functions() -> dict[str, dict[str, dict[str, object]]]:
    return tomllib.loads(RATCHET.read_text(encoding="utf-8"))["functions"]


def test_twenty_functions_are_on_record_for_both_compilers():
    assert len(SLICE) >= 20
    recorded = [key for key, found in functions().items() if {"torch", "jax"} <= set(found)]
    assert len(recorded) >= 20
    assert all(key.startswith("array_api_extra.") for key in recorded)


@pytest.mark.slow
def test_a_slice_of_its_tests_in_all_modes(tmp_path):
    if not installed().exists():
        pytest.skip(f"this array-api-extra has no {installed()}: its wheels have had it since 0.11")
    command = [sys.executable, "-m", "benchmarks.suite", "--installed", "--slice"]
    done = subprocess.run(
        [*command, "--folder", str(tmp_path)],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if not k.startswith("XPOLICY_")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"^(array_api_extra\.\w+) +(torch|jax) +(\w+)", done.stdout, re.MULTILINE)
    assert len({key for key, _, _ in rows}) >= 20
    # Every test of it ran, in every mode that its library has a compiler for.
    assert re.search(r"^torch +(\d+)/\1 +(\d+)/\2 ", done.stdout, re.MULTILINE), done.stdout
