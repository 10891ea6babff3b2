"""Many threads, and what a lock held at the wrong time would do."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import pytest
import torch

ones = torch.ones


def work(x: Any) -> Any:
    return (x.sin() + x.cos()).sum(-1)


def together(number: int, body: Any) -> list[BaseException]:
    """Run `body(index)` in threads that start at once; return what they raised."""
    barrier = threading.Barrier(number)
    raised: list[BaseException] = []

    def run(index: int) -> None:
        barrier.wait()
        try:
            body(index)
        except BaseException as error:  # noqa: BLE001  # told in the thread that asserts
            raised.append(error)

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    return raised


@pytest.mark.parametrize("fullgraph", [None, True])
def test_32_threads_at_once_compile_each_signature_once(
    compiled: Any, counter: Any, fullgraph: bool | None
) -> None:
    for _ in range(3):
        counter.graphs = 0
        call = compiled(
            work,
            {"backend": counter},
            fullgraph=fullgraph,
            recompile_limit=1,
            on_recompile_limit="error",
        )
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            raised = together(32, lambda i, call=call: call(ones(4)))
        finally:
            sys.setswitchinterval(interval)
        assert raised == []
        assert counter.graphs == 1


def test_threads_with_two_signatures_compile_two(compiled: Any, counter: Any) -> None:
    call = compiled(
        work,
        {"backend": counter},
        recompile_limit=2,
        on_recompile_limit="error",
        fullgraph=True,
        dynamic=False,
    )
    assert together(32, lambda i: call(ones(3 + i % 2))) == []
    assert counter.graphs == 2


def test_threads_see_the_limit_that_the_policy_sets(compiled: Any, counter: Any) -> None:
    call = compiled(
        work, {"backend": counter}, recompile_limit=1, on_recompile_limit="eager", dynamic=False
    )
    call(ones(3))
    assert together(8, lambda i: call(ones(4 + i))) == []
    assert counter.graphs == 1


def test_mutually_recursive_functions_first_called_from_two_threads_finish(
    compiled: Any,
) -> None:
    calls: dict[str, Any] = {}

    def even(x: Any, n: int) -> Any:
        print(end="")
        return x if n == 0 else calls["odd"](x + 1, n - 1)

    def odd(x: Any, n: int) -> Any:
        print(end="")
        return x if n == 0 else calls["even"](x + 1, n - 1)

    calls["even"] = compiled(even, backend="eager")
    calls["odd"] = compiled(odd, backend="eager")
    names = ("even", "odd")
    assert together(4, lambda i: calls[names[i % 2]](ones(2), 4)) == []


def test_a_body_that_waits_for_another_thread_finishes(compiled: Any) -> None:
    other_done = threading.Event()

    def waits(x: Any) -> Any:
        y = x.sin()
        if not other_done.wait(30):
            raise TimeoutError
        return y + 1

    def releases(x: Any) -> Any:
        y = x.cos()
        other_done.set()
        return y + 1

    calls = [compiled(waits, backend="eager"), compiled(releases, backend="eager")]
    assert together(2, lambda i: calls[i](ones(2))) == []


def test_the_same_function_waits_for_itself_in_another_thread(compiled: Any) -> None:
    barrier = threading.Barrier(2)

    def meets(x: Any) -> Any:
        y = x.sin()
        barrier.wait(30)
        return y + 1

    call = compiled(meets, backend="eager")
    assert together(2, lambda i: call(ones(2))) == []


FORK = """
import os, sys
import torch
sys.path.insert(0, {tests!r})
from conftest import Compiled
call = Compiled(lambda x: x.sin() + 1, backend="eager")
call(torch.ones(2))
child = os.fork()
if child == 0:
    call(torch.ones(2)); call(torch.ones(3)); call.clear(); call(torch.ones(4))
    os._exit(7)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 7)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that can fork")
def test_a_forked_child_goes_on_compiling() -> None:
    from pathlib import Path

    code = FORK.format(tests=str(Path(__file__).parent))
    done = subprocess.run([sys.executable, "-c", code], timeout=120, check=False)
    assert done.returncode == 0
