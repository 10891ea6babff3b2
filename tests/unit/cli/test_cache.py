"""``xpolicy cache``: caches leave one machine in a file, and enter another with care."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

import xpolicy
from xpolicy.aot import shipping
from xpolicy.backends.caches import unusable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILES = {
    "torch/fxgraph/ab/fabc/entry": b"graph",
    "torch/jc/cjc.main.so": b"\x7fELF" + bytes(3000),
    "torch/triton/0/XYZ/kernel.json": b"{}",
    "jax/jit_f-0123-cache": b"executable",
}
LEFT_OUT = {
    "torch/locks/cjc.lock": b"",
    "torch/tmpabc/half": b"half",
    "torch/CACHEDIR.TAG": b"Signature: ...",
    "jax/jit_f-0123-atime": b"12345678",
}


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let two distributions that are here stand for the compilers: none is run."""
    monkeypatch.setattr(shipping, "DISTRIBUTIONS", {"torch": ("packaging",), "jax": ("pydantic",)})
    for name in ("TORCHINDUCTOR_CACHE_DIR", "JAX_COMPILATION_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)


def keep_in(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("XPOLICY_CACHE__DIR", str(folder))
    xpolicy.reload()


def fill(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return folder


def held(folder: Path) -> dict[str, bytes]:
    return {
        found.relative_to(folder).as_posix(): found.read_bytes()
        for found in folder.rglob("*")
        if found.is_file() and found.name != "CACHEDIR.TAG" and not found.name.endswith("-atime")
    }


@pytest.fixture
def exported(run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with all of `FILES`; from here on another folder is in use."""
    keep_in(monkeypatch, fill(tmp_path / "old", FILES | LEFT_OUT))
    assert run("cache", "export", str(tmp_path / "warm")).status == 0
    keep_in(monkeypatch, tmp_path / "new")
    return tmp_path / "warm"


def parts(path: Path) -> tuple[dict[str, Any], bytes]:
    magic, header, content = path.read_bytes().split(b"\n", 2)
    assert magic + b"\n" == shipping.MAGIC
    return json.loads(header), content


def rewrite(path: Path, header: dict[str, Any], content: bytes) -> None:
    """Write a file whose digest is right, as somebody who means harm would."""
    header = header | {"sha256": hashlib.sha256(content).hexdigest()}
    path.write_bytes(shipping.MAGIC + json.dumps(header).encode() + b"\n" + content)


def packed(*members: tarfile.TarInfo) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(bytes(member.size)))
    return out.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    made.size = 4 if kind == tarfile.REGTYPE else 0
    return made


def test_what_one_folder_held_another_one_holds(exported: Path, run: Any, tmp_path: Path) -> None:
    done = run("cache", "import", str(exported))
    assert done.status == 0
    assert "torch: 3 files imported, 3.0 kB" in done.out
    assert held(tmp_path / "new") == FILES
    # Not open to others, whatever the umask.
    assert exported.stat().st_mode & 0o022 == 0
    if os.name == "posix":
        assert (tmp_path / "new" / "torch").stat().st_mode & 0o077 == 0


def test_what_is_there_already_stays(exported: Path, run: Any, tmp_path: Path) -> None:
    fill(tmp_path / "new", {"jax/jit_f-0123-cache": b"mine"})
    done = run("cache", "import", str(exported))
    assert "jax: 1 files imported, 10 B, 1 of them there already" in done.out
    assert held(tmp_path / "new")["jax/jit_f-0123-cache"] == b"mine"


def test_a_folder_may_be_named(exported: Path, run: Any, tmp_path: Path) -> None:
    assert run("cache", "import", str(exported), "--dir", str(tmp_path / "named")).status == 0
    assert held(tmp_path / "named") == FILES
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "name",
    ["torch/../../evil", "/torch/evil", "torch//evil", "../evil", "torch", "torch/C:evil",
     "torch/a\\..\\evil", "numpy/evil", "evil"],
)  # fmt: skip
def test_names_that_lead_out_of_the_folder(
    exported: Path, run: Any, tmp_path: Path, name: str
) -> None:
    header, _ = parts(exported)
    rewrite(exported, header, packed(member("torch/fxgraph/good"), member(name)))
    done = run("cache", "import", str(exported))
    assert done.status == 1
    assert "made to do harm" in done.err
    assert not list(tmp_path.rglob("*evil*"))
    assert held(tmp_path / "new") == {}, "nothing is taken of such a file"


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_other_things(exported: Path, run: Any, tmp_path: Path, kind: bytes) -> None:
    header, _ = parts(exported)
    content = packed(member("torch/evil", kind, str(tmp_path)), member("torch/evil/x"))
    rewrite(exported, header, content)
    done = run("cache", "import", str(exported))
    assert (done.status, "made to do harm" in done.err) == (1, True)
    assert held(tmp_path / "new") == {}


def test_a_link_in_the_folder_itself_is_not_followed(
    exported: Path, run: Any, tmp_path: Path
) -> None:
    (tmp_path / "new" / "torch").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "new" / "torch" / "fxgraph").symlink_to(tmp_path / "outside")
    done = run("cache", "import", str(exported))
    assert (done.status, "leads out of the cache" in done.err) == (1, True)
    assert held(tmp_path / "outside") == {}


def test_more_than_the_header_says(exported: Path, run: Any, tmp_path: Path) -> None:
    header, content = parts(exported)
    header["bytes"]["torch"] = 5
    rewrite(exported, header, content)
    done = run("cache", "import", str(exported))
    assert (done.status, "more than its header says" in done.err) == (1, True)
    assert held(tmp_path / "new") == {}


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such bits; a POSIX system has")
@pytest.mark.parametrize("which", ["file", "folder"])
def test_what_everybody_may_write_to(exported: Path, run: Any, which: str, tmp_path: Path) -> None:
    changed = exported if which == "file" else tmp_path
    changed.chmod(changed.stat().st_mode | 0o002)
    done = run("cache", "import", str(exported))
    changed.chmod(changed.stat().st_mode & ~0o002)
    assert done.status == 1
    assert f"fix: {'find out who wrote it, then ' * (which == 'file')}chmod o-w" in done.err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"versions": {"torch": {"packaging": "1.2"}}}, "made by packaging 1.2"),
        ({"python": "cpython-27"}, "made under cpython-27"),
    ],
)
def test_a_cache_of_other_versions_is_skipped(
    exported: Path, run: Any, tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    header, content = parts(exported)
    change = {name: header[name] | new if isinstance(new, dict) else new
              for name, new in change.items()}  # fmt: skip
    rewrite(exported, header | change, content)
    done = run("cache", "import", str(exported))
    assert done.status == 0
    assert f"warning: torch was skipped: {told}" in done.err
    assert set(held(tmp_path / "new")) == {"jax/jit_f-0123-cache"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"platform": "Plan9 mips"}, "made on Plan9 mips"),
        ({"instructions": ["avx9000"]}, "made for a processor with avx9000"),
    ],
)
def test_a_cache_for_another_machine_is_an_error(
    exported: Path, run: Any, tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    if "instructions" in change and not shipping.instructions():
        pytest.skip("only Linux tells which instructions a processor has")
    header, content = parts(exported)
    rewrite(exported, header | change, content)
    done = run("cache", "import", str(exported))
    assert done.status == 1
    assert "has nothing for this machine" in done.err
    assert told in done.err
    assert held(tmp_path / "new") == {}


@pytest.mark.parametrize("cut", [0, 5, 40, -200, -1])
def test_a_truncated_file(exported: Path, run: Any, tmp_path: Path, cut: int) -> None:
    exported.write_bytes(exported.read_bytes()[:cut])
    done = run("cache", "import", str(exported))
    assert done.status == 1
    assert "is damaged" in done.err or "is no file of caches" in done.err
    assert held(tmp_path / "new") == {}


@pytest.mark.parametrize("header", [b"[]", b"{}", b"null", b'{"sha256": "0"}', b"\xff"])
def test_a_header_that_is_none(exported: Path, run: Any, header: bytes) -> None:
    _, content = parts(exported)
    exported.write_bytes(shipping.MAGIC + header + b"\n" + content)
    done = run("cache", "import", str(exported))
    assert (done.status, "its header can't be read" in done.err) == (1, True)


def test_files_that_are_not_there(run: Any, tmp_path: Path, monkeypatch: Any) -> None:
    keep_in(monkeypatch, fill(tmp_path / "old", FILES))
    done = run("cache", "import", str(tmp_path / "absent"))
    assert (done.status, "absent can't be read" in done.err) == (1, True)
    done = run("cache", "export", str(tmp_path / "absent" / "warm"))
    assert (done.status, "can't be written" in done.err) == (1, True)


def test_nothing_to_export(run: Any, tmp_path: Path, monkeypatch: Any) -> None:
    done = run("cache", "export", str(tmp_path / "warm"))
    assert done.status == 1
    assert "XPOLICY_CACHE__DIR" in done.err
    keep_in(monkeypatch, tmp_path / "empty")
    done = run("cache", "export", str(tmp_path / "warm"))
    assert (done.status, "there is nothing to export" in done.err) == (1, True)
    assert not (tmp_path / "warm").exists()


def test_info(run: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("XPOLICY_CACHE__MAX_SIZE", "1 kB")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "theirs"))
    keep_in(monkeypatch, fill(tmp_path / "old", FILES))
    done = run("cache", "info")
    assert done.status == 0
    torch, jax = done.out.splitlines()[1:3]
    assert torch.split()[:4] == ["torch", "on", str(tmp_path / "old" / "torch"), "1"]
    assert jax.split()[:3] == ["jax", "own", str(tmp_path / "theirs")]
    assert "set by JAX_COMPILATION_CACHE_DIR" in jax
    assert "cache.max-size is for jax only" in done.out
    told = json.loads(run("cache", "info", "--json").out)
    assert [(one["compiler"], one["state"], one["entries"]) for one in told] == [
        ("torch", "on", 1),
        ("jax", "own", 0),
    ]


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such bits; a POSIX system has")
def test_info_says_which_folder_is_not_used(run: Any, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "old" / "jax").mkdir(parents=True)
    (tmp_path / "old" / "jax").chmod(0o777)
    keep_in(monkeypatch, tmp_path / "old")
    done = run("cache", "info")
    torch, jax = done.out.splitlines()[1:3]
    assert torch.split()[1] == "on"
    assert jax.split()[1] == "own"
    assert f"jax: {tmp_path / 'old' / 'jax'} is writable for everybody" in done.out
    assert not (tmp_path / "old" / "torch").exists(), "looking makes nothing"


def test_info_where_nobody_speaks_of_caches(run: Any) -> None:
    done = run("cache", "info")
    assert (done.status, "settings: none" in done.out) == (0, True)


def test_a_policy_that_is_wrong_is_told(run: Any, folder: Path) -> None:
    (folder / "xpolicy.toml").write_text('[cache]\ndir = "/tmp/x"\n', encoding="utf-8")
    done = run("cache", "info")
    assert done.status == 1
    assert "xpolicy.toml:2:1" in done.err
    assert "cache.dir may not be set in a project's file" in done.err


def test_clear_empties_only_what_xpolicy_made(run: Any, tmp_path: Path, monkeypatch: Any) -> None:
    old = fill(tmp_path / "old", FILES)
    keep_in(monkeypatch, old)
    done = run("cache", "clear", "jax")
    assert (done.status, "was not made by xpolicy" in done.err) == (1, True)
    assert held(old) == FILES
    # Other programs tag their folders, too.
    theirs = b"Signature: 8a477f597d28d172789f06886806bc55\n# Made by another program.\n"
    fill(old, {"jax/CACHEDIR.TAG": theirs})
    done = run("cache", "clear", "jax")
    assert (done.status, "was not made by xpolicy" in done.err) == (1, True)
    assert held(old) == FILES
    assert unusable(tmp_path / "fresh" / "jax") is None
    fill(old, {"jax/CACHEDIR.TAG": (tmp_path / "fresh" / "jax" / "CACHEDIR.TAG").read_bytes()})
    (old / "jax").rename(tmp_path / "elsewhere")
    (old / "jax").symlink_to(tmp_path / "elsewhere")
    done = run("cache", "clear", "jax")
    assert (done.status, "is a link: nothing is removed" in done.err) == (1, True)
    (old / "jax").unlink()
    (tmp_path / "elsewhere").rename(old / "jax")
    assert run("cache", "clear", "jax").status == 0
    assert set(held(old)) == {name for name in FILES if name.startswith("torch")}
    found = run("cache", "clear", "jaxx")
    assert (found.status, "did you mean: jax" in found.err) == (2, True)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes; POSIX has")
def test_a_pipe_is_not_waited_for(run: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = run("cache", "import", str(tmp_path / "pipe"), "--dir", str(tmp_path / "new"))
    assert (done.status, "is no regular file" in done.err) == (1, True)


@pytest.mark.parametrize(
    "change",
    [
        {"bytes": {"jax": "10", "torch": 5}},
        {"bytes": {"jax": float("nan"), "torch": 5}},
        {"instructions": [[1]]},
        {"versions": {"jax": "x"}},
        {"platform": None},
    ],
)
def test_a_header_of_wrong_types(
    exported: Path, run: Any, tmp_path: Path, change: dict[str, Any]
) -> None:
    header, content = parts(exported)
    rewrite(exported, header | change, content)
    done = run("cache", "import", str(exported))
    assert (done.status, "its header can't be read" in done.err) == (1, True)
    assert not (tmp_path / "new").exists()


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such bits; a POSIX system has")
def test_a_folder_below_one_that_everybody_may_write_to(tmp_path: Path) -> None:
    (tmp_path / "open" / "cache").mkdir(parents=True)
    (tmp_path / "open").chmod(0o777)
    why = unusable(tmp_path / "open" / "cache" / "jax")
    (tmp_path / "open").chmod(0o755)
    assert why is not None
    assert f"chmod o-w {tmp_path / 'open'}" in why


@pytest.mark.skipif(
    getattr(os, "geteuid", lambda: 1)() != 0, reason="only root may give a folder to another user"
)
def test_a_folder_in_another_users(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 12346, -1)
    assert f"{theirs} belongs to user 12346" in (unusable(theirs / "jax") or "")
