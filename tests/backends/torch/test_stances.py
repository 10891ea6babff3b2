"""torch's own switches mean under a policy what they mean to plain ``torch.compile``."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from typing import Any

import pytest
import torch

import xpolicy

STANCES: dict[str, dict[str, Any]] = {
    "default": {"stance": "default"},
    "force_eager": {"stance": "force_eager"},
    "eager_on_recompile": {"stance": "eager_on_recompile"},
    "fail_on_recompile": {"stance": "fail_on_recompile"},
    "eager_then_compile": {"stance": "eager_then_compile"},
    "aot_eager_then_compile": {"stance": "aot_eager_then_compile"},
}
NUMBERS = itertools.count()
modes = pytest.mark.parametrize("mode", ["compile", "fullgraph"])


class Graphs:
    """A dynamo backend that counts graphs, and how often they run."""

    def __init__(self) -> None:
        self.count = self.runs = 0

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.count += 1

        def run(*args: Any) -> Any:
            self.runs += 1
            return graph.forward(*args)

        return run


def outcomes(f: Any, graphs: Graphs, stance: dict[str, Any], *, before: bool) -> list[Any]:
    """Call with sizes that need one variant and then another, and say what came of each."""
    told: list[Any] = []
    if before:
        f(torch.ones(3))
    with torch.compiler.set_stance(**stance):
        for size in (3, 3, 4, 4, 5, 3):
            try:
                result = f(torch.ones(size))
                torch.testing.assert_close(result, torch.ones(size).sin() + 1)
                kind = "result"
            except Exception as error:  # noqa: BLE001  # compared with plain torch.compile's
                kind = f"{type(error).__name__}: {str(error).partition('filename')[0]}"
            told.append((kind, graphs.count, graphs.runs))
    f(torch.ones(3))
    told.append(("after", graphs.count, graphs.runs))
    return told


def body() -> Any:
    """Return a function in a file of its own: by that torch knows what it has seen."""
    scope: dict[str, Any] = {}
    source = "def f(x):\n    return x.sin() + 1\n"
    exec(compile(source, f"<body {next(NUMBERS)}>", "exec"), scope)
    return scope["f"]


@modes
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("name", STANCES)
def test_each_stance_keeps_its_meaning(name: str, before: bool, mode: str) -> None:
    torch._dynamo.reset()
    plain_graphs, graphs = Graphs(), Graphs()
    plain = torch.compile(body(), backend=plain_graphs, fullgraph=mode == "fullgraph")
    wanted = outcomes(plain, plain_graphs, STANCES[name], before=before)
    torch._dynamo.reset()
    f = xpolicy.compile(body(), name="mylib.f", mode=mode, torch={"backend": graphs})  # type: ignore[arg-type]
    assert outcomes(f, graphs, STANCES[name], before=before) == wanted


@modes
@pytest.mark.parametrize("name", [name for name in STANCES if name != "default"])
def test_no_stance_meets_a_limit_of_ours(name: str, mode: str) -> None:
    torch._dynamo.reset()
    f = xpolicy.compile(
        body(),
        name="mylib.f",
        mode=mode,  # type: ignore[arg-type]
        torch={"backend": "eager", "recompile_limit": 1, "on_recompile_limit": "error"},
    )
    f(torch.ones(3))
    with torch.compiler.set_stance(**STANCES[name]):
        f(torch.ones(3))  # what is compiled, or eager: no variant more is needed


@modes
@pytest.mark.parametrize("name", STANCES)
def test_explain_says_which_stance(name: str, mode: str) -> None:
    f = xpolicy.compile(body(), name="mylib.f", mode=mode, torch={"backend": "eager"})  # type: ignore[arg-type]
    with torch.compiler.set_stance(**STANCES[name]):
        told = str(f.explain("torch"))
    stance = STANCES[name]["stance"]
    assert ("set_stance" in told) is (stance != "default")
    assert (f'torch.compiler.set_stance("{stance}")' in told) is (stance != "default")
    assert "set_stance" not in str(f.explain("torch"))


@modes
def test_the_stance_that_forces_a_backend(mode: str) -> None:
    torch._dynamo.reset()
    graphs = Graphs()
    f = xpolicy.compile(body(), name="mylib.f", mode=mode, torch={"backend": "eager"})  # type: ignore[arg-type]
    with torch.compiler.set_stance("default", force_backend=graphs):
        torch.testing.assert_close(f(torch.ones(3)), torch.ones(3).sin() + 1)
        assert "force_backend" in str(f.explain("torch"))
    assert graphs.count == 1
    torch.testing.assert_close(f(torch.ones(3)), torch.ones(3).sin() + 1)


PROGRAM = """
import torch, xpolicy
graphs = []
def count(graph, inputs):
    graphs.append(1)
    return graph.forward
@xpolicy.compile(name="mylib.f", mode={mode!r},
                 torch={{"backend": count, "recompile_limit": 1, "on_recompile_limit": "error"}})
def f(x):
    return x.sin() + 1
for size in (2, 3, 4):
    assert torch.equal(f(torch.ones(size)), torch.ones(size).sin() + 1)
assert graphs == []
print(f.explain("torch"))
"""


@modes
@pytest.mark.parametrize("variable", ["TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"])
def test_a_variable_turns_everything_off_and_explain_names_it(variable: str, mode: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(mode=mode)],
        env={**os.environ, variable: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"{variable}=1" in done.stdout
