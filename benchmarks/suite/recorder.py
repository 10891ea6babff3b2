"""A pytest plugin: write down what came of each test."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

#: Fixtures of the library's tests that take an array library.
FIXTURES = ("library", "da", "jnp", "torch")
#: Whether a compiler was asked for anything in a test; `plain` says so.
COMPILED = pytest.StashKey[bool]()
#: What came of each test, by its id.
_found: dict[str, dict[str, Any]] = {}


def pytest_configure() -> None:
    """Seed the generators that the library's tests don't: each run sees the same arrays."""
    seeded = np.random.default_rng
    np.random.default_rng = lambda seed=None: seeded(0 if seed is None else seed)


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make no tests of the array libraries that the run is not about.

    Leaving them out afterwards takes minutes: there are 44,000 tests in three modes.
    """
    wanted = os.environ["SUITE_NAMESPACES"].split(",")
    for name in FIXTURES:
        for fixture in metafunc._arg2fixturedefs.get(name, ()):
            fixture.params = tuple(p for p in fixture.params or () if _is_wanted(p, wanted))


def _is_wanted(parameter: Any, wanted: list[str]) -> bool:
    # A member of the library's enumeration of backends, or pytest's box around one.
    backend = getattr(parameter, "values", (parameter,))[0]
    name, _, tag = backend.value.partition(":")
    return tag != "gpu" and name.removesuffix(".numpy").removesuffix(".array") in wanted


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note a test's outcome as it is before anybody excuses it."""
    report = yield
    if call.when != "call" and report.outcome == "passed":
        return report
    expected = hasattr(report, "wasxfail")
    noted: dict[str, Any] = {"outcome": "xfailed" if expected else report.outcome}
    if item.stash.get(COMPILED, False):
        noted["compiled"] = True
    if call.excinfo is not None and report.outcome == "failed":
        noted["error"] = _told(call.excinfo.value)
    _found[item.nodeid] = noted
    return report


def pytest_sessionfinish() -> None:
    """Write the file that the environment names."""
    Path(os.environ["SUITE_OUTCOMES"]).write_text(json.dumps(_found), encoding="utf-8")


def _told(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
