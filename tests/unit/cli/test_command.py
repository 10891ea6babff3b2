"""The command as a whole: how it ends, and what it needs."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from validate_pyproject import api, errors
from validate_pyproject.plugins import PluginWrapper

import xpolicy
from xpolicy.integrations.validate_pyproject import schema

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[3]


def command(*arguments: str, cwd: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "xpolicy", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT), **more},
    )


def test_version(run: Callable[..., Any]) -> None:
    assert run("--version").out == f"{xpolicy.__version__}\n"


def test_help_names_every_command(run: Callable[..., Any]) -> None:
    found = run("--help")
    assert found.status == 0
    for name in ("explain", "check", "show", "schema"):
        assert name in found.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("bogus",),
        ("explain",),
        ("show", "m.f"),
        ("show", "--namespace", "jax"),
        ("show", "--import"),
        ("check", "--bogus"),
        ("schema", "more"),
    ],
)
def test_what_is_not_understood_exits_2(
    run: Callable[..., Any], arguments: tuple[str, ...]
) -> None:
    found = run(*arguments)
    assert found.status == 2
    assert found.out == ""
    assert found.err


@pytest.mark.parametrize(
    "arguments", [("explain", "m.f"), ("show", "--effective", "m.f"), ("warmup", "m")]
)
def test_a_misspelt_namespace_is_a_usage_error_that_names_the_nearest(
    run: Callable[..., Any], arguments: tuple[str, ...]
) -> None:
    found = run(*arguments, "--namespace", "jaxx")
    assert (found.status, found.out) == (2, "")
    assert "did you mean: jax" in found.err


@pytest.mark.parametrize("missing", ["cyclopts", "rich"])
def test_without_the_extra_it_says_what_to_install(tmp_path: Path, missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from xpolicy.cli import main\nsys.exit(main(['show']))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert found.returncode == 2
    assert found.stdout == ""
    assert found.stderr == (
        f"error: the xpolicy command needs the cli extra (there is no {missing} here)\n"
        '  fix: pip install "xpolicy[cli]"\n'
    )


def test_no_array_library_is_imported_unless_asked(tmp_path: Path) -> None:
    (tmp_path / "xpolicy.toml").write_text('mode = "fullgraph"\ntorch.dynamic = true\n')
    code = (
        "import sys\nfrom xpolicy.cli import main\n"
        "main(['explain', 'm.f', '--namespace', 'torch']), main(['show']), main(['schema'])\n"
        "print('LOADED', *({'torch', 'jax', 'numpy'} & set(sys.modules)))\n"
        "main(['check'])\n"
        "print('LOADED', *({'torch', 'jax'} & set(sys.modules)))\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    loaded = [line for line in found.stdout.splitlines() if line.startswith("LOADED")]
    # And the check of a rule for torch asks torch, so the first line can fail.
    assert loaded == ["LOADED", "LOADED torch"]


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "xpolicy", "schema"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    errors_told = process.stderr.read()
    assert (process.wait(60), errors_told) == (141, b"")
    process.stderr.close()


def test_an_ascii_terminal_gets_escapes_not_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "größe.toml").write_text('functions."größe.f".mode = "eagre"', encoding="utf-8")
    found = command("check", "größe.toml", cwd=tmp_path, PYTHONIOENCODING="ascii", PYTHONUTF8="1")
    assert found.returncode == 1
    assert "gr\\xf6\\xdfe" in found.stdout
    assert found.stderr == ""


def test_a_warning_is_told_in_the_house_form(tmp_path: Path) -> None:
    found = command("explain", "m.f", "--namespace", "jax", cwd=tmp_path, XPOLICY_MOED="eager")
    assert found.returncode == 0
    assert found.stderr.startswith("warning: unknown variable XPOLICY_MOED, ignored\n")
    assert ".py:" not in found.stderr


@pytest.mark.parametrize("module", ["wave", "clinowhere"])
def test_a_file_in_the_folder_takes_no_installed_modules_place(tmp_path: Path, module: str) -> None:
    (tmp_path / f"{module}.py").write_text("raise ImportError('the one in the folder')")
    # As the installed script runs it: the working directory is not on the path.
    code = "import sys; sys.path.remove(''); from xpolicy.cli import main; sys.exit(main())"
    found = subprocess.run(
        [sys.executable, "-c", code, "explain", f"{module}.f", "--namespace", "numpy", "--import"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    # What is nowhere else is found in the folder.
    ours = module == "clinowhere"
    assert ("the one in the folder" in found.stderr) is ours
    assert found.returncode == (2 if ours else 0)


# -- what other tools load ---------------------------------------------------------------


def validator() -> api.Validator:
    return api.Validator(plugins=[PluginWrapper("xpolicy", schema)])


def test_validate_pyproject_checks_our_table() -> None:
    good = tomllib.loads((ROOT / "configs/application/pyproject.toml").read_text("utf-8"))
    assert validator()(good)
    good["tool"]["xpolicy"]["mode"] = "eagre"
    with pytest.raises(errors.ValidationError, match=r"tool\.xpolicy\.mode"):
        validator()(good)


def test_the_entry_point_leads_to_the_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    target = project["entry-points"]["validate_pyproject.tool_schema"]["xpolicy"]
    assert target == f"{schema.__module__}:{schema.__qualname__}"
