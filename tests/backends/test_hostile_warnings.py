"""``python -W error``: nothing that compiling warns of by itself reaches a program.

All tests here run so, too (``filterwarnings`` in pyproject.toml, with its reasons); a process
of its own shows that no earlier test has imported what warns.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch

import xpolicy
from xpolicy.errors import XPolicyWarning

PROGRAM = """
import warnings
import numpy as np
{imports}
import array_api_compat
from array_api_compat import array_namespace
import xpolicy

@xpolicy.compile(name="mylib.standardise", mode={mode!r}, static_argnames=("ddof",))
def standardise(x, *, ddof=0):
    xp = array_namespace(x)
    mean = xp.mean(x, axis=-1, keepdims=True)
    return (x - mean) / xp.std(x, axis=-1, keepdims=True, correction=ddof)

class Model:
    @xpolicy.compile(name="mylib.Model.total", mode={mode!r}, jax={{"supports": "eager"}})
    def total(self, x):
        return array_namespace(x).sum(x * x)

@xpolicy.compile(name="mylib.broken", mode="compile", jax={{"supports": "eager"}})
def broken(x):
    xp = array_namespace(x)
    y = xp.sin(x)
    if float(xp.sum(y)) > 100:
        return y
    return xp.cos(y)

for shape in ((4, 3), (5, 3), (2, 2, 3)):
    data = np.random.default_rng(0).normal(size=shape)
    x = {array}
    for ddof in (0, 1):
        wanted = (data - data.mean(-1, keepdims=True)) / data.std(-1, keepdims=True, ddof=ddof)
        assert np.allclose(np.asarray(standardise(x, ddof=ddof)), wanted, rtol=1e-3)
    assert np.allclose(float(Model().total(x)), (data * data).sum(), rtol=1e-3)
    assert np.allclose(np.asarray(broken(x)), np.cos(np.sin(data)), rtol=1e-3)
assert standardise.stats().compilations >= 3, standardise.stats()
lowered = standardise.lower(x, ddof=0)
lowered.compile()(x, ddof=0)
standardise.explain({namespace!r})
try:
    warnings.warn("mine", UserWarning)
except UserWarning:
    print("done")
"""
LIBRARIES = {
    "torch": ("import torch", "torch.asarray(data)"),
    "jax": ("import jax.numpy as jnp", "jnp.asarray(data)"),
}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
@pytest.mark.parametrize("namespace", LIBRARIES)
def test_a_real_program(namespace: str, mode: str) -> None:
    imports, array = LIBRARIES[namespace]
    program = PROGRAM.format(imports=imports, array=array, namespace=namespace, mode=mode)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "done"
    assert "Warning" not in done.stderr


ONES = {"torch": torch.ones, "jax": jnp.ones}


@pytest.mark.parametrize("namespace", ONES)
def test_what_the_body_warns_of_while_it_is_compiled_surfaces(namespace: str) -> None:
    torch._dynamo.reset()

    @xpolicy.compile(name="mylib.warns", torch={"backend": "eager"})
    def warns(x: Any) -> Any:
        y = x + 1
        warnings.warn("mind the gap", UserWarning, stacklevel=1)
        return y

    with pytest.warns(UserWarning, match="mind the gap") as seen:
        warns(ONES[namespace](2))
    assert [w.filename for w in seen] == [__file__]
    assert warns.stats()[namespace].compilations == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="mind the gap"):
            warns(ONES[namespace]((2, 2)))


@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
@pytest.mark.parametrize("namespace", ONES)
def test_another_threads_warnings_surface_while_this_one_compiles(
    namespace: str, mode: str
) -> None:
    torch._dynamo.reset()
    filters: list[list[Any]] = []

    def other() -> None:
        filters.append([f for f in warnings.filters if "xpolicy" in str(f[3])])
        warnings.warn("from another thread", UserWarning, stacklevel=1)

    def meanwhile() -> None:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(30)

    def backend(graph: Any, inputs: Any) -> Any:
        meanwhile()
        return graph.forward

    @xpolicy.compile(name="mylib.f", mode=mode, torch={"backend": backend})  # type: ignore[arg-type]
    def f(x: Any) -> Any:
        if isinstance(x, jax.core.Tracer):
            meanwhile()
        return x + 1

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        f(ONES[namespace](2))
    told = [w for w in seen if str(w.message) == "from another thread"]
    assert [w.filename for w in told] == [__file__]
    assert len(filters) == 1
    assert bool(filters[0]) is (namespace == "torch")  # it was while torch's were filtered
    assert not [f for f in warnings.filters if "xpolicy" in str(f[3])]  # and only then


@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
@pytest.mark.parametrize("namespace", ONES)
def test_a_limit_whose_warning_is_an_error_holds_all_the_same(namespace: str, mode: str) -> None:
    torch._dynamo.reset()
    limits = {"recompile_limit": 1, "on_recompile_limit": "warn"}
    f = xpolicy.compile(
        lambda x: x + 1,
        name="mylib.f",
        mode=mode,  # type: ignore[arg-type]
        torch={"backend": "eager", **limits},
        jax=limits,
    )
    ones = ONES[namespace]
    f(ones(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(XPolicyWarning, match="recompile-limit = 1"):
            f(ones((2, 2)))
        for rank in (2, 3, 1):  # told once; from then on as if nothing had been raised
            assert float(f(ones((2,) * rank)).sum()) == 2 * 2**rank
    assert f.stats()[namespace].compilations == 1


def test_breaks_whose_warning_is_an_error_are_told_once() -> None:
    torch._dynamo.reset()

    @xpolicy.compile(name="mylib.f", torch={"backend": "eager", "graph_break_limit": 1})
    def f(x: Any) -> Any:
        x = x + 1
        torch.compiler.disable(lambda: None)()
        x = x * 2
        torch.compiler.disable(lambda: None)()
        return x + 1

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(XPolicyWarning, match="2 graph breaks"):
            f(torch.ones(2))
        for _ in range(2):
            assert torch.equal(f(torch.ones(2)), torch.full((2,), 5.0))
    assert f.stats()["torch"].counts["graph-break"] == 2
