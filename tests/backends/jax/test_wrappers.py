"""Wrappers on jax: what is called decides, whatever it says that it wraps."""

from __future__ import annotations

import functools
import inspect

import jax.numpy as jnp
import pytest

from xpolicy.errors import BackendOptionError

pytestmark = pytest.mark.usefixtures("either_way")


def inner(x, n=2):
    return x * n


@functools.wraps(inner)
def reordered(x, y=1, n=3):
    return inner(x, n) + y * 100


@functools.wraps(inner)
def injecting(x):
    return inner(x, 7)


@functools.wraps(inner)
def adding(x, *, scale=2):
    return inner(x) * scale


@functools.wraps(inner)
def forwarding(*args, **kwargs):
    return inner(*args, **kwargs) + (100 if "n" in kwargs else 0)


@functools.wraps(inner)
def forwarding_more(*args, **kwargs):
    return inner(*args, n=4, **kwargs)


def claiming(x, y=1, n=3):
    return x * n + y * 100


claiming.__signature__ = inspect.signature(inner)


class Claiming:
    def __call__(self, x, y=1, n=3):
        return x * n + y * 100


instance = functools.update_wrapper(Claiming(), inner)

CALLS = {
    "reordered": (reordered, [((), {}), ((), {"n": 5}), ((4,), {}), ((4, 5), {}), ((), {"y": 2})]),
    "claiming": (claiming, [((), {}), ((), {"n": 5}), ((4,), {}), ((4, 5), {})]),
    "instance": (instance, [((), {}), ((), {"n": 5}), ((4,), {}), ((4, 5), {})]),
    "method": (Claiming().__call__, [((), {}), ((), {"n": 5}), ((4,), {}), ((4, 5), {})]),
    "partial": (functools.partial(reordered, y=2), [((), {}), ((), {"n": 5})]),
    "forwarding": (forwarding, [((), {}), ((5,), {}), ((), {"n": 5})]),
}


@pytest.mark.parametrize("static", [{}, {"static_argnames": ("n",)}, {"static": "auto"}])
@pytest.mark.parametrize("name", CALLS)
def test_as_the_wrapper_itself(make, name, static):
    function, calls = CALLS[name]
    call = make(function, **static)
    x = jnp.arange(3.0)
    for _ in range(2):
        for args, kwargs in calls:
            assert call(x, *args, **kwargs).tolist() == function(x, *args, **kwargs).tolist()


@pytest.mark.parametrize("auto", [{}, {"static": "auto"}])
@pytest.mark.parametrize(
    ("function", "kwargs"), [(injecting, {}), (adding, {"scale": 3}), (forwarding_more, {})]
)
def test_a_wrapper_may_take_more_or_less_than_what_it_wraps(make, auto, function, kwargs):
    x = jnp.arange(3.0)
    assert make(function, **auto)(x, **kwargs).tolist() == function(x, **kwargs).tolist()


def test_names_are_those_of_the_wrapper(make):
    x = jnp.arange(3.0)
    assert make(adding, static_argnames=("scale",))(x, scale=3).tolist() == [0, 6, 12]
    with pytest.raises(BackendOptionError) as caught:
        make(injecting, static_argnames=("n",))
    assert "has no argument 'n'" in str(caught.value)


def test_a_forwarder_gets_constants_by_the_names_of_what_it_wraps(make, compilations):
    seen = []

    def f(x, kind, n=2):
        seen.append((kind, n))
        return x * n

    @functools.wraps(f)
    def g(*args, **kwargs):
        return f(*args, **kwargs)

    call = make(g, static_argnames=("kind", "n"), recompile_limit=4).call
    x = jnp.ones(2)
    for _ in range(2):
        call(x, "a"), call(x, "a", 3), call(x, kind="a"), call(x=x, n=3.0, kind="a")
    assert seen == [("a", 2), ("a", 3), ("a", 2), ("a", 3.0)]
    assert compilations.of("f") == 4


def test_what_is_donated_is_the_wrappers_argument(make):
    @functools.wraps(inner)
    def last(x, y, n):
        return x + y + n

    @functools.wraps(last)
    def all_of_them(*args, **kwargs):
        return last(*args, **kwargs)

    for function in (last, all_of_them):
        for static in ({}, {"static_argnames": ("y",)}):
            for spelled in (False, True):
                x, n = jnp.ones(3), jnp.ones(3)
                call = make(function, donate_argnames=("n",), **static).call
                result = call(x, 1.0, n=n) if spelled else call(x, 1.0, n)
                assert result.tolist() == [3, 3, 3]
                assert (x.is_deleted(), n.is_deleted()) == (False, True)


def test_a_forwarding_class_method(make):
    def method(cls, x):
        return x * cls.factor

    @functools.wraps(method)
    def forwarded(*args, **kwargs):
        return method(*args, **kwargs)

    kind = type("Kind", (), {"factor": 3})
    assert make(forwarded)(kind, jnp.ones(2)).tolist() == [3, 3]


NAMES = (
    *("type", "range", "int", "key", "args", "kwargs", "self", "_shim", "jitted"),
    *("_xpolicy_key", "_xpolicy_type", "_xpolicy_k1", "_xpolicy_jitted", "_xpolicy_omitted"),
    *("_xpolicy__type", "_xpolicy_default2", "_xpolicy_c0", "_xpolicy_static"),
)


@pytest.mark.parametrize("options", [{"static_argnames": ("n",)}, {"static": "auto"}])
@pytest.mark.parametrize("name", NAMES)
def test_any_name_may_be_a_parameters(make, name, options):
    scope = {}
    exec(f"def f(x, n, {name}=3, *, k=1): return x * n * {name} * k", scope)
    call = make(scope["f"], **options).call
    x = jnp.arange(3.0)
    for _ in range(2):
        assert call(x, 2).tolist() == [0, 6, 12]
        assert call(x, 2, 5).tolist() == [0, 10, 20]
        assert call(x, 2, k=2, **{name: 5}).tolist() == [0, 20, 40]


@pytest.mark.parametrize("name", ["class", "not a name", "_xpolicy_0"])
def test_any_string_may_be_a_caught_name(make, name):
    call = make(lambda x, **options: x * options[name], static_argnames=(name,))
    assert call(jnp.ones(2), **{name: 3}).tolist() == [3, 3]
