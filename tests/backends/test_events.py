"""What is told of compilations: statistics that count each once, and a line before a long one."""

from __future__ import annotations

import logging
import re
import sys
import types
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import pytest
import torch

import xpolicy
from xpolicy.backends.jax import misses
from xpolicy.backends.torch import private
from xpolicy.errors import DecorationError

if TYPE_CHECKING:
    from collections.abc import Callable


class Graphs:
    """A dynamo backend that lets a test look around at each graph."""

    @staticmethod
    def see() -> None: ...

    def __call__(self, graph: Any, inputs: Any) -> Any:
        Graphs.see()
        return graph.forward


torch._dynamo.register_backend(Graphs(), name="announced")
ONES: dict[str, Callable[..., Any]] = {"torch": torch.ones, "jax": jnp.ones}


@pytest.fixture(params=["torch", "jax"])
def namespace(request: pytest.FixtureRequest) -> str:
    torch._dynamo.reset()
    name: str = request.param
    return name


@pytest.fixture(params=["private", "public"])
def interface(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with the compilers' private parts and without."""
    if request.param == "public":
        monkeypatch.setattr(private, "hooks_available", lambda: False)
        monkeypatch.setattr(misses, "hook_works", lambda: False)
    name: str = request.param
    return name


def announced(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message for message in caplog.messages if message.startswith("compiling ")]


def decorated() -> Any:
    def double(x: Any) -> Any:
        return x * 2

    return xpolicy.compile(name="mylib.double", torch={"backend": "eager"})(double)


def test_a_compilation_is_announced_before_it_begins(
    namespace: str,
    interface: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO, "xpolicy")
    seen_while_tracing: list[list[str]] = []

    def double(x: Any) -> Any:
        if isinstance(x, jax.core.Tracer):
            seen_while_tracing.append(announced(caplog))
        return x * 2

    monkeypatch.setattr(Graphs, "see", lambda: seen_while_tracing.append(announced(caplog)))
    f: Any = xpolicy.compile(name=f"mylib.{interface}", torch={"backend": "announced"})(double)
    f(ONES[namespace](2))
    line = f"compiling mylib.{interface} for {namespace}"
    assert announced(caplog) == [line]
    assert seen_while_tracing == [[line]]
    for _ in range(3):
        f(ONES[namespace](2))
    assert announced(caplog) == [line]  # hits say nothing

    f(ONES[namespace]((2, 2)))
    seconds = f.stats()[namespace].events[0].details["seconds"]
    assert announced(caplog)[1:] == [f"{line} ({seconds:.2g} s last time)"]


def test_the_last_duration_outlives_clearing(
    namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    f = decorated()
    f(ONES[namespace](3))
    f.clear()
    caplog.set_level(logging.INFO, "xpolicy")
    f(ONES[namespace](3))
    (line,) = announced(caplog)
    assert re.fullmatch(rf"compiling mylib.double for {namespace} \([\d.e-]+ s last time\)", line)


def test_nothing_is_announced_that_is_not_compiled(
    namespace: str, interface: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "xpolicy")
    f = decorated()
    with xpolicy.override(mode="eager"):
        f(ONES[namespace](2))
    if namespace == "jax":
        jax.jit(lambda x: f(x) + 1)(jnp.ones(2))
    else:
        torch.func.vmap(f)(torch.ones(2))
    assert announced(caplog) == []
    limit = {"recompile_limit": 1, "on_recompile_limit": "eager"}
    with xpolicy.override(mode="fullgraph", torch=limit, jax=limit):
        for count in (2, 3, 4, 3, 2):
            f(ONES[namespace]((2,) * count))
    assert len(announced(caplog)) == 1


def test_each_variant_is_counted_once(namespace: str, interface: str) -> None:
    f = decorated()
    for count in (1, 2, 3, 2, 1):
        f(ONES[namespace]((2,) * count))
    record = f.stats()[namespace]
    assert record.compilations == xpolicy.stats("mylib.double").compilations == 3
    compiled = [event for event in record.events if event.kind == "compile"]
    assert len({event.details["signature"] for event in compiled}) == 3
    assert record.seconds == pytest.approx(sum(event.details["seconds"] for event in compiled))
    if interface == "private" or namespace == "jax":
        assert record.counts["recompile"] == 2


def lines(caplog: pytest.LogCaptureFixture, *, level: int) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "xpolicy" and record.levelno == level
    ]


@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
def test_a_recompilation_is_one_line_with_function_cause_and_count(
    namespace: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "xpolicy")

    def scaled(x: Any, n: int = 2) -> Any:
        return x * n

    limits = {"recompile_limit": 2, "on_recompile_limit": "eager"}
    f: Any = xpolicy.compile(
        name="mylib.scaled",
        mode=mode,  # type: ignore[arg-type]
        static_argnames=("n",),
        torch={"backend": "eager", **limits},
        jax=limits,
    )(scaled)
    ones = ONES[namespace]
    f(ones(2)), f(ones((2, 2))), f(ones(2), 3)
    told = lines(caplog, level=logging.INFO)
    x, n = {
        "torch": ("x: float32[2] -> float32[2, 2]", "n: 2 -> 3"),
        "jax": ("x: shape [2] -> [2,2]", "n: static value 2 -> 3"),
    }[namespace]
    assert f"mylib.scaled [{namespace}]: recompiled (variant 2 of 2): {x}" in told
    (beyond,) = lines(caplog, level=logging.WARNING)
    assert beyond.startswith(f"mylib.scaled [{namespace}]: ")
    assert "recompile-limit = 2" in beyond
    assert beyond.endswith(f"; {n}")
    assert not any("\n" in line for line in caplog.messages)
    assert all(line.count("mylib.scaled") == 1 for line in caplog.messages)


def test_without_a_limit_none_is_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "xpolicy")
    f = decorated()
    for module in (torch, jnp):
        f(module.ones(2)), f(module.ones((2, 2)))  # type: ignore[attr-defined]
    found = [line for line in lines(caplog, level=logging.INFO) if "recompiled" in line]
    assert ["variant 2 of 8)" in found[0], "variant 2)" in found[1]] == [True, True]


@pytest.mark.parametrize(("module", "method"), [("torch.nn", "forward"), ("equinox", "__call__")])
def test_a_module_instance_is_refused_with_the_method_to_decorate(
    module: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if module == "equinox" and module not in sys.modules:  # only its class's name is looked at
        library = types.ModuleType(module)
        library.Module = type("Module", (), {})  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module, library)
    base: Any = sys.modules[module].Module

    class Model(base):  # type: ignore[misc]
        def __call__(self, x: Any) -> Any:
            return x

    with pytest.raises(DecorationError, match=rf"{module}\.Module") as caught:
        xpolicy.compile(Model())
    assert f"Model.{method} in the class" in str(caught.value)
