"""``xpolicy.warmup``: compile functions for the calls that policies name."""

from __future__ import annotations

import importlib
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from xpolicy.aot.arguments import arguments_for, spread
from xpolicy.aot.eager import EagerCall
from xpolicy.aot.lowering import lower
from xpolicy.aot.mismatch import signature_of
from xpolicy.aot.planning import Planned, plan
from xpolicy.aot.warmed import Warmed, WarmupError
from xpolicy.backends.registry import backend_for
from xpolicy.runtime.session import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from xpolicy.aot.planning import Name
    from xpolicy.errors import Problem

__all__ = ["Warmed", "WarmupError", "run", "warmup"]


def warmup(
    *names: Name,
    namespaces: Iterable[str] | None = None,
    jobs: int = 1,
    progress: Callable[[int, int, Warmed], None] | None = None,
    raise_on_failure: bool = False,
) -> list[Warmed]:
    """Compile functions for the calls that the ``warmup`` lists of policies name.

    Later calls of that kind find what is compiled, as after ``f.lower(...).compile()``;
    nothing of the functions runs.

    Parameters
    ----------
    *names : str, module or callable
        Packages, modules, function keys, or decorated functions. What a string names is
        imported if need be. Default: every decorated function that the process has.
    namespaces : iterable of str, optional
        The array libraries to compile for; they are imported if need be. Default: those
        that have a list of their own, and for other lists those that have a compiler here;
        of both, what the process has imported.
    jobs : int
        How many threads compile. Only what the compilers do outside of Python's lock goes
        on at the same time: a part of XLA's work, and torch beside jax. torch itself
        compiles one function at a time.
    progress : callable, optional
        Called after each call that was dealt with: how many were, how many there are, and
        its `Warmed`.
    raise_on_failure : bool
        Raise `WarmupError` at the end if one has failed.

    Returns
    -------
    list of Warmed
        What became of each call, in the order of functions and of their lists.

    Raises
    ------
    WarmupError
        If asked for, and one has failed.
    XPolicyError
        If a name is not one of a decorated function, or a library that is asked for isn't
        installed.
    PolicyFileError, EnvironmentPolicyError
        If a policy can't be used.

    Notes
    -----
    On torch a call is compiled for tensors that need no gradient, in the grad mode of the
    caller: under ``torch.no_grad()``, call ``warmup`` there. Worker threads take that mode
    and the context variables of the caller, no other setting that belongs to its thread.

    Examples
    --------
    >>> import xpolicy
    >>> xpolicy.warmup()
    []
    """
    planned = plan(names, namespaces)
    done = 0

    def ended(result: Warmed) -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, len(planned), result)

    results = run(planned, jobs=jobs, ended=ended)
    if raise_on_failure and any(result.failed for result in results):
        raise WarmupError(results)
    return results


def run(
    planned: list[Planned],
    *,
    jobs: int = 1,
    started: Callable[[Planned], None] | None = None,
    ended: Callable[[Warmed], None] | None = None,
) -> list[Warmed]:
    """Compile what was planned; both callables are told, by whichever thread."""

    def one(item: Planned) -> Warmed:
        if started is not None:
            started(item)
        result = item.settled or _compiled(item)
        if ended is not None:
            ended(result)
        return result

    if jobs < 1:
        raise ValueError(f"jobs={jobs}: at least one thread has to do it")
    if jobs == 1:
        return [one(item) for item in planned]
    mode = _grad_mode()

    def elsewhere(item: Planned) -> Warmed:
        with mode():
            return one(item)

    # A thread has none of the context variables of the one that made it.
    contexts = [copy_context() for _ in planned]
    with ThreadPoolExecutor(jobs, thread_name_prefix="xpolicy-warmup") as pool:
        futures = [
            pool.submit(context.run, elsewhere, item)
            for context, item in zip(contexts, planned, strict=True)
        ]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _grad_mode() -> Callable[[], Any]:
    """Return what gives another thread torch's grad mode of this one: variants differ by it."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return nullcontext
    if torch.is_inference_mode_enabled():
        return lambda: torch.inference_mode(mode=True)
    enabled = torch.is_grad_enabled()
    return lambda: torch.set_grad_enabled(enabled)


def _compiled(planned: Planned) -> Warmed:
    entry, namespace, call = planned.entry, planned.namespace, planned.call
    backend = backend_for(namespace)
    assert entry is not None
    assert backend is not None  # else it was settled
    try:
        signature = signature_of(entry.fn)
        importlib.import_module(backend.module)
        static = session.resolve(entry.key, namespace, entry).values.get("static_argnames")
        args, kwargs = spread(arguments_for(call, namespace, static or ()), signature)
        began = time.perf_counter()
        lowered = lower(entry, *args, **kwargs)
        if isinstance(lowered._stage, EagerCall):
            return planned.result("eager", reason=lowered._stage.reason)
        with backend.cache_watched() as counts:
            compiled = lowered.compile()
        seconds = time.perf_counter() - began
    except (Exception, SystemExit) as error:  # noqa: BLE001  # the function's own, or a compiler's
        raised = error if isinstance(error, Exception) else None
        return planned.failure(_told(planned, error), raised)
    if counts.outcome is None or compiled.seconds is None:
        why = compiled._stage.uncompiled
        if why:
            return planned.failure(planned.problem(_message(planned, why)))
        return planned.result("known", remaining=compiled.remaining)
    cache = counts.outcome
    return planned.result("compiled", seconds=seconds, cache=cache, remaining=compiled.remaining)


def _message(planned: Planned, why: str) -> str:
    return f"{planned.key} can't be compiled for {planned.namespace} as this call says: {why}"


def _told(planned: Planned, error: BaseException) -> Problem:
    lines = [line.strip() for line in str(error).strip().splitlines()] or [""]
    # Dynamo says first what it was doing, and below what came of it.
    more = next((line for line in lines if line.startswith("Explanation: ")), "")
    told = f"{type(error).__name__}: {lines[0]}"
    return planned.problem(_message(planned, f"{told} ({more})" if more else told))
