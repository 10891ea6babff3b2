"""What functions may need in one test, and what is said when they need more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from xpolicy.policy.options import kebab
from xpolicy.policy.writing import dotted
from xpolicy.sources.positions import located

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xpolicy._origin import Origin
    from xpolicy.testing.watching import Seen

#: The budgets, with what is counted in words.
COUNTED = {
    "graph_breaks": "graph break",
    "compilations": "compilation",
    "compute_limit": "computation",
}


@dataclass(frozen=True)
class Budget:
    """How much of something a function may need.

    Parameters
    ----------
    number : int
        How much.
    place : str or Origin
        Who says so: the test's mark, or the place of a setting.
    """

    number: int
    place: str | Origin


def break_lines(seen: Seen) -> list[str]:
    """Return a line for each graph break: file, line, reason."""
    return [f"  {file}:{line}: {why}" for (file, line), why in sorted(seen.breaks.items())]


def recompilation_lines(seen: Seen) -> list[str]:
    """Return a line for each compilation: what it was for, and why it was needed."""
    causes = ["first", *seen.recompilations]
    # Without a cause that is known, the compiler has dropped an earlier variant.
    causes += ["an earlier variant was dropped"] * (len(seen.compilations) - len(causes))
    return [
        f"  {number}. {told} ({why})"
        for number, (told, why) in enumerate(zip(seen.compilations, causes, strict=False), start=1)
    ]


def computation_lines(seen: Seen) -> list[str]:
    """Return a line for each computation of a lazy array: file and line."""
    return [f"  {file}:{line}: the whole graph is computed" for file, line in seen.computations]


def excesses(seen: Seen, budgets: Mapping[str, Budget]) -> Iterator[str]:
    """Yield what a function needed beyond its budgets, and the setting that allows it.

    Parameters
    ----------
    seen : Seen
        What was needed.
    budgets : mapping of str to Budget
        By name: ``"graph_breaks"``, ``"compilations"``, ``"compute_limit"``.
    """
    needed = {
        "graph_breaks": (len(seen.breaks), break_lines),
        "compilations": (len(seen.compilations), recompilation_lines),
        "compute_limit": (len(seen.computations), computation_lines),
    }
    for name, what in COUNTED.items():
        budget = budgets.get(name)
        count, told = needed[name]
        if budget is None or count <= budget.number:
            continue
        lines = [
            (
                f"{seen.key} for {seen.namespace} needs {_counted(count, what)} in this test: "
                f"{kebab(name)} = {budget.number} ({_place(budget)})"
            )
        ]
        lines += told(seen)
        lines += [f"  to allow it: {line}" for line in _setting(name, count, seen, budget)]
        yield "\n".join(lines)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"


def _place(budget: Budget) -> str:
    if isinstance(budget.place, str):
        return budget.place
    return f"set at {located(budget.place, of='key')}"


def _setting(name: str, count: int, seen: Seen, budget: Budget) -> Iterator[str]:
    if isinstance(budget.place, str):
        yield f"@pytest.mark.xpolicy({name}={count})"
        return
    root = budget.place.key[: budget.place.key.index("testing") + 1]
    table = dotted((*root, "functions", seen.key, seen.namespace))
    yield f"{kebab(name)} = {count} under [{table}] in {budget.place.label}"
