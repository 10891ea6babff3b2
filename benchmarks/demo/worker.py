"""Measure one namespace in a process of its own: ``… -m benchmarks.demo.worker torch DATA``.

A process each, because peak memory is a process's, and because nothing that one run compiled,
imported or configured may help the next. The environment decides the policy, as for any
programme. Standard output is one JSON object a line: ``{"step": …}`` when something begins, and
``{"result": …, "explain": …}`` at the end.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.demo import counting, measure

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.demo.digits import Digits

__all__ = ["main"]

STEADY_CALLS = 2  # of the decorated function, before peak memory is read


def say(**message: Any) -> None:
    """Tell the process that started this one."""
    print(json.dumps(message), flush=True)


def waiting(function: Callable[..., Any], digits: Digits) -> Callable[[], Any]:
    """Return a call of `function` that returns only when its result is there.

    Reading the result into NumPy waits for it in every library (jax computes asynchronously); it
    is 297 integers, and the same cost on both sides.
    """
    import numpy as np

    return lambda: np.asarray(function(digits.queries, digits.samples, digits.one_hot, k=3))


def measured(namespace: str, file: Path) -> tuple[measure.Measurement, str]:
    """Return the figures, and the ``explain`` table."""
    say(step="import and load")
    import xpolicy
    from benchmarks.demo import digits as data
    from benchmarks.demo.neighbours import classify

    digits = data.to_namespace(data.read(file), namespace)
    decorated = waiting(classify, digits)
    eager = waiting(classify.__wrapped__, digits)
    mode = str(xpolicy.resolve(classify, namespace).mode)
    compilations = counting.watch(classify, namespace)
    memory_before = measure.peak_memory()

    compiles = namespace in counting.COMPILERS and mode != "eager"
    say(step="first call (compiles)" if compiles else "first call")
    start = time.perf_counter()
    predictions = decorated()
    first_call = time.perf_counter() - start
    for _ in range(STEADY_CALLS):
        decorated()
    memory_after = measure.peak_memory()

    say(step="time calls")
    eager()  # jax compiles each single operation at its first use: not what is timed here
    eager_time, decorated_time, calls = measure.interleaved_medians(eager, decorated)
    result = measure.Measurement(
        namespace=namespace,
        mode=mode,
        compiler=counting.COMPILERS[namespace] if compilations() else None,
        compilations=compilations(),
        reported=classify.stats()[namespace].compilations,
        accuracy=float((predictions == digits.truth).mean()),
        predictions=hashlib.sha256(predictions.astype("int64").tobytes()).hexdigest(),
        eager=eager_time,
        decorated=decorated_time,
        first_call=first_call,
        memory_before=memory_before,
        memory_after=memory_after,
        calls=calls,
    )
    return result, str(xpolicy.explain(classify, namespace))


def main(arguments: list[str]) -> int:
    """Measure the namespace that is named first, on the data in the file named second."""
    namespace, file = arguments
    result, explained = measured(namespace, Path(file))
    say(result=dataclasses.asdict(result), explain=explained)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
