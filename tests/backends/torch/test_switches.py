"""Hostile warnings filters, and the compiler's own switches."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from xpolicy.backends.torch import backend

ones = torch.ones

HEAD = f"""
import sys
import torch
sys.path.insert(0, {str(Path(__file__).parent)!r})
from conftest import Compiled
from xpolicy.backends.torch import backend
graphs = []
def count(graph, inputs):
    graphs.append(1)
    return graph.forward
def f(x):
    return x.sin() + 1
x = torch.ones(4)
"""


def in_process(code: str, *arguments: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments, "-c", HEAD + code],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_inductor_is_imported_and_used_under_errors_for_warnings() -> None:
    code = """
from array_api_compat import array_namespace
def g(x):
    xp = array_namespace(x)
    return xp.sin(x) + 1
for fullgraph in (None, True):
    assert torch.allclose(Compiled(g, fullgraph=fullgraph)(x), f(x))
    assert torch.allclose(Compiled(g, fullgraph=fullgraph, compile_mode="max-autotune")(x), f(x))
print("done")
"""
    assert in_process(code, "-W", "error").endswith("done")


@pytest.mark.parametrize("fullgraph", [None, True])
def test_a_function_that_asks_for_its_namespace_compiles_under_errors_for_warnings(
    compiled: Any, fullgraph: bool | None
) -> None:
    from array_api_compat import array_namespace

    def g(x: Any) -> Any:
        return array_namespace(x).sin(x)

    call = compiled(g, backend="eager", fullgraph=fullgraph)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for length in (2, 3):
            torch.testing.assert_close(call(ones(length)), ones(length).sin())


def test_the_functions_own_warnings_surface(compiled: Any) -> None:
    def warns(x: Any) -> Any:
        y = x.sin()
        warnings.warn("mind the gap", stacklevel=2)
        return y

    call = compiled(warns, backend="eager")
    for _ in range(2):
        with pytest.warns(UserWarning, match="mind the gap"):
            call(ones(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="mind the gap"):
            call(ones(2))


def test_the_users_filters_are_as_they_were(compiled: Any) -> None:
    before = list(warnings.filters)
    compiled(lambda x: x + 1, backend="eager")(ones(2))
    assert warnings.filters == before


def test_filters_that_another_thread_sets_meanwhile_are_left_alone() -> None:
    from xpolicy.backends.torch.quiet import torch_warnings_ignored

    before = list(warnings.filters)
    theirs = warnings.catch_warnings()
    theirs.__enter__()
    warnings.simplefilter("error")
    with torch_warnings_ignored():
        theirs.__exit__(None, None, None)
        with torch_warnings_ignored():
            pass
    assert warnings.filters == before


@pytest.mark.parametrize("fullgraph", [None, True])
@pytest.mark.parametrize("variable", ["TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"])
def test_variables_that_disable_torch_compile_are_respected(
    variable: str, fullgraph: bool | None
) -> None:
    code = f"""
call = Compiled(f, {{"backend": count}}, fullgraph={fullgraph}, recompile_limit=1,
                on_recompile_limit="error")
for length in (2, 3, 4):
    assert torch.equal(call(torch.ones(length)), f(torch.ones(length)))
print(len(graphs), backend.disabled_by())
"""
    assert in_process(code, **{variable: "1"}) == f"0 {variable}=1"


def test_a_compiler_that_is_on_is_not_said_to_be_off() -> None:
    assert backend.disabled_by() is None


@pytest.mark.parametrize("fullgraph", [None, True])
def test_the_stance_that_forces_eager(compiled: Any, counter: Any, fullgraph: bool | None) -> None:
    call = compiled(lambda x: x + 1, {"backend": counter}, fullgraph=fullgraph)
    with torch.compiler.set_stance("force_eager"):
        assert backend.disabled_by() == 'torch.compiler.set_stance("force_eager")'
        assert torch.equal(call(ones(2)), ones(2) + 1)
    assert counter.graphs == 0
    call(ones(2))
    assert counter.graphs == 1


@pytest.mark.parametrize("fullgraph", [None, True])
def test_the_stances_about_recompilation(
    compiled: Any, counter: Any, fullgraph: bool | None
) -> None:
    call = compiled(
        lambda x: x + 1,
        {"backend": counter},
        fullgraph=fullgraph,
        recompile_limit=1,
        on_recompile_limit="error",
    )
    call(ones(2))
    with torch.compiler.set_stance("eager_on_recompile"):
        assert torch.equal(call(ones(3)), ones(3) + 1)
    with torch.compiler.set_stance("fail_on_recompile"):
        call(ones(2))
        with pytest.raises(RuntimeError, match="fail_on_recompile"):
            call(ones(3))
    assert counter.graphs == 1


def test_the_stance_that_compiles_at_the_second_call(compiled: Any, counter: Any) -> None:
    call = compiled(lambda x: x + 1, {"backend": counter})
    with torch.compiler.set_stance("eager_then_compile"):
        assert torch.equal(call(ones(2)), ones(2) + 1)
        assert counter.graphs == 0
        assert torch.equal(call(ones(3)), ones(3) + 1)
        assert counter.graphs == 1


def test_the_stance_that_forces_a_backend(compiled: Any, counter: Any) -> None:
    call = compiled(lambda x: x + 1, backend="eager")
    with torch.compiler.set_stance("default", force_backend=counter):
        assert torch.equal(call(ones(2)), ones(2) + 1)
    assert counter.graphs == 1
    assert torch.equal(call(ones(2)), ones(2) + 1)


@pytest.mark.parametrize("fullgraph", [None, True])
def test_dynamo_turned_off_for_a_while(compiled: Any, counter: Any, fullgraph: bool | None) -> None:
    ran = []

    def noted(x: Any) -> Any:
        ran.append(1)
        return x + 1

    call = compiled(noted, {"backend": counter}, fullgraph=fullgraph)
    with torch._dynamo.config.patch(disable=True):
        assert torch.equal(call(ones(2)), ones(2) + 1)
        assert backend.disabled_by() == "torch._dynamo.config.disable"
    assert counter.graphs == 0
    assert ran == [1]
    call(ones(2))
    assert counter.graphs == 1


def test_compiling_does_not_make_warnings_that_were_shown_appear_again(compiled: Any) -> None:
    compiled(lambda x: x, backend="eager")(torch.ones(2))  # torch's imports themselves do
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        for _ in range(2):
            warnings.warn("once for each place", UserWarning, stacklevel=1)
            call = compiled(lambda x: x + 1, backend="eager")
            call(torch.ones(2))
            assert call.count() == 1
    assert [str(each.message) for each in shown] == ["once for each place"]
