"""Print what xpolicy costs, beside its peers: ``python -m benchmarks``."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import plot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.interleaved import Row
    from benchmarks.startup import Figure

PARTS = ("dispatch", "compiled", "startup", "resolution", "limits", "caches")
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
        The exit status: 0, or 1 if ``--check`` was given and a figure is above its bar.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--check", action="store_true", help="fail if a figure is above its bar")
    parser.add_argument("--plot", metavar="FILE", help="write the compiled part as an SVG picture")
    parser.add_argument("--only", default="", metavar="TEXT", help="calls whose name has TEXT")
    parser.add_argument("--calls", type=int, help="calls in a round (2000; compiled: 50)")
    parser.add_argument("--rounds", type=int, help="rounds (51; jax: 201, torch: 601)")
    options = parser.parse_args(arguments)
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"no part {unknown[0]!r}: {', '.join(PARTS)}")
    parts = options.parts or list(PARTS)

    # The machine's own policies are no part of what is measured.
    for name in [name for name in os.environ if name.startswith("XPOLICY_")]:
        del os.environ[name]
    os.environ["XPOLICY_PROJECT"] = "none"
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    given = {"calls": options.calls, "rounds": options.rounds}
    rows = calls(parts, options.only, {key: n for key, n in given.items() if n is not None})
    figures: list[Figure] = []
    if "startup" in parts:
        from benchmarks import startup

        figures += startup.figures()
    if "resolution" in parts:
        figures += resolution()
    if "limits" in parts:
        figures += limits()
    if "caches" in parts:
        from benchmarks import caches

        figures += caches.figures()

    if options.json:
        print(json.dumps(report(rows, figures), indent=2))
    else:
        print(table(rows, figures))
    if options.plot:
        picture = plot.svg(rows["compiled"], MACHINE.format_map(machine()))
        Path(options.plot).write_text(picture, encoding="utf-8")
    return 1 if options.check and above(rows, figures) else 0


def calls(parts: Sequence[str], only: str, given: dict[str, int]) -> dict[str, list[Row]]:
    """Measure the parts that are calls."""
    rows: dict[str, list[Row]] = {"dispatch": [], "compiled": []}
    if "dispatch" in parts:
        from benchmarks import dispatch

        cases = [case for case in dispatch.cases() if only in case.name]
        rows["dispatch"] = [dispatch.measure(case, **given) for case in cases]
    if "compiled" in parts:
        from benchmarks import peers

        compiled = [case for case in peers.cases() if only in case.name]
        rows["compiled"] = [peers.measure(case, **given) for case in compiled]
    return rows


def resolution() -> list[Figure]:
    """Measure loading and resolving large policies."""
    from benchmarks import resolution
    from benchmarks.startup import Figure

    return [
        Figure(
            row.name, row.ratio, "times", row.bar, f"{row.against}: {row.base_seconds * 1e3:.3g} ms"
        )
        for row in resolution.rows()
    ]


def limits() -> list[Figure]:
    """Measure what recompile limits cost calls that hit."""
    from benchmarks import limits
    from benchmarks.startup import Figure

    return [Figure(row.name, row.ratio, "times", row.bar, row.against) for row in limits.rows()]


def machine() -> dict[str, str | int | None]:
    """Return what the figures depend on."""
    from importlib.metadata import version

    from benchmarks import peers

    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        **{name: version(name) for name in ("xpolicy", "numpy", "torch", "jax")},
        **peers.installed(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:  # not Linux
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def report(rows: dict[str, list[Row]], figures: Sequence[Figure]) -> dict[str, Any]:
    """Return everything for machines."""
    return {
        "machine": machine(),
        **{part: [asdict(row) for row in found] for part, found in rows.items()},
        "figures": [asdict(figure) for figure in figures],
        "above": above(rows, figures),
    }


def above(rows: dict[str, list[Row]], figures: Sequence[Figure]) -> list[str]:
    """Name what is above its bar."""
    calls = [
        f"{row.name}: {row.ratios[kind]:.3f} of {kind}, bar {row.bars[kind]:g}"
        for found in rows.values()
        for row in found
        for kind in row.above()
    ]
    return calls + [
        f"{figure.name.strip()}: {figure.value:.2f} {figure.unit}, bar {round(figure.bar, 3):g}"
        for figure in figures
        if figure.above
    ]


def table(rows: dict[str, list[Row]], figures: Sequence[Figure]) -> str:
    """Write the medians as text."""
    from benchmarks.peers import PEERS, installed

    peers = [name for name in PEERS if name in installed()] if rows["compiled"] else []
    absent = [name for name in PEERS if name not in installed()] if rows["compiled"] else []
    lines = [MACHINE.format_map(machine())]
    if peers:
        lines.append(", ".join(f"{name} {installed()[name]}" for name in peers))
    if absent:
        lines.append(f"not installed: {', '.join(absent)} (make bench installs them)")
    calls = [row for found in rows.values() for row in found]
    if calls:
        lines += [
            "",
            "Added to the undecorated call, in ns (medians). The ratio is to bare,",
            "def bare(*args, **kwargs): return function(*args, **kwargs)",
            "",
            f"{'call':30}{'raw':>8}{'bare':>9}{'xpolicy':>9}{'ratio':>8}{'bar':>7}"
            + "".join(f"{name:>17}" for name in peers),
            *(_line(row, peers) for row in calls),
        ]
    if figures:
        lines += ["", f"{'before the first result':58}{'':14}{'bar':>7}"]
        lines += [
            f"{figure.name:58}{figure.value:8.2f} {figure.unit:5}"
            f"{'' if figure.bar is None else f'{round(figure.bar, 3):g}':>7}  {figure.note}".rstrip()
            for figure in figures
        ]
    over = above(rows, figures)
    return "\n".join([*lines, "", *(f"above its bar: {text}" for text in over)]).rstrip()


def _line(row: Row, peers: Sequence[str]) -> str:
    bar = row.bars.get("bare")
    # Over a compiled call the bare forwarder drowns in the call's own wandering.
    whole = "bare" not in row.bars and "raw" in row.bars
    ratio = row.ratios["raw" if whole else "bare"]
    shown = f"{ratio:.2f}" + ("*" if whole else "")
    promised = row.bars["raw"] if whole else bar
    beside = "".join(f"{_added(row, name):>17}" for name in peers)
    return (
        f"{row.name:30}{row.raw:8.0f}{_added(row, 'bare'):>9}{_added(row, 'xpolicy'):>9}"
        f"{shown:>8}{'' if promised is None else f'{promised:.2f}':>7}{beside}".rstrip()
    )


def _added(row: Row, kind: str) -> str:
    return f"{row.added[kind]:+,.0f}" if kind in row.added else ""


if __name__ == "__main__":
    sys.exit(main())
