"""One decorated function, one policy file, four array libraries."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import array_api_strict
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from array_api_compat import array_namespace

import xpolicy

if TYPE_CHECKING:
    from pathlib import Path

POLICY = """
[torch]
backend = "aot_eager"
"""

traced: list[str] = []


def body(x, y, *, n=2):
    xp = array_namespace(x, y)
    traced.append(type(x).__name__)
    return xp.sum(x * n + xp.sqrt(y), axis=-1)


f = xpolicy.compile(name="mainjob.f", static_argnames=("n",))(body)


@pytest.fixture(autouse=True)
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(POLICY)
    monkeypatch.setenv("XPOLICY_FILE", str(file))
    xpolicy.reload()
    f.clear()
    traced.clear()


def arrays(xp):
    return xp.asarray([[1.0, 2.0], [3.0, 4.0]]), xp.asarray([[4.0, 9.0], [16.0, 25.0]])


EXPECTED = {2: [11.0, 23.0], 3: [14.0, 30.0]}
NAMESPACES = [np, torch, jnp, array_api_strict]


def values(array) -> list[float]:
    return [float(item) for item in array]


@pytest.mark.parametrize("xp", NAMESPACES, ids=lambda xp: xp.__name__)
def test_right_values_however_arguments_are_spelt(xp):
    x, y = arrays(xp)
    assert values(f(x, y)) == EXPECTED[2]
    assert values(f(x, y, n=2)) == EXPECTED[2]
    assert values(f(x, y=y, n=3)) == EXPECTED[3]
    assert values(f(y=y, x=x, n=3)) == EXPECTED[3]
    assert type(f(x, y)) is type(x)


def test_torch_goes_through_torch_compile():
    @xpolicy.compile(name="mainjob.pure")
    def pure(x, y):
        return x + y

    x, y = arrays(torch)
    seen = []
    stop = xpolicy.subscribe(seen.append)
    pure(x, y)
    pure(y, x)
    stop()
    assert pure.stats()["torch"].compilations == 1
    assert [(event.kind, event.key) for event in seen] == [("compile", "mainjob.pure")]


def test_jax_goes_through_jax_jit():
    x, y = arrays(jnp)
    f(x, y)
    f(x + 1, y)
    assert len(traced) == 1  # the body ran once, for the trace
    assert "Tracer" in traced[0]


@pytest.mark.parametrize("xp", [np, array_api_strict], ids=lambda xp: xp.__name__)
def test_a_namespace_without_a_compiler_runs_the_original(xp):
    x, y = arrays(xp)
    f(x, y)
    f(x, y)
    assert traced == [type(x).__name__] * 2
    assert f.stats().compilations == 0


@pytest.mark.parametrize("xp", [torch, jnp], ids=lambda xp: xp.__name__)
def test_mode_eager_in_the_environment_switches_compiling_off(xp, monkeypatch):
    monkeypatch.setenv("XPOLICY_MODE", "eager")
    xpolicy.reload()
    x, y = arrays(xp)
    assert values(f(x, y)) == EXPECTED[2]
    assert traced == [type(x).__name__]
    assert f.stats().compilations == 0


class Model:
    def __init__(self, scale):
        self.scale = scale

    @xpolicy.compile(name="mainjob.Model.apply", static_argnames=("self",))
    def apply(self, x, *, shift=0.0):
        return x * self.scale + shift

    @staticmethod
    @xpolicy.compile(name="mainjob.Model.twice")
    def twice(x):
        return x + x

    @xpolicy.compile(name="mainjob.Model.outer")
    @staticmethod
    def outer(x):
        return x + x

    @classmethod
    @xpolicy.compile(name="mainjob.Model.named", static_argnames=("cls",))
    def named(cls, x):
        return x * len(cls.__name__)

    def __eq__(self, other):
        return type(other) is Model and self.scale == other.scale

    def __hash__(self):
        return hash(self.scale)


@pytest.mark.parametrize("xp", NAMESPACES, ids=lambda xp: xp.__name__)
def test_methods_static_methods_and_class_methods(xp):
    x = xp.asarray([1.0, 2.0])
    model = Model(3.0)
    assert values(model.apply(x)) == [3.0, 6.0]
    assert values(model.apply(x, shift=1.0)) == [4.0, 7.0]
    assert values(Model.apply(model, x)) == [3.0, 6.0]
    assert values(Model.twice(x)) == values(model.outer(x)) == [2.0, 4.0]
    assert values(Model.named(x)) == values(model.named(x)) == [5.0, 10.0]


def test_the_snippet_that_array_api_maintainers_asked_for():
    @xpolicy.compile(
        torch=dict(options={"triton.cudagraphs": True}, fullgraph=True),  # noqa: C408
        jax=dict(static_argnames=["n"]),  # noqa: C408  # written as they wrote it
    )
    def g(x, n):
        return x * n

    assert xpolicy.resolve(g, "torch").mode == "fullgraph"
    assert xpolicy.resolve(g, "jax").static_argnames == ("n",)
    assert xpolicy.resolve(g, "torch").static_argnames is None
    for xp in NAMESPACES:
        assert values(g(xp.asarray([1.0, 2.0]), 2)) == [2.0, 4.0]
        assert values(g(xp.asarray([1.0, 2.0]), n=3)) == [3.0, 6.0]


def test_what_the_compilers_receive_is_what_was_resolved(tmp_path, monkeypatch):
    file = tmp_path / "more.toml"
    file.write_text(
        """
        [functions."mainjob.f".torch]
        backend = "inductor"
        dynamic = false
        compile-mode = "max-autotune"
        cudagraphs = false
        recompile-limit = 3
        options = { max_autotune = false }
        [functions."mainjob.f".jax]
        inline = true
        keep-unused = true
        donate-argnames = ["y"]
        compiler-options = { xla_cpu_enable_fast_math = false }
        """
    )
    monkeypatch.setenv("XPOLICY_FILE", str(file))
    xpolicy.reload()
    told = {name: value for name, value, _ in xpolicy.explain(f, "torch").compiler}
    assert told["dynamic"] == "false"
    assert told["recompile_limit"] == "3"
    expanded = "".join(f"{name} {value} " for name, value in told.items())
    # The preset expands to this, and the explicit options of the policy are stronger.
    assert "coordinate_descent_tuning" in expanded
    from xpolicy.backends.registry import backend_for

    backend = backend_for("torch")
    options = backend.lower(xpolicy.resolve(f, "torch")).keywords["options"]
    assert options["max_autotune"] is False
    assert options["triton.cudagraphs"] is False
    keywords = backend_for("jax").lower(xpolicy.resolve(f, "jax")).keywords
    assert keywords["inline"] is True
    assert keywords["keep_unused"] is True
    assert tuple(keywords["donate_argnames"]) == ("y",)
    assert dict(keywords["compiler_options"]) == {"xla_cpu_enable_fast_math": False}


def test_a_donated_argument_is_given_up_and_under_grad_it_is_not(monkeypatch):
    @xpolicy.compile(name="mainjob.add", jax={"donate_argnames": "y"})
    def add(x, y):
        return x + y

    x, y = jnp.ones(3), jnp.ones(3)
    assert float(jax.grad(lambda x: add(x, y).sum())(x).sum()) == 3.0
    assert not y.is_deleted()
    assert values(add(x, y)) == [2.0, 2.0, 2.0]
    assert y.is_deleted()
    assert not x.is_deleted()


def test_own_exceptions_keep_type_and_message():
    @xpolicy.compile(name="mainjob.picky")
    def picky(x):
        if x.shape[0] > 2:
            raise ValueError("at most two")
        return x + 1

    for mode in ("eager", "compile", "fullgraph"):
        with xpolicy.override("mainjob.picky", mode=mode):
            for xp in NAMESPACES:
                assert values(picky(xp.asarray([1.0, 2.0]))) == [2.0, 3.0]
                with pytest.raises(ValueError, match="at most two") as caught:
                    picky(xp.asarray([1.0, 2.0, 3.0]))
                assert (type(caught.value), str(caught.value)) == (ValueError, "at most two")


def test_a_decorated_function_pickles_by_name():
    assert pickle.loads(pickle.dumps(Model.twice)) is Model.twice


def test_under_an_outer_jit_and_an_outer_torch_compile():
    x, y = arrays(jnp)
    assert values(jax.jit(lambda x, y: f(x, y) + 1)(x, y)) == [12.0, 24.0]
    assert values(jax.vmap(f)(x, y)) == EXPECTED[2]
    x, y = arrays(torch)
    outer = torch.compile(lambda x, y: f(x, y) + 1, backend="eager", fullgraph=True)
    assert values(outer(x, y)) == [12.0, 24.0]
    f(x, y)
    assert values(outer(x, y)) == [12.0, 24.0]
