"""A quick look decides whether installed distributions are read; it must miss none."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
POINTS = "[console_scripts]\na = b:c\n\n[xpolicy.backends]\nmine = module:backend\n"
ASK = """
import sys
{before}
import xpolicy
from xpolicy.backends.plugins import points
print(*sorted(points()), "importlib.metadata" in sys.modules)
"""


def ask(*path: Path, before: str = "") -> list[str]:
    done = subprocess.run(
        [sys.executable, "-S", "-c", ASK.format(before=before)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT)))},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def distribution(folder: Path, name: str, points: str | None = POINTS) -> Path:
    info = folder / name
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some\nVersion: 1.0\n")
    (info / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: some\nVersion: 1.0\n")
    if points is not None:
        (info / "entry_points.txt").write_text(points)
    return folder


@pytest.mark.parametrize(
    "name",
    [
        "some-1.0.dist-info",
        "xpolicy_some-1.0.dist-info",
        "some.egg-info",  # an editable install of old
        "Some-1.0.DIST-INFO",
        "some-1.0.egg/EGG-INFO",
    ],
)
def test_a_folder_of_any_kind_is_found(tmp_path: Path, name: str) -> None:
    place = distribution(tmp_path, name)
    if ".egg/" in name:
        place = tmp_path / "some-1.0.egg"
    assert ask(place) == ["mine", "True"]


def test_an_archive_is_found(tmp_path: Path) -> None:
    distribution(tmp_path / "site", "some-1.0.dist-info")
    archive = tmp_path / "some.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted((tmp_path / "site").rglob("*")):
            file.write(path, path.relative_to(tmp_path / "site"))
    assert ask(archive) == ["mine", "True"]


def test_what_another_finder_finds_is_found(tmp_path: Path) -> None:
    place = distribution(tmp_path / "hidden", "some-1.0.dist-info")
    before = f"""
class Finder:
    def find_spec(self, *args):
        return None
    def find_distributions(self, context):
        from importlib.metadata import PathDistribution
        from pathlib import Path
        if context.name is None:
            yield PathDistribution(Path({str(place)!r}) / "some-1.0.dist-info")
sys.meta_path.append(Finder())
"""
    assert ask(before=before) == ["mine", "True"]


def test_where_nobody_registers_anything_no_metadata_is_read(tmp_path: Path) -> None:
    distribution(tmp_path, "other-1.0.dist-info", "[console_scripts]\na = b:c\n")
    distribution(tmp_path, "none-1.0.dist-info", None)
    # Ours are known without looking.
    distribution(tmp_path, "xpolicy-1.0.dist-info", POINTS.replace("mine", "torch"))
    (tmp_path / "file-1.0.dist-info").write_text("")
    assert ask(tmp_path, tmp_path / "missing") == ["False"]
