"""What ``@pytest.mark.xpolicy(…)`` and the ``testing`` tables say of one test."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from xpolicy.policy.options import MODES
from xpolicy.policy.testing import settings
from xpolicy.runtime.session import find, session
from xpolicy.testing.budgets import COUNTED, Budget

if TYPE_CHECKING:
    from collections.abc import Mapping

MARKER = "xpolicy"
_LEAST = {"graph_breaks": 0, "compilations": 1, "compute_limit": 0}
_KEYWORDS = (*_LEAST, "modes", "functions")


@dataclass(frozen=True)
class Mark:
    """What the marks of one test say together; the nearest wins.

    Parameters
    ----------
    functions : tuple of str
        The keys of the functions that the test is about; none for all that it calls.
    modes : tuple of str or None
        The modes that it may run in; None for any.
    budgets : mapping of str to int
        By name; None lifts what the ``testing`` tables say.
    place : str
        Where it stands.
    """

    functions: tuple[str, ...]
    modes: tuple[str, ...] | None
    budgets: Mapping[str, int | None]
    place: str

    def budgets_for(self, key: str, namespace: str) -> dict[str, Budget]:
        """Return the budgets of one function: those of the mark, else of the tables."""
        layers = [session.library(key.partition(".")[0])[0], *session.loaded().layers]
        said = settings(layers, key, namespace)
        found = {n: Budget(said[n].value, said[n].origin) for n in COUNTED if n in said}
        for name, number in self.budgets.items():
            if number is None:
                found.pop(name, None)
            else:
                found[name] = Budget(number, self.place)
        return found


def read_mark(node: Any) -> Mark:
    """Read the marks of a test, of its class and of its module.

    Raises
    ------
    pytest.Collector.CollectError
        For a keyword or value that a mark doesn't take.
    """
    said: dict[str, Any] = {}
    for mark in reversed(list(node.iter_markers(MARKER))):  # the nearest last
        _check(node, mark)
        said.update(mark.kwargs)
        if mark.args:
            said["functions"] = mark.args
    functions = said.get("functions") or ()
    if isinstance(functions, str) or not isinstance(functions, list | tuple):
        functions = (functions,)
    return Mark(
        tuple(find(function)[0] for function in functions),
        tuple(said["modes"]) if said.get("modes") is not None else None,
        {name: said[name] for name in _LEAST if name in said},
        f"@pytest.mark.xpolicy of {node.name}",
    )


def _check(node: Any, mark: pytest.Mark) -> None:
    where = f"@pytest.mark.xpolicy of {node.nodeid}"
    for name, value in mark.kwargs.items():
        if name not in _KEYWORDS:
            near = difflib.get_close_matches(name, _KEYWORDS, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise _error(f"{where} takes {', '.join(_KEYWORDS)}, not {name}{hint}")
        least = _LEAST.get(name)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if least is not None and value is not None and not (whole and value >= least):
            raise _error(f"{where}: {name} must be a whole number of at least {least}: {value!r}")
        if name == "modes" and value is not None:
            wrong = [mode for mode in value if mode not in MODES]
            if isinstance(value, str) or wrong:
                raise _error(f"{where}: modes must be a list of {', '.join(MODES)}: {value!r}")
    functions = mark.kwargs.get("functions", ())
    functions = functions if isinstance(functions, list | tuple) else (functions,)
    for function in (*mark.args, *functions):
        if isinstance(function, str):
            continue
        if not callable(function) or find(function)[1] is None:
            raise _error(
                f"{where}: {function!r} is not under policy: decorate it with @xpolicy.compile"
            )


def _error(message: str) -> Exception:
    return pytest.Collector.CollectError(message)
