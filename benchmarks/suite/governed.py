"""A pytest plugin: array-api-extra's functions under policy, its tests once in each mode."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

import xpolicy

#: The tests of the library's own testing module are about its own jax.jit.
OWN_LAZINESS = "test_testing"


def pytest_configure(config: pytest.Config) -> None:
    """Put the functions under policy before any test module imports them by name."""
    import array_api_extra.testing as testing

    config.add_cleanup(xpolicy.apply("array_api_extra").undo)
    patch = testing.patch_lazy_xp_functions

    def unless_compiled(request: Any, *args: Any, xp: Any) -> Any:
        # The library wraps its functions in a jax.jit of its own. An outer trace wins over
        # ours, so under it a mode would try nothing.
        parameters = getattr(getattr(request.node, "callspec", None), "params", {})
        mode = parameters.get("xpolicy_mode", "eager")
        if xp.__name__ != "jax.numpy" or mode == "eager" or OWN_LAZINESS in request.module.__name__:
            return patch(request, *args, xp=xp)
        return contextlib.nullcontext()

    testing.patch_lazy_xp_functions = unless_compiled


def _marked(module: Any) -> bool:
    return OWN_LAZINESS not in module.__name__


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Mark every test: xpolicy's plugin then makes one of it for each mode."""
    if _marked(metafunc.module):
        metafunc.definition.add_marker(pytest.mark.xpolicy())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what has been made of them, too: pytest doesn't hand such marks on."""
    for item in items:
        if _marked(item.module):  # type: ignore[attr-defined]  # all are functions
            item.add_marker(pytest.mark.xpolicy())
    # Where nothing compiles all modes are the eager one; xpolicy would skip the others.
    left = [item for item in items if _idle(item)]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if not _idle(item)]


def _idle(item: pytest.Item) -> bool:
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    library = getattr(parameters.get("library"), "value", "torch").partition(":")[0]
    compiles = library in ("torch", "jax.numpy")
    return not compiles and parameters.get("xpolicy_mode", "eager") != "eager"
