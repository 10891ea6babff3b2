"""Functions that nobody decorated, put under policy, and put back."""

from __future__ import annotations

import functools
import importlib
import inspect
import pickle
import sys
import threading
from types import ModuleType

import numpy as np
import pytest
import torch

import xpolicy
from xpolicy.errors import DecorationError
from xpolicy.runtime.apply import apply

MODULES = {
    "plainlib": """
        '''A library that never heard of xpolicy.'''
        from plainlib._impl import double, helper, REGISTRY
        from plainlib import other
        from plainlib._impl import Thing, Derived
        from functools import reduce  # not its own

        def local(x, n=2):
            '''Adds.'''
            return double(x) + n

        def _private(x):
            return x

        async def later(x):
            return x

        CONSTANT = 3
    """,
    "plainlib._impl": """
        REGISTRY = {}

        def registered(f):
            REGISTRY[f] = f.__name__
            return f

        @registered
        def double(x):
            return 2 * x

        def helper(x):
            return double(x)

        class Thing:
            factor = 3
            def method(self, x): return self.factor * x
            @staticmethod
            def static(x): return x + 1
            @classmethod
            def classy(cls, x): return cls.factor * x
            def __call__(self, x): return -x
            def _hidden(self, x): return x

        class Derived(Thing):
            factor = 5
    """,
    "plainlib.other": """
        from plainlib._impl import double as twice
        from plainlib._impl import REGISTRY as TABLE
        def calls(x): return twice(x)
    """,
}


@pytest.fixture
def lib(tmp_path, monkeypatch):
    root = tmp_path / "site"
    for name, text in MODULES.items():
        path = root.joinpath(*name.split("."))
        if name == "plainlib":
            path = path / "__init__"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".py").write_text(inspect.cleandoc(text), encoding="utf-8")
    monkeypatch.syspath_prepend(str(root))
    yield importlib.import_module("plainlib")
    for name in [n for n in sys.modules if n.partition(".")[0] == "plainlib"]:
        del sys.modules[name]


def state(lib):
    """Everything that stands in the library's modules and classes, by identity."""
    owners = [m for n, m in sorted(sys.modules.items()) if n.partition(".")[0] == "plainlib"]
    owners += [lib.Thing, lib.Derived]
    # torch.compile leaves names of its own in the globals of what it compiles.
    found = [
        (repr(owner), [(name, id(value)) for name, value in vars(owner).items()
                       if not name.startswith(("__builtins_dict__", "__compiled_fn", "__import_"))])
        for owner in owners
    ]  # fmt: skip
    return [*found, list(lib.REGISTRY.items())]


def governed(function):
    return hasattr(function, "__xpolicy__")


# -- what is replaced, and put back ------------------------------------------------------


def test_public_functions_of_a_module(lib):
    before = state(lib)
    with xpolicy.apply("plainlib") as applied:
        assert applied.keys == ("plainlib.double", "plainlib.helper", "plainlib.local")
        assert "coroutine" in applied.skipped["later"]
        assert governed(lib.local)
        assert not governed(lib._private)
        assert not governed(lib.reduce)
        assert lib.local.__doc__ == "Adds."
        assert str(inspect.signature(lib.local)) == "(x, n=2)"
        assert lib.local(np.ones(1)).tolist() == [4.0]
    assert state(lib) == before


def test_all_decides_where_there_is_one(lib):
    lib.__all__ = ["reduce", "local", "not_there"]
    with xpolicy.apply(lib) as applied:
        assert applied.keys == ("plainlib.local", "plainlib.reduce")


def test_reexports_are_replaced_together(lib):
    original = lib.double
    with xpolicy.apply("plainlib", "double"):
        assert lib.double is lib._impl.double is lib.other.twice
        assert lib.double.__wrapped__ is original
    assert lib.double is lib._impl.double is lib.other.twice is original


def test_calls_inside_the_library_meet_the_policy(lib):
    calls = []
    with (
        xpolicy.apply("plainlib", "double"),
        xpolicy.override("plainlib.double", torch={"backend": "eager"}),
    ):
        lib.other.calls(torch.ones(2))
        calls = [record.key for record in xpolicy.stats() if record.compilations]
    assert calls == ["plainlib.double"]


def test_registries_find_the_function_under_policy(lib):
    original = lib.double
    with xpolicy.apply("plainlib"):
        assert lib.REGISTRY[lib.double] == "double"
        assert lib.other.TABLE[original] == "double"
    assert list(lib.REGISTRY) == [original]


@pytest.mark.parametrize("kind", ["set", "WeakKeyDictionary", "WeakSet", "OrderedDict"])
def test_every_kind_of_registry(lib, kind):
    import collections
    import weakref

    cls = {"set": set, "OrderedDict": collections.OrderedDict}.get(kind) or getattr(weakref, kind)
    registry = lib.MORE = cls()
    registry.update({lib.double: 1} if hasattr(registry, "keys") else [lib.double])
    original = lib.double
    with xpolicy.apply("plainlib", "double"):
        assert lib.double in registry
    assert list(registry) == [original]


def test_a_registry_filled_meanwhile_keeps_what_was_put_in(lib):
    with xpolicy.apply("plainlib", "double"):
        lib.REGISTRY["new"] = 1
        lib.REGISTRY[lib.double] = "changed"
    assert {lib.double: "double", "new": 1} == lib.REGISTRY


@pytest.mark.parametrize(
    ("name", "call", "value"),
    [
        ("method", lambda lib, x: lib.Thing().method(x), 6.0),
        ("static", lambda lib, x: lib.Thing.static(x), 3.0),
        ("static", lambda lib, x: lib.Thing().static(x), 3.0),
        ("classy", lambda lib, x: lib.Thing.classy(x), 6.0),
        ("classy", lambda lib, x: lib.Derived().classy(x), 10.0),
        ("__call__", lambda lib, x: lib.Thing()(x), -2.0),
    ],
)
def test_methods(lib, name, call, value):
    before = state(lib)
    with xpolicy.apply(lib.Thing, names=[name]) as applied:
        assert applied.keys == (f"plainlib._impl.Thing.{name}",)
        with xpolicy.override(applied.keys[0], torch={"backend": "eager"}):
            assert float(call(lib, torch.tensor(2.0))) == value
        assert xpolicy.stats(applied.keys[0]).compilations == 1
        found = vars(lib.Thing)[name]
        assert type(found) is {"static": staticmethod, "classy": classmethod}.get(name, type(call))
    assert state(lib) == before
    assert float(call(lib, torch.tensor(2.0))) == value


def test_the_public_path_of_a_class_is_the_key(lib):
    with xpolicy.apply("plainlib.Thing") as applied:
        assert applied.keys == tuple(
            f"plainlib.Thing.{name}" for name in ("__call__", "classy", "method", "static")
        )
    with xpolicy.apply("plainlib", ["Thing.method", "local"]) as applied:
        assert applied.keys == ("plainlib.Thing.method", "plainlib.local")


@pytest.mark.parametrize("name", ["method", "static", "classy"])
def test_an_inherited_method_is_replaced_in_the_class_that_was_named(lib, name):
    before = state(lib)
    with xpolicy.apply(lib.Derived, name):
        assert name in vars(lib.Derived)
        assert governed(getattr(lib.Derived, name))
        assert not governed(getattr(lib.Thing, name))
        with xpolicy.apply(lib.Thing, name):
            assert governed(getattr(lib.Thing, name))
        assert not governed(getattr(lib.Thing, name))
    assert name not in vars(lib.Derived)
    assert state(lib) == before


def test_one_function_by_its_name(lib):
    with xpolicy.apply("plainlib.other.calls") as applied:
        assert applied.keys == ("plainlib.other.calls",)
        assert governed(lib.other.calls)


# NumPy says this of torch.Tensor whenever a ufunc is called with one.
@pytest.mark.filterwarnings("ignore:__array_wrap__ must accept:DeprecationWarning")
def test_callables_that_are_no_plain_functions():
    import scipy.special as special

    module = ModuleType("ufuncs")
    module.square = np.frompyfunc(lambda x: x * x, 1, 1)
    module.logit = special.logit
    module.cached = functools.lru_cache(lambda x: x)
    module.partial = functools.partial(max, 1)
    before = dict(vars(module))
    with xpolicy.apply(module, ["square", "logit", "cached", "partial"]):
        assert module.square.nin == 1
        assert module.logit(0.5) == 0.0
        assert module.logit.at == before["logit"].at
        assert module.cached(1) == 1
        assert module.cached.cache_info().misses == 1
        assert module.partial(0) == 1
        with xpolicy.override("ufuncs.logit", torch={"backend": "eager"}):
            assert float(module.logit(torch.tensor(0.5))) == 0.0
    assert dict(vars(module)) == before
    assert module.logit is special.logit


def test_callable_objects_are_taken_by_name_only(lib):
    lib.instance = lib.Thing()
    with xpolicy.apply("plainlib") as applied:
        assert "Thing" in applied.skipped["instance"]
        assert not governed(lib.instance)
    with xpolicy.apply("plainlib", "instance"):
        assert governed(lib.instance)
        assert lib.instance.factor == 3


def test_a_function_under_policy_is_pickled_by_its_name(lib):
    original = lib.double
    with xpolicy.apply("plainlib"):
        data = pickle.dumps(lib.double)
        assert pickle.loads(data) is lib.double
    assert pickle.loads(data) is original


def test_what_the_library_decorates_itself_is_left_alone(lib):
    lib.own = xpolicy.compile(lambda x: x, name="plainlib.own")
    before = lib.own
    with xpolicy.apply("plainlib") as applied:
        assert lib.own is before
        assert "plainlib.own" not in applied.keys
    assert lib.own is before


# -- when it begins and ends -------------------------------------------------------------


def test_it_lasts_until_it_is_undone(lib):
    before = state(lib)
    applied = xpolicy.apply("plainlib")
    assert governed(lib.double)
    applied.undo()
    applied.undo()
    assert state(lib) == before


@pytest.mark.parametrize("first", [0, 1])
def test_applications_may_overlap_in_any_order(lib, first):
    before = state(lib)
    applied = [xpolicy.apply("plainlib"), xpolicy.apply("plainlib._impl")]
    assert "plainlib.double" in applied[1].keys  # the key that it has already
    applied[first].undo()
    assert governed(lib.double)
    assert lib.double is lib.other.twice
    applied[1 - first].undo()
    assert state(lib) == before


def test_two_names_of_one_function(lib):
    before = state(lib)
    lib.alias = lib.double
    with xpolicy.apply("plainlib") as applied:
        assert lib.alias is lib.double
        assert applied.keys.count("plainlib.double") == 1
    del lib.alias
    assert state(lib) == before


def test_a_module_imported_meanwhile_gets_the_original_back(lib):
    original = lib.double
    with xpolicy.apply("plainlib"):
        late = ModuleType("plainlib.late")
        sys.modules["plainlib.late"] = late
        late.double = lib.double
    assert late.double is original


def test_what_somebody_else_put_there_meanwhile_stays(lib):
    with xpolicy.apply("plainlib"):
        lib.local = mine = lambda x: x
    assert lib.local is mine


def test_other_packages_keep_the_original_unless_they_are_named(lib):
    app = sys.modules["someapp"] = ModuleType("someapp")
    try:
        app.double = original = lib.double
        with xpolicy.apply("plainlib"):
            assert app.double is original
            with xpolicy.apply("plainlib", also_in=["someapp"]):
                assert app.double is lib.double
        assert app.double is original
    finally:
        del sys.modules["someapp"]


def test_threads_may_overlap(lib):
    before = state(lib)
    barrier, errors = threading.Barrier(8), []

    def work():
        barrier.wait()
        for _ in range(20):
            with xpolicy.apply("plainlib"):
                if not governed(lib.double):
                    errors.append("not governed inside")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert state(lib) == before


# -- what is wrong is told, and changes nothing -------------------------------------------


@pytest.mark.parametrize(
    ("target", "names", "message"),
    [
        ("plainlibb", None, "no module"),
        ("plainlib.nothing", None, "'nothing'"),
        ("plain lib", None, "neither a module"),
        (3, None, "neither a module"),
        ("plainlib", ["local", "dubble"], "write double"),
        ("plainlib", ["local", "Thing"], "is a class"),
        ("plainlib", ["local", "CONSTANT"], "can't be called"),
        ("plainlib", ["local", "later"], "coroutine"),
        ("plainlib.local", ["x"], "is a function"),
        ("builtins", ["abs", "list.append"], "can't be replaced"),
    ],
)
def test_wrong_targets_and_names(lib, target, names, message):
    before, absolute = state(lib), abs
    with pytest.raises(DecorationError, match=message):
        xpolicy.apply(target, names)
    assert state(lib) == before
    assert abs is absolute


def test_a_library_that_fails_to_import_says_so_itself(lib, tmp_path):
    (tmp_path / "site" / "broken.py").write_text("import not_installed_anywhere")
    with pytest.raises(ModuleNotFoundError, match="not_installed_anywhere"):
        xpolicy.apply("broken")


def test_policies_reach_it_by_its_public_path(lib, monkeypatch):
    monkeypatch.setenv("XPOLICY_TOML", 'functions."plainlib.*".torch.mode = "eager"')
    xpolicy.reload()
    with apply("plainlib"):
        assert xpolicy.resolve(lib.double, "torch").mode == "eager"
        assert lib.double.__module__ == "plainlib._impl"
