"""``xpolicy check``."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[3]
DOCUMENTED = ROOT / "docs/reference/explain-json.md"
CODE = """
import xpolicy

@xpolicy.compile(name="clichecked.f")
def f(x, axis): ...

@xpolicy.compile(name="clichecked.free")
def free(**kw): ...
"""


def test_all_problems_are_told_with_a_summary(run: Callable[..., Any], folder: Path) -> None:
    one = folder / "one.toml"
    one.write_text('mode = "eagre"\ntorch.fullgraph = 1\n')
    two = folder / "two.toml"
    two.write_text("moed = 1\n")
    found = run("check", "one.toml", "two.toml")
    assert (found.status, found.err) == (1, "")
    assert re.findall(r"--> (\S+)", found.out) == [
        "one.toml:1:1",
        "one.toml:2:7",
        "two.toml:1:1",
    ]
    assert found.out.endswith("\n2 files checked: 3 errors, 0 warnings\n")


def test_a_clean_file_is_clean(run: Callable[..., Any], folder: Path) -> None:
    (folder / "a.toml").write_text('mode = "eager"\n')
    found = run("check", "a.toml")
    assert (found.status, found.out) == (0, "1 file checked: no problems\n")


# A ratchet is a record of what was observed, and no policy.
SHIPPED = sorted(p for p in (ROOT / "configs").rglob("*.toml") if "ratchets" not in p.parts)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.name)
def test_policy_files_that_we_ship_are_clean(run: Callable[..., Any], path: Path) -> None:
    assert run("check", "--no-compilers", str(path)).out == "1 file checked: no problems\n"


def test_without_a_file_it_checks_what_the_process_reads(
    run: Callable[..., Any], folder: Path, user_config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "xpolicy.toml").write_text('mode = "eagre"\n')
    user_file = user_config / "xpolicy" / "xpolicy.toml"
    user_file.parent.mkdir(parents=True)
    user_file.write_text("moed = 1\n")
    monkeypatch.setenv("XPOLICY_MODE", "fulgraph")
    monkeypatch.setenv("XPOLICY_FILE", "gone.toml")
    found = run("check")
    assert found.status == 1
    for text in ('"eagre"', "unknown key 'moed'", "fulgraph", "gone.toml"):
        assert text in found.out
    assert "2 files checked: 3 errors, 1 warning\n" in found.out
    assert found.err == ""  # a warning is told once


def test_the_files_of_packages_that_rules_name_are_checked(
    run: Callable[..., Any], package: Callable[..., None], folder: Path
) -> None:
    package("clichecked", "raise ImportError", library='mode = "eagre"\n')
    (folder / "xpolicy.toml").write_text('functions."clichecked.*".mode = "eager"\n')
    found = run("check")
    assert found.status == 1
    assert "xpolicy-library.toml:1:1 (author layer)" in found.out


def test_a_warning_fails_only_under_strict(run: Callable[..., Any], folder: Path) -> None:
    file = folder / "a.toml"
    file.write_text('mode = "eager"\n')
    file.chmod(0o666)
    found = run("check", "a.toml")
    assert found.status == 0
    assert "warning: everybody on this machine may change this file" in found.out
    assert found.out.endswith("1 file checked: 0 errors, 1 warning\n")
    assert run("check", "--strict", "a.toml").status == 1
    file.chmod(0o644)
    assert run("check", "--strict", "a.toml").status == 0


def test_the_json_is_as_documented(run: Callable[..., Any], folder: Path) -> None:
    (folder / "a.toml").write_text('\nmode = "eagre"\n')
    found = run("check", "--json", "a.toml")
    data = json.loads(found.out)
    assert found.status == 1
    assert (data["files"], data["errors"], data["warnings"]) == (["a.toml"], 1, 0)
    problem = data["problems"][0]
    assert (problem["file"], problem["line"], problem["column"]) == ("a.toml", 2, 1)
    assert problem["nearest"] == '"eager"'
    part = DOCUMENTED.read_text("utf-8").partition("An object of `problems`")[2]
    documented = re.findall(r"`(\w+)`", "".join(re.findall(r"^\|(.*?)\|", part, re.MULTILINE)))
    assert list(problem) == documented


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "there is no such file"),
        (lambda path: path.mkdir(), "this is a directory"),
        (lambda path: path.write_bytes(b"\xff"), "not UTF-8"),
        (lambda path: path.write_text("a ="), "TOML"),
        (lambda path: os.mkfifo(path), "this is a pipe"),
        (lambda path: path.write_text("a = " + "[" * 999), "nested deeper"),
    ],
    ids=["missing", "directory", "bytes", "syntax", "pipe", "deep"],
)
def test_what_is_no_policy_file_is_told_without_a_traceback(
    run: Callable[..., Any], folder: Path, make: Callable[[Path], None], said: str
) -> None:
    make(folder / "a.toml")
    found = run("check", "a.toml")
    assert found.status == 1
    assert said in found.out
    assert "Traceback" not in found.out + found.err


@pytest.mark.parametrize("value", ['"yes"', "1", "[true]"])
def test_a_switch_is_checked_in_its_other_spelling_too(
    run: Callable[..., Any], folder: Path, value: str
) -> None:
    (folder / "a.toml").write_text(f'[torch.options]\n"triton.cudagraphs" = {value}\n')
    found = run("check", "--no-compilers", "a.toml")
    assert found.status == 1
    assert f"torch.cudagraphs can't be {value}" in found.out
    assert "a.toml:2:1" in found.out


# -- compilers ---------------------------------------------------------------------------


def test_an_option_that_the_installed_compiler_refuses_is_told(
    run: Callable[..., Any], folder: Path
) -> None:
    (folder / "a.toml").write_text('mode = "compile"\n[torch.options]\nno_such_option = 1\n')
    found = run("check", "a.toml")
    assert found.status == 1
    assert "no_such_option" in found.out
    assert "a.toml:3:1 (file layer)" in found.out
    assert run("check", "--no-compilers", "a.toml").status == 0


def test_the_compiler_is_asked_about_what_rules_come_to_together(
    run: Callable[..., Any], folder: Path
) -> None:
    # With backend = "eager" nothing reads the options, whichever rule sets them.
    (folder / "a.toml").write_text(
        'torch.backend = "eager"\nfunctions."m.*".torch.options.no_such_option = 1\n'
    )
    assert run("check", "a.toml").status == 0


def test_a_rule_for_a_device_is_asked_about_too(run: Callable[..., Any], folder: Path) -> None:
    (folder / "a.toml").write_text('[[when]]\ndevice = "cuda"\ntorch.options.no_such_option = 1\n')
    found = run("check", "a.toml")
    assert found.status == 1
    assert "a.toml:3:" in found.out


def test_a_missing_cpp_compiler_is_told_where_inductor_needs_one(
    run: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    (folder / "a.toml").write_text("torch.dynamic = true\n")
    found = run("check", "a.toml")
    assert found.status == 0
    assert "there is no C++ compiler here (no-such-compiler)" in found.out
    for text in ('mode = "eager"', 'torch.backend = "aot_eager"'):
        (folder / "a.toml").write_text(f"{text}\ntorch.dynamic = true\n")
        assert run("check", "a.toml").out == "1 file checked: no problems\n"


# -- code --------------------------------------------------------------------------------


def test_strict_finds_rules_that_reach_nothing(
    run: Callable[..., Any], package: Callable[..., None], folder: Path
) -> None:
    package("clichecked", CODE)
    (folder / "a.toml").write_text(
        """
        functions."*".mode = "eager"
        functions."clichecked.*".mode = "eager"
        functions."clichecked.f".torch.dynamic = true
        functions."clichecked.g".mode = "eager"
        functions."clichecked.sub.*".jax.inline = true
        functions."no_such_package.*".mode = "eager"
        testing.functions."clichecked.h".torch.graph-breaks = 1
        """
    )
    found = run("check", "--strict", "--no-compilers", "--json", "a.toml")
    assert found.status == 1
    told = {p["key"]: p["line"] for p in json.loads(found.out)["problems"]}
    assert told == {
        'functions."clichecked.g"': 5,
        'functions."clichecked.sub.*".jax': 6,
        'testing.functions."clichecked.h".torch': 8,
    }
    del sys.modules["clichecked"]
    assert run("check", "--no-compilers", "a.toml").status == 0
    assert "clichecked" not in sys.modules


def test_strict_finds_misspelt_packages(
    run: Callable[..., Any], package: Callable[..., None], folder: Path
) -> None:
    package("clichecked", "raise SystemExit('imported')")
    (folder / "a.toml").write_text(
        """
        apply = ["clicheckt.sub"]
        functions."clichecketd.f".mode = "eager"
        functions."clichecketd.f".torch.dynamic = true
        functions."quite_another_environments.f".mode = "eager"
        """
    )
    found = run("check", "--strict", "--no-compilers", "--json", "a.toml")
    told = json.loads(found.out)["problems"]
    assert [(p["line"], p["key"], p["nearest"], p["severity"]) for p in told] == [
        (3, 'functions."clichecketd.f"', "clichecked", "warning"),
        (2, "apply", "clichecked", "warning"),
    ]
    assert told[0]["fix"] == 'write "clichecked.f", or install clichecketd'
    assert found.status == 1
    assert run("check", "--no-compilers", "a.toml").status == 0


def test_strict_finds_names_of_arguments_that_are_not_there(
    run: Callable[..., Any], package: Callable[..., None], folder: Path
) -> None:
    package("clichecked", CODE)
    (folder / "a.toml").write_text(
        """
        functions."clichecked.f".static-argnames = ["axis", "axs"]
        functions."clichecked.f".jax.donate-argnames = ["z"]
        functions."clichecked.free".static-argnames = ["anything"]
        """
    )
    found = run("check", "--strict", "--no-compilers", "--json", "a.toml")
    assert found.status == 1
    told = [(p["line"], p["value"], p["nearest"]) for p in json.loads(found.out)["problems"]]
    assert told == [(2, '"axs"', "axis"), (3, '"z"', None)]


def test_strict_tells_a_package_that_can_not_be_imported(
    run: Callable[..., Any], package: Callable[..., None], folder: Path
) -> None:
    package("clichecked", "1 / 0")
    (folder / "a.toml").write_text('functions."clichecked.f".mode = "eager"\n')
    found = run("check", "--strict", "a.toml")
    assert found.status == 1
    assert "warning: clichecked can't be imported: ZeroDivisionError" in found.out
    assert "reaches nothing" not in found.out
