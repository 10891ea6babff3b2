"""Which calls `xpolicy.warmup` compiles: of which functions, for which libraries."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from xpolicy.aot.arguments import argument_problems
from xpolicy.aot.lowering import entry_of
from xpolicy.aot.mismatch import signature_of
from xpolicy.aot.warmed import Warmed
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
