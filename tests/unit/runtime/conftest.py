from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import xpolicy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Write a policy file into a project folder that this process was started in."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / ".git").mkdir()
    monkeypatch.setattr(xpolicy, "_cwd", str(folder))

    def write(text: str, name: str = "xpolicy.toml") -> Path:
        file = folder / name
        file.write_text(text, encoding="utf-8")
        return file

    return write
