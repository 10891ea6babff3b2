"""``xpolicy show`` and ``xpolicy schema``."""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

import xpolicy
from xpolicy.backends.registry import option_table
from xpolicy.policy.schema import schema

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_layers_files_and_variables_are_shown(
    run: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "xpolicy.toml").write_text('mode = "eager"\n[torch]\ndynamic = true\n')
    (folder / "pyproject.toml").write_text("[project]\n")
    (folder / "named.toml").write_text('[[when]]\nversions = { gone = ">1" }\nmode = "eager"\n')
    monkeypatch.setenv("XPOLICY_FILE", "named.toml")
    monkeypatch.setenv("XPOLICY_MODE", "fullgraph")
    monkeypatch.setenv("XPOLICY_MOED", "eager")
    monkeypatch.setenv("XPOLICY_SERVICE_HOST", "10.0.0.1")
    found = run("show")
    assert found.status == 0
    lines = [line.split() for line in found.out.splitlines()]
    order = [words[1] for words in lines if words and words[0].isdigit()]
    assert order == ["built-in", "author", "project", "file", "environment"]
    assert "2 rules" in next(x for x in found.out.splitlines() if "xpolicy.toml" in x)
    assert "named.toml:1:1" in found.out
    assert "gone is not installed" in found.out
    assert "not there" in next(x for x in found.out.splitlines() if x.startswith("  user"))
    assert "it has no [tool.xpolicy] table" in found.out
    assert 'XPOLICY_MODE  "fullgraph"' in found.out
    assert 'XPOLICY_MOED  "eager"       unknown variable XPOLICY_MOED, ignored' in found.out
    assert "SERVICE_HOST" not in found.out
    assert found.out.endswith("kill switch (XPOLICY_DISABLE): off\n")


def test_a_broken_file_is_shown_as_broken(run: Callable[..., Any], folder: Path) -> None:
    (folder / "xpolicy.toml").write_text("mode = ")
    found = run("show")
    assert found.status == 0
    assert "1 error: policies can't be used before it is mended" in found.out
    assert "broken" in next(x for x in found.out.splitlines() if x.startswith("  project"))


def test_under_the_kill_switch_nothing_is_looked_for(
    run: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "xpolicy.toml").write_text("= broken")
    monkeypatch.setenv("XPOLICY_DISABLE", "yes")
    found = run("show")
    assert found.status == 0
    assert "kill switch (XPOLICY_DISABLE): on: everything runs eager" in found.out
    assert "xpolicy.toml" not in found.out


def test_the_effective_file_gives_the_same_policies_by_itself(
    run: Callable[..., Any],
    package: Callable[..., None],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package(
        "clishown",
        "import xpolicy\n"
        '@xpolicy.compile(name="clishown.f", supports="compile", torch={"dynamic": True})\n'
        "def f(x): ...\n",
        library='[torch]\ncompile-mode = "max-autotune"\n',
    )
    (folder / "xpolicy.toml").write_text(
        """
        mode = "fullgraph"
        torch.options = { epilogue_fusion = true }
        [functions."clishown.*".torch]
        compile-mode = "unset"
        [[when]]
        device = "cuda"
        mode = "eager"
        """
    )
    names = ["clishown.f", "clishown.g"]
    found = run("show", "--effective", *names, "--import")
    assert (found.status, found.err) == (0, "")
    cases = [(n, ns, d) for n in names for ns in ("torch", "jax") for d in (None, "cuda", "cpu")]
    before = {case: xpolicy.resolve(case[0], case[1], device=case[2]) for case in cases}
    assert before["clishown.f", "torch", None].requested_mode == "fullgraph"
    assert before["clishown.f", "torch", None].torch.dynamic is True

    (folder / "xpolicy.toml").unlink()
    effective = folder / "effective.toml"
    effective.write_text(found.out)
    monkeypatch.setenv("XPOLICY_FILE", str(effective))
    monkeypatch.setenv("XPOLICY_PROJECT", "none")
    xpolicy.reload()
    for (name, namespace, device), policy in before.items():
        again = xpolicy.resolve(name, namespace, device=device)
        assert again == policy
        assert again.fingerprint == policy.fingerprint
        assert again.requested_mode == policy.requested_mode


def test_effective_takes_namespaces(run: Callable[..., Any]) -> None:
    found = run("show", "--effective", "m.f", "--namespace", "numpy", "jax.numpy")
    assert set(tomllib.loads(found.out)["functions"]["m.f"]) == {"numpy", "jax"}
    assert "# m.f: decorators not seen" in found.out


def test_what_only_a_decorator_can_say_is_named(
    run: Callable[..., Any], package: Callable[..., None]
) -> None:
    package(
        "clishown",
        'import xpolicy\n@xpolicy.compile(name="clishown.f", torch={"guard_filter_fn": len})\n'
        "def f(x): ...\n",
    )
    found = run("show", "--effective", "clishown.f", "--import")
    assert "# only the decorator can say: guard_filter_fn" in found.out


def test_schema_is_that_of_the_option_table(run: Callable[..., Any]) -> None:
    found = run("schema")
    assert found.status == 0
    assert json.loads(found.out) == schema(option_table())


def test_a_name_is_shown_the_way(run: Callable[..., Any]) -> None:
    found = run("show", "mylib.f")
    assert found.status == 2
    assert found.out == ""
    assert "xpolicy show --effective mylib.f" in found.err
    assert "xpolicy explain mylib.f" in found.err
