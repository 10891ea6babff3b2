"""What the makers of common mistakes are told, as files that can be read.

``UPDATE_GOLDEN=1 python -m pytest tests/golden`` writes them anew; read what changed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.policy.building import FACTS, TABLE
from xpolicy.errors import PolicyFileError
from xpolicy.policy.document import read_document
from xpolicy.runtime.session import place
from xpolicy.sources.environment import read_environment
from xpolicy.sources.toml import parse

FOLDER = Path(__file__).parent / "mistakes"
MISTAKES = sorted(path for path in FOLDER.iterdir() if path.suffix in (".toml", ".env"))


def directive(text: str, name: str) -> list[str]:
    """Return what the first line says, such as ``# layer: user``."""
    first = text.partition("\n")[0]
    mark = f"# {name}: "
    return first.removeprefix(mark).split() if first.startswith(mark) else []


def problems(path: Path):
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".env":
        environ = dict(line.split("=", 1) for line in text.splitlines())
        return read_environment(environ, TABLE, FACTS, version="0.1")[1]
    # Said in the file, so that no editor or version control changes them unseen.
    written = directive(text, "written with")
    if "crlf" in written:
        text = text.replace("\n", "\r\n")
    data = text.encode("utf-8-sig" if "bom" in written else "utf-8")
    layer = (directive(text, "layer") or ["project"])[0]
    try:
        document = parse(data, path.name, layer)
    except PolicyFileError as error:
        return error.problems
    package = "mylib" if layer == "author" else None
    return read_document(
        document.data, document.origin, layer, TABLE, FACTS, version="0.1", package=package
    )[1]


@pytest.mark.parametrize("path", MISTAKES, ids=lambda path: path.stem)
def test_what_is_told(path):
    found = "\n\n".join(str(place(problem)) for problem in problems(path)) + "\n"
    golden = path.with_suffix(".txt")
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(found, encoding="utf-8")
    assert found == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", MISTAKES, ids=lambda path: path.stem)
def test_each_says_what_is_wrong_where_and_what_to_do(path):
    for problem in map(place, problems(path)):
        assert problem.message
        assert problem.layer
        assert problem.origin is not None
        # A variable's place is its name.
        assert problem.origin.kind == "variable" or (problem.origin.line and problem.origin.column)
        assert problem.allowed or problem.fix


def test_there_are_enough_and_no_orphans():
    assert len(MISTAKES) >= 30
    assert {p.stem for p in FOLDER.glob("*.txt")} == {p.stem for p in MISTAKES}
