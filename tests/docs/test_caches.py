"""The page on persistent caches: its policy, its code and its commands do what it says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "caches.md").read_text(encoding="utf-8")
[POLICY] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
[CODE] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
[SHOWN] = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"^\$ xpolicy (.*)$", PAGE, re.MULTILINE)
ARRAYS = {
    "jax": "import jax.numpy as jnp\ndef ones(n): return jnp.ones(n)\n",
    "torch": "import torch\ndef ones(n): return torch.ones(n)\n",
}
WARMUP = '[functions."mylib.scale"]\n{}.warmup = [{{ x = "float32[4]" }}]\n'


@pytest.mark.slow
@pytest.mark.parametrize("library", ARRAYS)
def test_the_page_does_what_it_says(tmp_path: Path, library: str) -> None:
    pytest.importorskip(library, reason=f"the page's code runs {library}: pip install {library}")
    code = ARRAYS[library] + CODE
    function = code.partition("scale(ones(4))")[0]
    (tmp_path / "cache.toml").write_text(POLICY + WARMUP.format(library), encoding="utf-8")
    (tmp_path / "app.py").write_text(code, encoding="utf-8")
    (tmp_path / "mylib.py").write_text(function, encoding="utf-8")

    def run(*command: str, home: str) -> str:
        (tmp_path / home).mkdir(exist_ok=True)
        hidden = ("XPOLICY_", "JAX_", "TORCHINDUCTOR", "TORCH_COMPILE")
        environ = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
        environ |= {"HOME": str(tmp_path / home), "XPOLICY_FILE": str(tmp_path / "cache.toml")}
        environ |= {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    told = run("app.py", home="old")
    shown = re.escape(SHOWN.strip().replace("jax", library)).replace("…", ".*")
    assert re.search(shown, told), told
    warmup, export, import_, info = map(shlex.split, COMMANDS)
    # The folder is filled by then: the command's own compilation finds it.
    assert re.search(rf"mylib.scale +{library} .* hit", run("-m", "xpolicy", *warmup, home="old"))
    assert f"{library}: " in run("-m", "xpolicy", *export, home="old")
    assert " files imported, " in run("-m", "xpolicy", *import_, home="new")
    folder = re.escape(str(tmp_path / "new" / ".cache" / "xpolicy" / library))
    assert re.search(rf"{library} +on +{folder} +[1-9]", run("-m", "xpolicy", *info, home="new"))
    # In another folder, what was imported is found.
    assert re.search(rf"mylib.scale +{library} .* hit", run("-m", "xpolicy", *warmup, home="new"))
