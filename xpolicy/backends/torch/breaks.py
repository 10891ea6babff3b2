"""Graph breaks of one function: where, why, and how many are allowed."""

from __future__ import annotations

import re
import threading
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from xpolicy.errors import GraphBreakLimitError, XPolicyWarning

if TYPE_CHECKING:
    from types import CodeType

    from xpolicy._origin import Origin

#: How dynamo names the code that goes on after a break.
_RESUME = re.compile(r"torch_dynamo_resume_in_(?P<name>.+)_at_(?P<line>\d+)$")


class Break(NamedTuple):
    """One place where a graph ends."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


class Breaks:
    """The distinct graph breaks of one function, by file and line.

    Parameters
    ----------
    key : str
        The function.
    number : int or None
        How many are allowed; None for any number.
    action : {"error", "warn", "eager"}
        What happens beyond.
    origin : Origin or None
        Who set the limit.
    """

    def __init__(self, key: str, number: int | None, action: str, origin: Origin | None) -> None:
        self.key = key
        self.number = number
        self.action = action
        self.origin = origin
        self.found: dict[tuple[str, int], Break] = {}
        self.warned = False
        #: Set once the original function is to be run for every call.
        self.gave_up = False
        self._local = threading.local()

    @property
    def events(self) -> list[Any]:
        """Where this thread's events go."""
        found: list[Any] = getattr(self._local, "events", [])
        return found

    @events.setter
    def events(self, events: list[Any]) -> None:
        self._local.events = events

    def graph(self, module: Any) -> None:
        """Note the break, if any, that a captured graph ends with."""
        reason = getattr(module, "compile_subgraph_reason", None)
        if reason is None or not getattr(reason, "graph_break", False):
            return
        stack = getattr(reason, "user_stack", None) or []
        if stack:
            self.add(Break(stack[-1].filename, stack[-1].lineno or 0, _first_line(reason.reason)))

    def seen_behind(self, code: CodeType, reason: str) -> None:
        """Note a frame behind the entry that dynamo left as it is."""

    def skipped(self, code: CodeType, reason: str | None, failure: tuple[Any, ...] | None) -> None:
        """Note that the whole entry frame runs uncompiled."""
        file, line = code.co_filename, code.co_firstlineno
        text = reason or "dynamo skips it"
        if failure is not None:
            text = _first_line(failure[1])
            file, line = failure[2] or file, failure[3] or line
        self.add(Break(file, line, f"the whole frame runs uncompiled: {text}"))

    def add(self, found: Break) -> None:
        """Note a break, unless one at its place is known."""
        place = (found.file, found.line)
        if place in self.found:
            return
        self.found[place] = found
        self.events.append(
            (
                "graph-break",
                str(found),
                {"file": found.file, "line": found.line, "reason": found.reason},
            )
        )

    def check(self, *, behind: bool = False) -> None:
        """Do what the policy says if there are more breaks than allowed."""
        if self.number is None or len(self.found) <= self.number:
            return
        text = self._text()
        if self.action == "error":
            raise GraphBreakLimitError(text)
        if self.action == "eager":
            self.gave_up = True
        elif not self.warned:
            self.warned = True
            warnings.warn(text, XPolicyWarning, stacklevel=2)

    def _text(self) -> str:
        where = f"set at {self.origin}" if self.origin else "built-in"
        lines = [
            (
                f"{self.key} for torch has {len(self.found)} graph breaks: "
                f"graph-break-limit = {self.number} ({where})"
            )
        ]
        lines += [f"  {found}" for found in self.found.values()]
        lines.append(f"  fix: graph-break-limit = {len(self.found)}, or mend the places above")
        return "\n".join(lines)


def _first_line(text: str) -> str:
    return str(text).strip().splitlines()[0] if str(text).strip() else ""
