"""The programs of the page on limits print what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "limits.md"
BLOCK = re.compile(
    r"<!-- run -->\n```python\n(?P<code>.*?)```\n\n<!-- prints -->\n```text\n(?P<said>.*?)```",
    re.DOTALL,
)
PROGRAMS = [match.groups() for match in BLOCK.finditer(PAGE.read_text(encoding="utf-8"))]


def test_every_program_of_the_page_is_run():
    text = PAGE.read_text(encoding="utf-8")
    assert text.count("```python") == text.count("<!-- run -->") == len(PROGRAMS) == 3


@pytest.mark.parametrize(
    ("code", "said"), PROGRAMS, ids=["recompile limit", "graph breaks", "exceptions"]
)
def test_the_program_prints_what_the_page_says(code, said, tmp_path):
    (tmp_path / ".git").mkdir()
    program = tmp_path / "program.py"
    program.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == said
