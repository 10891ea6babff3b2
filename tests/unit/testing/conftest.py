"""A small library and a project that tests it, run by a pytest of its own."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from _pytest.pytester import SysModulesSnapshot

import xpolicy

if TYPE_CHECKING:
    from pathlib import Path

MYLIB = """
import xpolicy

@xpolicy.compile
def scale(x, n=2):
    return x * n

@xpolicy.compile
def breaks(x):
    x = x + 1
    print(end="")
    return x * 2

@xpolicy.compile(supports="compile", reason="it branches on data", jax={"supports": "eager"})
def declared(x):
    if x.sum() > 0:
        return x
    return -x

@xpolicy.compile
def undeclared(x):
    if x.sum() > 0:
        return x
    return -x
"""


class Project(Protocol):
    path: Path

    def __call__(self, *arguments: str, **files: str) -> pytest.RunResult: ...


@pytest.fixture
def kept_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pytester take away the project's own modules only: torch can't be imported twice."""
    own = ("conftest", "mylib", "test_")
    monkeypatch.setattr(
        pytest.Pytester,
        "_Pytester__take_sys_modules_snapshot",
        lambda self: SysModulesSnapshot(preserve=lambda name: not name.startswith(own)),
    )


@pytest.fixture
def project(
    kept_modules: None, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> Project:
    """Run pytest in a project that has ``mylib.py``; more files by their names."""
    pytester.makepyfile(mylib=MYLIB)
    pytester.mkdir(".git")
    monkeypatch.setattr(xpolicy, "_cwd", str(pytester.path))
    monkeypatch.syspath_prepend(pytester.path)

    class Run:
        path = pytester.path

        def __call__(self, *arguments: str, **files: str) -> pytest.RunResult:
            for name, text in files.items():
                if name.endswith("_toml"):
                    pytester.makefile(".toml", **{name.removesuffix("_toml"): text})
                else:
                    pytester.makepyfile(**{name: text})
            from xpolicy.runtime.session import session

            session.forget()
            try:
                return pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)
            finally:
                gc.collect()  # functions of a library that the next run imports again

    return Run()


def ids(result: pytest.RunResult) -> list[str]:
    """Return the ids and outcomes of a run with ``-v``."""
    found: list[str] = []
    for line in result.outlines:
        words: Any = line.split()
        if len(words) > 1 and "::" in words[0] and words[1].isupper():
            found.append(f"{words[0].partition('::')[2]} {words[1]}")
    return found


@pytest.fixture
def outcomes():
    return ids
