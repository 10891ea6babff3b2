"""`import xpolicy` and decorating cost next to nothing: little is imported for them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from conftest import Python

NEW_MODULES = "\nanswer = sorted(set(_sys.modules) - _before)"

IMPORT = "import xpolicy"

DECORATE = """
import xpolicy

@xpolicy.compile
def plain(x):
    return x

@xpolicy.compile(name="lib.named", static_argnames=("n",), torch={"fullgraph": True})
def named(x, n=1, *, flag=False):
    return x

@xpolicy.compile
def general(*args, **kwargs):
    return args

class Class:
    @xpolicy.compile
    def method(self, x):
        return x

    @staticmethod
    @xpolicy.compile
    def static(x):
        return x
"""

# What decorating has no use for. Some of it takes milliseconds to import by itself
# (CPython 3.11, a busy machine with two cores): dataclasses 32, inspect 28, tomllib 24,
# pathlib 14, typing 13, re 9, enum 5.
TOO_DEAR = {
    "array_api_compat",
    "asyncio",
    "dataclasses",
    "enum",
    "importlib.metadata",
    "inspect",
    "jax",
    "logging",
    "numpy",
    "packaging",
    "pathlib",
    "platformdirs",
    "pydantic",
    "re",
    "subprocess",
    "tomli",
    "tomllib",
    "torch",
    "typing",
    "xpolicy.backends",
    "xpolicy.policy",
    "xpolicy.sources",
}


def foreign(modules: Iterable[str]) -> set[str]:
    """The top-level names that are neither the standard library's nor ours."""
    tops = {name.partition(".")[0] for name in modules}
    return tops - sys.stdlib_module_names - {"xpolicy", "__mp_main__"}


def too_dear(modules: Iterable[str]) -> set[str]:
    return TOO_DEAR.intersection(modules)


@pytest.mark.parametrize("code", [IMPORT, DECORATE], ids=["import", "decorate"])
def test_only_the_standard_library_is_imported(python: Python, code: str) -> None:
    assert foreign(python(code + NEW_MODULES)) == set()


@pytest.mark.parametrize("code", [IMPORT, DECORATE], ids=["import", "decorate"])
def test_nothing_dear_is_imported(python: Python, code: str) -> None:
    assert too_dear(python(code + NEW_MODULES, bare=True)) == set()


@pytest.mark.parametrize(
    ("line", "reported"),
    [
        ("import numpy", {"numpy"}),
        ("from packaging.version import Version", {"packaging"}),
        ("def late():\n    import numpy\nlate()", {"numpy"}),
        ("def never():\n    import numpy", set()),
    ],
)
def test_the_check_sees_what_a_package_imports(
    python: Python, tmp_path: Path, line: str, reported: set[str]
) -> None:
    package = tmp_path / "lib" / "xpolicy"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(line)
    modules = python(IMPORT + NEW_MODULES, path=[package.parent])
    assert foreign(modules) == reported


def test_the_interpreter_itself_brings_nothing_that_is_dear(python: Python) -> None:
    # Else the tests above could not see us import it.
    present = python("answer = sorted(_before)", bare=True)
    assert too_dear(present) == set()
    assert "sys" in present


def test_the_check_sees_what_is_dear(python: Python, tmp_path: Path) -> None:
    package = tmp_path / "lib" / "xpolicy"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import dataclasses")
    modules = python(IMPORT + NEW_MODULES, path=[package.parent], bare=True)
    assert {"dataclasses", "inspect", "re"} <= too_dear(modules)


def test_every_public_name_is_there_and_nothing_else_is_listed(python: Python) -> None:
    missing = python(
        "import xpolicy\nanswer = [n for n in xpolicy.__all__ if getattr(xpolicy, n, _sys) is _sys]"
    )
    assert missing == []
    listed = python("import xpolicy\nanswer = sorted(set(xpolicy.__all__) - set(dir(xpolicy)))")
    assert listed == []


def test_a_backend_that_is_not_imported_stays_so_when_others_are_used(python: Python) -> None:
    code = """
import numpy
import xpolicy

@xpolicy.compile
def double(x):
    return 2 * x

assert double(numpy.ones(2)).tolist() == [2.0, 2.0]
answer = [name for name in ("torch", "jax") if name in _sys.modules]
"""
    assert python(code) == []


def test_the_cache_table_costs_a_program_without_compilers_nothing(python: Python) -> None:
    code = """
import os
{}
import numpy
import xpolicy

@xpolicy.compile
def double(x):
    return 2 * x

assert double(numpy.ones(2)).tolist() == [2.0, 2.0]
answer = [sorted(set(_sys.modules) - _before), os.path.exists("caches")]
"""
    without, _ = python(code.format(""))
    said = 'os.environ["XPOLICY_CACHE__DIR"] = os.path.abspath("caches")'
    within, made = python(code.format(said))
    assert within == without
    assert not [name for name in within if name.endswith(".caches") and ".runtime." not in name]
    assert not made


def test_the_version_is_the_distribution_s(python: Python) -> None:
    code = "import importlib.metadata, xpolicy\n"
    code += "answer = [xpolicy.__version__, importlib.metadata.version('xpolicy')]"
    imported, installed = python(code)
    assert imported == installed
