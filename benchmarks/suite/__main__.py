"""Run array-api-extra's own tests under policy, in all three modes.

``make suite-array-api-extra`` downloads the library's source distribution into ``build/``
and runs its tests as they are, and with the library's functions under policy. Those that
fail in a compiled mode are run once more with ``torch.compile`` or ``jax.jit`` alone. It
fails if a test that passes as it is fails in mode eager, if one that fails in a compiled
mode passes under the compiler alone, or if anything is worse than the ratchet file says.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.suite.library import SLICE, VERSION, download, installed
from benchmarks.suite.report import compared, judged, passed, unexplained
from benchmarks.suite.running import ROOT, Suite

NAMESPACES = ("numpy", "torch", "jax", "array_api_strict")
RATCHET = ROOT / "configs" / "ratchets" / "array-api-extra.toml"


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.suite", description=__doc__)
    parser.add_argument("--version", default=VERSION, help="of array-api-extra")
    parser.add_argument("--installed", action="store_true", help="take the installed tests")
    parser.add_argument("--record", action="store_true", help="write the ratchet file anew")
    parser.add_argument("--select", help="only these tests, as pytest's -k takes it")
    parser.add_argument("--slice", action="store_true", help="only what CI runs of them")
    parser.add_argument("--compare", action="store_true", help="all with the compilers alone, too")
    parser.add_argument("--namespaces", default=",".join(NAMESPACES))
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "suite")
    given = parser.parse_args()
    start = time.monotonic()
    suite = _suite(given)
    before = suite.as_it_is()
    after, said, status = suite.governed(RATCHET, record=given.record)
    _, mark, table = said.rpartition("= xpolicy =")
    print(mark + table)
    failed = unexplained(before, after)
    if given.compare:
        alone = suite.plain("plain", ignore=True)
        strict = suite.plain("plain-strict", ignore=False)
        print("\n".join([*compared(after, strict, alone), ""]))
    else:
        alone = suite.plain("plain", ignore=True, only=failed)
    print("\n".join(passed(before, after)))
    wrong, reasons = judged(before, after, alone)
    print(f"\n{len(failed)} fail in a compiled mode and pass as they are. The compiler alone says:")
    print("\n".join(reasons))
    for line in wrong:
        print(f"WRONG: {line}")
    print(f"\n{time.monotonic() - start:.0f} s; pytest's own words are in {suite.folder}")
    worse = "WORSE than" in table or (not given.record and not RATCHET.exists())
    return 1 if wrong or worse or status not in (0, 1) else 0


def _suite(given: argparse.Namespace) -> Suite:
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if given.installed:
        tests, source = installed(), None
    else:
        unpacked = download(given.version, folder)
        tests, source = unpacked / "tests" / "main", unpacked / "src"
    select = given.select
    if given.slice:
        select = " or ".join(f"({cls} and {test})" for cls, test in SLICE.items())
    return Suite(tests, source, folder, given.namespaces, select)


if __name__ == "__main__":
    raise SystemExit(main())
