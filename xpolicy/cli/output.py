"""How things are printed: in colours on a terminal, as plain stable text elsewhere."""

from __future__ import annotations

import json
import sys
import warnings
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console
from rich.text import Text

from xpolicy.errors import Problem, XPolicyError, XPolicyWarning

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

_STYLES = {"error": "bold red", "warning": "bold yellow"}


def console(stream: TextIO | None = None) -> Console:
    """Return a console that prints what it is given: no markup, no guessing of colours."""
    return Console(
        file=stream or sys.stdout, markup=False, highlight=False, emoji=False, soft_wrap=True
    )


def on_terminal() -> bool:
    """Say whether results are read by a person rather than by a program."""
    return console().is_terminal


def write(text: str) -> None:
    """Write a result as it is.

    What the stream's encoding has no character for is escaped: a policy file may name a
    function in any script, and a log may be ASCII.
    """
    _escaping(sys.stdout)
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def write_json(data: Any) -> None:
    """Write plain data as JSON, indented, keys in their own order."""
    write(json.dumps(data, indent=2, ensure_ascii=False))


def render(*parts: RenderableType) -> None:
    """Print for a person at a terminal, wrapped to its width."""
    _escaping(sys.stdout)
    for part in parts:
        console().print(part, soft_wrap=False)


def problems_to(stream: TextIO, problems: Iterable[Problem]) -> None:
    """Print problems in the house form, an empty line behind each."""
    _escaping(stream)
    out = console(stream)
    for problem in problems:
        text = Text(str(problem))
        text.stylize(_STYLES[problem.severity], 0, len(problem.severity) + 1)
        out.print(text)
        out.print()


def errors_to(stream: TextIO, error: XPolicyError | Problem) -> None:
    """Print an error of the library: all the problems that it carries."""
    if isinstance(error, Problem):
        problems_to(stream, [error])
    else:
        problems_to(stream, getattr(error, "problems", None) or [Problem(str(error))])


def house_warnings() -> None:
    """Let warnings of ours be told as problems are, without the line of code behind them.

    To be called inside `warnings.catch_warnings`.
    """
    shown = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if issubclass(category, XPolicyWarning):
            _escaping(sys.stderr)
            text = str(message)
            print(text if text.startswith("warning: ") else f"warning: {text}", file=sys.stderr)
        else:
            shown(message, category, filename, lineno, file, line)

    warnings.simplefilter("always", XPolicyWarning)
    warnings.showwarning = show


def _escaping(stream: TextIO) -> None:
    reconfigure = getattr(stream, "reconfigure", None)  # a stream in a test may have none
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
