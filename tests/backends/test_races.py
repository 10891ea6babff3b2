"""Nothing that must hold rests on how rarely Python switches threads.

The interpreter is made to switch a thousand times as often as it does; a build without a
GIL, where there is one to run this on, switches between any two steps.
"""

from __future__ import annotations

import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import xpolicy
from xpolicy.backends.once import Once
from xpolicy.errors import XPolicyWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def switching() -> Iterator[None]:
    torch._dynamo.reset()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(*bodies: Callable[[], object]) -> list[BaseException]:
    """Run bodies in threads that start at once; return what they raised."""
    barrier = threading.Barrier(len(bodies))
    raised: list[BaseException] = []

    def run(body: Callable[[], object]) -> None:
        barrier.wait(30)
        try:
            body()
        except BaseException as error:  # noqa: BLE001  # told in the thread that asserts
            raised.append(error)

    threads = [threading.Thread(target=run, args=(body,), daemon=True) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    return raised


class Special(np.ndarray):
    """An array type of its own."""


VALUES: list[Any] = [
    np.arange(4.0),
    np.float64(3),
    np.arange(4.0).view(Special),
    [np.arange(4.0)],
    3.0,
    None,
]


def test_numpy_is_called_right_while_policies_change_and_functions_come_and_go() -> None:
    stop = threading.Event()

    def make() -> Any:
        @xpolicy.compile(name="mylib.first")
        def first(x: Any, y: Any = None, *, n: int = 2) -> Any:
            return type(x), type(y), n

        return first

    shared = make()

    def call() -> None:
        for _ in range(60):
            for f in (shared, make()):
                for x in VALUES:
                    assert f(x, n=3) == (type(x), type(None), 3)
                    assert f(x, y=x) == (type(x), type(x), 2)

    def change() -> None:
        while not stop.is_set():
            with xpolicy.override(mode="eager"), xpolicy.override(mode="eager", everywhere=True):
                assert xpolicy.resolve("mylib.first", "numpy").mode == "eager"
            xpolicy.reload()
            shared.clear()
            xpolicy.stats().as_dict()

    def calls() -> None:
        call()

    changers = [threading.Thread(target=change, daemon=True) for _ in range(2)]
    for thread in changers:
        thread.start()
    raised = together(*[calls] * 6)
    stop.set()
    for thread in changers:
        thread.join(60)
    assert raised == []
    assert xpolicy.resolve("mylib.first", "numpy").mode == "compile"


@pytest.mark.parametrize("module", [torch, jnp], ids=["torch", "jax"])
def test_a_policy_that_changes_under_calls_is_in_force_afterwards(module: Any) -> None:
    f = xpolicy.compile(lambda x: x + 1, name="mylib.f", torch={"backend": "eager"})
    x = module.ones(2)

    def call() -> None:
        for _ in range(30):
            assert float(f(x).sum()) == 4

    def change() -> None:
        for _ in range(15):
            with xpolicy.override(mode="eager", everywhere=True):
                f(x)

    assert together(call, call, change, change, call) == []
    f.clear()
    f(x)
    name = {torch: "torch", jnp: "jax"}[module]
    assert f.stats()[name].compilations == 1  # no override has stayed
    with xpolicy.override(mode="eager", everywhere=True):
        f(module.ones((2, 2)))
    assert f.stats()[name].compilations == 1


@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
@pytest.mark.parametrize("module", [torch, jnp], ids=["torch", "jax"])
def test_a_limit_is_warned_of_once(module: Any, mode: str) -> None:
    limits = {"recompile_limit": 1, "on_recompile_limit": "warn"}
    f = xpolicy.compile(
        lambda x: x + 1,
        name="mylib.f",
        mode=mode,  # type: ignore[arg-type]
        torch={"backend": "eager", "dynamic": False, **limits},
        jax=limits,
    )
    f(module.ones(1))
    arrays = [module.ones(n) for n in range(2, 10)]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert together(*[lambda x=x: f(x) for x in arrays]) == []
    assert len([w for w in seen if issubclass(w.category, XPolicyWarning)]) == 1


def untraceable(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return x + 1
    return x + float(np.asarray(x).sum())


def failing(graph: Any, inputs: Any) -> Any:
    raise NotImplementedError("no code for this")


@pytest.mark.parametrize("module", [torch, jnp], ids=["torch", "jax"])
def test_a_fallback_is_warned_of_once(module: Any) -> None:
    f = xpolicy.compile(
        untraceable,
        name="mylib.f",
        on_failure="eager",
        torch={"backend": failing, "dynamic": False},
    )
    arrays = [module.ones(n) for n in range(1, 9)]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert together(*[lambda x=x: f(x) for x in arrays]) == []
    assert len([w for w in seen if issubclass(w.category, XPolicyWarning)]) == 1


def test_of_many_who_ask_at_once_one_is_the_first() -> None:
    for _ in range(200):
        once = Once()
        answers: list[bool] = []

        def ask(once: Once = once, answers: list[bool] = answers) -> None:
            answers.append(once.first())

        assert together(*[ask] * 4) == []
        assert sorted(answers) == [False, False, False, True]
        once.again()
        assert once.first()


def test_statistics_can_be_read_while_others_write() -> None:
    f = xpolicy.compile(
        lambda x: x + 1, name="mylib.f", torch={"backend": "eager", "dynamic": False}
    )
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            for record in f.stats():
                assert record.seconds >= 0
                assert sum(event.kind == "compile" for event in record.events) <= 40
                record.as_dict()

    def write() -> None:
        try:
            with xpolicy.override(torch={"recompile_limit": 50}):
                for size in range(1, 40):
                    f(torch.ones(size))
        finally:
            stop.set()

    assert together(read, read, write) == []


def test_the_kill_switch_holds_for_every_thread(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XPOLICY_DISABLE", "1")
    f = xpolicy.compile(lambda x: x, name="mylib.f", mode="fullgraph")
    for _ in range(30):
        xpolicy.reload()
        modes: list[str] = []

        def ask(modes: list[str] = modes) -> None:
            with xpolicy.override(mode="fullgraph"):  # above everything but the switch
                modes.append(xpolicy.resolve(f, "torch").mode)

        assert together(*[ask] * 8) == []
        assert modes == ["eager"] * 8
