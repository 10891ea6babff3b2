"""Importing the code that policies speak of, where the user asks for it."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING

from xpolicy.cli.usage import UsageError
from xpolicy.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator


class UnimportableError(UsageError):
    """Code that was asked for can't be imported; `problem` says why."""


@contextlib.contextmanager
def importable_from_here() -> Iterator[None]:
    """Let modules of the working directory be found, behind all that is installed.

    Behind, not before: a file ``torch.py`` in somebody's folder must not take torch's
    place. Python's own switch against it (``-P``, ``PYTHONSAFEPATH``) is obeyed.
    """
    if sys.flags.safe_path or "" in sys.path:
        yield
        return
    sys.path.append("")
    try:
        yield
    finally:
        sys.path.remove("")


def installed(package: str) -> bool:
    """Return whether there is such a top-level package, without importing it."""
    if package in sys.modules:
        return True
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def import_for(name: str) -> str | None:
    """Import the longest prefix of a dotted name that is a module.

    Parameters
    ----------
    name : str
        A function key, or a pattern without its ``.*``.

    Returns
    -------
    str or None
        The module's name; None if the top-level package isn't there.

    Raises
    ------
    UnimportableError
        If a module is there and its import fails.
    """
    package, *rest = name.split(".")
    if not installed(package):
        return None
    reached = _import(package)
    for part in rest:
        module = sys.modules[reached]
        child = f"{reached}.{part}"
        if not part.isidentifier() or not hasattr(module, "__path__"):
            break
        if importlib.util.find_spec(child) is None:
            break
        reached = _import(child)
    return reached


def _import(module: str) -> str:
    try:
        # What a module prints while it is imported is no part of our result.
        with contextlib.redirect_stdout(sys.stderr):
            importlib.import_module(module)
    except (Exception, SystemExit) as error:
        raise UnimportableError(
            Problem(
                f"{module} can't be imported: {type(error).__name__}: {error}",
                fix=f'run python -c "import {module}" to see where it fails',
            )
        ) from error
    return module
