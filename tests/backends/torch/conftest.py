"""Functions compiled under real policies: layers go in, `resolve` decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from xpolicy._origin import Origin
from xpolicy.backends.base import Event, Request
from xpolicy.backends.torch import SPEC, backend
from xpolicy.policy.layers import Layer, Rule, builtin_layer
from xpolicy.policy.options import OptionTable
from xpolicy.policy.resolve import ResolvedPolicy, resolve

if TYPE_CHECKING:
    from collections.abc import Callable

pytest.importorskip("torch", reason="these tests run torch: pip install torch")

TABLE = OptionTable([SPEC])
#: Options that belong to no namespace.
GENERAL = set(TABLE.general)
ORIGIN = Origin("file", "xpolicy.toml", line=3, column=1)


def policy(
    extra: dict[str, Any] | None = None, origin: Origin = ORIGIN, **options: Any
) -> ResolvedPolicy:
    """Resolve options that a project file sets for torch, over the built-in layer."""
    general = {name: value for name, value in options.items() if name in GENERAL}
    own = {name: value for name, value in options.items() if name not in GENERAL}
    extra = dict(extra or {})
    if "backend" in extra:  # a function, as a decorator gives it
        own["backend"] = extra.pop("backend")
    assert not SPEC.normalise(own)
    rules = [
        Rule(general, origin, pattern="mylib.f"),
        Rule(own, origin, pattern="mylib.f", namespace="torch", extra=extra),
    ]
    layers = [builtin_layer(TABLE), Layer("project", "xpolicy.toml", rules)]
    return resolve(layers, TABLE, "mylib.f", "torch")


class Compiled:
    """A compiled function together with everything that was told about it."""

    def __init__(
        self, function: Callable[..., Any], extra: dict[str, Any] | None = None, **options: Any
    ) -> None:
        self.events: list[Event] = []
        resolved = policy(extra, **options)
        self.lowered = backend.lower(resolved)
        request = Request(function, "mylib.f", resolved, self.events.append)
        self.call = backend.compile(request, self.lowered)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(*args, **kwargs)

    def clear(self) -> None:
        self.call.clear()

    def count(self, kind: str = "compile") -> int:
        return sum(event.kind == kind for event in self.events)

    def told(self, kind: str) -> list[str]:
        return [event.message for event in self.events if event.kind == kind]


@pytest.fixture
def compiled() -> Callable[..., Compiled]:
    """Return the maker of compiled functions; dynamo starts empty for every test."""
    import torch

    torch._dynamo.reset()
    return Compiled


@pytest.fixture
def resolved() -> Callable[..., ResolvedPolicy]:
    """Return the maker of resolved policies."""
    return policy


class Counter:
    """A dynamo backend that counts the graphs that it is given."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.graphs += 1
        return graph.forward


@pytest.fixture
def counter() -> Counter:
    """Return a backend that counts; given as the decorator's ``backend``."""
    return Counter()
