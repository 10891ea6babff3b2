"""Limits, static arguments and breaks, on each compiler, with each action, strict or not.

Everything goes through the public interface, policies through a file; each row counts what
the compilers themselves compile: graphs that dynamo hands to a backend, programs of XLA.
"""

from __future__ import annotations

import threading
import warnings
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import pytest
import torch
from torch._dynamo.exc import Unsupported

import xpolicy
from xpolicy.errors import GraphBreakLimitError, RecompileLimitError, XPolicyWarning

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ONES: dict[str, Callable[..., Any]] = {"torch": torch.ones, "jax": jnp.ones}


class Compiled:
    """What was compiled, and on torch how often it has run."""

    def __init__(self) -> None:
        self.graphs = self.runs = 0
        self._programs: list[str] = []
        self._lock = threading.Lock()

    def reset(self) -> None:
        self.graphs = self.runs = 0
        self._programs.clear()

    def torch(self, graph: Any, inputs: Any) -> Any:
        """Compile a graph: a dynamo backend."""
        self.graphs += 1

        def run(*args: Any) -> Any:
            self.runs += 1
            return graph.forward(*args)

        return run

    def jax(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        """Take note of a program that XLA has compiled: a listener of jax's monitoring."""
        if event == "/jax/core/compile/backend_compile_duration":
            with self._lock:
                self._programs.append(str(kwargs.get("fun_name")))

    def count(self, namespace: str, function: str) -> int:
        """Return how much was compiled of a function that is compiled on one namespace."""
        return self.graphs if namespace == "torch" else self._programs.count(f"jit({function})")


COMPILED = Compiled()
torch._dynamo.register_backend(lambda *given: COMPILED.torch(*given), name="matrix")
jax.monitoring.register_event_duration_secs_listener(COMPILED.jax)

each = pytest.mark.parametrize("namespace", ["torch", "jax"])
action_ = pytest.mark.parametrize("action", ["error", "warn", "eager"])
strict_ = pytest.mark.parametrize("mode", ["compile", "fullgraph"])


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put a policy into effect by a file that ``XPOLICY_FILE`` names."""
    torch._dynamo.reset()
    COMPILED.reset()

    def write(text: str) -> None:
        file = tmp_path / "matrix.toml"
        file.write_text(f'torch.backend = "matrix"\n{text}', encoding="utf-8")
        monkeypatch.setenv("XPOLICY_FILE", str(file))
        xpolicy.reload()

    return write


class Calls:
    """Calls of one function: what they returned or raised, and what they warned of."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.raised: list[Exception] = []
        self.warned: list[str] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it; return the first number of the result, None if it has raised."""
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always", XPolicyWarning)
            try:
                result = self.function(*args, **kwargs)
            except Exception as error:  # noqa: BLE001  # what is raised is looked at
                self.raised.append(error)
                result = None
        self.warned += [str(w.message) for w in seen if issubclass(w.category, XPolicyWarning)]
        return None if result is None else float(result.reshape(-1)[0])


@each
@action_
@strict_
def test_limits(policy: Callable[..., None], namespace: str, action: str, mode: str) -> None:
    policy(f"""
        mode = "{mode}"
        {namespace}.recompile-limit = 2
        {namespace}.on-recompile-limit = "{action}"
    """)
    runs_of_python = []

    @xpolicy.compile(name="mylib.limited")
    def limited(x: Any) -> Any:
        if namespace == "jax":  # dynamo would guard on the list
            runs_of_python.append(x.ndim)
        return x * 3

    call = Calls(limited)
    arrays = {rank: ONES[namespace]((2,) * rank) for rank in (1, 2, 3, 4)}
    assert [call(arrays[rank]) for rank in (1, 2)] == [3, 3]
    assert COMPILED.count(namespace, "limited") == 2

    beyond = [call(arrays[rank]) for rank in (3, 4, 3)]
    assert COMPILED.count(namespace, "limited") == 2
    assert beyond == ([None] * 3 if action == "error" else [3] * 3)
    assert len(call.warned) == (action == "warn")
    assert len(call.raised) == (3 if action == "error" else 0)
    for told in (*call.warned, *map(str, call.raised)):
        assert "mylib.limited" in told
        assert "matrix.toml:4" in told
    assert {type(error) for error in call.raised} <= {RecompileLimitError}

    # What is compiled stays compiled.
    runs, python = COMPILED.runs, len(runs_of_python)
    assert [call(arrays[rank]) for rank in (1, 2, 1)] == [3, 3, 3]
    assert COMPILED.count(namespace, "limited") == 2
    if namespace == "torch":
        assert COMPILED.runs == runs + 3
    else:  # jax runs no Python at a hit
        assert len(runs_of_python) == python
    record = limited.stats()[namespace]
    assert record.compilations == 2
    assert record.counts["limit"] >= 1

    limited.clear()
    assert call(arrays[4]) == 3
    assert COMPILED.count(namespace, "limited") == 3


@each
@action_
@strict_
def test_statics(policy: Callable[..., None], namespace: str, action: str, mode: str) -> None:
    policy(f"""
        mode = "{mode}"
        {namespace}.recompile-limit = 3
        {namespace}.on-recompile-limit = "{action}"
        functions."mylib.scaled".static-argnames = ["n"]
    """)

    @xpolicy.compile(name="mylib.scaled")
    def scaled(x: Any, n: Any = 2) -> Any:
        assert isinstance(n, (int, tuple))  # no symbol, no tracer
        return x * (n if isinstance(n, int) else n[0])

    call, x = Calls(scaled), ONES[namespace](3)
    assert [call(x), call(x, 2), call(x, n=2), call(n=2, x=x)] == [2] * 4
    assert COMPILED.count(namespace, "scaled") == 1  # one variant for all spellings
    assert [call(x, 5), call(x, (4,)), call(x, n=5)] == [5, 4, 5]
    assert COMPILED.count(namespace, "scaled") == 3  # one for each value

    beyond = [call(x, 7), call(x, (4, 0))]
    assert beyond == ([None, None] if action == "error" else [7, 4])
    assert COMPILED.count(namespace, "scaled") == 3
    assert len(call.warned) == (action == "warn")
    for told in (*call.warned, *map(str, call.raised)):
        assert "n: " in told
        assert "-> 7" in told or "-> (4, 0)" in told
    assert [call(x), call(x, 5), call(x, (4,))] == [2, 5, 4]
    assert COMPILED.count(namespace, "scaled") == 3
    assert scaled.stats()[namespace].compilations == 3


@each
@action_
@strict_
def test_breaks(policy: Callable[..., None], namespace: str, action: str, mode: str) -> None:
    # jax has no graph breaks: what torch breaks at, jax can't trace, and on-failure decides.
    policy(f"""
        mode = "{mode}"
        torch.graph-break-limit = 1
        torch.on-graph-break-limit = "{action}"
        jax.on-failure = "{"error" if action == "error" else "eager"}"
    """)
    started = []

    @xpolicy.compile(name="mylib.broken")
    def broken(x: Any) -> Any:
        if namespace == "jax":  # dynamo would guard on the list
            started.append(x)
        y = x * 2
        if y.sum() < 0:
            y = -y
        y = y + 4
        if y.max() < 0:
            y = -y
        return y * 6

    call, x = Calls(broken), ONES[namespace](2)
    results = [call(x) for _ in range(3)]
    compiled = COMPILED.count(namespace, "broken")
    record = broken.stats()[namespace]

    if mode == "fullgraph" or (namespace == "jax" and action == "error"):
        # Nothing is compiled, nothing has run, and the compiler's own error says whose it is.
        assert (results, compiled, record.compilations) == ([None] * 3, 0, 0)
        assert COMPILED.runs == 0
        assert all(isinstance(x, jax.core.Tracer) for x in started)
        kind = Unsupported if namespace == "torch" else jax.errors.ConcretizationTypeError
        for error in call.raised:
            assert isinstance(error, kind)
            assert any("mylib.broken" in note for note in error.__notes__)
        assert call.warned == []
        return
    if namespace == "jax":
        assert (results, compiled, record.compilations) == ([36] * 3, 0, 0)
        assert len(started) == 4  # one trace, and each call
        assert record.counts["fallback"] == len(call.warned) == 1
        return
    places = {(e.details["file"], e.details["line"]) for e in record.events if "file" in e.details}
    first = broken.__wrapped__.__code__.co_firstlineno
    assert places == {(__file__, first + 5), (__file__, first + 8)}
    assert record.counts["graph-break"] == 2
    if action == "error":
        # The second break is found behind the first, when the body has begun to run; later
        # calls are refused before they do.
        assert results == [None] * 3
        assert {type(error) for error in call.raised} == {GraphBreakLimitError}
        assert (compiled, COMPILED.runs) == (2, 1)
        assert f"{__file__}:{first + 5}" in str(call.raised[-1])
        assert f"{__file__}:{first + 8}" in str(call.raised[-1])
    else:
        # The first call ends in the three parts that it was compiled in; what comes after it
        # runs as the function is written, if that is what the policy wants.
        assert results == [36] * 3
        assert compiled == 3
        assert len(call.warned) == (action == "warn")
        assert COMPILED.runs == (9 if action == "warn" else 3)
