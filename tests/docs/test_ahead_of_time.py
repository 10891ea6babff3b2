"""The page on compiling ahead of time: its code runs, with jax and with torch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "ahead-of-time.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
POLICIES = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
SHOWN = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
ARRAYS = {
    "jax": "import jax.numpy as jnp\nNAMESPACE = 'jax'\ndef ones(*shape): return jnp.ones(shape)\n",
    "torch": "import torch\nNAMESPACE = 'torch'\ndef ones(*shape): return torch.ones(shape)\n",
}


def run(folder: Path, name: str, code: str) -> list[str]:
    (folder / name).write_text(code, encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("XPOLICY_")}
    done = subprocess.run(
        [sys.executable, name],
        cwd=folder,
        env=environment | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("library", ARRAYS)
def test_the_pages_code_runs(tmp_path: Path, library: str) -> None:
    pytest.importorskip(library, reason=f"the page's code runs {library}: pip install {library}")
    loading = next(place for place, block in enumerate(BLOCKS) if "xpolicy.load" in block)
    (tmp_path / "xpolicy.toml").write_text("".join(POLICIES), encoding="utf-8")
    first = ARRAYS[library] + "".join(BLOCKS[:loading])
    lines = run(tmp_path, "first.py", first)
    assert lines[0] == "compile"
    text = "\n".join(lines)
    assert {"jax": "stablehlo.multiply", "torch": "torch.ops.aten.mul"}[library] in text
    [shown] = SHOWN
    pattern = re.escape(shown.strip().replace("for jax", f"for {library}"))
    assert re.search(pattern.replace("…", ".*"), text)
    assert "mylib.scale for" in text
    assert "compilation is sealed" in text
    warmed = [line for line in lines if line.startswith("mylib.scale(x=float32[")]
    known, compiled = warmed
    assert known.endswith(f"for {library}: compiled already")
    assert re.search(rf"\(x=float32\[1, 64\], n=3\) for {library}: compiled in \d", compiled)
    # The function as the first block has it, then what a second process does.
    function = BLOCKS[0].partition("lowered =")[0]
    second = ARRAYS[library] + function + BLOCKS[loading]
    run(tmp_path, "second.py", second + "assert float(y[0, 0]) == 3.0\n")
