"""Which files are looked for, where the search ends, and what is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from xpolicy.sources.discovery import Candidate, Discovery, discover
from xpolicy.sources.trust import Trust

TABLE = "[tool.xpolicy]\nmode = 'eager'\n"
OTHER = "[tool.other]\nx = 1\n"


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def root(tmp_path):
    """Return a repository, so that the search never leaves the test's own folder."""
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    return tmp_path / "repo"


def look(cwd: Path | None, environ: dict[str, str] | None = None, **kwargs) -> Discovery:
    kwargs.setdefault("trust", lambda path, start: Trust(True, "trusted by the test"))
    home = kwargs.pop("home", None)
    config = kwargs.pop("config", Path("/no/such/config"))
    return discover({} if environ is None else environ, cwd, home, config, **kwargs)


def found(result: Discovery, layer: str | None = None) -> list[Path]:
    return [
        c.path
        for c in result.candidates
        if c.status == "found" and (layer is None or c.layer == layer)
    ]


def of(result: Discovery, path: Path) -> Candidate:
    (candidate,) = [c for c in result.candidates if c.path == path]
    return candidate


# --- the user's file --------------------------------------------------------------


def test_the_users_file(tmp_path, root):
    path = write(tmp_path / "config" / "xpolicy.toml")
    candidate = look(root, config=path.parent).candidates[0]
    assert (candidate.layer, candidate.path, candidate.prefix) == ("user", path, ())
    assert candidate.status == "found"
    candidate = look(root, config=tmp_path / "none").candidates[0]
    assert (candidate.layer, candidate.status) == ("user", "absent")
    candidate = look(root, config=path).candidates[0]  # a file where the folder should be
    assert (candidate.layer, candidate.status) == ("user", "absent")


# --- the project's ----------------------------------------------------------------


def test_the_nearest_folder_wins(root):
    write(root / "xpolicy.toml")
    near = write(root / "a" / "xpolicy.toml")
    (root / "a" / "b" / "c").mkdir(parents=True)
    result = look(root / "a" / "b" / "c")
    assert found(result) == [near]
    assert result.problems == ()
    # What was looked for on the way is told, what is above was not looked for.
    looked = [c.path for c in result.candidates if c.layer == "project"]
    assert looked == [
        folder / name
        for folder in (root / "a" / "b" / "c", root / "a" / "b", root / "a")
        for name in ("xpolicy.toml", "pyproject.toml")
    ]
    assert of(result, root / "a" / "b" / "xpolicy.toml").status == "absent"


@pytest.mark.parametrize(
    "text",
    [
        TABLE,
        "[tool.xpolicy]",
        "[tool]\nxpolicy = {}",
        "tool.xpolicy.mode = 'eager'",
        '["tool"."\\u0078policy"]',
        "[[tool.xpolicy.when]]\ndevice = 'cpu'",
        "tool.xpolicy = 3",  # wrong, and told so by who reads it
    ],
)
def test_a_pyproject_with_the_table_is_the_projects_file(root, text):
    path = write(root / "pyproject.toml", text)
    result = look(root)
    assert found(result) == [path]
    assert of(result, path).prefix == ("tool", "xpolicy")
    assert result.problems == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        OTHER,
        "# tool.xpolicy\n",
        "[tool.other]\nname = 'xpolicy'\n",
        "dependencies = ['xpolicy']",
        "tool = 'xpolicy'",
        "[tool.other\nx = ",  # broken, but nothing of ours
        "x = [\n  'xpolicy',\n",
        "[project]\nname = \xff",
    ],
)
def test_a_pyproject_without_the_table_is_passed_over(root, text):
    above = write(root / "xpolicy.toml")
    path = root / "sub" / "pyproject.toml"
    write(path)
    path.write_bytes(text.encode("latin-1"))
    result = look(root / "sub")
    assert found(result) == [above]
    assert of(result, path).status == "skipped"
    assert "tool.xpolicy" in of(result, path).reason
    assert result.problems == ()


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"[tool.xpolicy]\nmode = \n", 2),
        (b"[tool.other\n[tool . 'xpolicy']", 1),
        (b"[tool.xpolicy]\nmode = '\xff'", 2),
        ("[tool.xpolicy]\n".encode("utf-16"), 1),
        (b"[tool.xpolicy]\nx = " + b"[" * 40 + b"]" * 40, 2),
    ],
)
def test_a_broken_pyproject_that_mentions_the_table_is_an_error(root, data, line):
    write(root / "xpolicy.toml")
    path = write(root / "sub" / "pyproject.toml")
    path.write_bytes(data)
    result = look(root / "sub")
    assert found(result) == []  # the file above is not what the project means
    assert of(result, path).status == "skipped"
    (problem,) = result.problems
    assert problem.severity == "error"
    assert (problem.origin.label, problem.origin.line) == (str(path), line)


@pytest.mark.parametrize("kind", ["directory", "pipe", "too large"])
def test_a_pyproject_that_is_no_such_thing_is_passed_over(root, kind):
    above = write(root / "xpolicy.toml")
    path = root / "sub" / "pyproject.toml"
    path.parent.mkdir()
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        if not hasattr(os, "mkfifo"):
            pytest.skip("needs a platform with named pipes")
        os.mkfifo(path)
    else:
        path.write_bytes(b"#" * (1 << 20) + b"#")
    result = look(root / "sub")
    assert found(result) == [above]
    assert of(result, path).status == "skipped"


def test_both_files_in_one_folder_are_an_error_that_names_both(root):
    first, second = write(root / "xpolicy.toml"), write(root / "pyproject.toml", TABLE)
    result = look(root)
    assert found(result) == []
    (problem,) = result.problems
    assert problem.severity == "error"
    assert str(first) in str(problem)
    assert str(second) in str(problem)
    assert {of(result, first).status, of(result, second).status} == {"skipped"}


def test_a_pyproject_without_the_table_beside_the_file_is_none_of_our_business(root):
    path = write(root / "xpolicy.toml")
    write(root / "pyproject.toml", OTHER)
    result = look(root)
    assert found(result) == [path]
    assert result.problems == ()


@pytest.mark.parametrize("mark", [".git", ".hg"])
@pytest.mark.parametrize("kind", ["folder", "file"])
def test_the_search_ends_at_the_repositorys_root(tmp_path, mark, kind):
    (tmp_path / ".git").mkdir()  # so that a wrong search ends here
    outside = write(tmp_path / "xpolicy.toml")
    inside = tmp_path / "repo" / "sub"
    inside.mkdir(parents=True)
    assert found(look(inside)) == [outside]
    if kind == "folder":
        (tmp_path / "repo" / mark).mkdir()
    else:
        write(tmp_path / "repo" / mark, "gitdir: elsewhere")
    assert found(look(inside)) == []
    root_file = write(tmp_path / "repo" / "xpolicy.toml")
    assert found(look(inside)) == [root_file]  # the root itself is looked into


@pytest.mark.parametrize("linked", [False, True])
def test_the_search_ends_at_home(root, linked):
    write(root / "xpolicy.toml")
    home = root / "home"
    (home / "sub").mkdir(parents=True)
    named_home = home
    if linked:
        named_home = root / "link"
        named_home.symlink_to(home)
    assert found(look(home / "sub", home=named_home)) == []
    path = write(home / "xpolicy.toml")
    assert found(look(home / "sub", home=named_home)) == [path]


def test_a_home_elsewhere_ends_nothing(root, tmp_path):
    path = write(root / "xpolicy.toml")
    (root / "sub").mkdir()
    assert found(look(root / "sub", home=tmp_path / "home")) == [path]


def test_the_search_goes_to_the_file_systems_root():
    top = Path(os.sep).resolve()
    result = look(top / "no-such-folder" / "sub")
    assert top / "xpolicy.toml" in [c.path for c in result.candidates]


def test_without_a_working_directory_there_is_no_project():
    result = look(None)
    (candidate,) = [c for c in result.candidates if c.layer == "project"]
    assert candidate.status == "skipped"
    assert "working directory is gone" in candidate.reason
    assert result.problems == ()


def test_folders_that_may_not_be_looked_into_stop_nothing(unprivileged):
    above = write(unprivileged / "xpolicy.toml")
    (unprivileged / ".git").mkdir()
    closed = unprivileged / "closed"
    (closed / "sub").mkdir(parents=True)
    closed.chmod(0o000)
    with unprivileged.rights():
        result = look(closed / "sub")
    assert found(result) == [above]
    assert "Permission denied" in of(result, closed / "sub" / "xpolicy.toml").reason
    assert result.problems == ()


def test_a_users_folder_that_may_not_be_looked_into_is_told(unprivileged, root):
    closed = unprivileged / "config"
    closed.mkdir(mode=0o000)
    with unprivileged.rights():
        candidate = look(None, config=closed).candidates[0]
    assert candidate.status == "skipped"
    assert "Permission denied" in candidate.reason


# --- trust ------------------------------------------------------------------------


def test_a_strangers_file_is_skipped_with_a_warning_and_the_search_goes_on(root):
    above = write(root / "xpolicy.toml")
    theirs = write(root / "sub" / "xpolicy.toml")
    (root / "sub" / "deep").mkdir()
    asked: list[tuple[Path, Path]] = []

    def judge(path: Path, start: Path) -> Trust:
        asked.append((path, start))
        return Trust(path != theirs, "it belongs to user 1002")

    result = look(root / "sub" / "deep", trust=judge)
    assert asked == [(theirs, root / "sub" / "deep"), (above, root / "sub" / "deep")]
    assert found(result) == [above]
    assert of(result, theirs).status == "skipped"
    (problem,) = result.problems
    assert problem.severity == "warning"
    assert problem.origin.label == str(theirs)
    assert "1002" in problem.message
    assert f"XPOLICY_PROJECT={theirs.parent}" in problem.fix


@pytest.mark.parametrize("text", [TABLE, "[tool.xpolicy\n"])
def test_a_strangers_pyproject_can_not_stop_mine(root, text):
    mine = write(root / "xpolicy.toml")
    theirs = write(root / "pyproject.toml", text)
    result = look(root, trust=lambda path, start: Trust(path == mine, "so it is"))
    assert found(result) == [mine]
    assert of(result, theirs).status == "skipped"
    assert [p.severity for p in result.problems] == ["warning"]


def test_a_strangers_pyproject_without_the_table_warns_of_nothing(root):
    write(root / "pyproject.toml", OTHER)
    result = look(root, trust=lambda path, start: Trust(False, "never"))
    assert result.problems == ()


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0,
    reason="only root may give files away: run the tests as root",
)
def test_the_owner_is_asked_for_by_default(root):
    path = write(root / "xpolicy.toml")
    assert found(discover({}, root, None, root / "none")) == [path]
    os.chown(path, 1002, 1002)
    result = discover({}, root, None, root / "none")
    assert found(result) == []
    assert "1002" in result.problems[0].message
    assert found(discover({"XPOLICY_PROJECT": str(root)}, root, None, root / "none")) == [path]


# --- XPOLICY_PROJECT --------------------------------------------------------------


def test_a_named_folder_is_the_project_and_is_trusted(root, tmp_path):
    write(root / "xpolicy.toml")
    path = write(tmp_path / "other" / "pyproject.toml", TABLE)

    def never(path: Path, start: Path) -> Trust:
        raise AssertionError("naming is trusting")

    for named in (str(path.parent), str(Path("..", "other"))):
        result = look(root, {"XPOLICY_PROJECT": named}, trust=never)
        assert [c.resolve() for c in found(result)] == [path]
        assert result.problems == ()
    assert found(look(None, {"XPOLICY_PROJECT": str(path.parent)}, trust=never)) == [path]


@pytest.mark.parametrize("none", ["none", "None", " none "])
def test_none_means_no_project(root, none):
    write(root / "xpolicy.toml")
    result = look(root, {"XPOLICY_PROJECT": none})
    assert found(result) == []
    assert "XPOLICY_PROJECT=none" in of(result, root / "xpolicy.toml").reason
    assert result.problems == ()


@pytest.mark.parametrize("empty", ["", "  "])
def test_empty_is_as_if_absent(root, empty):
    path = write(root / "xpolicy.toml")
    result = look(root, {"XPOLICY_PROJECT": empty, "XPOLICY_FILE": empty})
    assert found(result) == [path]
    assert result.problems == ()


@pytest.mark.parametrize(
    ("named", "word"),
    [
        ("missing", "no such project folder"),
        ("xpolicy.toml", "is a file"),
        ("empty", "no policy file"),
        ("other", "no policy file"),
        ("a\0b", "no such project folder"),
    ],
)
def test_a_named_folder_without_a_policy_is_an_error(root, named, word):
    write(root / "xpolicy.toml")
    (root / "empty").mkdir()
    write(root / "other" / "pyproject.toml", OTHER)
    result = look(root, {"XPOLICY_PROJECT": named})
    assert found(result) == []  # and the folders above are not searched
    (problem,) = result.problems
    assert word in problem.message
    assert (problem.severity, problem.value) == ("error", named)
    assert problem.origin.label == "XPOLICY_PROJECT"
    assert problem.fix


def test_a_relative_name_needs_a_working_directory():
    result = look(None, {"XPOLICY_PROJECT": "sub", "XPOLICY_FILE": "x.toml"})
    assert [p.origin.label for p in result.problems] == ["XPOLICY_PROJECT", "XPOLICY_FILE"]
    assert all("working directory is gone" in p.message for p in result.problems)
    assert [c.status for c in result.candidates[1:]] == ["skipped", "skipped"]


# --- XPOLICY_FILE -----------------------------------------------------------------


def test_each_named_file_is_a_layer_of_its_own_later_higher(root, tmp_path):
    project = write(root / "xpolicy.toml")
    first, second = write(tmp_path / "b.toml"), write(root / "sub" / "a.toml")
    entries = ["", str(first), " ", str(Path("sub", "a.toml")), str(first), ""]
    result = look(root, {"XPOLICY_FILE": os.pathsep.join(entries)})
    assert found(result) == [project, first, second, first]
    assert [c.layer for c in result.candidates if c.status == "found"] == [
        "project",
        "file",
        "file",
        "file",
    ]
    assert result.problems == ()


def test_a_named_pyproject_is_read_below_its_table(root):
    path = write(root / "sub" / "pyproject.toml", TABLE)
    result = look(root, {"XPOLICY_FILE": str(path)})
    assert found(result, "file") == [path]
    assert of(result, path).prefix == ("tool", "xpolicy")
    path.write_text(OTHER)
    result = look(root, {"XPOLICY_FILE": str(path)})
    assert found(result, "file") == []
    assert "[tool.xpolicy]" in result.problems[0].fix
    # A broken one is reading's to tell, once.
    path.write_text("[tool.xpolicy\n")
    result = look(root, {"XPOLICY_FILE": str(path)})
    assert found(result, "file") == [path]
    assert result.problems == ()


def test_all_that_is_missing_is_told_at_once(root, tmp_path):
    entries = [str(tmp_path / "x.toml"), "~/y.toml", "z.toml"]
    environ = {"XPOLICY_FILE": os.pathsep.join(entries), "XPOLICY_PROJECT": "missing"}
    result = look(root, environ)
    assert [p.value for p in result.problems] == ["missing", *entries]
    assert [p.severity for p in result.problems] == ["error"] * 4
    assert "~" in result.problems[2].fix
    files = [c for c in result.candidates if c.layer == "file"]
    assert [c.path for c in files] == [
        tmp_path / "x.toml",
        root / "~" / "y.toml",
        root / "z.toml",
    ]
    assert {c.status for c in files} == {"absent"}


def test_an_empty_environment_is_not_the_real_one(root, monkeypatch):
    path = write(root / "xpolicy.toml")
    monkeypatch.setenv("XPOLICY_PROJECT", "none")
    monkeypatch.setenv("XPOLICY_FILE", "missing.toml")
    monkeypatch.setenv("HOME", str(root / "sub"))
    monkeypatch.chdir(root.parent)
    (root / "sub").mkdir()
    result = look(root / "sub", {})
    assert found(result) == [path]
    assert result.problems == ()
