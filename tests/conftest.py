"""Every test starts from the same machine: no policy of the user's, no device, no cache."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import sys
import tempfile
import threading
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# These change how torch or jax compile, whether xpolicy is asked or not. Some are read
# once, when torch or jax is imported, so they are dealt with before any test is.
COMPILER_SWITCHES = (
    "JAX_COMPILATION_CACHE_DIR",
    "JAX_DEBUG_NANS",
    "JAX_DISABLE_JIT",
    "JAX_ENABLE_X64",
    "TORCHDYNAMO_DISABLE",
    "TORCH_COMPILE_DISABLE",
    "TORCH_LOGS",
)

# Where platformdirs looks for the user's configuration: on Linux and macOS, on Windows.
CONFIG_VARIABLES = (
    "XDG_CONFIG_HOME",
    "WIN_PD_OVERRIDE_LOCAL_APPDATA",
    "WIN_PD_OVERRIDE_APPDATA",
)

_folders = itertools.count()


def reset_session() -> None:
    """Forget the layers and callables that an earlier test left in this process.

    This is the one place where tests touch xpolicy's mutable state.
    """
    # Not imported here: a test that asserts what a process has imported must find
    # nothing that its fixture brought in.
    module = sys.modules.get("xpolicy.runtime.session")
    if module is not None:
        module.session.everywhere = ()
        module.session.forget()
    events = sys.modules.get("xpolicy.runtime.events")
    if events is not None:
        events.forget()


def pytest_configure(config: pytest.Config) -> None:
    for name in COMPILER_SWITCHES:
        os.environ.pop(name, None)
    for name in _policy_variables():
        del os.environ[name]
    os.environ["JAX_PLATFORMS"] = "cpu"
    # Inductor's cache outlives a process and is shared by all of a user's. One folder a
    # run (pytest-xdist's workers inherit it) makes runs alike: a test never passes because
    # of what an earlier run compiled. Set the variable to keep the folder between runs.
    if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:
        folder = tempfile.mkdtemp(prefix="xpolicy-inductor-")
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    # Without its pool of compiling processes inductor starts sooner, and a test that
    # counts processes or threads sees its own only.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        # pytest-xdist's workers must collect the same names, and addresses differ.
        if re.search(r"\b0x[0-9a-f]{8,}", item.nodeid):
            raise pytest.UsageError(f"{item.nodeid}: give ids= that hold no address")


def _policy_variables() -> list[str]:
    return [name for name in os.environ if name.upper().startswith("XPOLICY_")]


@pytest.fixture
def user_config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder where this test's user keeps configuration; a test that needs it makes it."""
    # Not `mktemp`: it lists its parent for the next free number, for every test again.
    return tmp_path_factory.getbasetemp() / f"user-config-{next(_folders)}"


@pytest.fixture
def untraced() -> Iterator[None]:
    """Measure without coverage: it traces our lines, and not those of a compiled baseline."""
    mine, others = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)  # type: ignore[arg-type]  # None ends it, as the docs have it
    yield
    sys.settrace(mine)
    threading.settrace(others)  # type: ignore[arg-type]  # as above


@pytest.fixture(autouse=True)
def isolated(monkeypatch: pytest.MonkeyPatch, user_config: Path) -> Iterator[None]:
    """Keep the machine's own policies out of a test, and a test's out of the next."""
    for name in _policy_variables():
        monkeypatch.delenv(name)
    for name in CONFIG_VARIABLES:
        monkeypatch.setenv(name, str(user_config))
    reset_session()
    yield
    reset_session()
