"""The README's example runs as it stands, and prints what the README says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
BLOCK = re.compile(r"<!-- (file: (?P<name>\S+)|run) -->\n```\w*\n(?P<body>.*?)```", re.DOTALL)


def blocks() -> tuple[dict[str, str], list[str]]:
    files: dict[str, str] = {}
    runs: list[str] = []
    for match in BLOCK.finditer(README.read_text(encoding="utf-8")):
        if match["name"]:
            files[match["name"]] = match["body"]
        else:
            runs.append(match["body"])
    return files, runs


def commands() -> list[tuple[str, str]]:
    found = []
    for run in blocks()[1]:
        for part in re.split(r"^\$ ", run, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def run(command: str, folder: Path) -> str:
    """Run a console line in a folder, with this interpreter's commands first."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("XPOLICY_")}
    here = str(Path(sys.executable).parent)
    environment |= {
        "PATH": here + os.pathsep + environment["PATH"],
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "200",
        "JAX_PLATFORMS": "cpu",
    }
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=environment,
        text=True,
        capture_output=True,
        timeout=300,
        check=False,
    )
    return done.stdout + done.stderr


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


@pytest.mark.parametrize(("command", "output"), commands(), ids=lambda text: text[:40])
def test_the_example_prints_what_the_readme_says(command, output, tmp_path):
    (tmp_path / ".git").mkdir()
    for name, body in blocks()[0].items():
        (tmp_path / name).write_text(body, encoding="utf-8")
    assert output.strip(), f"the README shows no output for: {command}"
    assert lines(run(command, tmp_path)) == lines(output)


def test_the_readme_has_an_example():
    files, runs = blocks()
    assert set(files) == {"app.py", "pyproject.toml"}
    assert len(commands()) >= 3
    assert runs
