"""`lazy_xp_function`: what array-api-extra's does, and torch and budgets besides."""

from __future__ import annotations

import importlib
import itertools
import sys
import warnings
from types import ModuleType, SimpleNamespace

import array_api_extra.testing as theirs
import dask.array
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import xpolicy.testing as ours

IMPLEMENTATIONS = pytest.mark.parametrize("lazy", [ours, theirs], ids=["ours", "theirs"])
_numbers = itertools.count()


def module_of(**members):
    """A module of a test suite, and the request of a test in it."""
    module = ModuleType(f"suite_{next(_numbers)}")
    vars(module).update(members)
    return module, SimpleNamespace(module=module)


def fresh(function):
    """The same function as another object: a tag is on the object."""
    copy = type(function)(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def run(lazy, function, xp, *args, tags=None, **kwargs):
    """Call a tagged function as a test would, through its module."""
    function = fresh(function)
    lazy.lazy_xp_function(function, **(tags or {}))
    module, request = module_of(f=function)
    with lazy.patch_lazy_xp_functions(request, xp=xp):
        result = module.f(*args, **kwargs)
    assert module.f is function
    return result


def traced(x):
    return isinstance(x, jax.core.Tracer)


class Opaque:
    def __init__(self, x, note):
        self.x, self.note = x, note


# -- jax: the same as array-api-extra ------------------------------------------------------


@IMPLEMENTATIONS
@pytest.mark.parametrize(
    "value", [1, 1.5, True, None, "word", (1, "a"), [1, 2], {"k": 1}, np.ones(2), jnp, len, Opaque]
)
def test_what_is_no_array_is_static_both_ways(lazy, value):
    seen = []

    def f(x, y):
        seen.append((traced(x), type(y), y))
        return x, y

    x, y = run(lazy, f, jnp, jnp.ones(2), value)
    assert seen[0][:2] == (True, type(value))
    assert isinstance(x, jax.Array)
    assert not traced(x)
    assert type(y) is type(value)
    np.testing.assert_equal(y, value)


@IMPLEMENTATIONS
def test_arrays_inside_anything_are_traced(lazy):
    seen = []

    def f(wrapper, *, more):
        seen.append((traced(wrapper.x), wrapper.note, traced(more["a"][0])))
        return Opaque(wrapper.x + more["a"][0], "out")

    out = run(lazy, f, jnp, Opaque(jnp.ones(2), "in"), more={"a": [jnp.ones(2)]})
    assert seen == [(True, "in", True)]
    assert (type(out), out.note, out.x.tolist()) == (Opaque, "out", [2.0, 2.0])


@IMPLEMENTATIONS
def test_values_decide_nothing_in_a_trace(lazy):
    def f(x):
        return x if bool(x.sum() > 0) else -x

    with pytest.raises(jax.errors.TracerBoolConversionError):
        run(lazy, f, jnp, jnp.ones(2))
    assert run(lazy, f, jnp, jnp.ones(2), tags={"jax_jit": False}).tolist() == [1.0, 1.0]


@IMPLEMENTATIONS
def test_iterators_are_consumed(lazy):
    def f(x):
        yield from (x[0], x[1])

    out = run(lazy, f, jnp, jnp.arange(2))
    assert [int(v) for v in out] == [0, 1]
    with pytest.raises(StopIteration):
        next(out)


@IMPLEMENTATIONS
def test_recursive_containers(lazy):
    def f(x):
        assert x[1] is x
        y = [x[0] + 1]
        y.append(y)
        return y

    x = [jnp.ones(())]
    x.append(x)
    y = run(lazy, f, jnp, x)
    assert y[1] is y
    assert float(y[0]) == 2.0


@IMPLEMENTATIONS
def test_what_cannot_be_pickled_is_passed_as_it_is(lazy):
    import threading

    lock = threading.Lock()

    def f(x, lock, call):
        assert not lock.locked()
        return call(x), lock

    out, same = run(lazy, f, jnp, jnp.ones(2), lock, lambda x: x + 1)
    assert same is lock
    assert out.tolist() == [2.0, 2.0]


@IMPLEMENTATIONS
def test_exceptions_are_the_functions_own(lazy):
    def f(x):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        run(lazy, f, jnp, jnp.ones(2))


def test_sentinels_and_aliases_stay_what_they_are():
    """Where array-api-extra hands copies to the function."""
    sentinel = object()

    def f(x, y, mark=sentinel):
        assert mark is sentinel
        assert x is y
        return x + y

    x = jnp.ones(())
    assert float(run(ours, f, jnp, x, x, mark=sentinel)) == 2.0


# -- dask: the same as array-api-extra -----------------------------------------------------


def computes(times):
    def f(x):
        for _ in range(times):
            bool((x > 0).any())
        return x

    return f


@IMPLEMENTATIONS
@pytest.mark.parametrize(("allowed", "times", "ok"), [
    (False, 0, True), (False, 1, False), (1, 1, True), (1, 2, False), (2, 2, True), (True, 9, True), (0, 1, False),
])  # fmt: skip
def test_computing_is_counted(lazy, allowed, times, ok):
    x = dask.array.ones(3)
    call = lambda: run(lazy, computes(times), dask.array, x, tags={"allow_dask_compute": allowed})  # noqa: E731
    if ok:
        assert float(call().sum()) == 3.0
        return
    with pytest.raises(AssertionError, match=r"dask\.compute") as caught:
        call()
    assert f"allow_dask_compute={int(allowed) + 1}" in str(caught.value)


@IMPLEMENTATIONS
def test_the_count_starts_again_with_each_call(lazy):
    f = fresh(computes(1))
    lazy.lazy_xp_function(f, allow_dask_compute=1)
    module, request = module_of(f=f)
    with lazy.patch_lazy_xp_functions(request, xp=dask.array):
        for _ in range(3):
            module.f(dask.array.ones(3))


@IMPLEMENTATIONS
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [Opaque(x, 1)]])
def test_lazy_exceptions_are_raised_by_the_call(lazy, wrap):
    def fails(block):
        raise ValueError("in a block")

    def f(x):
        return wrap(x.map_blocks(fails, dtype=x.dtype, meta=x._meta))

    with pytest.raises(ValueError, match="in a block"):
        run(lazy, f, dask.array, dask.array.ones(3))


# -- where functions are found: the same as array-api-extra --------------------------------


def classes():
    class A:
        def method(self, x):
            return traced(x)

        @staticmethod
        def static(x):
            return traced(x)

        @classmethod
        def of_class(cls, x):
            return traced(x), cls.__name__

    class B(A):
        pass

    return A, B


@IMPLEMENTATIONS
@pytest.mark.parametrize("name", ["method", "static", "of_class"])
@pytest.mark.parametrize("inherited", [False, True])
def test_methods_by_class_and_name(lazy, name, inherited):
    A, B = classes()
    cls = B if inherited else A
    lazy.lazy_xp_function((cls, name))
    _module, request = module_of(A=A, B=B)
    kind = type(vars(cls)[name])
    with lazy.patch_lazy_xp_functions(request, xp=jnp):
        out = getattr(cls(), name)(jnp.ones(2))
        assert out in (True, (True, cls.__name__))
        assert type(vars(cls)[name]) is kind
        if inherited:
            assert getattr(A(), name)(jnp.ones(2)) in (False, (False, "A"))
    assert getattr(cls(), name)(jnp.ones(2)) in (False, (False, cls.__name__))


@IMPLEMENTATIONS
def test_modules_of_the_list_and_ways_around(lazy):
    def f(x):
        return traced(x)

    lazy.lazy_xp_function(f)
    other, unlisted = ModuleType("other"), ModuleType("unlisted")
    other.f = unlisted.f = f
    bare = type("bare", (), {"f": staticmethod(f)})
    _, request = module_of(lazy_xp_modules=[other], bare=bare)
    with lazy.patch_lazy_xp_functions(request, xp=jnp):
        x = jnp.ones(2)
        assert (other.f(x), unlisted.f(x), bare.f(x)) == (True, False, False)
    assert other.f is f


@IMPLEMENTATIONS
def test_callables_that_take_no_attributes(lazy):
    ufunc = np.frompyfunc(lambda x: x, 1, 1)
    lazy.lazy_xp_function(ufunc)
    module, request = module_of(u=ufunc)
    with lazy.patch_lazy_xp_functions(request, xp=jnp):
        assert module.u is not ufunc
        with pytest.raises(jax.errors.TracerArrayConversionError):
            module.u(jnp.ones(2))
    assert module.u is ufunc


@IMPLEMENTATIONS
@pytest.mark.parametrize("xp", [np, torch])
def test_other_namespaces_are_left_alone(lazy, xp):
    def f(x): ...

    lazy.lazy_xp_function(f)
    module, request = module_of(f=f)
    with lazy.patch_lazy_xp_functions(request, xp=xp):
        assert module.f is f


@IMPLEMENTATIONS
def test_deprecated_forms_warn_and_work(lazy, monkeypatch):
    f = fresh(traced)
    with pytest.warns(DeprecationWarning, match="static_argnames"):
        lazy.lazy_xp_function(f, static_argnames=["x"])
    module, request = module_of(f=f)
    with pytest.warns(DeprecationWarning, match="monkeypatch"):
        lazy.patch_lazy_xp_functions(request, monkeypatch, xp=jnp)
    assert module.f(jnp.ones(2))
    monkeypatch.undo()
    assert module.f is f


@pytest.mark.parametrize(("tag", "patch"), [(ours, theirs), (theirs, ours)])
@pytest.mark.parametrize("xp", [jnp, dask.array])
def test_either_runs_what_the_other_has_tagged(tag, patch, xp):
    f = fresh(computes(1))
    tag.lazy_xp_function(f)
    module, request = module_of(f=f)
    with patch.patch_lazy_xp_functions(request, xp=xp), pytest.raises((TypeError, AssertionError)):
        module.f(xp.ones(2))


# -- torch ---------------------------------------------------------------------------------


def compiling(x):
    return torch.compiler.is_compiling(), x


@pytest.mark.parametrize(
    ("how", "compiled"), [(False, False), (True, True), ("compile", True), ("fullgraph", True)]
)
@pytest.mark.parametrize("name", ["torch", "array_api_compat.torch"])
def test_torch_compile(how, compiled, name):
    xp = importlib.import_module(name)
    assert run(ours, compiling, xp, torch.ones(2), tags={"torch_compile": how})[0] is compiled


def breaking(x):
    if x.sum() > 0:
        return x + 1
    return x


def test_fullgraph_refuses_what_compile_breaks():
    run(ours, breaking, torch, torch.ones(2), tags={"torch_compile": True})
    with pytest.raises(torch._dynamo.exc.Unsupported):
        run(ours, breaking, torch, torch.ones(2), tags={"torch_compile": "fullgraph"})


def test_a_wrong_mode_is_refused():
    with pytest.raises(ValueError, match="'fullgraph'"):
        ours.lazy_xp_function(breaking, torch_compile="max-autotune")


def test_wrappers_and_constants_with_torch():
    def f(w, n, *, word):
        assert type(n) is int
        return Opaque(w.x * n, word), n

    tags = {"torch_compile": "fullgraph"}
    out, n = run(ours, f, torch, Opaque(torch.ones(2), "in"), 3, word="out", tags=tags)
    assert (type(out), out.note, out.x.tolist(), n) == (Opaque, "out", [3.0, 3.0], 3)


def test_generators_with_torch():
    def f(x):
        yield from (x[0], x[1])

    out = run(ours, f, torch, torch.arange(2), tags={"torch_compile": "fullgraph"})
    assert [int(v) for v in out] == [0, 1]
    with pytest.raises(StopIteration):
        next(out)


def test_methods_with_torch():
    class A:
        n = 2

        def method(self, x):
            return x * self.n, torch.compiler.is_compiling()

        @classmethod
        def of_class(cls, x):
            return x * cls.n, torch.compiler.is_compiling()

    for name in ("method", "of_class"):
        ours.lazy_xp_function((A, name), torch_compile="fullgraph")
    _, request = module_of(A=A)
    with ours.patch_lazy_xp_functions(request, xp=torch):
        for call in (A().method, A.of_class):
            out, compiled = call(torch.ones(()))
            assert (float(out), compiled) == (2.0, True)


def test_supports_in_a_policy_holds(monkeypatch):
    import xpolicy

    key = f"{compiling.__module__}.compiling"
    monkeypatch.setenv("XPOLICY_TOML", f'functions."{key}".torch.supports = "eager"')
    xpolicy.reload()
    assert run(ours, compiling, torch, torch.ones(2), tags={"torch_compile": True})[0] is False


def test_a_mode_in_a_policy_does_not_weaken_the_test(monkeypatch):
    import xpolicy

    monkeypatch.setenv("XPOLICY_MODE", "eager")
    xpolicy.reload()
    assert run(ours, compiling, torch, torch.ones(2), tags={"torch_compile": True})[0] is True


# -- budgets -------------------------------------------------------------------------------


def calls(function, xp, values, **tags):
    function = fresh(function)
    ours.lazy_xp_function(function, **tags)
    module, request = module_of(f=function)
    with ours.patch_lazy_xp_functions(request, xp=xp):
        for value in values:
            module.f(value)


def plain(x):
    return x + 1


@pytest.mark.parametrize(("xp", "tags"), [(jnp, {}), (torch, {"torch_compile": "fullgraph"})])
def test_compilations_have_a_budget(xp, tags):
    values = [xp.ones(2), xp.ones(2), xp.ones(3)]
    calls(plain, xp, values, compilations=2, **tags)
    with pytest.raises(AssertionError, match="needs 2 compilations") as caught:
        calls(plain, xp, values, compilations=1, **tags)
    text = str(caught.value)
    assert "float32[3]" in text
    assert "lazy_xp_function(plain, compilations=2)" in text


def test_a_changed_constant_is_a_compilation():
    def f(pair):
        return pair[0] * pair[1]

    values = [(jnp.ones(2), 1), (jnp.ones(2), 2)]
    with pytest.raises(AssertionError, match="a constant changed"):
        calls(f, jnp, values, compilations=1)


def test_graph_breaks_have_a_budget():
    calls(breaking, torch, [torch.ones(2)], torch_compile=True, graph_breaks=1)
    with pytest.raises(AssertionError, match="needs 1 graph breaks") as caught:
        calls(breaking, torch, [torch.ones(2)], torch_compile=True, graph_breaks=0)
    line = breaking.__code__.co_firstlineno + 1
    assert f"{__file__}:{line}: " in str(caught.value)
    assert "lazy_xp_function(breaking, graph_breaks=1)" in str(caught.value)


def test_each_test_has_the_whole_budget():
    for _ in range(3):
        calls(plain, jnp, [jnp.ones(2)], compilations=1)


def test_tagging_imports_no_array_library():
    import subprocess

    program = (
        "import sys\nfrom xpolicy.testing import lazy_xp_function, patch_lazy_xp_functions\n"
        "lazy_xp_function(lambda x: x)\n"
        "print([m for m in ('numpy', 'torch', 'jax', 'dask', 'pytest') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_nothing_warns():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(ours, plain, torch, torch.ones(2), tags={"torch_compile": "fullgraph"})
        run(ours, plain, jnp, jnp.ones(2))
        run(ours, plain, dask.array, dask.array.ones(2))
