"""The examples in the docstrings run, and give what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def modules() -> list[str]:
    files = sorted((ROOT / "xpolicy").rglob("*.py"))
    parts = [file.relative_to(ROOT).with_suffix("").parts for file in files]
    names = [".".join(p[:-1] if p[-1] == "__init__" else p) for p in parts]
    return [name for name in names if not name.endswith("__main__")]  # importing runs it


def examples(name: str) -> list[doctest.DocTest]:
    found = doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name))
    return [test for test in found if test.examples]


@pytest.mark.parametrize("name", modules())
def test_examples(name: str) -> None:
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for test in examples(name):
        runner.run(test, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)


def test_there_are_examples() -> None:
    assert sum(len(examples(name)) for name in modules()) > 0
