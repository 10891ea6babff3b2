"""array-api-extra's own tests of its testing module pass with ours in its place."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SWAP = """
import array_api_extra.testing as theirs
import xpolicy.testing as ours

theirs.lazy_xp_function = ours.lazy_xp_function
theirs.patch_lazy_xp_functions = ours.patch_lazy_xp_functions
"""
#: As in its own pyproject.toml.
INI = """
[pytest]
addopts = --strict-markers
filterwarnings = error
xfail_strict = true
markers =
    skip_xp_backend
    xfail_xp_backend
"""


@pytest.mark.slow
def test_array_api_extras_own_tests_of_lazy_functions(tmp_path):
    spec = find_spec("array_api_extra")
    assert spec is not None
    assert spec.origin is not None
    tests = Path(spec.origin).parent / "tests" / "main" / "test_testing.py"
    if not tests.exists():
        pytest.skip(f"this array-api-extra has no {tests}: its wheels have had it since 0.11")
    (tmp_path / "swap.py").write_text(SWAP)
    (tmp_path / "pytest.ini").write_text(INI)
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "swap", "-p", "no:cacheprovider"),
        *("-c", str(tmp_path / "pytest.ini"), "--rootdir", str(tests.parent)),
        *("-k", "lazy or opaque or recursive or static_params", str(tests)),
    ]
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environ, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout[-5000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 50
