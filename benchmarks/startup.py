"""What a program pays before its first result: imports, decoration, the first call.

Each figure is of processes of their own. Where a ratio was promised the processes run in
turn, and the ratio is of medians; where a time was promised the smallest of the processor
times counts: what else the machine does only ever adds to it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Figure", "decoration", "figures", "first_call", "imports", "policy_text"]

RULES = 100

PROGRAMS = {
    "python -c pass": "pass",
    "import xpolicy": "import xpolicy",
    "import and decorate": "import xpolicy\n@xpolicy.compile\ndef f(x, n=1): return x",
}

DECORATION = """
import gc, json, time, tracemalloc
import xpolicy

def made():
    scope = {"__name__": "package.module"}
    for number in range(1000):
        exec(f"def f{number}(x, y, n=1, *, axis=None): ...", scope)
    return [scope[f"f{number}"] for number in range(1000)]

xpolicy.compile(made()[0])
times = []
for _ in range(7):
    functions = made()
    gc.collect()
    start = time.process_time()
    kept = [xpolicy.compile(function) for function in functions]
    times.append(time.process_time() - start)
functions = made()
gc.collect()
tracemalloc.start()
kept = [xpolicy.compile(function) for function in functions]
print(json.dumps([min(times), tracemalloc.get_traced_memory()[0] / 1000]))
"""

# What is imported, and pydantic's models of the options (classes, made when first needed),
# is told apart from the policy itself: reading the file, checking it, resolving.
FIRST_CALL = """
import importlib, json, sys, time
import numpy, torch
import xpolicy

@xpolicy.compile(name="lib.part1.f1")
def f(x):
    return x

clock = time.process_time
begin = clock()
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
from xpolicy.backends.registry import option_table
from xpolicy.policy.document import models
imported = clock()
models(option_table())
modelled = clock()
assert xpolicy.resolve(f, "torch").torch.recompile_limit == 3
resolved = clock()
f(torch.ones(1))
called = clock()
f(numpy.ones(1))
again = clock()
steps = [begin, imported, modelled, resolved, called, again]
print(json.dumps({
    "steps": [b - a for a, b in zip(steps, steps[1:])],
    "modules": [name for name in sys.modules if name.startswith(("xpolicy.", "platformdirs."))
                or name in ("tomllib", "tomli", "pydantic", "packaging.version")],
}))
"""

NUMPY = """
import json, sys, time
import numpy
import xpolicy

@xpolicy.compile
def f(x):
    return x

x = numpy.ones(1)
start = time.process_time()
f(x)
took = time.process_time() - start
assert "pydantic" not in sys.modules
print(json.dumps(took))
"""


@dataclass(frozen=True)
class Figure:
    """One line of the table.

    Parameters
    ----------
    name : str
        What was measured.
    value : float
        The figure.
    unit : str
        ``"ms"``, ``"bytes"``, or ``"times"`` for a ratio.
    bar : float or None
        What it must not exceed; None where nothing was promised.
    note : str
        What else belongs to it.
    """

    name: str
    value: float
    unit: str
    bar: float | None = None
    note: str = ""

    @property
    def above(self) -> bool:
        """Whether it is above its bar."""
        return self.bar is not None and self.value > self.bar


class Python:
    """Runs programs with bytecode that is cached, whatever the environment says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / ".git").mkdir(exist_ok=True)  # no project is looked for above
        self.environ = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("XPOLICY_") and name != "PYTHONDONTWRITEBYTECODE"
        }
        self.environ["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
        self.environ["XDG_CONFIG_HOME"] = str(folder / "none")

    def run(self, program: str, *arguments: str, **variables: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            cwd=self.folder,
            env={**self.environ, **variables},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return done.stdout

    def answer(self, program: str, *arguments: str, **variables: str) -> Any:
        return json.loads(self.run(program, *arguments, **variables))


def imports(python: Python, runs: int = 20) -> list[Figure]:
    """Measure importing and decorating against an empty program, in turn."""
    times: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    names = list(PROGRAMS)
    for name in names:
        python.run(PROGRAMS[name])  # writes the bytecode
    for index in range(runs):
        for place in range(len(names)):
            name = names[(index + place) % len(names)]
            start = time.perf_counter()
            python.run(PROGRAMS[name])
            times[name].append(time.perf_counter() - start)
    least = statistics.median(times["python -c pass"])
    return [
        Figure(
            f"{name}, over python -c pass",
            statistics.median(times[name]) / least,
            "times",
            bar,
            f"{(statistics.median(times[name]) - least) * 1e3:+.1f} ms, {runs} runs",
        )
        for name, bar in (("import xpolicy", 1.15), ("import and decorate", 1.6))
    ]


def decoration(python: Python) -> list[Figure]:
    """Measure decorating a thousand functions of one parameter list."""
    seconds, size = python.answer(DECORATION)
    return [
        Figure("decorate 1,000 functions", seconds * 1e3, "ms", 40.0),
        Figure("memory of a decorated function", size, "bytes", 2000.0, "tracemalloc"),
    ]


def policy_text(rules: int = RULES) -> str:
    """Return a policy file of so many function rules, half of them patterns."""
    lines = []
    for number in range(rules // 2):
        lines += [
            f'[functions."lib.part{number}.*".torch]',
            f"recompile-limit = {number + 2}",
            "dynamic = true",
            f'[functions."lib.part{number}.g{number}".jax]',
            'mode = "eager"',
        ]
    return "\n".join(lines)


def first_call(python: Python, runs: int = 9) -> list[Figure]:
    """Measure the first call under a project file of a hundred rules, step by step."""
    (python.folder / "xpolicy.toml").write_text(policy_text(), encoding="utf-8")
    try:
        eager = {"XPOLICY_MODE": "eager"}  # a compiler's own time is no part of it
        modules = python.answer(FIRST_CALL, "[]", **eager)["modules"]
        answers = [
            python.answer(FIRST_CALL, json.dumps(modules), **eager)["steps"] for _ in range(runs)
        ]
    finally:
        (python.folder / "xpolicy.toml").unlink()
    imported, modelled, resolved, called, _ = (
        min(steps) * 1e3 for steps in zip(*answers, strict=True)
    )
    total = imported + modelled + resolved + called
    numpy = min(python.answer(NUMPY) for _ in range(runs)) * 1e3
    return [
        Figure("first call with torch, 100 rules", total, "ms", None, "eager: nothing compiles"),
        Figure("  of it, imports", imported, "ms"),
        Figure("  of it, models of the options", modelled, "ms", None, "once a process"),
        Figure(
            "  of it, policy resolution", resolved, "ms", 5.0, f"{resolved / total:.0%} of the call"
        ),
        Figure("first call with numpy, no policy", numpy, "ms", None, "looks for plugins"),
    ]


def figures(runs: int = 20) -> list[Figure]:
    """Measure everything."""
    with tempfile.TemporaryDirectory() as folder:
        python = Python(Path(folder))
        return [*imports(python, runs), *decoration(python), *first_call(python)]
