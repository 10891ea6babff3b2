"""jax's own switches keep their meaning."""

from __future__ import annotations

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

import xpolicy
from xpolicy.backends.jax import backend

POLICIES = {
    "plain": {},
    "limit": {"recompile_limit": 1, "on_recompile_limit": "error"},
    "static": {"static_argnames": ("n",)},
    "auto": {"static": "auto"},
    "donation": {"donate_argnames": ("x",)},
    "compiler-options": {"compiler_options": {"xla_cpu_enable_fast_math": False}},
}


@pytest.mark.parametrize("policy", POLICIES)
def test_disable_jit_runs_the_original(make, policy, either_way):
    seen = []

    def f(x, n=2, *, kind="sum"):
        seen.append(x)
        return x * n

    call = make(f, **POLICIES[policy])
    call(jnp.ones(2))  # also when a compiled variant is there
    del seen[:]
    assert backend.disabled_by() is None
    x = jnp.ones(3)
    with jax.disable_jit():
        assert backend.disabled_by() == "jax.disable_jit()"
        assert call(x, 3).tolist() == [3, 3, 3]
        assert call(jnp.ones(4), n=3).shape == (4,)
    assert seen[0] is x
    assert len(seen) == 2
    assert call.kinds() == ["compile"]


def test_the_environments_switch_is_named():
    code = (
        "import jax; from xpolicy.backends.jax import backend; print(backend.disabled_by());"
        "jax.config.update('jax_disable_jit', False); print(backend.disabled_by())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "JAX_DISABLE_JIT": "true"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["JAX_DISABLE_JIT=true", "None"]


def test_importing_the_backend_imports_no_jax():
    code = (
        "import sys; from xpolicy.backends.jax import backend;"
        "backend.version(); backend.disabled_by(); print('jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_nothing_is_told_to_hostile_warning_filters():
    code = """
import jax, jax.numpy as jnp, array_api_compat
from xpolicy.backends.base import Request
from xpolicy.backends.jax import backend
from xpolicy.policy.layers import Layer, Rule, builtin_layer
from xpolicy._origin import BUILTIN
from xpolicy.policy.options import OptionTable
from xpolicy.policy.resolve import resolve
table = OptionTable([backend.spec])
options = {"recompile_limit": 2, "static_argnames": ("n",), "donate_argnames": ("x",),
           "compiler_options": {"xla_cpu_enable_fast_math": False}, "on_failure": "eager"}
rules = [Rule(options, BUILTIN, None, "jax")]
policy = resolve([builtin_layer(table), Layer("project", "p", rules)], table, "lib.f", "jax")
def f(x, n):
    xp = array_api_compat.array_namespace(x)
    return xp.sin(x) * n
request = Request(f, "lib.f", policy, lambda event: None)
call = backend.compile(request, backend.lower(policy))
print(call(jnp.zeros(3), 1.0), jax.vmap(call, in_axes=(0, None))(jnp.zeros(3), 1.0))
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
def test_explain_names_the_context_manager(mode):
    seen = []

    @xpolicy.compile(name="mylib.f", mode=mode, jax={"recompile_limit": 1})
    def f(x):
        seen.append(isinstance(x, jax.core.Tracer))
        return x + 1

    with jax.disable_jit():
        for size in (1, 2, 3):
            assert f(jnp.ones(size)).shape == (size,)
        assert "switched off by jax.disable_jit()" in str(f.explain("jax"))
    assert seen == [False] * 3
    assert "switched off" not in str(f.explain("jax"))
    f(jnp.ones(1))
    assert seen[3:] == [True]
    assert f.stats()["jax"].counts == {"compile": 1}


OFF = """
import jax, jax.numpy as jnp, xpolicy
seen = []
@xpolicy.compile(name="mylib.f", mode={mode!r},
                 jax={{"recompile_limit": 1, "on_recompile_limit": "error"}})
def f(x):
    seen.append(isinstance(x, jax.core.Tracer))
    return x + 1
for size in (1, 2, 3):
    assert f(jnp.ones(size)).shape == (size,)
assert seen == [False] * 3
print(f.explain("jax"))
"""


@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
def test_the_variable_turns_everything_off_and_explain_names_it(mode):
    done = subprocess.run(
        [sys.executable, "-c", OFF.format(mode=mode)],
        env={**os.environ, "JAX_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "switched off by JAX_DISABLE_JIT=1" in done.stdout
