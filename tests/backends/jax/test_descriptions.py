"""Saying what a call was compiled for never makes the call fail."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from xpolicy.backends.jax.signatures import describe

pytestmark = pytest.mark.usefixtures("either_way")


class Unsayable:
    def __repr__(self):
        raise RuntimeError("no text")


class Text(str):
    __slots__ = ()

    def __repr__(self):
        raise RuntimeError("no text")


class Closed:
    def __getattr__(self, name):
        raise RuntimeError(f"no {name}")


@pytest.mark.parametrize(
    "value", [Unsayable(), Text("a"), (1, Unsayable()), Closed()], ids=list("utpc")
)
@pytest.mark.parametrize("options", [{}, {"static_argnames": ("o",)}, {"static_argnames": ("n",)}])
def test_a_constant_that_has_no_text(make, value, options):
    def f(x, o=value, n=1):
        return x * n

    call = make(f, **options)
    x = jnp.ones(2)
    assert call(x).tolist() == [1, 1]
    if "o" in options.get("static_argnames", ()):
        assert call(x, value).tolist() == [1, 1]
    assert call.kinds()[0] == "compile"


def test_its_types_name_stands_for_it(make):
    def f(x, o):
        return x

    call = make(f, static_argnames=("o",))
    call(jnp.ones(2), Unsayable())
    assert call.events[0].details["signature"] == "x: float32[2], o=<Unsayable> (static)"


def test_at_the_limit(make):
    def f(x, o):
        return x

    call = make(f, static_argnames=("o",), recompile_limit=1, on_recompile_limit="eager")
    x = jnp.ones(2)
    assert call(x, Unsayable()) is not None
    assert call(x, Unsayable()) is x
    assert call.kinds() == ["compile", "limit"]


def test_a_pytree_that_cannot_be_opened_again():
    class Once:
        opened = False

    def flatten(box):
        if Once.opened:
            raise RuntimeError("closed")
        return (1.0,), None

    jax.tree_util.register_pytree_node(Once, flatten, lambda *_: Once())
    Once.opened = True
    assert str(describe({"box": Once()}, {}, {})) == "box: Once[]"
