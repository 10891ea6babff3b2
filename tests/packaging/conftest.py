"""Child interpreters, and the distributions as a user would install them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).parents[2]


class Python(Protocol):
    def __call__(self, code: str, *, path: Sequence[Path] = ..., bare: bool = False) -> Any: ...


class Distributions(NamedTuple):
    sdist: Path
    wheel: Path


def _environment(path: Sequence[Path]) -> Mapping[str, str]:
    # Coverage's variables would make it start in the child, and load there much of what
    # these tests look for.
    kept = {name: value for name, value in os.environ.items() if "COV" not in name.upper()}
    kept["PYTHONPATH"] = os.pathsep.join(map(str, path))
    # A shared folder of bytecode would be the one thing that a child leaves in the tree.
    kept["PYTHONDONTWRITEBYTECODE"] = "1"
    return kept


@pytest.fixture
def python(tmp_path: Path) -> Python:
    """Run code in a fresh interpreter, in an empty folder; its `answer` comes back.

    The code finds the names of the modules that were there before it in ``_before``.
    ``bare`` leaves out site-packages, and what its ``.pth`` files import at every start.
    """
    empty = tmp_path / "empty"
    empty.mkdir()

    def run(code: str, *, path: Sequence[Path] = (ROOT,), bare: bool = False) -> Any:
        head = "import sys as _sys; _before = set(_sys.modules)\n"
        tail = "\nimport json as _json; print(_json.dumps(answer))\n"
        child = subprocess.run(
            [sys.executable, *(["-S"] if bare else []), "-c", head + code + tail],
            cwd=empty,
            env=_environment(path),
            capture_output=True,
            text=True,
            check=False,
        )
        assert child.returncode == 0, child.stderr
        assert child.stderr == ""
        return json.loads(child.stdout.splitlines()[-1])

    return run


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """Build the sdist from the tree, and the wheel from the sdist: as for a release."""
    folder = tmp_path_factory.mktemp("dist")
    build = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert build.returncode == 0, build.stdout + build.stderr
    (sdist,) = folder.glob("*.tar.gz")
    (wheel,) = folder.glob("*.whl")
    return Distributions(sdist, wheel)
