"""The demo's tables, as plain text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.demo.measure import Measurement

__all__ = ["LEGEND", "disagreements", "table"]

LEGEND = """\
eager       median time of a call of the function as written; on jax and torch, operation by operation
compiled    median time of a call through @xpolicy.compile, taking turns with the eager ones
first call  of the decorated function, with all that it imports and compiles (caches empty)
peak        resident memory of the process at its highest (VmHWM; ru_maxrss where there is none),
            one process a row, read before it makes any eager call, without inductor's C++
            compiler; in brackets how much of it came with the calls, compilation included
break-even  (first call - one compiled call) / (eager - compiled): calls until compiling has paid"""


def table(rows: Sequence[Measurement], *, timed: str = "compiled") -> str:
    """Return `rows` as an aligned table; `timed` heads the column of the decorated function."""
    header = (
        "namespace",
        "mode",
        "compiler",
        "accuracy",
        "eager",
        timed,
        "first call",
        "peak (by calls)",
        "break-even",
    )
    cells = [header, *(_cells(row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = []
    for row in cells:
        texts = (cell.ljust(width) for cell, width in zip(row[:3], widths, strict=False))
        figures = (cell.rjust(width) for cell, width in zip(row[3:], widths[3:], strict=True))
        lines.append("  ".join((*texts, *figures)))
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def _cells(row: Measurement) -> tuple[str, ...]:
    return (
        row.namespace,
        row.mode,
        row.compiler or "none",
        f"{row.accuracy:.4f}",
        f"{row.eager * 1e3:.1f} ms",
        f"{row.decorated * 1e3:.1f} ms",
        f"{row.first_call:.2f} s",
        _memory(row),
        _break_even(row.break_even),
    )


def _memory(row: Measurement) -> str:
    if row.memory_before is None or row.memory_after is None:
        return "not measured"
    megabytes = 1e6
    grown = row.memory_after - row.memory_before
    return f"{row.memory_after / megabytes:.0f} MB (+{grown / megabytes:.0f})"


def _break_even(calls: float | None) -> str:
    if calls is None:
        return "-"
    return "never" if math.isinf(calls) else f"{max(1, math.ceil(calls)):,} calls"


def disagreements(rows: Sequence[Measurement]) -> list[str]:
    """Return a line for each row whose predictions differ from the first one's."""
    return [
        f"{row.namespace} (mode {row.mode}) predicts otherwise than {rows[0].namespace} "
        f"(mode {rows[0].mode}): accuracy {row.accuracy:.6f} against {rows[0].accuracy:.6f}"
        for row in rows[1:]
        if row.predictions != rows[0].predictions or row.accuracy != rows[0].accuracy
    ]
