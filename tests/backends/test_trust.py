"""A project file can't make a compiler start a program or write a file."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import jax.numpy as jnp
import pytest
import torch

import xpolicy

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(xpolicy, "_cwd", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    "spelling",
    [
        "[torch]\noptions = {{ 'cpp.cxx' = ['{program}'] }}\n",
        "[torch.options.cpp]\ncxx = ['{program}']\n",
        "[functions.'mylib.f'.torch.options]\ncpp.cxx = ['{program}']\n",
        "[[when]]\npython = '>=3'\ntorch.options.cpp.cxx = ['{program}']\n",
        "[[when]]\ndevice = 'cpu'\ntorch.options.'cpp.cxx' = ['{program}']\n",
    ],
)
def test_inductor_starts_no_program(project, spelling):
    ran = project / "ran"
    program = project / "x.sh"
    program.write_text(f"#!/bin/sh\ntouch {ran}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (project / "xpolicy.toml").write_text(spelling.format(program=program))

    @xpolicy.compile(name="mylib.f")
    def f(x):
        return x + 1

    with pytest.raises(
        xpolicy.PolicyFileError, match=r"cpp\.cxx.*may not be set in a project's file"
    ):
        f(torch.ones(3))
    assert not ran.exists()


def test_xla_writes_no_dump(project):
    dump = project / "dump"
    (project / "xpolicy.toml").write_text(f"[jax]\ncompiler-options.xla_dump_to = '{dump}'\n")

    @xpolicy.compile(name="mylib.f")
    def f(x):
        return x + 1

    with pytest.raises(xpolicy.PolicyFileError, match="xla_dump_to"):
        f(jnp.ones(3))
    assert not dump.exists()


def test_the_same_words_in_a_file_that_was_named_are_trusted(project, monkeypatch):
    dump = project / "dump"
    named = project / "named.toml"
    named.write_text(f"[jax]\ncompiler-options.xla_dump_to = '{dump}'\n")
    monkeypatch.setenv("XPOLICY_FILE", str(named))

    @xpolicy.compile(name="mylib.f")
    def f(x):
        return x + 1

    assert float(f(jnp.ones(3)).sum()) == 6.0
    assert any(dump.iterdir())
