"""``xpolicy warmup``: what it prints, and how it ends."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytest.importorskip("jax", reason="these commands compile with jax: pip install jax")

CODE = """
import xpolicy

print("imported")

@xpolicy.compile(name="{name}.scale", static_argnames=("n",))
def scale(x, n=2):
    return x * n

@xpolicy.compile(name="{name}.branch")
def branch(x):
    return x if x.sum() > 0 else -x
"""


@pytest.fixture
def library(package: Callable[..., None], request: pytest.FixtureRequest) -> str:
    # A name for each test: what was compiled for a function lives as long as the process.
    name = f"cliwarmed{abs(hash(request.node.name)) % 10**8}"
    package(name, CODE.format(name=name))
    return name


def policy(folder: Path, text: str) -> None:
    (folder / "xpolicy.toml").write_text(text, encoding="utf-8")


def test_each_call_has_its_row(run: Callable[..., Any], folder: Path, library: str) -> None:
    policy(
        folder,
        f'[functions."{library}.scale"]\n'
        'warmup = [{ x = "float32[4, 3]", n = 3 }, { x = "int32[]" }]\n',
    )
    found = run("warmup", library, "--namespace", "jax")
    assert found.status == 0, found.err
    head, *rows, summary, note = found.out.splitlines()
    assert head.split() == ["function", "namespace", "signature", "seconds", "cache", "outcome"]
    for row, signature in zip(rows, ("x=float32[4, 3], n=3", "x=int32[]"), strict=True):
        pattern = rf"{library}.scale +jax +{re.escape(signature)} +\d+\.\d\d +off +compiled"
        assert re.fullmatch(pattern, row)
    assert summary == "2 calls: 2 compiled, 0 failed"
    assert note.startswith("  - jax: its persistent cache is off")
    # What the library prints is no part of the result.
    assert "imported" in found.err
    again = run("warmup", f"{library}.scale", "--namespace", "jax", "--jobs", "2")
    assert "2 calls: 0 compiled, 2 compiled already, 0 failed" in again.out


def test_a_call_that_fails_is_told_with_its_line(
    run: Callable[..., Any], folder: Path, library: str
) -> None:
    policy(
        folder,
        f'[functions."{library}.branch"]\nwarmup = [\n  {{ x = "float32[4]" }},\n]\n'
        f'[functions."{library}.scale"]\nwarmup = [{{ x = "int8[1]", m = 3 }}]\n'
        f'[functions."{library}.scal"]\nwarmup = [{{ x = "int8[1]" }}]\n',
    )
    found = run("warmup", library, "--namespace", "jax")
    assert found.status == 1
    assert "3 calls: 0 compiled, 3 failed" in found.out
    assert "TracerBoolConversionError" in found.err
    assert sorted(re.findall(r"--> .*xpolicy.toml:(\d+)", found.err)) == ["3", "6", "8"]
    assert 'has no argument "m"' in found.err
    assert f"did you mean: {library}.scale" in found.err


def test_a_wrong_spec_is_told_before_anything_is_imported(
    run: Callable[..., Any], folder: Path, library: str
) -> None:
    policy(folder, f'[functions."{library}.scale"]\nwarmup = [{{ x = "flaot32[4]" }}]\n')
    found = run("check")
    assert found.status == 1
    assert "xpolicy.toml:2:13" in found.out
    assert "did you mean: float32" in found.out
    assert run("warmup", library).status == 1


def test_check_strict_holds_calls_against_the_code(
    run: Callable[..., Any], folder: Path, library: str
) -> None:
    policy(
        folder,
        f'[functions."{library}.scale"]\nwarmup = [{{ x = "int8[1]", m = 3 }}]\n'
        f'[functions."{library}.scal"]\nwarmup = []\n',
    )
    assert run("check", "--no-compilers").status == 0
    found = run("check", "--no-compilers", "--strict")
    assert found.status == 1
    assert f'{library}.scale has no argument "m"' in found.out
    assert "this rule reaches nothing" in found.out
    assert f'key: functions."{library}.scal"' in found.out


def test_explain_tells_the_calls_and_where_they_stand(
    run: Callable[..., Any], folder: Path, library: str
) -> None:
    policy(folder, f'[functions."{library}.scale"]\nwarmup = [{{ x = "int8[1]", n = 3 }}]\n')
    found = run("explain", f"{library}.scale", "--namespace", "jax")
    told = "xpolicy.toml:2:11 (project): xpolicy.warmup() compiles it for x=int8[1], n=3"
    assert told in found.out
    assert "compiles it for" not in run("explain", f"{library}.scale", "--namespace", "numpy").out


def test_json_has_the_same(run: Callable[..., Any], folder: Path, library: str) -> None:
    policy(folder, f'[functions."{library}.scale"]\nwarmup = [{{ x = "int8[2]" }}]\n')
    found = run("warmup", library, "--namespace", "jax", "numpy", "--json")
    told = json.loads(found.out)
    assert told["counts"] == {"eager": 1, "compiled": 1}
    by_namespace = {call["namespace"]: call for call in told["calls"]}
    assert by_namespace["jax"]["cache"] == "off"
    assert by_namespace["numpy"]["status"] == "eager"
    assert by_namespace["jax"]["origin"] == "xpolicy.toml:2:11"


def test_nothing_to_do_is_no_failure(run: Callable[..., Any], folder: Path, library: str) -> None:
    found = run("warmup", library)
    assert (found.status, found.out) == (
        0,
        "nothing to compile: no warmup list names a function of what was named\n",
    )


def test_what_cant_be_done_is_a_usage_error(run: Callable[..., Any], library: str) -> None:
    for arguments in ((), ("nosuchpackage",), (library, "--jobs", "0")):
        found = run("warmup", *arguments)
        assert (found.status, found.out) == (2, "")
        assert found.err.startswith("error: ") or "imported" in found.err


def test_functions_that_apply_names_are_warmed_up(
    run: Callable[..., Any], folder: Path, package: Callable[..., None]
) -> None:
    package("cliwarmedplain", "def f(x):\n    return x + 1\n")
    policy(
        folder,
        'apply = ["cliwarmedplain"]\nfunctions."cliwarmedplain.f".warmup = [{ x = "int8[2]" }]\n',
    )
    try:
        found = run("warmup", "cliwarmedplain", "--namespace", "jax")
    finally:
        import xpolicy

        xpolicy.install().undo()
    assert (found.status, "1 call: 1 compiled, 0 failed" in found.out) == (0, True)
