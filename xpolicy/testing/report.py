"""The end of a test session: the ratchet, proposals, and what is told of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from xpolicy.runtime.session import find, session
from xpolicy.testing import ratchet
from xpolicy.testing.outcomes import declared
from xpolicy.testing.proposals import proposal

if TYPE_CHECKING:
    import pytest

    from xpolicy.testing.run import Run


class Report:
    """What a session has to say when it is over.

    Parameters
    ----------
    run : Run
        The session.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.failed = False
        self.lines: list[str] = []
        self.rows: dict[ratchet.Name, ratchet.Row] = {}

    def finish(self, *, complete: bool) -> None:
        """Record, or compare; write what is to be written.

        Parameters
        ----------
        complete : bool
            Whether the session ran to its end.
        """
        run = self.run
        self.rows = ratchet.gather(run.observed)
        if run.record:
            self._record(complete)
        elif run.recorded:
            self._compare()
        if run.proposal is not None:
            self._propose(run.proposal)
        if run.record or run.config.get_verbosity() > 0:
            self._unknown()

    def _unknown(self) -> None:
        """Tell of functions that tests call, but never by themselves."""
        traced = {(name, space) for one in self.run.observed for name, space in one["traced"]}
        names = [f"{key} for {namespace}" for key, namespace in sorted(traced - self.rows.keys())]
        if names:
            self.lines.append(
                f"nothing is known of {', '.join(names)}: tests call it under another "
                "function's trace only, where its own policy is not applied"
            )

    def _record(self, complete: bool) -> None:
        file = self.run.ratchet
        if not complete:
            self.lines.append(f"{file.name} was not written: the run did not come to its end")
            return
        if not self.rows:
            self.lines.append(
                f"{file.name} was not written: no test marked xpolicy has called a function "
                f"under policy with arrays that have a compiler"
            )
            return
        kept = {name: row for name, row in self.run.recorded.items() if name not in self.rows}
        text = ratchet.written({**kept, **self.rows})
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", newline="\n")
        rest = f"; {len(kept)} that did not run stay as they were" if kept else ""
        self.lines.append(f"{file.name}: {len(self.rows)} recorded{rest}")

    def _compare(self) -> None:
        found = ratchet.compare(self.run.recorded, self.rows)
        name = self.run.ratchet.name
        self.failed = bool(found.worse)
        if found.worse:
            self.lines.append(f"WORSE than {name}:")
            self.lines += found.worse
            self.lines.append(f"to accept it: pytest --xpolicy-record, and commit {name}")
        if found.better:
            self.lines.append(f"better than {name} (pytest --xpolicy-record keeps it so):")
            self.lines += found.better
        if found.new:
            self.lines.append(f"not in {name}: {', '.join(found.new)}")

    def _propose(self, file: str) -> None:
        now: dict[ratchet.Name, str] = {}
        for key, namespace in self.rows:
            said = declared(session.resolve(key, namespace, find(key)[1]))
            if said is not None:
                now[key, namespace] = said
        text = proposal(self.rows, now)
        if file == "-":
            self.lines += text.splitlines()
        else:
            Path(self.run.config.rootpath, file).write_text(text, encoding="utf-8", newline="\n")
            self.lines.append(f"{file}: what each function supports")

    def write(self, terminal: pytest.TerminalReporter) -> None:
        """Write it, and a table of all functions when asked for (``-v``) or recording."""
        verbose = self.run.config.get_verbosity() > 0
        table = self._table() if self.run.record or verbose else []
        if not self.lines and not table:
            return
        terminal.section("xpolicy", sep="=", **({"red": True} if self.failed else {}))
        for line in (*table, *self.lines):
            terminal.write_line(line)

    def _table(self) -> list[str]:
        if not self.rows:
            return []
        head = ("function", "namespace", "mode reached", "breaks in compile", "recompilations")
        body = [
            (key, namespace, row.mode, _count(row.graph_breaks), _count(row.recompilations))
            for (key, namespace), row in self.rows.items()
        ]
        widths = [max(len(line[i]) for line in (head, *body)) for i in range(len(head))]
        return [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in (head, *body)
        ]


def _count(number: int | None) -> str:
    return "-" if number is None else str(number)
