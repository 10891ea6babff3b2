"""The file that libraries copy works with xpolicy and without it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "depend-softly.md"
FILE = PAGE.with_name("_xpolicy.py")

BLOCKED = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "xpolicy":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Block())
"""
USE = """
import sys, json
import numpy as np
import mylib
from mylib import scale
from mylib._xpolicy import override
with override(mode="eager"):
    value = scale(np.ones(2), n=3).tolist()
explained = None
if hasattr(scale, "explain"):
    policy = sys.modules["xpolicy"].resolve("mylib.scale", "jax")
    explained = [policy.supports, policy.reason]
print(json.dumps([value, hasattr(scale, "__wrapped__"), explained]))
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Make the page's library: its code and its policy file are the page's own blocks."""
    text = PAGE.read_text(encoding="utf-8")
    package = tmp_path / "mylib"
    package.mkdir()
    (package / "_xpolicy.py").write_text(FILE.read_text(encoding="utf-8"), encoding="utf-8")
    python, toml = (
        re.search(rf"```{kind}\n(.*?)```", text, re.DOTALL)[1] for kind in ("python", "toml")
    )
    (package / "__init__.py").write_text(python, encoding="utf-8")
    (package / "xpolicy-library.toml").write_text(toml, encoding="utf-8")
    return tmp_path


def run(folder: Path, program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if not k.startswith("XPOLICY_")}
        | {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_with_xpolicy(library):
    assert run(library, USE) == '[[3.0, 3.0], true, ["eager", "calls into C"]]'


def test_without_xpolicy_the_function_is_the_function(library):
    assert run(library, BLOCKED + USE) == "[[3.0, 3.0], false, null]"


def test_the_file_is_small_and_needs_the_standard_library_only():
    lines = FILE.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 60
    imported = {line.split()[1] for line in lines if line.strip().startswith(("import ", "from "))}
    assert imported == {"__future__", "xpolicy"}
