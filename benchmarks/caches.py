"""What a warm cache saves a program: ``python -m benchmarks.caches``.

A program imports its library, decorates a function and calls it, in a process of its own:
with an empty cache (cold), with what the cold one left behind (warm), and with that
exported to a file and imported into another folder (shipped). Two times are taken: of the
calls, which is what a cache can save, and of the whole process until it has its first
result, imports included.

There are two programs. One calls one function once, which is 20 s of work for inductor and
half a second for XLA: less than jax takes to be imported, so nothing was promised for it
there. The other one calls a function with samples of 76 lengths, for each of which jax
compiles anew.

Policies are read before the calls are timed (``python -m benchmarks startup`` times that);
inductor is imported in them. A cold process has a machine of its own, as far as that goes:
no folder for temporary files that another one has used, for there torch keeps the headers
that it compiles. So has one whose cache was shipped.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.startup import Figure

if TYPE_CHECKING:
    from collections.abc import Sequence

NAMESPACES = ("torch", "jax")
BAR = 3.0

_PROGRAM = """
import json, sys, time
if sys.argv[1] == "torch":
    import torch as xp
else:
    import jax.numpy as xp
import numpy
import xpolicy
{body}
xpolicy.caches()
began = time.perf_counter()
result = first_result()
print(json.dumps([time.perf_counter() - began, time.time(), result]))
"""

#: Optimal transport by Sinkhorn's iteration in logarithms, and the order of what it costs:
#: what scientific code is like. Nothing in it makes inductor leave its cache alone, as a
#: call of LAPACK does.
TRANSPORT = """
def log_sum(x):
    top = xp.amax(x, 1)
    return top + xp.log(xp.sum(xp.exp(x - top[:, None]), 1))

@xpolicy.compile
def transport(cost, f):
    for _ in range(5):
        g = -log_sum(f[None, :] - cost.T)
        f = -log_sum(g[None, :] - cost)
    plan = xp.exp(f[:, None] + g[None, :] - cost)
    ranks = xp.argsort(xp.argsort(plan, 1), 1)
    spent = xp.sum(plan * cost * ranks, 1)
    return xp.cumsum(spent[xp.argsort(spent)], 0)

x = xp.linspace(0.0, 5.0, 200)
cost, f = (x[:, None] - x[None, :] ** 2) ** 2, 0.0 * x

def first_result():
    return float(numpy.asarray(transport(cost, f)).sum())
"""

#: Spearman's correlation of samples, no two of which are of one length.
RANKS = """
@xpolicy.compile
def rank_correlation(x, y):
    rows = xp.stack((x, y))
    ranks = xp.argsort(xp.argsort(rows, 1), 1)
    centred = ranks - xp.mean(ranks, 1)[:, None]
    spread = xp.sqrt(xp.sum(centred**2, 1))
    return xp.sum(centred[0] * centred[1]) / (spread[0] * spread[1])

x = numpy.linspace(0.0, 5.0, 2000)
samples = [(xp.asarray(x[:n]), xp.asarray(numpy.sin(7 * x[:n]))) for n in range(100, 2000, 25)]

def first_result():
    return sum(float(rank_correlation(x, y)) for x, y in samples)
"""


@dataclass(frozen=True)
class Case:
    """One program with one compiler.

    Parameters
    ----------
    namespace : str
        Whose compiler.
    calls : str
        What the program calls, in the table.
    body : str
        What it defines.
    bar : float or None
        How many times as quick a warm one must at least be; None where nothing was promised.
    """

    namespace: str
    calls: str
    body: str
    bar: float | None = None


CASES = (
    Case("torch", "1 call", TRANSPORT, BAR),
    Case("jax", "1 call", TRANSPORT),
    Case("jax", "76 lengths", RANKS, BAR),
)


@dataclass(frozen=True)
class Row:
    """One ratio: how many times as long a cold process takes.

    Parameters
    ----------
    namespace : str
        Whose compiler.
    calls : str
        What the program calls.
    kind : {"warm", "shipped"}
        With the folder that a cold process left, or with an imported one.
    what : str
        What was timed.
    cold, seconds : float
        Medians over the runs.
    bar : float or None
        What the ratio must at least be; None where nothing was promised.
    """

    namespace: str
    calls: str
    kind: str
    what: str
    cold: float
    seconds: float
    bar: float | None

    @property
    def ratio(self) -> float:
        """How many times as quick it is as a cold one."""
        return self.cold / self.seconds

    @property
    def holds(self) -> bool:
        """Whether the ratio reaches its bar."""
        return self.bar is None or self.ratio >= self.bar


def _environ(folder: Path) -> dict[str, str]:
    machine = folder.with_name(f"{folder.name}-machine")
    machine.mkdir(exist_ok=True)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("XPOLICY_", "TORCHINDUCTOR_", "JAX_COMPILATION"))
    }
    return {
        **kept,
        "XPOLICY_PROJECT": "none",
        "XPOLICY_CACHE__DIR": str(folder),
        "JAX_PLATFORMS": "cpu",
        "XDG_CONFIG_HOME": str(folder / "none"),
        # A machine on which nothing was ever compiled: inductor keeps compiled headers
        # below the folder for temporary files, outside of its cache.
        "TMPDIR": str(machine),
    }


def first_result(case: Case, folder: Path) -> tuple[float, float, float]:
    """Run the program; return seconds of its calls, of the process, and the result."""
    began = time.time()
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(body=case.body), case.namespace],
        env=_environ(folder),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    call, ended, result = json.loads(done.stdout)
    return call, ended - began, result


def _ship(cold: Path, into: Path, file: Path) -> None:
    for verb, folder in (("export", cold), ("import", into)):
        subprocess.run(
            [sys.executable, "-m", "xpolicy", "cache", verb, str(file)],
            env=_environ(folder),
            stdout=subprocess.DEVNULL,
            check=True,
        )


def measure(case: Case, base: Path, runs: int) -> list[Row]:
    """Measure one program, cold, warm and shipped in turn."""
    times: dict[str, list[tuple[float, float, float]]] = {"cold": [], "warm": [], "shipped": []}
    first_result(case, base / "before")  # the disk's cache, and bytecode, are warm for all
    for run in range(runs):
        folder, other = base / f"{run}", base / f"{run}-shipped"
        times["cold"].append(first_result(case, folder))
        _ship(folder, other, base / f"{run}.caches")
        times["shipped"].append(first_result(case, other))
        times["warm"].append(first_result(case, folder))
    results = {round(result, 3) for found in times.values() for *_, result in found}
    assert len(results) == 1, results
    return [
        Row(
            case.namespace,
            case.calls,
            kind,
            what,
            statistics.median(found[place] for found in times["cold"]),
            statistics.median(found[place] for found in times[kind]),
            case.bar,
        )
        for place, what in enumerate(("calls", "process"))
        for kind in ("warm", "shipped")
    ]


def rows(namespaces: Sequence[str] = NAMESPACES, runs: int = 3) -> list[Row]:
    """Measure everything."""
    found: list[Row] = []
    for case in CASES:
        if case.namespace in namespaces:
            with tempfile.TemporaryDirectory() as base:
                found += measure(case, Path(base), runs)
    return found


def figures() -> list[Figure]:
    """Return the ratios the other way round, warm over cold, for the one table."""
    return [
        Figure(
            f"{row.namespace}, {row.calls}: {row.what}, {row.kind} over cold cache",
            1.0 / row.ratio,
            "times",
            None if row.bar is None else 1.0 / row.bar,
            f"{row.seconds:.2f} s against {row.cold:.2f} s",
        )
        for row in rows()
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the ratios; return 1 if ``--check`` was given and one is below its bar."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.caches", description=__doc__)
    parser.add_argument("namespaces", nargs="*", metavar="NAMESPACE", help="torch, jax; both")
    parser.add_argument("--runs", type=int, default=3, help="processes of each kind (3)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--check", action="store_true", help="fail if a ratio is below its bar")
    options = parser.parse_args(arguments)
    found = rows(options.namespaces or NAMESPACES, options.runs)
    if options.json:
        told: list[dict[str, Any]] = [{**asdict(row), "ratio": row.ratio} for row in found]
        print(json.dumps(told, indent=2))
    else:
        for row in found:
            bar = "" if row.bar is None else f" (at least {row.bar:g})"
            print(
                f"{row.namespace}, {row.calls}: {row.what}, {row.kind}: {row.ratio:.1f} times as "
                f"quick as cold{bar}, {row.seconds:.2f} s against {row.cold:.2f} s"
            )
    return 1 if options.check and not all(row.holds for row in found) else 0


if __name__ == "__main__":
    sys.exit(main())
