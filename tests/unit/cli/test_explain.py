"""``xpolicy explain``."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import xpolicy
from xpolicy.cli import output

if TYPE_CHECKING:
    from collections.abc import Callable

DOCUMENTED = Path(__file__).parents[3] / "docs/reference/explain-json.md"
DECORATED = """
import xpolicy

@xpolicy.compile(name="cliexplained.f", supports="compile", reason="data decides")
def f(x):
    return x
"""


def test_piped_it_is_the_explanations_own_text(run: Callable[..., Any], folder: Path) -> None:
    (folder / "xpolicy.toml").write_text('mode = "fullgraph"\n')
    found = run("explain", "no_such_package.f", "--namespace", "torch")
    assert (found.status, found.err) == (0, "")
    # The command adds one note to what the library says.
    text = str(xpolicy.explain("no_such_package.f", "torch"))
    assert found.out.startswith(text)
    assert found.out[len(text) :] == (
        "\n  - decorators not seen: there is no package no_such_package here\n"
    )
    assert "xpolicy.toml:1:8 (project)" in found.out


def test_without_import_it_says_that_decorators_were_not_seen(
    run: Callable[..., Any], package: Callable[..., None]
) -> None:
    package("cliexplained", DECORATED, library='mode = "eager"\n')
    found = run("explain", "cliexplained.f", "--namespace", "torch")
    assert found.status == 0
    assert "decorators not seen: package not imported" in found.out
    assert "supports is not declared" in found.out
    assert "cliexplained" not in sys.modules
    # The file that the package ships is data, and is read all the same.
    assert "cliexplained.f for torch: eager" in found.out


def test_with_import_decorators_are_seen(
    run: Callable[..., Any], package: Callable[..., None], folder: Path
) -> None:
    package("cliexplained", DECORATED)
    (folder / "xpolicy.toml").write_text('mode = "fullgraph"\n')
    found = run("explain", "cliexplained.f", "--namespace", "torch", "--import")
    assert found.status == 0
    assert found.out.startswith("cliexplained.f for torch: compile (asked for fullgraph)\n")
    assert "data decides" in found.out
    assert "decorators not seen" not in found.out


def test_a_name_that_nothing_is_decorated_by_gets_the_nearest(
    run: Callable[..., Any], package: Callable[..., None]
) -> None:
    package("cliexplained", DECORATED.replace(".f", ".function"))
    found = run("explain", "cliexplained.functoin", "--namespace", "torch", "--import")
    assert "did you mean cliexplained.function?" in found.out


def test_an_imported_package_that_decorates_nothing_is_said_to(
    run: Callable[..., Any], package: Callable[..., None]
) -> None:
    package("cliexplained", "")
    found = run("explain", "cliexplained.f", "--namespace", "torch", "--import")
    assert "cliexplained is imported, and has no decorated function" in found.out
    assert "decorators not seen" not in found.out


def test_a_function_of_a_submodule_is_found_by_the_longest_prefix(
    run: Callable[..., Any], package: Callable[..., None], folder: Path
) -> None:
    package("cliexplained", "print('imported')")
    (folder / "cliexplained" / "deep.py").write_text(DECORATED.replace(".f", ".deep.K.f"))
    found = run("explain", "cliexplained.deep.K.f", "--namespace", "jax", "--import", "--json")
    # What the package prints is not part of the result.
    assert json.loads(found.out)["function"] == "cliexplained.deep.K.f"
    assert "data decides" in found.out
    assert found.err == "imported\n"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("1 / 0", "cliexplained can't be imported: ZeroDivisionError: division by zero"),
        ("import no_such_thing", "ModuleNotFoundError: No module named 'no_such_thing'"),
        ("raise SystemExit(3)", "cliexplained can't be imported: SystemExit: 3"),
        ("def", "cliexplained can't be imported: SyntaxError"),
    ],
)
def test_an_import_that_fails_is_told_and_exits_2(
    run: Callable[..., Any], package: Callable[..., None], code: str, said: str
) -> None:
    package("cliexplained", code)
    found = run("explain", "cliexplained.f", "--namespace", "torch", "--import")
    assert found.status == 2
    assert found.out == ""
    assert found.err.startswith("error: ")
    assert said in found.err
    assert "Traceback" not in found.err


def test_the_json_is_as_documented_and_in_that_order(run: Callable[..., Any], folder: Path) -> None:
    (folder / "xpolicy.toml").write_text(
        'mode = "eager"\n[[when]]\nversions = { no-such = ">1" }\nmode = "compile"\n'
    )
    data = json.loads(run("explain", "m.f", "--namespace", "jax.numpy", "--json").out)
    tables = [
        re.findall(r"^\| `([\w-]+)` \|", part, flags=re.MULTILINE)
        for part in re.split(r"^An object|^##", DOCUMENTED.read_text("utf-8"), flags=re.MULTILINE)
    ]
    assert list(data) == tables[1]
    assert list(data["options"][0]) == tables[2]
    assert list(data["options"][0]["set-by"]) == tables[3]
    assert data["namespace"] == "jax"
    assert data["options"][0] == {
        "option": "mode",
        "value": "eager",
        "set-by": {
            "value": '"eager"',
            "origin": "xpolicy.toml:1:8",
            "layer": "project",
            "rule": "all functions",
            "condition": "",
        },
        "beat": [
            {
                "value": '"compile"',
                "origin": "built-in",
                "layer": "built-in",
                "rule": "all functions",
                "condition": "",
            }
        ],
        "notes": [],
    }
    assert data["conditions-not-met"][0]["reason"] == "no-such is not installed"


def test_on_a_terminal_it_is_a_table_that_fits(
    run: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xpolicy.cli.explain.on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    (folder / "xpolicy.toml").write_text('mode = "fullgraph"\n[torch]\nbackend = "[red]x"\n')
    found = run("explain", "mylib.part.f", "--namespace", "torch")
    assert found.status == 0
    assert max(map(len, found.out.splitlines())) <= 80
    # Wrapped, and every cell there; what looks like markup is text.
    table = found.out.partition("unset")[0]
    for text in ("mode", '"fullgraph"', "[red]x", "project", "all functions", "built-in"):
        assert text in table, text
    assert "torch.fullgraph" in found.out


def test_nothing_is_coloured_unless_a_terminal_reads_it(run: Callable[..., Any]) -> None:
    assert not output.on_terminal()
    assert "\x1b" not in run("explain", "m.f", "--namespace", "torch").out


def test_a_broken_file_is_an_error_in_the_house_form(run: Callable[..., Any], folder: Path) -> None:
    (folder / "xpolicy.toml").write_text('mode = "eagre"\n')
    found = run("explain", "m.f", "--namespace", "torch")
    assert (found.status, found.out) == (1, "")
    assert 'error: mode can\'t be "eagre"\n  --> ' in found.err
    assert "(project layer)" in found.err
    assert 'did you mean: "eager"' in found.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("m.f", "--namespace", "trch"), "did you mean: torch"),
        (("m-f", "--namespace", "torch"), "'m-f' is not a function key"),
    ],
)
def test_a_wrong_name_or_namespace_is_told(
    run: Callable[..., Any], arguments: tuple[str, ...], said: str
) -> None:
    found = run("explain", *arguments)
    assert (found.status, found.out) == (2, "")
    assert said in found.err


def test_the_kill_switch_is_explained_over_broken_files(
    run: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "xpolicy.toml").write_text("= broken")
    monkeypatch.setenv("XPOLICY_DISABLE", "1")
    found = run("explain", "m.f", "--namespace", "torch")
    assert found.status == 0
    assert found.out.startswith("m.f for torch: eager\n")
    assert "XPOLICY_DISABLE" in found.out


def test_without_a_namespace_it_explains_each_that_compiles(
    run: Callable[..., Any], folder: Path
) -> None:
    (folder / "xpolicy.toml").write_text('torch.mode = "eager"\n')
    found = run("explain", "m.f")
    assert found.status == 0
    assert "m.f for torch: eager\n" in found.out
    assert "\n\nm.f for jax: compile\n" in found.out
    data = json.loads(run("explain", "m.f", "--json").out)
    assert {one["namespace"]: one["mode"] for one in data} == {"torch": "eager", "jax": "compile"}


def test_without_any_compiler_it_asks_which_namespace(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xpolicy.cli.explain.installed", lambda package: False)
    found = run("explain", "m.f")
    assert found.status == 2
    assert "allowed: numpy, torch, jax" in found.err
    assert "fix: add --namespace" in found.err


def test_what_apply_governs_is_said(run: Callable[..., Any], folder: Path) -> None:
    (folder / "xpolicy.toml").write_text('apply = ["mylib.sub", "other"]\n')
    found = run("explain", "mylib.sub.f", "--namespace", "torch")
    said = 'xpolicy.toml:1:10: apply names "mylib.sub": xpolicy.install() puts it under policy'
    assert f"  - {said}\n" in found.out
    assert "apply" not in run("explain", "mylib.subs", "--namespace", "torch").out
