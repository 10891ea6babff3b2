"""No lock is held while user code runs, and a fork finds none held."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading

import jax
import jax.numpy as jnp
import pytest

pytestmark = pytest.mark.usefixtures("either_way")


def in_threads(*works):
    results, threads = [], []
    for work in works:

        def run(work=work):
            results.append(work())

        threads.append(threading.Thread(target=run, daemon=True))
    [t.start() for t in threads]
    [t.join(60) for t in threads]
    assert not any(t.is_alive() for t in threads), "a thread waits for ever"
    return results


def test_mutually_recursive_functions_first_called_from_two_threads(make):
    gate = threading.Barrier(2)

    def met(n):
        if n == 5:  # both are inside their own trace before either calls the other
            gate.wait(30)

    def even(x, n):
        met(n)
        return x if n == 0 else odd(x + 1, n - 1)

    def odd(x, n):
        met(n)
        return x if n == 0 else even(x + 1, n - 1)

    options = {"static_argnames": ("n",), "recompile_limit": 9, "on_recompile_limit": "error"}
    even_made, odd_made = make(even, **options), make(odd, **options)
    even, odd = even_made.call, odd_made.call  # the bodies call these
    x = jnp.zeros(3)
    results = in_threads(lambda: even(x, 5), lambda: odd(x, 5))
    assert [r.tolist() for r in results] == [[5, 5, 5]] * 2
    assert even_made.kinds() == odd_made.kinds() == ["compile"]


def test_a_body_that_waits_for_another_thread(make):
    def f(x):
        if x.shape == (3,):
            assert in_threads(lambda: call(jnp.ones(4)))[0].shape == (4,)
        return x + 1

    made = make(f, recompile_limit=2, on_recompile_limit="error")
    call = made.call
    assert in_threads(lambda: call(jnp.ones(3)))[0].tolist() == [2, 2, 2]
    assert sorted(made.kinds()) == ["compile", "compile", "recompile"]


def test_threads_over_the_limit_all_get_the_original(make, compilations):
    made = make(lambda x: x + 1, recompile_limit=1, on_recompile_limit="eager")
    made(jnp.ones(1))
    arrays = [jnp.ones(n) for n in range(2, 10)]
    compilations._names.clear()
    results = in_threads(*[lambda a=a: made(a).shape for a in arrays])
    assert sorted(results) == [(n,) for n in range(2, 10)]
    assert made.kinds() == ["compile"] + ["limit"] * 8


def test_threads_over_the_limit_with_one_signature(make):
    made = make(lambda x: x + 1, recompile_limit=1, on_recompile_limit="eager")
    made(jnp.ones(1))
    x = jnp.ones(2)
    assert in_threads(*[lambda: made(x).tolist()] * 16) == [[2, 2]] * 16
    assert made.kinds() == ["compile"] + ["limit"] * 16


def test_disabled_in_one_thread_only(make):
    bodies = []

    def f(x):
        bodies.append(isinstance(x, jax.core.Tracer))
        return x

    call = make(f).call
    x = jnp.ones(2)
    with jax.disable_jit():
        call(x)
        in_threads(lambda: call(x))
    assert bodies == [False, True]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_a_child_forked_after_use_is_not_locked():
    # In a process of its own: jax warns about fork, and the test process has threads.
    code = """
        import os, sys, warnings
        warnings.simplefilter("ignore")
        import jax, jax.numpy as jnp
        from xpolicy.backends.base import Request
        from xpolicy.backends.jax import backend
        from xpolicy.policy.layers import builtin_layer
        from xpolicy.policy.options import OptionTable
        from xpolicy.policy.resolve import resolve
        table = OptionTable([backend.spec])
        policy = resolve([builtin_layer(table)], table, "lib.f", "jax")
        request = Request(lambda x: x + 1, "lib.f", policy, lambda event: None)
        call = backend.compile(request, backend.lower(policy))
        x = jnp.ones(3)
        call(x)
        child = os.fork()
        if child == 0:
            call.clear()          # takes our locks; running XLA after a fork is jax's affair
            os._exit(7)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], timeout=120, capture_output=True, check=False
    )
    assert done.returncode == 7, done.stderr.decode()
