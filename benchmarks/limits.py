"""What recompile limits cost a call that hits, as ratios: ``python -m benchmarks.limits``.

A compiled function with a limit stands beside the same function without one, and beside the
compiler alone (`torch.compile`, `jax.jit`). All are called in turn, round after round, and a
ratio is the median over the rounds of the ratio within a round. The body is as small as can
be and torch's backend is ``"eager"``, so that the call is all there is: a real kernel brings
each ratio nearer to 1.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import logging
import statistics
import sys
import warnings
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.interleaved import times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: Within noise: of the compiler alone on torch, and on both of the same function without a
#: limit. (Over `jax.jit` alone the dispatcher shows, which is measured where it belongs.)
BAR = 1.1
ACTIONS = ("error", "warn", "eager")


@dataclass(frozen=True)
class Row:
    """One ratio, and the most that it may be.

    Parameters
    ----------
    name, against : str
        What is called, and what it is compared with.
    ratio : float
        Median over the rounds of the ratio of their times in one round.
    seconds, base_seconds : float
        Median times of one call.
    bar : float or None
        What the ratio must not exceed; None where nothing was promised.
    """

    name: str
    against: str
    ratio: float
    seconds: float
    base_seconds: float
    bar: float | None = BAR

    @property
    def holds(self) -> bool:
        """Whether the ratio is within its bar."""
        return self.bar is None or self.ratio <= self.bar


def double() -> Callable[..., Any]:
    """Return a function that does next to nothing, from a place in the source of its own.

    Torch remembers by file and line which sizes have changed, and makes them dynamic in
    whatever is compiled from there next: guards on those are slower by 18 %.
    """
    scope: dict[str, Any] = {}
    place = f"<double {next(_places)}>"
    exec(compile("def double(x):\n    return x + x\n", place, "exec"), scope)  # ours
    made: Callable[..., Any] = scope["double"]
    return made


_places = itertools.count()


def _limited(namespace: str, mode: str, action: str | None) -> Callable[..., Any]:
    """Return the function compiled by xpolicy, with a limit unless there is no action."""
    import xpolicy

    options: dict[str, Any] = {"backend": "eager"} if namespace == "torch" else {}
    if action is not None:
        options |= {"recompile_limit": 2, "on_recompile_limit": action}
    named: Any = {"name": f"benchmarks.{mode}.{action}", "mode": mode, namespace: options}
    made: Callable[..., Any] = xpolicy.compile(**named)(double())
    return made


def _beyond(function: Callable[..., Any], ones: Callable[..., Any]) -> Callable[..., Any]:
    """Fill a function's variants and go beyond its limit: hits must stay what they were."""
    from xpolicy.errors import RecompileLimitError, XPolicyWarning

    logger = logging.getLogger("xpolicy")
    logger.disabled = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", XPolicyWarning)
            for shape in ((3,), (2, 2), (2, 2, 2)):
                with contextlib.suppress(RecompileLimitError):
                    function(ones(shape))
    finally:
        logger.disabled = False
    return function


def _cases(mode: str) -> Iterator[tuple[str, dict[str, Callable[..., Any]], Any]]:
    """Yield for each compiler its name, the callables, and the array that they are called with."""
    import jax
    import jax.numpy as jnp
    import torch

    torch._dynamo.reset()  # torch.compile alone has one list of variants for all modes
    alone: dict[str, Callable[..., Any]] = {
        "torch": torch.compile(double(), backend="eager", fullgraph=mode == "fullgraph"),
        "jax": jax.jit(double()),
    }
    made: dict[str, Callable[..., Any]] = {"torch": torch.ones, "jax": jnp.ones}
    for namespace, ones in made.items():
        kinds: dict[str, Callable[..., Any]] = {
            "alone": alone[namespace],
            "no limit": _limited(namespace, mode, None),
        }
        for action in ACTIONS:
            kinds[action] = _limited(namespace, mode, action)
        # As many variants on each side: torch looks through them in turn.
        for kind in ("alone", "no limit"):
            for shape in ((3,), (2, 2)):
                kinds[kind](ones(shape))
        for action in ACTIONS:
            _beyond(kinds[action], ones)
        yield namespace, kinds, ones(3)


def rows(*, calls: int = 200, rounds: int = 51) -> list[Row]:
    """Measure everything.

    Parameters
    ----------
    calls : int
        Calls of each kind in a round.
    rounds : int
        Rounds that the medians are over.
    """
    found: list[Row] = []
    for mode in ("compile", "fullgraph"):
        for namespace, kinds, array in _cases(mode):
            measured = times(kinds, (array,), {}, calls=calls, rounds=rounds)
            found += [
                _row(f"{namespace}, {mode}, {action}", base, measured, action)
                for action in ACTIONS
                for base in ("alone", "no limit")
            ]
    return found


def _row(name: str, base: str, measured: dict[str, list[float]], action: str) -> Row:
    pairs = list(zip(measured[action], measured[base], strict=True))
    compiler = "torch.compile" if name.startswith("torch") else "jax.jit"
    return Row(
        f"call with a limit: {name}",
        compiler if base == "alone" else "without a limit",
        statistics.median(a / b for a, b in pairs),
        statistics.median(a for a, _ in pairs) * 1e-9,
        statistics.median(b for _, b in pairs) * 1e-9,
        None if base == "alone" and compiler == "jax.jit" else BAR,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the ratios; return 1 if ``--check`` was given and one is above its bar."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limits", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--check", action="store_true", help="fail if a ratio is above its bar")
    options = parser.parse_args(arguments)
    found = rows()
    if options.json:
        print(json.dumps([asdict(row) for row in found], indent=2))
    else:
        for row in found:
            print(
                f"{row.name}: {row.ratio:.3f} times {row.against}"
                f"{'' if row.bar is None else f' (at most {row.bar:g})'}, "
                f"{row.seconds * 1e6:.2f} against {row.base_seconds * 1e6:.2f} µs"
            )
    return 1 if options.check and not all(row.holds for row in found) else 0


if __name__ == "__main__":
    sys.exit(main())
