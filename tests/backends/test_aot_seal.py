"""After the seal nothing more is compiled; what is compiled goes on."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import pytest

import xpolicy

jax = pytest.importorskip("jax", reason="these tests run jax: pip install jax")
torch = pytest.importorskip("torch", reason="these tests run torch: pip install torch")
import jax.numpy as jnp  # noqa: E402  # only where the library is there

ONES = {"jax": lambda *shape: jnp.ones(shape), "torch": lambda *shape: torch.ones(shape)}
CHANGED = {"jax": r"x: shape \[3\] -> \[4\]", "torch": r"x: float32\[3\] -> float32\[4\]"}


@pytest.fixture(params=["jax", "torch", "torch fullgraph"])
def made(request: pytest.FixtureRequest) -> tuple[str, Any]:
    library = request.param.split()[0]

    def double(x):
        return x * 2

    mode = "fullgraph" if "fullgraph" in request.param else "compile"
    options: dict[str, Any] = {"torch": {"backend": "aot_eager", "dynamic": False}, "mode": mode}
    return library, xpolicy.compile(name="mylib.double", **options)(double)


def test_error(made: tuple[str, Any]) -> None:
    library, f = made
    ones = ONES[library]
    f(ones(3))
    with xpolicy.seal():
        assert f(ones(3)).tolist() == [2.0] * 3
        for _ in range(2):
            with pytest.raises(xpolicy.SealedError, match=CHANGED[library]) as caught:
                f(ones(4))
        assert f"mylib.double for {library}" in str(caught.value)
        assert f.stats().compilations == 1
    assert f(ones(4)).tolist() == [2.0] * 4
    assert f.stats()[library].counts["compile"] == 2


def test_a_function_that_was_never_called(made: tuple[str, Any]) -> None:
    library, f = made
    with xpolicy.seal(), pytest.raises(xpolicy.SealedError, match="nothing is compiled for it yet"):
        f(ONES[library](3))


def test_warn(made: tuple[str, Any]) -> None:
    library, f = made
    ones = ONES[library]
    f(ones(3))
    with xpolicy.seal("warn"):
        with pytest.warns(xpolicy.XPolicyWarning, match=CHANGED[library]) as caught:
            assert f(ones(4)).tolist() == [2.0] * 4
        assert [w.filename for w in caught] == [__file__]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            f(ones(3))
    assert f.stats().compilations == 1


def test_eager(made: tuple[str, Any]) -> None:
    library, f = made
    ones = ONES[library]
    f(ones(3))
    with xpolicy.seal("eager"):
        assert f(ones(4)).tolist() == [2.0] * 4
        assert f(ones(3)).tolist() == [2.0] * 3
    assert f.stats().compilations == 1
    assert f.stats()[library].counts["limit"] == 1


def test_what_was_compiled_ahead_of_time_goes_on(made: tuple[str, Any]) -> None:
    library, f = made
    ones = ONES[library]
    compiled = f.lower(ones(3)).compile()
    with xpolicy.seal():
        assert compiled(ones(3)).tolist() == [2.0] * 3
        assert f(ones(3)).tolist() == [2.0] * 3
        with pytest.raises(xpolicy.SealedError):
            f.lower(ones(4)).compile()
        f.lower(ones(3)).compile()


@pytest.mark.parametrize("action", ["warn", "eager"])
def test_compiling_ahead_meets_an_error_whatever_the_action(
    made: tuple[str, Any], action: str
) -> None:
    library, f = made
    with xpolicy.seal(action), pytest.raises(xpolicy.SealedError):
        f.lower(ONES[library](4)).compile()


def test_every_thread_and_until_lifted(made: tuple[str, Any]) -> None:
    library, f = made
    seal = xpolicy.seal()
    caught: list[BaseException] = []

    def work() -> None:
        try:
            f(ONES[library](3))
        except xpolicy.SealedError as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(caught) == 1
    seal.lift()
    seal.lift()
    work()
    assert len(caught) == 1


def test_seals_may_overlap(made: tuple[str, Any]) -> None:
    library, f = made
    ones = ONES[library]
    first = xpolicy.seal("error")
    second = xpolicy.seal("eager")
    f(ones(3))  # the latest decides
    first.lift()
    f(ones(3))
    second.lift()
    assert f.stats().compilations == 0


def test_parts_behind_a_graph_break_are_sealed_too() -> None:
    def broken(x, flag):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2 if flag else y * 3

    f = xpolicy.compile(name="mylib.broken", torch={"backend": "aot_eager"})(broken)
    f.lower(torch.ones(3), True).compile()
    with xpolicy.seal(), pytest.raises(xpolicy.SealedError, match="torch_dynamo_resume_in_broken"):
        f(torch.ones(3), True)
    f(torch.ones(3), True)
    with xpolicy.seal():
        assert f(torch.ones(3), True).tolist() == [4.0] * 3


def test_a_wrong_action() -> None:
    with pytest.raises(ValueError, match="did you mean 'error'"):
        xpolicy.seal("eror")
