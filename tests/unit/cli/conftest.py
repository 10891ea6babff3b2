from __future__ import annotations

import gc
import importlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

import xpolicy
from xpolicy.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@dataclass
class Outcome:
    status: int
    out: str
    err: str


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the command is run in: a repository with nothing in it."""
    found = tmp_path / "project"
    found.mkdir()
    (found / ".git").mkdir()
    monkeypatch.chdir(found)
    monkeypatch.setattr(xpolicy, "_cwd", str(found))
    # A line that is not wrapped differently on each machine.
    monkeypatch.setenv("COLUMNS", "120")
    return found


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run the command in this process, in the folder."""

    def run(*arguments: str) -> Outcome:
        capsys.readouterr()
        status = main(list(arguments))
        captured = capsys.readouterr()
        return Outcome(status, captured.out, captured.err)

    return run


@pytest.fixture
def package(folder: Path) -> Iterator[Callable[..., None]]:
    """Put a package into the folder; what was imported of it is forgotten afterwards."""
    names: list[str] = []

    def make(name: str, code: str, library: str | None = None) -> None:
        names.append(name)
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(code, encoding="utf-8")
        if library is not None:
            (folder / name / "xpolicy-library.toml").write_text(library, encoding="utf-8")
        importlib.invalidate_caches()

    yield make
    for module in list(sys.modules):
        if module.partition(".")[0] in names:
            del sys.modules[module]
    gc.collect()  # a decorated function is known as long as it lives
