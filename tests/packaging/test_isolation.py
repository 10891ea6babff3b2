"""The test suite itself: what the machine is set to does not reach a test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import platformdirs
import pytest

HERE = Path(__file__)


def test_no_policy_variable_is_set() -> None:
    assert [name for name in os.environ if name.startswith("XPOLICY_")] == []


def test_the_user_s_configuration_is_this_test_s_own(
    user_config: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = platformdirs.user_config_path("xpolicy")
    assert found.is_relative_to(user_config)
    assert found.is_relative_to(tmp_path_factory.getbasetemp())
    assert not found.exists()


def test_a_variable_that_the_machine_sets_is_gone() -> None:
    tests = [f"{HERE}::{test_no_policy_variable_is_set.__name__}"]
    child = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        cwd=HERE.parents[2],
        env=os.environ | {"XPOLICY_MODE": "nonsense", "TORCHDYNAMO_DISABLE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stdout
    assert "1 passed" in child.stdout
