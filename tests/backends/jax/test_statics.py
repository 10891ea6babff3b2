"""Static arguments on jax: one key a constant, whatever the spelling."""

from __future__ import annotations

import dataclasses
import enum
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xpolicy.errors import BackendOptionError

pytestmark = pytest.mark.usefixtures("either_way")


@dataclasses.dataclass(frozen=True)
class Config:
    size: float
    name: str = "a"


class Colour(enum.Enum):
    RED = 1


def tell(x, n):
    return x, jnp.asarray(n if not isinstance(n, tuple) else n[0])


@pytest.mark.parametrize(
    "values",
    [
        (1, 1.0, True),
        (0.0, -0.0, 0, False),
        ((1,), (1.0,), (True,)),
        ((0.0,), (-0.0,)),
        (((1,), 2), ((1.0,), 2), ((1,), 2.0)),
        (1 + 0j, 1, complex(1, -0.0)),
        (np.float64(1), 1.0, np.float32(1), np.int64(1)),
        (range(0), range(5, 5)),
        (slice(1, 2), slice(1.0, 2)),
        (frozenset({1}), frozenset({1.0})),
        ("1", b"1", 1),
        (Config(1), Config(1.0), Config(True)),
        (Config(0.0), Config(-0.0)),
    ],
)
def test_equal_values_of_other_kinds_are_other_constants(make, values, compilations):
    seen = []

    def f(x, n):
        seen.append(n)
        return x

    call = make(f, static_argnames=("n",))
    x = jnp.ones(2)
    for value in (*values, *values):
        call(x, value)
    assert [repr(s) for s in seen] == [repr(v) for v in values]
    assert [type(s) for s in seen] == [type(v) for v in values]
    assert compilations.of("f") == len(values)


def test_the_sign_of_zero_reaches_the_result(make):
    call = make(lambda x, n: x / jnp.float32(n), static_argnames=("n",))
    x = jnp.ones(())
    assert float(call(x, 0.0)) == math.inf
    assert float(call(x, -0.0)) == -math.inf


def test_the_function_gets_the_object_itself(make):
    seen = []
    value = ("a", Colour.RED, jnp.sin)

    def f(x, n):
        seen.append(n)
        return x

    make(f, static_argnames=("n",))(jnp.ones(2), value)
    assert seen[0] is value


def test_all_spellings_share_one_compilation(make, compilations):
    def f(x, n=2, *, axis=0, kind="a"):
        return x.sum(axis) * n

    call = make(f, static_argnames=("n", "axis", "kind"), recompile_limit=1)
    x = jnp.ones((2, 3))
    for result in (
        call(x),
        call(x, 2),
        call(x, n=2),
        call(x=x),
        call(x, axis=0),
        call(n=2, x=x, kind="a", axis=0),
    ):
        assert result.tolist() == [4, 4, 4]
    assert compilations.of("f") == 1


def test_an_omitted_default_stays_a_python_constant(make):
    def f(x, axis=0, n=1):
        return x.sum(axis) * n  # a traced axis raises

    call = make(f, static_argnames=("n",))
    assert call(jnp.ones((2, 3)), n=2).tolist() == [4, 4, 4]
    assert make(f)(jnp.ones((2, 3))).tolist() == [2, 2, 2]


def test_positional_only_variadic_and_caught_names(make, compilations):
    def f(a, /, b, *rest, n, scale=1.0, **more):
        total = a + b + sum(rest)
        return total * n * scale + sum(v for k, v in more.items() if k != "flag"), more.get("flag")

    def g(a, /, b, *rest, n, scale=1.0, **more):
        return f(a, b, *rest, n=n, scale=scale, **more)[0]

    call = make(g, static_argnames=("n", "flag"))
    for args, kwargs in [
        ((1.0, 2.0), {"n": 2}),
        ((1.0, 2.0, 3.0, 4.0), {"n": 2, "scale": 0.5}),
        ((1.0,), {"b": 2.0, "n": 3, "flag": "on", "extra": 5.0}),
    ]:
        assert float(call(*args, **kwargs)) == float(g(*args, **kwargs))


def test_wrong_calls_keep_pythons_own_error(make):
    call = make(tell, static_argnames=("n",))
    with pytest.raises(TypeError, match=r"tell\(\) missing 1 required positional argument: 'n'"):
        call(jnp.ones(1))


@pytest.mark.parametrize("value", [[1], {"a": 1}, {1}, np.ones(2), ([1],), jnp.ones(1)])
def test_an_unhashable_value_names_the_argument(make, value):
    call = make(tell, static_argnames=("n",))
    with pytest.raises(BackendOptionError) as caught:
        call(jnp.ones(1), value)
    text = str(caught.value)
    assert "argument 'n' is static" in text
    assert "mylib.f" in text
    # As what jax.jit raises for it: code around the call may handle it.
    with pytest.raises(ValueError) as plain:  # noqa: PT011  # the type is all that is meant
        jax.jit(tell, static_argnames=("n",))(jnp.ones(1), n=value)
    assert isinstance(caught.value, type(plain.value))
    assert "/app/xpolicy.toml:7" in text
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("option", ["static_argnames", "donate_argnames"])
def test_an_unknown_name_is_an_error_with_the_nearest(make, option):
    def f(values, count):
        return values

    with pytest.raises(BackendOptionError) as caught:
        make(f, **{option: ("valeus",)})
    assert "did you mean: values" in str(caught.value)
    assert "values, count" in str(caught.value)


def test_static_argnums_of_the_decorator_are_names_too(make, compilations):
    call = make(tell, extra={"static_argnums": (-1,)})
    x = jnp.ones(2)
    call(x, 1), call(x, n=1), call(x, 1.0)
    assert compilations.of("tell") == 2


def test_a_static_donated_argument_is_refused(make):
    with pytest.raises(BackendOptionError, match="both static and donated"):
        make(tell, static_argnames=("n",), donate_argnames=("n",))


def test_methods(make, compilations):
    class Plain:
        def __init__(self, n):
            self.n = n

        def f(self, x):
            return x * self.n

    class Valued(Plain):
        def __eq__(self, other):
            return type(other) is type(self) and other.n == self.n

        def __hash__(self):
            return hash(self.n)

    x = jnp.ones(2)
    named = make(Plain.f, static_argnames=("self",))
    assert named(Valued(3), x).tolist() == [3, 3]
    named(Valued(3), x), named(Valued(4), x)
    assert compilations.of("f") == 2
    for call in (named, make(Plain.f)):
        with pytest.raises(BackendOptionError) as caught:
            call(Plain(3), x)
        assert "register_dataclass" in str(caught.value)
        assert "static_argnames=('self',)" in str(caught.value)
        assert isinstance(caught.value, TypeError)


def test_class_methods(make, compilations):
    class Base:
        factor = 2

        @classmethod
        def f(cls, x):
            return x * cls.factor

    class Derived(Base):
        factor = 5

    call = make(Base.f.__func__, recompile_limit=2)
    x = jnp.ones(2)
    for _ in range(2):
        assert call(Base, x).tolist() == [2, 2]
        assert call(Derived, x).tolist() == [5, 5]
    assert compilations.of("f") == 2
    assert jax.vmap(lambda y: call(Base, y))(x).tolist() == [2, 2]


def test_an_array_may_be_called_cls(make):
    assert make(lambda cls, box: cls + box)(jnp.ones(2), 1.0).tolist() == [2, 2]


@jax.tree_util.register_pytree_node_class
class Layer:
    """A pytree that can be called, as equinox's modules are."""

    def __init__(self, weight):
        self.weight = weight

    def tree_flatten(self):
        return (self.weight,), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)

    def __call__(self, x):
        return x * self.weight


def test_self_that_is_a_pytree_is_traced(make, compilations):
    call = make(Layer.__call__)
    x = jnp.ones(2)
    assert call(Layer(jnp.float32(2)), x).tolist() == [2, 2]
    assert call(Layer(jnp.float32(5)), x).tolist() == [5, 5]
    assert compilations.of("__call__") == 1


AUTO = [
    "text",
    b"bytes",
    True,
    jnp.sin,
    jnp,
    np.dtype("float32"),
    jnp.float32,
    Colour.RED,
    lambda y: y,
]


@pytest.mark.parametrize("value", AUTO, ids=lambda value: type(value).__name__)
def test_auto_finds_constants_by_type(make, value, compilations):
    seen = []

    def f(x, option, *, keyword=None):
        seen.append((option, keyword))
        return x

    call = make(f, static="auto")
    x = jnp.ones(2)
    call(x, value), call(x, option=value), call(x, value, keyword=value)
    assert seen == [(value, None), (value, value)]
    assert compilations.of("f") == 2


def test_auto_leaves_numbers_and_arrays_traced(make, compilations):
    def f(x, n, k=1.0):
        return x * n * k

    call = make(f, static="auto")
    x = jnp.ones(2)
    assert [float(call(x, n, n / 2)[0]) for n in (1, 2, 3)] == [0.5, 2, 4.5]
    call(x, np.ones(2), 1.0)
    assert compilations.of("f") == 2


def test_auto_with_names_and_defaults(make, compilations):
    def f(x, kind="sum", n=2):
        return (x.sum() if kind == "sum" else x.prod()) * n

    call = make(f, static="auto", static_argnames=("n",))
    x = jnp.full(3, 2.0)
    assert float(call(x)) == float(call(x, "sum")) == float(call(x, kind="sum", n=2)) == 12
    assert float(call(x, "prod")) == 16
    assert compilations.of("f") == 2


def test_auto_traces_callables_that_hold_arrays(make, compilations):
    call = make(lambda module, x: module(x), static="auto")
    assert float(call(Layer(jnp.float32(2)), 3.0)) == 6
    assert float(call(Layer(jnp.float32(3)), 3.0)) == 9
    assert compilations.of("<lambda>") == 1


def test_without_auto_nothing_is_found_by_type(make):
    with pytest.raises(TypeError):
        make(lambda x, kind: x)(jnp.ones(2), "sum")
