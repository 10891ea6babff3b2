"""Print the table: ``python -m benchmarks``."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.dispatch import Cost


MACHINE = (
    "{processor}, {cores} cores, {implementation} {python}, torch {torch}, jax {jax}, numpy {numpy}"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks.

    Parameters
    ----------
    arguments : sequence of str, optional
        The command line without the program's name.

    Returns
    -------
    int
        The exit status: 0, or 1 if ``--check`` was given and a ratio is above its bar.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--check", action="store_true", help="fail if a ratio is above its bar")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name has TEXT")
    parser.add_argument("--calls", type=int, default=2000, help="calls in a round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=51, help="rounds (%(default)s)")
    options = parser.parse_args(arguments)

    # The machine's own policies are no part of what is measured.
    for name in [name for name in os.environ if name.startswith("XPOLICY_")]:
        del os.environ[name]
    os.environ["XPOLICY_PROJECT"] = "none"
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    from benchmarks import dispatch

    costs = [
        dispatch.measure(case, calls=options.calls, rounds=options.rounds)
        for case in dispatch.cases()
        if options.only in case.name
    ]
    if options.json:
        report = {"machine": machine(), "dispatch": [asdict(cost) for cost in costs]}
        print(json.dumps(report, indent=2))
    else:
        print(table(costs))
    above = [cost for cost in costs if cost.bar is not None and cost.ratio > cost.bar]
    return 1 if options.check and above else 0


def machine() -> dict[str, str | int | None]:
    """Return what the figures depend on."""
    from importlib.metadata import version

    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        **{name: version(name) for name in ("xpolicy", "numpy", "torch", "jax")},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:  # not Linux
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def table(costs: Sequence[Cost]) -> str:
    """Write the medians as text, nanoseconds and ratios."""
    about = machine()
    lines = [
        "Overhead over the undecorated call of a function that returns None, in ns (medians).",
        "bare: def bare(*args, **kwargs): return function(*args, **kwargs)",
        MACHINE.format_map(about),
        "",
        f"{'call':30}{'raw':>8}{'bare':>9}{'xpolicy':>9}{'ratio':>8}{'bar':>7}",
    ]
    for cost in costs:
        bar = "" if cost.bar is None else f"{cost.bar:.1f}"
        above = "  above" if cost.bar is not None and cost.ratio > cost.bar else ""
        lines.append(
            f"{cost.name:30}{cost.raw:8.0f}{f'+{cost.bare:.0f}':>9}"
            f"{f'+{cost.decorated:.0f}':>9}{cost.ratio:8.2f}{bar:>7}{above}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
