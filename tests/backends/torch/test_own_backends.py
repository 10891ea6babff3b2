"""A compiler of the author's own, given to the decorator as a function."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch

import xpolicy
from xpolicy.errors import BackendOptionError

if TYPE_CHECKING:
    from pathlib import Path

GRAPHS: list[Any] = []


def recording(graph: Any, inputs: Any) -> Any:
    GRAPHS.append(graph)
    return graph.forward


class Recording:
    def __call__(self, graph: Any, inputs: Any) -> Any:
        return recording(graph, inputs)


def function(x: Any) -> Any:
    return x.sin() + 1


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    GRAPHS.clear()


def decorated(backend: Any = recording, **options: Any) -> Any:
    return xpolicy.compile(name="mylib.f", torch={"backend": backend, **options})(function)


@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
@pytest.mark.parametrize("backend", [recording, Recording()], ids=["function", "object"])
def test_it_compiles(backend: Any, mode: str) -> None:
    f = decorated(backend)
    with xpolicy.override(mode=mode):
        for _ in range(2):
            torch.testing.assert_close(f(torch.ones(3)), function(torch.ones(3)))
    assert len(GRAPHS) == 1


def test_a_name_in_a_higher_layer_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "p.toml"
    file.write_text('torch.backend = "eager"\n', encoding="utf-8")
    monkeypatch.setenv("XPOLICY_FILE", str(file))
    f = decorated()
    f(torch.ones(3))
    assert GRAPHS == []
    told = str(f.explain("torch"))
    assert f"{file}:1:" in told or "p.toml:1:" in told
    assert f"{__name__}.recording" in told.replace("…", "")  # what it beat
    with xpolicy.override(f, torch={"backend": "unset"}):  # withdraws the author's, too
        assert xpolicy.resolve(f, "torch").torch.backend is None


def test_the_decorator_is_said_to_have_set_it() -> None:
    f = decorated()
    (row,) = [row for row in f.explain("torch").rows if row.option == "torch.backend"]
    assert row.said.layer == "author"
    assert row.shown == f"{__name__}.recording"
    assert "test_own_backends.py" in row.said.origin
    json.dumps(f.explain("torch").as_dict())
    assert " at 0x" not in str(f.explain("torch"))


def test_what_only_inductor_takes_is_dropped_and_told() -> None:
    f = decorated()
    with xpolicy.override(torch={"compile_mode": "max-autotune"}):
        f(torch.ones(3))
        told = str(f.explain("torch"))
    assert len(GRAPHS) == 1
    assert (
        f"compile-mode dropped: only the inductor backend takes it, and backend = {__name__}"
        in told
    )
    with pytest.raises(BackendOptionError, match="doesn't take it"):
        decorated(options={"max_autotune": True})(torch.ones(3))


PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
import torch, xpolicy
from backends_of_mine import one, other
for backend in (one, one, other):
    f = xpolicy.compile(name="mylib.f", torch={{"backend": backend}})(lambda x: x)
    print(xpolicy.resolve(f, "torch").fingerprint)
"""


def test_the_fingerprint_is_that_of_its_qualified_name(tmp_path: Path) -> None:
    (tmp_path / "backends_of_mine.py").write_text(
        "def one(graph, inputs): return graph.forward\ndef other(graph, inputs): return graph\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-c", PROGRAM.format(folder=str(tmp_path))]
    runs = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    one, again, other = runs[0]
    assert one == again != other


@pytest.mark.parametrize("backend", [3, ["eager"], object()], ids=["int", "list", "object"])
def test_anything_else_is_refused(backend: Any) -> None:
    with pytest.raises(BackendOptionError, match=r"torch\.backend can't be"):
        decorated(backend)(torch.ones(3))


def test_only_a_decorator_may_give_one() -> None:
    with pytest.raises(BackendOptionError, match=r"torch\.backend can't be"):
        xpolicy.override(torch={"backend": recording})
