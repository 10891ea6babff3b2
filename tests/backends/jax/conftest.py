"""Policies resolved as they are for users, and a count of what XLA really compiled."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import jax
import pytest

from xpolicy._origin import Origin
from xpolicy.backends.base import Event, Request
from xpolicy.backends.jax import backend, misses
from xpolicy.policy.layers import Layer, Rule, builtin_layer
from xpolicy.policy.options import OptionTable
from xpolicy.policy.resolve import ResolvedPolicy, resolve

if TYPE_CHECKING:
    from collections.abc import Callable

PROJECT = Origin("file", "/app/xpolicy.toml", line=7)
TABLE = OptionTable([backend.spec])


def policy_for(
    key: str = "mylib.f",
    *,
    extra: dict[str, Any] | None = None,
    origin: Origin = PROJECT,
    **options: Any,
) -> ResolvedPolicy:
    """Resolve options that stand on line 7 of a project file, or elsewhere."""
    project = Layer("project", "/app/xpolicy.toml", [Rule(options, origin, key, "jax")])
    layers = [builtin_layer(TABLE)]
    if extra:
        code = Origin("code", "/app/mylib.py", line=3)
        author = Rule({}, code, key, "jax", extra=extra, declared=True)
        layers.append(Layer("author", "/app/mylib.py", [author]))
    return resolve([*layers, project], TABLE, key, "jax")


class Made:
    """A function compiled under a policy, and what was told about it."""

    def __init__(self, function: Callable[..., Any], policy: ResolvedPolicy) -> None:
        self.events: list[Event] = []
        self.request = Request(function, policy.key, policy, self.events.append)
        self.lowered = backend.lower(policy)
        self.call = backend.compile(self.request, self.lowered)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(*args, **kwargs)

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


def made(
    function: Callable[..., Any],
    *,
    extra: dict[str, Any] | None = None,
    origin: Origin = PROJECT,
    **options: Any,
) -> Made:
    return Made(function, policy_for(extra=extra, origin=origin, **options))


class Compilations:
    """Counts programs that XLA compiled under a name, in any thread."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._lock = threading.Lock()

    def record(self, event: str, _duration: float, **told: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            with self._lock:
                self._names.append(str(told.get("fun_name")))

    def of(self, name: str) -> int:
        return self._names.count(f"jit({name})")


_COUNTER = Compilations()
jax.monitoring.register_event_duration_secs_listener(_COUNTER.record)


@pytest.fixture
def compilations() -> Compilations:
    _COUNTER._names.clear()
    return _COUNTER


@pytest.fixture
def make() -> Callable[..., Made]:
    return made


@pytest.fixture
def policy() -> Callable[..., ResolvedPolicy]:
    return policy_for


@pytest.fixture(params=["hook", "public"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with jax's private parts and without: what users see is the same."""
    if request.param == "public":
        monkeypatch.setattr(misses, "hook_works", lambda: False)
        monkeypatch.setattr(misses, "_trace_state_clean", lambda: None)
    return request.param
