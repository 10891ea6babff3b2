"""The page on testing: its files, its commands and its program run, and say what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from xpolicy.policy.testing import DaskBudgetOptions, TestRunOptions

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "test-your-library.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL))
RUNS = re.findall(r"<!-- run: (\d) -->\n```console\n\$ pytest (.*?)\n(.*?)```", PAGE, re.DOTALL)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("XPOLICY_")}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(folder), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / ".git").mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.mark.slow
def test_the_commands_do_what_the_page_says(project: Path) -> None:
    assert len(RUNS) == 5
    for code, arguments, shown in RUNS:
        done = run(project, "-m", "pytest", "-p", "no:cacheprovider", *arguments.split())
        assert done.returncode == int(code), done.stdout + done.stderr
        said = [
            " ".join(line.replace(str(project), "…").split()) for line in done.stdout.splitlines()
        ]
        for line in shown.splitlines():
            wanted = " ".join(line.split())
            assert any(found.startswith(wanted) for found in said), (wanted, done.stdout)


@pytest.mark.slow
def test_the_program_runs(project: Path) -> None:
    program = next(text for text in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
                   if "assert_same_in_all_modes(" in text)  # fmt: skip
    done = run(project, "-c", program)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "11 generic_jump TensorVariable()\n"


def test_every_setting_is_in_the_table() -> None:
    listed = set(re.findall(r"^\| `([a-z-]+)` \|", PAGE, re.MULTILINE))
    fields = {*TestRunOptions.model_fields, *DaskBudgetOptions.model_fields}
    assert listed == {name.replace("_", "-") for name in fields}
