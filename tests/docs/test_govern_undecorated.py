"""The page on functions that nobody decorated: its files run, and print what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "govern-undecorated.md"
TEXT = PAGE.read_text(encoding="utf-8")
FILES = dict(re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", TEXT, re.DOTALL))
RUNS = re.findall(r"<!-- run -->\n```console\n\$ (\w+) (\S+)\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_every_file_is_used_and_every_run_is_looked_at() -> None:
    assert {name for _, name, _ in RUNS} | {"xpolicy.toml"} == set(FILES)
    assert len(RUNS) == TEXT.count("```console")


@pytest.mark.slow
@pytest.mark.parametrize(("program", "name", "shown"), RUNS, ids=[run[1] for run in RUNS])
def test_the_page_runs(project: Path, program: str, name: str, shown: str) -> None:
    if name == "program.py":  # the page comes to the file further down
        (project / "xpolicy.toml").unlink()
    arguments = [name] if program == "python" else ["-m", "pytest", "-p", "no:cacheprovider", name]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("XPOLICY_")}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=project,
        env=environment | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if program == "python":
        assert done.stdout == shown
    else:
        assert shown.strip().strip("= ") in done.stdout
