"""Loading and resolving large policies, as ratios: ``python -m benchmarks.resolution``.

- Loading and checking a file of 10,000 function rules, against what nobody can do without:
  `tomli.loads` and one pydantic validation of the same text.
- Resolving one function among 10,000 rules, against the same among 10: an index, not a scan.

Both sides of a ratio run in turn in the same process, and the smallest of their times counts:
what else the machine does only ever adds to a time.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import tomli

from xpolicy.backends.registry import option_table
from xpolicy.policy.conditions import Facts
from xpolicy.policy.document import models, read_document
from xpolicy.policy.layers import Layer, builtin_layer
from xpolicy.policy.resolve import resolve
from xpolicy.sources.toml import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RULES = 10_000
FEW = 10
FACTS = Facts("3.12.0", {}.get)


@dataclass(frozen=True)
class Row:
    """One line of the table: two times in seconds, and the most that their ratio may be."""

    name: str
    seconds: float
    against: str
    base_seconds: float
    bar: float

    @property
    def ratio(self) -> float:
        """How many times as long it takes."""
        return self.seconds / self.base_seconds

    @property
    def holds(self) -> bool:
        """Whether the ratio is within its bar."""
        return self.ratio <= self.bar


def policy_text(rules: int) -> str:
    """Return a policy file of so many function rules: keys and patterns, two options each."""
    lines = []
    for number in range(rules):
        # Every tenth is a pattern.
        name = f"lib.part{number}.*" if number % 10 == 0 else f"lib.part{number % 100}.f{number}"
        lines += [
            f'[functions."{name}".torch]',
            f"recompile-limit = {number + 1}",
            "dynamic = true",
        ]
    return "\n".join(lines)


def load(text: str) -> Layer:
    """Load and check a policy text."""
    document = parse(text, "xpolicy.toml", "project")
    layer, problems = read_document(
        document.data, document.origin, "project", option_table(), FACTS, version="0.1"
    )
    assert not problems
    return layer


def best(rounds: int, *works: Callable[[], object]) -> list[float]:
    """Return the smallest time of each piece of work, all run in turn."""
    times = [float("inf")] * len(works)
    for work in works:
        work()  # what is made once, such as pydantic's models, is no part of it
    for _ in range(rounds):
        for number, work in enumerate(works):
            began = time.perf_counter()
            work()
            times[number] = min(times[number], time.perf_counter() - began)
    return times


def loading(rounds: int = 5) -> Row:
    """Measure loading a large file against parsing it and one pydantic validation."""
    text = policy_text(RULES)
    model = models(option_table()).document
    ours, least = best(rounds, lambda: load(text), lambda: model.model_validate(tomli.loads(text)))
    name = f"load and check {RULES:,} function rules"
    return Row(name, ours, "tomli.loads and one pydantic validation", least, bar=5.0)


def resolving(rounds: int = 51, calls: int = 100) -> Row:
    """Measure resolving one function among many rules against the same among few."""
    table = option_table()
    base = builtin_layer(table)

    def work(rules: int) -> Callable[[], object]:
        # The function itself, a pattern above it, and a rule for all reach it in both.
        named = '[torch]\ndynamic = false\n[functions."lib.part1.f1"]\nmode = "fullgraph"\n'
        layers = [base, load(named + policy_text(rules))]

        def run() -> None:
            for _ in range(calls):
                resolve(layers, table, "lib.part1.f1", "torch")

        return run

    many, few = (seconds / calls for seconds in best(rounds, work(RULES), work(FEW)))
    name = f"resolve one function among {RULES:,} rules"
    return Row(name, many, f"among {FEW}", few, bar=2.0)


def rows() -> list[Row]:
    """Measure everything."""
    return [loading(), resolving()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the ratios; return 1 if ``--check`` was given and one is above its bar."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resolution", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--check", action="store_true", help="fail if a ratio is above its bar")
    options = parser.parse_args(arguments)
    found = rows()
    if options.json:
        print(json.dumps([{**asdict(row), "ratio": row.ratio} for row in found], indent=2))
    else:
        for row in found:
            print(f"{row.name}: {row.ratio:.2f} times {row.against} (at most {row.bar:g})")
            print(f"    {row.seconds * 1e3:.3f} ms, {row.base_seconds * 1e3:.3f} ms")
    return 1 if options.check and not all(row.holds for row in found) else 0


if __name__ == "__main__":
    sys.exit(main())
