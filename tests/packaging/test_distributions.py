"""What is in the wheel and the sdist, and that the wheel works."""

from __future__ import annotations

import configparser
import email
import importlib
import tarfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from email.message import Message

    from conftest import Distributions, Python

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "xpolicy"


def source_files() -> set[str]:
    """All files of the package, data files too, as the tree has them."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }


@pytest.fixture(scope="session")
def wheel_files(distributions: Distributions) -> set[str]:
    with zipfile.ZipFile(distributions.wheel) as wheel:
        return set(wheel.namelist())


@pytest.fixture(scope="session")
def dist_info(distributions: Distributions) -> zipfile.Path:
    (folder,) = (
        entry
        for entry in zipfile.Path(distributions.wheel).iterdir()
        if entry.name.endswith(".dist-info")
    )
    return folder


@pytest.fixture(scope="session")
def metadata(dist_info: zipfile.Path) -> Message:
    return email.message_from_string((dist_info / "METADATA").read_text(encoding="utf-8"))


def test_the_wheel_holds_the_package_with_its_data_and_nothing_else(
    wheel_files: set[str], dist_info: zipfile.Path
) -> None:
    package = {name for name in wheel_files if PurePosixPath(name).parts[0] != dist_info.name}
    assert package == source_files()


def test_the_wheel_is_marked_as_typed(wheel_files: set[str]) -> None:
    assert "xpolicy/py.typed" in wheel_files


def test_what_the_backends_allow_travels_with_them(wheel_files: set[str]) -> None:
    folders = {PurePosixPath(name).parent for name in wheel_files if name.endswith(".toml")}
    assert {folder.as_posix() for folder in folders} >= {
        "xpolicy/backends/torch",
        "xpolicy/backends/jax",
    }


def test_the_license_is_named_and_included(metadata: Message, dist_info: zipfile.Path) -> None:
    assert metadata["License-Expression"] == "BSD-3-Clause"
    text = (dist_info / "licenses" / "LICENSE").read_text(encoding="utf-8")
    assert text == (ROOT / "LICENSE").read_text(encoding="utf-8")


def test_the_base_install_has_no_compiler_and_no_command_line_library(metadata: Message) -> None:
    required = metadata.get_all("Requires-Dist", [])
    base = {line.partition(">")[0].partition("<")[0] for line in required if "extra ==" not in line}
    assert base == {"array-api-compat", "packaging", "platformdirs", "pydantic", "tomli"}
    assert set(metadata.get_all("Provides-Extra", [])) == {"cli", "docs", "jax", "test", "torch"}


def test_the_entry_points_lead_somewhere(dist_info: zipfile.Path) -> None:
    parser = configparser.ConfigParser()
    parser.read_string((dist_info / "entry_points.txt").read_text(encoding="utf-8"))
    assert dict(parser["console_scripts"]) == {"xpolicy": "xpolicy.cli:main"}
    assert set(parser["xpolicy.backends"]) == {"torch", "jax"}
    for group in parser.sections():
        for target in parser[group].values():
            module, _, name = target.partition(":")
            found = importlib.import_module(module)
            assert not name or hasattr(found, name), target


def test_the_sdist_holds_all_that_a_test_run_needs(distributions: Distributions) -> None:
    with tarfile.open(distributions.sdist) as archive:
        names = {PurePosixPath(*PurePosixPath(name).parts[1:]) for name in archive.getnames()}
    tests = {
        path.relative_to(ROOT)
        for path in (ROOT / "tests").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    wanted = {PurePosixPath(path) for path in tests | set(map(Path, source_files()))}
    wanted |= {PurePosixPath(n) for n in ("LICENSE", "Makefile", "README.md", "constraints.txt")}
    assert wanted - names == set()
    assert not any(".venv" in name.parts for name in names)


def test_the_package_works_from_a_zip(distributions: Distributions, python: Python) -> None:
    code = """
import xpolicy
answer = [xpolicy.__file__, xpolicy.resolve("a.b", "torch").mode]
"""
    file, mode = python(code, path=[distributions.wheel])
    assert file.startswith(str(distributions.wheel))
    assert mode == "compile"


def test_a_project_s_policy_reaches_the_package_in_a_zip(
    distributions: Distributions, python: Python, tmp_path: Path
) -> None:
    (tmp_path / "empty" / "xpolicy.toml").write_text('functions."a.*".torch.mode = "eager"\n')
    code = """
import xpolicy
answer = [xpolicy.resolve("a.b", "torch").mode, xpolicy.resolve("b.a", "torch").mode]
"""
    assert python(code, path=[distributions.wheel]) == ["eager", "compile"]
