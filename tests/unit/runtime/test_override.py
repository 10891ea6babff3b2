"""`xpolicy.override`: for a while, for this context, or for the process."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading

import pytest

import xpolicy


def mode(name: str = "mylib.f", namespace: str = "torch") -> str:
    return xpolicy.resolve(name, namespace).mode


def in_thread(function):
    result = []
    thread = threading.Thread(target=lambda: result.append(function()))
    thread.start()
    thread.join()
    return result[0]


def test_nests_and_ends():
    with xpolicy.override(mode="eager"):
        assert mode() == "eager"
        with xpolicy.override("mylib.*", mode="fullgraph"):
            assert (mode(), mode("other.f")) == ("fullgraph", "eager")
        assert mode() == "eager"
    assert mode() == "compile"


def test_ends_when_the_block_raises():
    with pytest.raises(KeyError), xpolicy.override(mode="eager"):
        raise KeyError
    assert mode() == "compile"


def test_namespace_and_function():
    @xpolicy.compile(name="mylib.f")
    def f(x):
        return x

    with xpolicy.override(f, "torch", fullgraph=True):
        assert (mode(), mode(namespace="jax"), mode("mylib.g")) == (
            "fullgraph",
            "compile",
            "compile",
        )
    with xpolicy.override(torch={"fullgraph": True}, on_failure="eager"):
        assert (mode(), xpolicy.resolve("mylib.f", "jax").on_failure) == ("fullgraph", "eager")


def test_a_later_override_wins_over_a_more_specific_one():
    with xpolicy.override("mylib.f", "torch", mode="fullgraph"), xpolicy.override(mode="eager"):
        assert mode() == "eager"


def test_other_threads_are_not_touched():
    with xpolicy.override(mode="eager"):
        assert in_thread(mode) == "compile"


def test_everywhere_reaches_other_threads():
    with xpolicy.override(mode="eager", everywhere=True):
        assert in_thread(mode) == "eager"
    assert in_thread(mode) == "compile"


def test_everywhere_can_end_in_any_order():
    first = xpolicy.override(mode="eager", everywhere=True)
    second = xpolicy.override(mode="fullgraph", everywhere=True)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert mode() == "fullgraph"
    second.__exit__(None, None, None)
    assert mode() == "compile"


def test_tasks_are_isolated():
    async def task(wanted: str, ready: asyncio.Event, go: asyncio.Event) -> str:
        with xpolicy.override(mode=wanted):
            ready.set()
            await go.wait()
            return mode()

    async def main() -> tuple[str, str, str]:
        go = asyncio.Event()
        started = [asyncio.Event(), asyncio.Event()]
        tasks = [
            asyncio.create_task(task(wanted, event, go))
            for wanted, event in zip(("eager", "fullgraph"), started, strict=True)
        ]
        for event in started:
            await event.wait()
        outside = mode()
        go.set()
        return (await tasks[0], await tasks[1], outside)

    assert asyncio.run(main()) == ("eager", "fullgraph", "compile")


def test_a_copied_context_carries_it_beyond_the_block():
    calls = []

    class Array:
        def __array_namespace__(self, api_version=None):
            raise AssertionError

    with xpolicy.override(mode="eager"):
        context = contextvars.copy_context()
    assert mode() == "compile"
    assert context.run(mode) == "eager"
    assert in_thread(lambda: context.run(mode)) == "eager"
    calls.clear()


def test_a_call_in_a_copied_context_is_overridden_after_the_block_has_ended():
    jnp = pytest.importorskip("jax.numpy", reason="needs jax: pip install jax")
    seen = []

    @xpolicy.compile(name="mylib.traced")
    def f(x):
        seen.append(type(x).__name__)
        return x + 1

    x = jnp.ones(3)
    f(x)
    with xpolicy.override(mode="eager"):
        context = contextvars.copy_context()
    f(x)
    assert len(seen) == 1  # compiled, and found again
    context.run(f, x)
    assert seen[-1] == "ArrayImpl"  # ran eagerly
    assert len(seen) == 2
    del context
    gc.collect()
    f(x)
    assert len(seen) == 2


def test_calls_follow_the_override_and_keep_what_was_compiled():
    jnp = pytest.importorskip("jax.numpy", reason="needs jax: pip install jax")
    traces = []

    @xpolicy.compile(name="mylib.counted")
    def f(x):
        traces.append(type(x).__name__)
        return x * 2

    x = jnp.ones(3)
    assert float(f(x).sum()) == 6
    with xpolicy.override(mode="eager"):
        assert float(f(x).sum()) == 6
        assert float(f(x).sum()) == 6
    assert float(f(x).sum()) == 6
    with xpolicy.override(mode="compile"):  # what already holds
        assert float(f(x).sum()) == 6
    assert [name == "ArrayImpl" for name in traces] == [False, True, True]


@pytest.mark.parametrize(
    ("arguments", "options", "told"),
    [
        ((), {"mod": "eager"}, "did you mean: mode"),
        ((), {"mode": "eagre"}, "did you mean: eager"),
        (("mylib.f", "torch"), {"fullgrph": True}, "did you mean: fullgraph"),
        (("mylib.f", "trch"), {"mode": "eager"}, "unknown namespace 'trch'"),
        (("mylib..f",), {"mode": "eager"}, "not a function key"),
        ((), {"static_argnames": ("n",)}, "fact about one function"),
    ],
)
def test_wrong_overrides_say_what_is_wrong_and_where(arguments, options, told):
    with pytest.raises(xpolicy.BackendOptionError) as caught:
        xpolicy.override(*arguments, **options)
    assert told in str(caught.value)
    if arguments[:1] != ("mylib..f",):
        assert __file__ in str(caught.value)


def test_one_object_may_be_entered_by_several_tasks_at_once():
    eager = xpolicy.override(mode="eager")

    async def task(first: asyncio.Event, second: asyncio.Event) -> tuple[str, str]:
        with eager:
            first.set()
            await second.wait()
            inside = mode()
        return inside, mode()

    async def main() -> list[tuple[str, str]]:
        a, b = asyncio.Event(), asyncio.Event()
        return await asyncio.gather(task(a, b), task(b, a))

    assert asyncio.run(main()) == [("eager", "compile")] * 2
    assert mode() == "compile"


def test_one_object_may_be_entered_twice():
    for everywhere in (False, True):
        eager = xpolicy.override(mode="eager", everywhere=everywhere)
        with eager:
            with eager:
                assert mode() == "eager"
            assert mode() == "eager"
        assert mode() == "compile"


def test_generators_that_hold_overrides_may_end_in_any_order():
    def holding(wanted: str):
        with xpolicy.override(mode=wanted):
            yield

    first, second = holding("eager"), holding("fullgraph")
    next(first)
    next(second)
    assert mode() == "fullgraph"
    first.close()
    assert mode() == "fullgraph"
    second.close()
    assert mode() == "compile"


def test_a_generator_that_ends_in_another_context_leaves_that_one_alone():
    def holding():
        with xpolicy.override(mode="eager"):
            yield

    def here() -> None:
        held = holding()
        next(held)
        with xpolicy.override(mode="fullgraph"):
            assert in_thread(lambda: (held.close(), mode())[1]) == "compile"
            assert mode() == "fullgraph"

    contextvars.copy_context().run(here)
    assert mode() == "compile"


def test_somebody_elses_override_costs_a_context_a_look_at_the_table(project, monkeypatch):
    jnp = pytest.importorskip("jax.numpy", reason="needs jax: pip install jax")
    from xpolicy.runtime import binding

    @xpolicy.compile(name="mylib.other")
    def f(x):
        return x + 1

    x = jnp.ones(2)
    f(x)
    resolved = []
    real = binding.resolve
    monkeypatch.setattr(
        binding, "resolve", lambda *args: (resolved.append(args[2]), real(*args))[1]
    )
    context = contextvars.copy_context()
    held = xpolicy.override("unrelated.*", mode="eager")
    context.run(held.__enter__)
    for _ in range(10):
        f(x)
    assert resolved == []
    context.run(held.__exit__, None, None, None)


def test_ever_new_overrides_keep_a_bounded_number_of_variants():
    jnp = pytest.importorskip("jax.numpy", reason="needs jax: pip install jax")
    from xpolicy.runtime.binding import POLICIES_KEPT

    @xpolicy.compile(name="mylib.bounded")
    def f(x):
        return x + 1

    x = jnp.ones(2)
    for limit in range(1, POLICIES_KEPT + 10):
        with xpolicy.override(f, "jax", recompile_limit=limit):
            f(x)
    assert len(f.__xpolicy__.compiled) == POLICIES_KEPT
