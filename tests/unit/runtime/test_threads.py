"""Many threads, tasks and forked children at once."""

from __future__ import annotations

import os
import threading
import time
import warnings

import jax.numpy as jnp
import pytest

import xpolicy
from xpolicy.runtime import session as rooms


def together(count: int, function) -> list[object]:
    """Run a function in threads that start it at the same moment."""
    barrier = threading.Barrier(count)
    results: list[object] = []

    def run() -> None:
        barrier.wait()
        try:
            results.append(function())
        except Exception as error:  # noqa: BLE001  # what a thread raised is a result too
            results.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_one_resolution_for_all_threads(project, monkeypatch):
    project('[functions."mylib.f".jax]\nkeep-unused = true\n')
    reads = []
    real = rooms.load
    monkeypatch.setattr(
        rooms, "load", lambda *args, **kwargs: (reads.append(1), real(*args, **kwargs))[1]
    )

    @xpolicy.compile(name="mylib.f")
    def f(x):
        return x + 1

    x = jnp.ones(3)
    results = together(32, lambda: float(f(x).sum()))
    assert results == [6.0] * 32
    assert reads == [1]
    assert f.stats()["jax"].compilations == 1


def test_mutually_recursive_functions_first_called_from_two_threads():
    @xpolicy.compile(name="mylib.even", mode="eager")
    def even(x, n):
        time.sleep(0.01)
        return x if n == 0 else odd(x, n - 1)

    @xpolicy.compile(name="mylib.odd", mode="eager")
    def odd(x, n):
        time.sleep(0.01)
        return x + 1 if n == 0 else even(x, n - 1)

    x = jnp.ones(2)
    calls = iter([even, odd])
    results = together(2, lambda: float(next(calls)(x, 5).sum()))
    assert sorted(results) == [2.0, 4.0]


def test_overrides_in_threads_while_others_call():
    @xpolicy.compile(name="mylib.g")
    def g(x):
        return x * 2

    x = jnp.ones(2)
    stop = threading.Event()
    seen: list[float] = []

    def flicker() -> None:
        while not stop.is_set():
            with xpolicy.override(mode="eager"):
                pass

    thread = threading.Thread(target=flicker)
    thread.start()
    try:
        for _ in range(500):
            seen.append(float(g(x).sum()))
            assert xpolicy.resolve(g, "jax").mode == "compile"
    finally:
        stop.set()
        thread.join()
    assert set(seen) == {4.0}
    assert g.stats()["jax"].compilations == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that can fork")
def test_a_child_forked_while_locks_are_held_can_still_ask():
    @xpolicy.compile(name="mylib.h")
    def h(x):
        return x

    xpolicy.resolve(h, "jax")
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with rooms.session.lock, h.__xpolicy__.lock:
            entered.set()
            leave.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    entered.wait()
    with warnings.catch_warnings():
        # jax and CPython both warn of forking with threads: that is what is tested here.
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        xpolicy.reload()
        with xpolicy.override(mode="eager"):
            right = xpolicy.resolve(h, "jax").mode == "eager"
        os._exit(0 if right else 1)
    deadline = time.monotonic() + 20
    status = None
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.02)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        status = None
    leave.set()
    holder.join()
    assert status == 0
