"""The policy that says what a table of `xp_capabilities` says."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tomllib
from types import ModuleType

import pytest

import xpolicy
from xpolicy._origin import Origin
from xpolicy.backends.registry import option_table
from xpolicy.policy.document import read_document
from xpolicy.policy.layers import builtin_layer
from xpolicy.policy.resolve import resolve
from xpolicy.policy.testing import settings
from xpolicy.sources.load import this_machine
from xpolicy.testing import from_xp_capabilities

SCIPY = """
cluster.hierarchy cluster.vq constants differentiate fft integrate interpolate linalg ndimage
optimize signal signal.windows spatial.transform special stats stats.contingency
"""
REASON = "jax_jit=False in the library's table of capabilities"


def layers_of(found, layer="author", package=None):
    made, problems = read_document(
        tomllib.loads(found.policy),
        Origin("file", "policy.toml"),
        layer,
        option_table(),
        this_machine(),
        version="0.1",
        package=package,
    )
    assert problems == []
    return [builtin_layer(option_table()), made]


def supports(found, key, namespace="jax", **read):
    return resolve(layers_of(found, **read), option_table(), key, namespace)


def compute_limit(found, key, **read):
    said = settings(layers_of(found, **read), key, "dask").get("compute_limit")
    return None if said is None else said.value


@pytest.fixture
def lib():
    """A library with a private module that everything is defined in."""
    module, private = ModuleType("capable"), ModuleType("capable._impl")
    code = "def f(x): ...\ndef g(x): ...\ndef hidden(x): ...\nclass C:\n" + "".join(
        f"    {line}\n"
        for line in (
            "def a(self): ...",
            "@staticmethod",
            "def b(x): ...",
            "@classmethod",
            "def c(cls): ...",
            "def __call__(self): ...",
            "def __mul__(self, y): ...",
            "def _d(self): ...",
        )
    )
    exec(code, vars(private))
    module.f, module.g, module.C = private.f, private.g, private.C
    module.__all__ = ["f", "C"]
    again = ModuleType("capable.deeper")
    again.f = private.f
    names = {"capable": module, "capable._impl": private, "capable.deeper": again}
    sys.modules.update(names)
    for member in (private.f, private.g, private.hidden, private.C):
        member.__module__ = "capable._impl"
    yield module
    for name in names:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("said", "mode", "limit"),
    [
        ({}, "compile", 0),
        ({"jax_jit": True, "allow_dask_compute": False}, "compile", 0),
        ({"jax_jit": False}, "eager", 0),
        ({"allow_dask_compute": 2}, "compile", 2),
        ({"allow_dask_compute": True}, "compile", None),
        ({"jax_jit": False, "allow_dask_compute": True}, "eager", None),
    ],
)
@pytest.mark.parametrize("layer", ["author", "project"])
def test_facts_about_compiling(lib, said, mode, limit, layer):
    found = from_xp_capabilities({lib.f: said})
    assert supports(found, "capable.f", layer=layer).mode == mode
    assert supports(found, "capable.f", "torch", layer=layer).mode == "compile"
    assert compute_limit(found, "capable.f", layer=layer) == limit


def test_the_reason_is_told(lib):
    found = from_xp_capabilities(
        {lib.f: {"jax_jit": False}, lib.g: {"jax_jit": False, "reason": 'in "C"'}}
    )
    assert supports(found, "capable.f").reason == REASON
    assert supports(found, "capable.g").reason == f'{REASON}: in "C"'


def test_what_selects_tests_is_handed_back(lib):
    said = {
        "np_only": True,
        "skip_backends": [("torch", "slow")],
        "cpu_only": False,
        "marray": True,
        "jax_jit": False,
    }
    found = from_xp_capabilities({lib.f: said, lib.g: {"jax_jit": False}})
    assert found.selection == {
        "capable.f": {"np_only": True, "skip_backends": [("torch", "slow")], "marray": True}
    }


def test_methods(lib):
    table = {
        lib.C: {
            "jax_jit": False,
            "np_only": True,
            "method_capabilities": {
                "a": {"jax_jit": True, "allow_dask_compute": 3, "cpu_only": True}
            },
        },
        vars(lib.C)["b"].__func__: {"allow_dask_compute": 1},
        lib.C.__mul__: {"jax_jit": False},
    }
    found = from_xp_capabilities(table)
    assert [supports(found, f"capable.C.{name}").mode for name in ("a", "b", "c", "__call__", "__mul__", "_d")] == [
        "compile", "compile", "eager", "eager", "eager", "compile",
    ]  # fmt: skip
    assert [compute_limit(found, f"capable.C.{name}") for name in "abc"] == [3, 1, 0]
    assert found.selection == {
        "capable.C.a": {"cpu_only": True},
        "capable.C.c": {"np_only": True},
        "capable.C.__call__": {"np_only": True},
    }


def test_what_no_public_module_holds_is_handed_back(lib):
    private = sys.modules["capable._impl"]
    found = from_xp_capabilities({private.hidden: {"jax_jit": False}, lib.f: {}})
    assert found.unnamed == (private.hidden,)
    assert "hidden" not in found.policy


def test_a_function_under_policy_is_the_one_in_the_table(lib):
    lib.TABLE = {lib.f: {"jax_jit": False}}
    before = from_xp_capabilities(lib.TABLE).policy
    with xpolicy.apply("capable"):
        assert len(lib.TABLE) == 2
        assert from_xp_capabilities(lib.TABLE).policy == before


def test_order_does_not_decide(lib):
    table = {lib.g: {"jax_jit": False}, lib.f: {}, lib.C: {}}
    assert from_xp_capabilities(table) == from_xp_capabilities(dict(reversed(table.items())))


def test_the_file_governs_the_library(lib, tmp_path, monkeypatch):
    found = from_xp_capabilities({lib.f: {"jax_jit": False}})
    found.write(tmp_path / "policy.toml")
    monkeypatch.setenv("XPOLICY_FILE", str(tmp_path / "policy.toml"))
    xpolicy.reload()
    with xpolicy.apply("capable") as applied:
        assert "capable.f" in applied.keys
        assert xpolicy.resolve(lib.f, "jax").mode == "eager"
        assert xpolicy.resolve(lib.f, "torch").mode == "compile"


# -- the table of an installed SciPy -------------------------------------------------------


@pytest.fixture(scope="module")
def scipy_table():
    for name in SCIPY.split():
        importlib.import_module(f"scipy.{name}")
    return importlib.import_module("scipy._lib._array_api").xp_capabilities_table


@pytest.mark.parametrize(("layer", "package"), [("author", "scipy"), ("project", None)])
def test_it_says_the_same_of_every_function_of_scipy(scipy_table, layer, package):
    found = from_xp_capabilities(scipy_table)
    layers = layers_of(found, layer, package)
    known = {id(member) for member in found.unnamed}
    checked = 0
    for function, said in scipy_table.items():
        if id(function) in known or isinstance(function, type):
            continue
        (key,) = keys_of(found, function)
        policy = resolve(layers, option_table(), key, "jax")
        assert policy.supports == (None if said["jax_jit"] else "eager"), key
        limit = settings(layers, key, "dask").get("compute_limit")
        allowed = said["allow_dask_compute"]
        assert (limit and limit.value) == (None if allowed is True else int(allowed)), key
        checked += 1
    assert checked > 600


def keys_of(found, function):
    """Where a function is to be found, looked up by the keys that the policy uses."""
    if not hasattr(found, "_by_identity"):
        index = {}
        documents = tomllib.loads(found.policy)
        for key in {*documents["functions"], *documents["testing"]["functions"], *found.selection}:
            owner = sys.modules["scipy"]
            for part in key.split(".")[1:]:
                owner = vars(owner)[part] if isinstance(owner, type) else getattr(owner, part)
            index[id(getattr(owner, "__func__", owner))] = key
        object.__setattr__(found, "_by_identity", index)
    return [found._by_identity.get(id(function), "scipy.nothing.is.said")]


def test_only_private_things_of_scipy_have_no_name(scipy_table):
    for member in from_xp_capabilities(scipy_table).unnamed:
        private = any(part.startswith("_") for part in member.__module__.split("."))
        assert private
        public = sys.modules.get(member.__module__.partition("._")[0])
        assert not hasattr(public, member.__qualname__)


def test_the_policy_is_the_same_in_every_process(scipy_table):
    program = (
        "import importlib, json, sys\n"
        "for name in sys.argv[1:]: importlib.import_module(f'scipy.{name}')\n"
        "from scipy._lib._array_api import xp_capabilities_table as table\n"
        "from xpolicy.testing import from_xp_capabilities\n"
        "print(json.dumps(from_xp_capabilities(table).policy))"
    )
    command = [sys.executable, "-c", program, *SCIPY.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == from_xp_capabilities(scipy_table).policy
