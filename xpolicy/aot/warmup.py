"""``xpolicy.warmup``: compile functions for the calls that policies name."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from contextvars import copy_context
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from xpolicy.aot.arguments import argument_problems, arguments_for, spread
from xpolicy.aot.eager import EagerCall
from xpolicy.aot.lowering import entry_of, lower
from xpolicy.aot.mismatch import signature_of
from xpolicy.aot.warmed import Warmed, WarmupError
from xpolicy.backends.registry import backend_for, imported, option_table
from xpolicy.errors import BackendOptionError, Problem, XPolicyError
from xpolicy.policy.options import nearest
from xpolicy.policy.resolve import device_matters
from xpolicy.policy.warmup import WARMUP, calls, written_key
from xpolicy.runtime.entry import Entry, entries
from xpolicy.runtime.explain import checked_namespace, where
from xpolicy.runtime.session import find, place, session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from xpolicy.backends.base import Backend
    from xpolicy.policy.layers import Layer, Rule
    from xpolicy.policy.warmup import WarmupCall

    Name = str | ModuleType | Callable[..., Any]

__all__ = ["Warmed", "WarmupError", "plan", "run", "warmup"]


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


# --- what there is to do -------------------------------------------------------------


@dataclass(frozen=True)
class Planned:
    """One call to compile for one namespace; `settled` if nothing is left to do."""

    key: str
    entry: Entry | None
    namespace: str
    call: WarmupCall
    settled: Warmed | None = None

    def result(self, status: str, **told: Any) -> Warmed:
        """Say what became of it."""
        origin = where(self.call.origin)
        return Warmed(self.key, self.namespace, str(self.call), status, origin=origin, **told)

    def problem(self, message: str, **told: Any) -> Problem:
        """Say what is wrong with it, and where it stands."""
        call = self.call
        told.setdefault("value", str(call))
        key = written_key(call)
        return place(Problem(message, origin=call.origin, key=key, layer=call.layer, **told))

    def failure(self, problem: Problem, error: Exception | None = None) -> Warmed:
        """Say that it has failed."""
        return self.result("failed", reason=problem.message, problem=problem, error=error)


def plan(
    names: Iterable[Name],
    namespaces: Iterable[str] | None = None,
    usable: Callable[[Backend], bool] = imported,
) -> list[Planned]:
    """Return the calls that functions are to be compiled for.

    Parameters
    ----------
    names, namespaces
        As `warmup` has them.
    usable : callable
        Which compilers a list is for that names none.
    """
    option_table(plugins=True)
    asked = None if namespaces is None else _asked(namespaces)
    return [
        planned
        for key, entry in _functions(tuple(names)).items()
        for planned in _planned(key, entry, asked, usable)
    ]


def _asked(namespaces: Iterable[str]) -> list[str]:
    found = list(dict.fromkeys(map(checked_namespace, namespaces)))
    for name in found:
        backend = backend_for(name)
        if backend is not None and not installed(backend):
            problem = Problem(
                f"nothing can be compiled for {name}: {backend.module} isn't installed",
                fix=f"install {backend.module}, or ask for another namespace",
            )
            raise BackendOptionError([problem])
    return found


def installed(backend: Backend) -> bool:
    """Return whether a compiler's library is there, without importing it."""
    return imported(backend) or importlib.util.find_spec(backend.module) is not None


def _functions(names: tuple[Name, ...]) -> dict[str, Entry | None]:
    """Return the functions that are named, and what else lists name below those names."""
    if not names:
        found: dict[str, Entry | None] = {entry.key: entry for entry in entries()}
        for layer in _layers(entry.package for entry in entries()):
            for rule in layer.warmup:
                found.setdefault(str(rule.pattern), None)
        return found
    found = {}
    for name in names:
        if isinstance(name, (str, ModuleType)):
            found |= _below(name)
        else:
            entry = entry_of(name)
            found[entry.key] = entry
    return found


def _below(name: str | ModuleType) -> dict[str, Entry | None]:
    """Return the functions of a package or module, or the one that has a key."""
    prefix = name if isinstance(name, str) else name.__name__
    if isinstance(name, str):
        find(name)  # a name that is none is told before any of its parts is imported
        _import(name)
    keys = {
        str(rule.pattern)
        for layer in _layers([prefix.partition(".")[0]])
        for rule in layer.warmup
        if f"{rule.pattern}.".startswith(f"{prefix}.")
    }
    if isinstance(name, str):
        for key in keys:  # the user has named their package
            _import(key)
    there = {
        entry.key: entry
        for entry in entries()
        if any(f"{at}.".startswith(f"{prefix}.") for at in (entry.key, _module(entry)))
    }
    if not there and not keys and prefix not in sys.modules:
        raise XPolicyError(f"there is no module and no decorated function {prefix!r} here")
    return there | dict.fromkeys(sorted(keys - there.keys()))


def _module(entry: Entry) -> str:
    return getattr(entry.fn, "__module__", None) or entry.key


def _layers(packages: Iterable[str]) -> list[Layer]:
    """Return the layers that lists may stand in, without those of a decorator."""
    session.loaded()
    if session.disabled:
        return []
    libraries = [session.library(package)[0] for package in dict.fromkeys(packages)]
    return [*libraries, *session.loaded().layers, *session.everywhere]


def _import(name: str) -> None:
    """Import the longest part of a dotted name that is a module."""
    reached = ""
    for part in name.split("."):
        reached = f"{reached}.{part}" if reached else part
        if reached not in sys.modules:
            try:
                if importlib.util.find_spec(reached) is None:
                    return
            except (ImportError, ValueError):  # what is above is no package
                return
            importlib.import_module(reached)


def _planned(
    key: str, entry: Entry | None, asked: list[str] | None, usable: Callable[[Backend], bool]
) -> Iterator[Planned]:
    layers = session.layers_for(key, entry)
    rules = [rule for layer in layers for rule in layer.warmup if rule.pattern == key]
    if not rules:
        return
    for namespace in asked if asked is not None else _compilers(rules, usable):
        backend = backend_for(namespace)
        ready = backend is None or asked is not None or usable(backend)
        device = None
        if backend is not None and ready and any(rule.device is not None for rule in rules):
            device = _default_device(backend)
        for call in calls(layers, key, namespace, device) or ():
            planned = Planned(key, entry, namespace, call)
            settled = _settled(planned, layers, backend, ready=ready)
            yield Planned(key, entry, namespace, call, settled)


def _compilers(rules: list[Rule], usable: Callable[[Backend], bool]) -> list[str]:
    """Return the namespaces that lists are for: those named, and every one with a compiler."""
    named = {rule.namespace for rule in rules}
    found = []
    for name in option_table().namespaces:
        backend = backend_for(name)
        if name in named or (None in named and backend is not None and usable(backend)):
            found.append(name)
    return found


def _default_device(backend: Backend) -> str | None:
    importlib.import_module(backend.module)
    scalar = backend.placeholder("float32", (), weak=False, device=None)
    return backend.device_of(scalar)


def _settled(
    planned: Planned, layers: list[Layer], backend: Backend | None, *, ready: bool
) -> Warmed | None:
    """Return what can be said without importing or compiling anything."""
    key, namespace = planned.key, planned.namespace
    if planned.entry is None:
        return _unknown(planned)
    signature = signature_of(planned.entry.fn)
    for problem in argument_problems(planned.call, signature, key):
        return planned.failure(place(problem))
    if backend is None:
        return planned.result("eager", reason=f"nothing compiles for {namespace}")
    if not ready:
        state = "imported" if installed(backend) else "installed"
        return planned.result("skipped", reason=f"{backend.module} isn't {state}")
    if not device_matters(layers, key, namespace):
        policy = session.resolve(key, namespace, planned.entry)
        if policy.mode == "eager":
            return planned.result("eager", reason=_eager(policy, namespace))
    return None


def _eager(policy: Any, namespace: str) -> str:
    said = policy.provenance.get("supports" if policy.requested_mode != "eager" else "mode")
    by = f" ({where(said.winner.origin)})" if said is not None else ""
    return f"its mode for {namespace} is eager{by}"


def _unknown(planned: Planned) -> Warmed:
    package = planned.key.partition(".")[0]
    if package not in sys.modules:
        return planned.result("skipped", reason=f"{package} isn't imported")
    near = nearest(planned.key, [entry.key for entry in entries()])
    problem = planned.problem(
        f"{package} is imported, and none of its decorated functions is {planned.key}",
        value=planned.key,
        nearest=near,
        fix=f'write [functions."{near}"]' if near else f"remove its {WARMUP} list",
    )
    return planned.failure(problem)


# --- doing it ------------------------------------------------------------------------


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
    except Exception as error:  # noqa: BLE001  # the function's own, or whatever a compiler raises
        return planned.failure(_told(planned, error), error)
    if counts.outcome is None or compiled.seconds is None:
        why = compiled._stage.uncompiled
        if why:
            return planned.failure(planned.problem(_message(planned, why)))
        return planned.result("known", remaining=compiled.remaining)
    cache = counts.outcome
    return planned.result("compiled", seconds=seconds, cache=cache, remaining=compiled.remaining)


def _message(planned: Planned, why: str) -> str:
    return f"{planned.key} can't be compiled for {planned.namespace} as this call says: {why}"


def _told(planned: Planned, error: Exception) -> Problem:
    first = (str(error).strip().splitlines() or [""])[0]
    return planned.problem(_message(planned, f"{type(error).__name__}: {first}"))
