"""Run array-api-extra's own tests under policy, in all three modes.

``make suite-array-api-extra`` downloads the library's source distribution into ``build/``
and runs its tests twice: as they are, and with the library's functions under policy. The
run fails if a test that passes as it is fails in mode eager, if a failure in another mode
was raised by no compiler, or if anything is worse than the ratchet file says.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import time
from collections import Counter
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
VERSION = "0.11.5"
MODES = ("eager", "compile", "fullgraph")
NAMESPACES = ("numpy", "torch", "jax", "array_api_strict")
#: The names of the parameters of the library's own fixture.
LIBRARIES = ("numpy", "numpy:readonly", "torch", "jax", "array_api_strict", "array_api_strictest")
POLICY = ROOT / "configs" / "array-api-extra.toml"
RATCHET = ROOT / "configs" / "ratchets" / "array-api-extra.toml"
#: What CI runs: one quick test, with arrays, of each of so many functions.
SLICE = {
    "TestAngle": "test_simple",
    "TestApplyWhere": "test_xp",
    "TestAtLeastND": "test_1D_values",
    "TestCov": "test_xp",
    "TestCreateDiagonal": "test_xp",
    "TestDeg2Rad": "test_bool",
    "TestExpandDims": "test_axis_tuple",
    "TestIsClose": "test_xp",
    "TestIsIn": "test_simple",
    "TestKron": "test_xp",
    "TestNUnique": "test_simple",
    "TestNanMax": "test_simple",
    "TestNanMean": "test_simple",
    "TestNanMin": "test_simple",
    "TestNanSum": "test_simple",
    "TestNanToNum": "test_complex",
    "TestOneHot": "test_2d",
    "TestPad": "test_ndim",
    "TestRad2Deg": "test_bool",
    "TestSetDiff1D": "test_xp",
    "TestSinc": "test_xp",
    "TestUnion1d": "test_simple",
}
#: As in the library's own pyproject.toml: its tests turn warnings into errors.
INI = """\
[pytest]
addopts = --strict-markers --import-mode=importlib
filterwarnings = error
xfail_strict = true
markers =
    skip_xp_backend(library, /, *, reason=None): as the library's tests use it
    xfail_xp_backend(library, /, *, reason=None, strict=None): as the library's tests use it
    thread_unsafe: as the library's tests use it
"""


def download(version: str, folder: Path) -> Path:
    """Download and unpack the source distribution; return its folder."""
    unpacked = folder / f"array_api_extra-{version}"
    if not unpacked.exists():
        # Its build tool comes as a wheel; only the library itself must be a source.
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--no-binary", "array-api-extra"]
        command += ["--dest", str(folder), f"array-api-extra=={version}"]
        subprocess.run(command, check=True)
        with tarfile.open(folder / f"array_api_extra-{version}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    return unpacked


def installed() -> Path:
    """Return the folder of the installed library's tests; its wheels hold them."""
    spec = find_spec("array_api_extra")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "tests" / "main"


def run(
    tests: Path,
    source: Path | None,
    folder: Path,
    name: str,
    namespaces: str,
    options: list[str],
) -> tuple[dict[str, Any], str, int]:
    """Run the tests once; return what came of each, what pytest said, and its exit status."""
    ini, outcomes = folder / "pytest.ini", folder / f"{name}.json"
    ini.write_text(INI, encoding="utf-8")
    outcomes.unlink(missing_ok=True)
    paths = [str(source)] if source is not None else []
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*paths, str(ROOT)]),
        "SUITE_NAMESPACES": namespaces,
        "SUITE_OUTCOMES": str(outcomes),
        "XPOLICY_FILE": str(POLICY),
        "XPOLICY_PROJECT": "none",
        "JAX_PLATFORMS": "cpu",
    }
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider"]
    command += ["-p", "benchmarks.suite.recorder", "-c", str(ini), "--rootdir", str(tests)]
    done = subprocess.run(
        [*command, *options, str(tests)],
        env=environ,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if not outcomes.exists():
        raise SystemExit(done.stdout)
    (folder / f"{name}.txt").write_text(done.stdout, encoding="utf-8")
    return json.loads(outcomes.read_text(encoding="utf-8")), done.stdout, done.returncode


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


def report(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Print how many tests passed where; return what is wrong."""
    passed: Counter[tuple[str, str]] = Counter()
    total: Counter[tuple[str, str]] = Counter()
    for stage, found in (("as it is", before), ("", after)):
        for nodeid, one in found.items():
            test, mode = split(nodeid) if not stage else (nodeid, stage)
            column = (library_of(test), mode or "no mode")
            if one["outcome"] in ("passed", "failed"):
                total[column] += 1
                passed[column] += one["outcome"] == "passed"
    heads = ("as it is", *MODES)
    print(f"\n{'tests passed':20}", *(f"{head:>12}" for head in heads))
    for library in (*LIBRARIES, "any"):
        if not any(total[library, head] for head in heads):
            continue
        cells = [(passed[library, head], total[library, head]) for head in heads]
        told = [f"{good}/{count}" if count else "-" for good, count in cells]
        print(f"{library:20}", *(f"{cell:>12}" for cell in told))
    wrong: list[str] = []
    reasons: Counter[str] = Counter()
    for nodeid, one in after.items():
        test, mode = split(nodeid)
        if one["outcome"] != "failed":
            continue
        was = before.get(test, {}).get("outcome")
        if mode in ("", "eager"):
            if was == "passed":
                wrong.append(f"passes as it is, fails in mode eager: {nodeid}: {one['error']}")
        elif was == "passed" and one["by"] is None:
            wrong.append(f"fails, and no compiler says why: {nodeid}: {one['error']}")
        else:
            reasons[f"{mode:9} {one['by']}: {one['error'][:110]}"] += 1
    print("\nwhat compilers refused, and how often:")
    for reason, count in reasons.most_common():
        print(f"{count:4} {reason}")
    return wrong


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.suite", description=__doc__)
    parser.add_argument("--version", default=VERSION, help="of array-api-extra")
    parser.add_argument("--installed", action="store_true", help="take the installed tests")
    parser.add_argument("--record", action="store_true", help="write the ratchet file anew")
    parser.add_argument("--select", help="only these tests, as pytest's -k takes it")
    parser.add_argument("--slice", action="store_true", help="only what CI runs of them")
    parser.add_argument("--namespaces", default=",".join(NAMESPACES))
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "suite")
    given = parser.parse_args()
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if given.installed:
        tests, source = installed(), None
    else:
        unpacked = download(given.version, folder)
        tests, source = unpacked / "tests" / "main", unpacked / "src"
    if given.slice:
        given.select = " or ".join(f"({cls} and {test})" for cls, test in SLICE.items())
    select = ["-k", given.select] if given.select else []
    start = time.monotonic()
    before, _, _ = run(tests, source, folder, "as-it-is", given.namespaces, select)
    options = ["-p", "benchmarks.suite.governed", *select, "-vv"]  # with -q: the table, too
    if not entry_points(group="pytest11", name="xpolicy"):
        options += ["-p", "xpolicy.pytest_plugin"]
    options += [f"--xpolicy-modes={','.join(MODES)}", f"--xpolicy-namespaces={given.namespaces}"]
    options += [f"--xpolicy-ratchet={RATCHET}", *(["--xpolicy-record"] if given.record else [])]
    after, said, status = run(tests, source, folder, "governed", given.namespaces, options)
    _, mark, table = said.rpartition("= xpolicy =")
    print(mark + table)
    wrong = report(before, after)
    for line in wrong:
        print(f"WRONG: {line}")
    print(f"\n{time.monotonic() - start:.0f} s; pytest's own words are in {folder}")
    worse = "WORSE than" in table or (not given.record and not RATCHET.exists())
    return 1 if wrong or worse or status not in (0, 1) else 0


if __name__ == "__main__":
    raise SystemExit(main())
