"""What came of the runs: how many tests passed where, and who is to blame for the rest."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from benchmarks.suite.library import LIBRARIES
from benchmarks.suite.running import MODES

if TYPE_CHECKING:
    from benchmarks.suite.running import Outcomes


def split(nodeid: str) -> tuple[str, str]:
    """Return a test's id without its mode, and the mode."""
    for mode in MODES:
        for end in (f"-{mode}]", f"[{mode}]"):
            if nodeid.endswith(end):
                return nodeid.removesuffix(end) + ("]" if end.startswith("-") else ""), mode
    return nodeid, ""


def library_of(nodeid: str) -> str:
    """Return which of the library's backends a test is for."""
    parameters = nodeid.rpartition("[")[2].removesuffix("]").split("-")
    return next((name for name in parameters if name in LIBRARIES), "any")


def passed(before: Outcomes, after: Outcomes) -> list[str]:
    """Return a table of how many tests passed, by library and mode."""
    good: Counter[tuple[str, str]] = Counter()
    total: Counter[tuple[str, str]] = Counter()
    for stage, found in (("as it is", before), ("", after)):
        for nodeid, one in found.items():
            test, mode = split(nodeid) if not stage else (nodeid, stage)
            column = (library_of(test), mode or "no mode")
            if one["outcome"] in ("passed", "failed"):
                total[column] += 1
                good[column] += one["outcome"] == "passed"
    heads = ("as it is", *MODES)
    lines = [" ".join([f"{'tests passed':20}", *(f"{head:>12}" for head in heads)])]
    for library in (*LIBRARIES, "any"):
        if not any(total[library, head] for head in heads):
            continue
        cells = [(good[library, head], total[library, head]) for head in heads]
        told = [f"{count}/{of}" if of else "-" for count, of in cells]
        lines.append(" ".join([f"{library:20}", *(f"{cell:>12}" for cell in told)]))
    return lines


def unexplained(before: Outcomes, after: Outcomes) -> list[str]:
    """Return the ids of tests that pass as they are and fail in a compiled mode."""
    return [
        nodeid
        for nodeid, one in after.items()
        if one["outcome"] == "failed"
        and split(nodeid)[1] in MODES[1:]
        and before.get(split(nodeid)[0], {}).get("outcome") == "passed"
    ]


def judged(before: Outcomes, after: Outcomes, plain: Outcomes) -> tuple[list[str], list[str]]:
    """Say who is to blame for each failure.

    Parameters
    ----------
    before, after : dict
        What came of the tests as they are, and under policy.
    plain : dict
        What came of those that fail in a compiled mode under the compiler alone, with
        warnings ignored.

    Returns
    -------
    wrong : list of str
        Failures that are ours: a test that passes as it is and fails in mode eager, or
        one that passes under the compiler alone.
    reasons : list of str
        What compilers say of the others, and how often.
    """
    wrong = [
        f"passes as it is, fails in mode eager: {nodeid}: {one['error']}"
        for nodeid, one in after.items()
        if one["outcome"] == "failed"
        and split(nodeid)[1] in ("", "eager")
        and before.get(split(nodeid)[0], {}).get("outcome") == "passed"
    ]
    reasons: Counter[str] = Counter()
    for nodeid in unexplained(before, after):
        alone, error = plain.get(nodeid, {"outcome": "not run"}), after[nodeid]["error"]
        if alone["outcome"] != "failed":
            told = f"{alone['outcome']} under the compiler alone, fails under policy"
            wrong.append(f"{told}: {nodeid}: {error}")
        else:
            mode, library = split(nodeid)[1], library_of(split(nodeid)[0])
            reasons[f"{mode:9} {library:5} {alone['error'][:100]}"] += 1
    return wrong, [f"{count:4} {reason}" for reason, count in reasons.most_common()]


def compared(after: Outcomes, strict: Outcomes, ignoring: Outcomes) -> list[str]:
    """Return a table: tests that a compiler has to do with, under policy and without.

    Parameters
    ----------
    after : dict
        What came of the tests under policy; warnings are errors.
    strict, ignoring : dict
        What came of them under the compilers alone, with warnings as errors and ignored.
    """
    lines = [f"{'compiled tests that pass':42} {'compile':>12} {'fullgraph':>12}"]
    for library in ("torch", "jax"):
        # A test that stops at a warning has reached its compiler as well.
        tests = {
            split(nodeid)[0]
            for nodeid, one in ignoring.items()
            if one.get("compiled") and library_of(split(nodeid)[0]) == library
        }
        if not tests:
            continue
        for title, found in (
            ("under policy, warnings are errors", after),
            ("compiler alone, warnings are errors", strict),
            ("compiler alone, warnings ignored", ignoring),
        ):
            good = Counter(
                split(nodeid)[1]
                for nodeid, one in found.items()
                if split(nodeid)[0] in tests and one["outcome"] == "passed"
            )
            cells = " ".join(f"{f'{good[mode]}/{len(tests)}':>12}" for mode in MODES[1:])
            lines.append(f"{library:6}{title:36} {cells}")
    return lines
