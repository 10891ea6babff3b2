"""Run the demo: ``python -m benchmarks.demo``."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.demo import digits, report
from benchmarks.demo.measure import Measurement
from benchmarks.demo.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parents[2]
POLICY = ROOT / "configs" / "demo.toml"
NAMESPACES = ("numpy", "jax", "torch")
STEPS = 3  # that a worker announces


class WorkerError(Exception):
    """A worker process failed; the text is what it wrote on standard error."""


def missing_for_inductor(environment: Mapping[str, str], include: str | None = None) -> str | None:
    """Return what torch's default compiler lacks on this machine, or None.

    On the CPU inductor writes C++ and needs a compiler and Python's own headers; a machine with
    Python and make alone may have neither.
    """
    compilers = [environment.get("CXX") or "", "g++", "clang++", "cl"]
    path = environment.get("PATH")
    if not any(name and shutil.which(name, path=path) for name in compilers):
        return "no C++ compiler (g++ or clang++)"
    headers = Path(include or sysconfig.get_path("include"))
    if not (headers / "Python.h").exists():
        return f"no Python headers ({headers / 'Python.h'})"
    return None


def worker_environment(
    outside: Mapping[str, str], policy: Path, caches: Path, **extra: str
) -> dict[str, str]:
    """Return the environment of a worker: that of this process, but no other policy in it.

    `caches` is an empty folder, so that the first call compiles; everything runs on the CPU, as
    NumPy does.
    """
    environment = {
        name: value
        for name, value in outside.items()
        if not name.startswith("XPOLICY_") and name != "JAX_COMPILATION_CACHE_DIR"
    }
    environment |= {
        "XPOLICY_PROJECT": "none",
        "XPOLICY_FILE": str(policy),
        "TORCHINDUCTOR_CACHE_DIR": str(caches),
        "JAX_PLATFORMS": "cpu",
    }
    return environment | extra


def run_worker(
    namespace: str, data: Path, environment: Mapping[str, str], progress: Progress, label: str
) -> tuple[Measurement, str]:
    """Measure one namespace in a process of its own; return its figures and its explanation."""
    command = [sys.executable, "-m", "benchmarks.demo.worker", namespace, str(data)]
    final: dict[str, Any] | None = None
    # Standard error goes to a file: two pipes read one after the other can fill and block.
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=dict(environment),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            message = json.loads(line)
            if "step" in message:
                progress.step(f"{namespace}, {label}: {message['step']}")
            else:
                final = message
        code = process.wait()
        errors.seek(0)
        complaint = errors.read()
    if code != 0 or final is None:
        raise WorkerError(f"{namespace}, {label}: exit status {code}\n{complaint}")
    return Measurement(**final["result"]), final["explain"]


def run_all(
    namespaces: Sequence[str],
    data: Path,
    policy: Path,
    extra: Mapping[str, str],
    progress: Progress,
) -> tuple[list[Measurement], str]:
    """Measure each namespace under one policy; return the figures and the last explanation."""
    label = extra.get("XPOLICY_MODE", "policy file")
    rows, explained = [], ""
    for namespace in namespaces:
        with tempfile.TemporaryDirectory(prefix="xpolicy-demo-") as caches:
            environment = worker_environment(os.environ, policy, Path(caches), **extra)
            row, explained = run_worker(namespace, data, environment, progress, label)
        rows.append(row)
    return rows, explained


def show(path: Path) -> str:
    """Return `path` as a reader would type it from the project's root."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def failures(compiled: Sequence[Measurement], eager: Sequence[Measurement]) -> list[str]:
    """Return what the demo promises and does not keep."""
    wrong = report.disagreements([*compiled, *eager])
    wrong += [
        f"{row.namespace}: XPOLICY_MODE=eager, and {row.compiler} compiled all the same"
        for row in eager
        if row.compiler is not None
    ]
    wrong += [
        f"{row.namespace} (mode {row.mode}): the compiler made {row.compilations} graphs, "
        f"and xpolicy.stats tells of {row.reported}"
        for row in (*compiled, *eager)
        if bool(row.compilations) != bool(row.reported)
    ]
    return wrong


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.demo", description=__doc__)
    parser.add_argument("--policy", type=Path, default=POLICY, help="policy file to run under")
    parser.add_argument(
        "--namespaces", nargs="+", choices=NAMESPACES, default=NAMESPACES, metavar="NAME"
    )
    return parser.parse_args()


def main() -> int:
    """Run, print, and check that the answers are the same everywhere."""
    options = arguments()
    policy = options.policy.resolve()
    ours = sorted(name for name in os.environ if name.startswith("XPOLICY_"))
    if ours:
        print(f"not used here: {', '.join(ours)} (the demo sets its own)", file=sys.stderr)

    extra: dict[str, str] = {}
    lacking = missing_for_inductor(os.environ) if "torch" in options.namespaces else None
    if lacking:
        extra["XPOLICY_TORCH__BACKEND"] = "aot_eager"
        print(f"{lacking}: XPOLICY_TORCH__BACKEND=aot_eager, which only traces", file=sys.stderr)

    try:
        with (
            tempfile.TemporaryDirectory(prefix="xpolicy-demo-") as folder,
            Progress(1 + 2 * STEPS * len(options.namespaces)) as progress,
        ):
            progress.step("load the digits")
            data = Path(folder, "digits.npz")
            digits.save(digits.load(), data)
            compiled, explained = run_all(options.namespaces, data, policy, extra, progress)
            eager, explained_eager = run_all(
                options.namespaces, data, policy, extra | {"XPOLICY_MODE": "eager"}, progress
            )
    except WorkerError as error:
        print(error, file=sys.stderr)
        return 1

    last = options.namespaces[-1]
    print("k-nearest-neighbour classification of 297 handwritten digits against 1500, float32, CPU")
    settings = " ".join(f"{k}={v}" for k, v in {"XPOLICY_FILE": show(policy), **extra}.items())
    print(f"\n{settings}\n\n{report.table(compiled)}\n\n{report.LEGEND}")
    print(f'\nxpolicy.explain(classify, "{last}")\n\n{explained}')
    print(f"\n{settings} XPOLICY_MODE=eager\n")
    print(report.table(eager, timed="decorated"))
    print(f'\nxpolicy.explain(classify, "{last}")\n\n{explained_eager}')

    wrong = failures(compiled, eager)
    for line in wrong:
        print(f"FAILED: {line}", file=sys.stderr)
    if not wrong:
        print(
            "\nThe predictions are the same everywhere; under XPOLICY_MODE=eager nothing compiled."
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
