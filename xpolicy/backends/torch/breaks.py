"""Graph breaks of one function: where, why, and how many are allowed."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from xpolicy.backends.once import Once
from xpolicy.backends.torch.quiet import WARNING
from xpolicy.errors import GraphBreakLimitError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

    from xpolicy._origin import Origin
    from xpolicy.backends.torch.private import Failure

#: How dynamo names the code that goes on after a break.
_RESUME = re.compile(r"torch_dynamo_resume_in_(?P<name>.+)_at_(?P<line>\d+)$")

#: What dynamo says of a frame without an operation on tensors: nothing breaks there.
_NOTHING_TO_DO = "No ops traced"


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
        self._warned = Once()
        #: Told what is to be called instead from now on; None is the original function.
        self.on_excess: Callable[[Callable[..., Any] | None], None] = lambda instead: None
        #: every place on the way to a break that is known
        self._on_the_way: set[tuple[str, int]] = set()
        #: breaks known when a function's latest part was compiled, by file and name
        self._known_at: dict[tuple[str, str], int] = {}
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
            self._on_the_way.update((call.filename, call.lineno or 0) for call in stack)
            self.add(Break(stack[-1].filename, stack[-1].lineno or 0, _first_line(reason.reason)))

    def resumed(self, code: CodeType, events: list[Any]) -> None:
        """Note the break that a frame resumes after, if its graph did not tell.

        A break with no operation before it ends no graph; only the code that goes on
        after it is seen. If a function that is called at that place has breaks of its own,
        those are what the caller broke at.
        """
        found = _RESUME.match(code.co_name)
        if found is None:
            return
        line = int(found["line"])
        known_before = self._known_at.get((code.co_filename, found["name"]), 0)
        if (code.co_filename, line) in self._on_the_way:
            return
        self._on_the_way.add((code.co_filename, line))
        if len(self.found) > known_before:
            return
        self.events = events
        self.add(Break(code.co_filename, line, f"graph break in {found['name']}"))

    def leaving(self, code: CodeType) -> None:
        """Remember how many breaks were known when a frame was compiled."""
        found = _RESUME.match(code.co_name)
        name = found["name"] if found else code.co_name
        self._known_at[code.co_filename, name] = len(self.found)

    def skipped(self, code: CodeType, reason: str | None, failure: Failure | None) -> None:
        """Note a frame that runs uncompiled as a whole."""
        file, line, text = code.co_filename, code.co_firstlineno, reason or "dynamo skips it"
        if failure is not None:
            text = failure.reason
            file, line = failure.file or file, failure.line or line
        text = _first_line(text)
        if _NOTHING_TO_DO in text:
            return
        self.add(Break(file, line, f"the whole of {code.co_name} runs uncompiled: {text}"))

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

    def forget(self) -> None:
        """Forget all breaks."""
        self.found.clear()
        self._on_the_way.clear()
        self._known_at.clear()
        self._warned.again()

    def check(self) -> bool:
        """Do what the policy says if there are more breaks than allowed.

        Returns
        -------
        bool
            Whether the function is to be run uncompiled from now on.

        Raises
        ------
        GraphBreakLimitError
            If the action is ``error``; every later call raises it too, before anything of
            the function has run.
        """
        if self.number is None or len(self.found) <= self.number:
            return False
        text = self._text()
        if self.action == "error":
            self.on_excess(_raising(text))
            raise GraphBreakLimitError(text)
        if self.action == "eager":
            self.on_excess(None)
            return True
        if self._warned.first():
            self.events.append((WARNING, text, {}))
        return False

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


def _raising(text: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise GraphBreakLimitError(text)

    return refuse


def _first_line(text: str) -> str:
    return str(text).strip().splitlines()[0] if str(text).strip() else ""
