"""A pytest plugin: array-api-extra's tests once in each mode, without its own compiling."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

#: The tests of the library's own testing module are about its own jax.jit.
OWN_LAZINESS = "test_testing"


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Take the library's own jax.jit away before its conftest imports it by name."""
    import array_api_extra.testing as testing

    patch = testing.patch_lazy_xp_functions

    def unless_compiled(request: Any, *args: Any, xp: Any) -> Any:
        # The library wraps its functions in a jax.jit of its own. An outer trace wins over
        # ours, so under it a mode would try nothing.
        mode = mode_of(request.node) or "eager"
        if xp.__name__ != "jax.numpy" or mode == "eager" or OWN_LAZINESS in request.module.__name__:
            return patch(request, *args, xp=xp)
        return contextlib.nullcontext()

    testing.patch_lazy_xp_functions = unless_compiled


def mode_of(item: Any) -> str | None:
    """Return the mode that a test is run in; None if it is run as it is."""
    mode: str | None = _parameters(item).get("xpolicy_mode")
    return mode


def _parameters(item: Any) -> dict[str, Any]:
    return getattr(getattr(item, "callspec", None), "params", {})


def _marked(module: Any) -> bool:
    return OWN_LAZINESS not in module.__name__


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Mark every test: xpolicy's plugin then makes one of it for each mode."""
    if _marked(metafunc.module):
        metafunc.definition.add_marker(pytest.mark.xpolicy())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what has been made of them, too, and leave out what would try nothing."""
    for item in items:
        if _marked(item.module):  # type: ignore[attr-defined]  # all are functions
            item.add_marker(pytest.mark.xpolicy())  # pytest doesn't hand such marks on
    file = os.environ.get("SUITE_ONLY")
    only = set(Path(file).read_text(encoding="utf-8").splitlines()) if file else None
    # Where nothing compiles all modes are the eager one; xpolicy would skip the others.
    left = [i for i in items if _idle(i) or (only is not None and i.nodeid not in only)]
    config.hook.pytest_deselected(items=left)
    gone = set(left)
    items[:] = [item for item in items if item not in gone]


def _idle(item: pytest.Item) -> bool:
    library = getattr(_parameters(item).get("library"), "value", "torch").partition(":")[0]
    return library not in ("torch", "jax.numpy") and (mode_of(item) or "eager") != "eager"
