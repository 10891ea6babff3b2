"""Whose project files are read."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from xpolicy.sources.trust import effective_uid, ownership, world_writable

ME, OTHER, STRANGER, ROOT = 1000, 1001, 1002, 0


def judge(me: int | None, file: int, folder: int):
    """Judge a file in a file system that is made up."""
    owners = {"folder": folder, "file": file}

    def stat(path):
        return SimpleNamespace(st_uid=owners["folder" if path == Path("/f") else "file"])

    return ownership(
        Path("/f/xpolicy.toml"),
        Path("/f"),
        uid=lambda: me,
        stat=stat,
        lstat=lambda path: SimpleNamespace(st_uid=file, st_mode=0o100644),
    )


@pytest.mark.parametrize(
    ("me", "file", "folder", "ok", "word"),
    [
        (ME, ME, ME, True, "you"),
        (ME, ROOT, ME, True, "root"),  # an image built as root and run as a user
        (ME, ROOT, ROOT, True, "root"),
        (ROOT, OTHER, OTHER, True, "owner of"),  # root over a user's checkout; a bind mount
        (ME, OTHER, OTHER, True, "owner of"),  # a shared checkout
        (ME, STRANGER, ME, False, "1002"),
        (ME, STRANGER, OTHER, False, "1002"),
        (ROOT, STRANGER, ROOT, False, "1002"),  # root is no reason to trust everybody
    ],
)
def test_the_owner_decides(me, file, folder, ok, word):
    trust = judge(me, file, folder)
    assert trust.ok is ok
    assert word in trust.reason


def test_where_files_have_no_owner_everything_is_read_and_that_is_said():
    trust = judge(None, STRANGER, OTHER)
    assert trust.ok
    assert "no owners" in trust.reason


def test_without_geteuid_there_is_no_user(monkeypatch):
    monkeypatch.delattr(os, "geteuid", raising=False)
    assert effective_uid() is None


def test_a_file_that_is_gone_is_not_trusted(tmp_path):
    trust = ownership(tmp_path / "xpolicy.toml", tmp_path, uid=lambda: ME)
    assert not trust.ok
    assert "No such file" in trust.reason


def test_a_folder_that_is_gone_adds_nobody(tmp_path):
    path = tmp_path / "xpolicy.toml"
    path.touch()
    me = path.stat().st_uid
    assert ownership(path, tmp_path / "gone", uid=lambda: me).ok
    if me != ROOT:
        assert not ownership(path, tmp_path / "gone", uid=lambda: me + 1).ok


needs_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0,
    reason="only root may give files away: run the tests as root",
)


@needs_root
@pytest.mark.parametrize(
    ("link", "target", "ok"),
    [(ME, ME, True), (STRANGER, ME, False), (ME, STRANGER, False), (ROOT, ME, True)],
)
def test_a_link_and_what_it_leads_to_are_both_judged(tmp_path, link, target, ok):
    os.chown(tmp_path, ME, ME)
    (tmp_path / "target.toml").touch()
    os.chown(tmp_path / "target.toml", target, target)
    path = tmp_path / "xpolicy.toml"
    path.symlink_to("target.toml")
    os.lchown(path, link, link)
    trust = ownership(path, tmp_path, uid=lambda: ME)
    assert trust.ok is ok
    if link == STRANGER:
        assert f"the link {path}" in trust.reason


@needs_root
def test_a_strangers_link_behind_mine_is_found(tmp_path):
    os.chown(tmp_path, ME, ME)
    (tmp_path / "real.toml").touch()
    os.chown(tmp_path / "real.toml", ME, ME)
    (tmp_path / "theirs.toml").symlink_to(tmp_path / "real.toml")
    os.lchown(tmp_path / "theirs.toml", STRANGER, STRANGER)
    (tmp_path / "xpolicy.toml").symlink_to("theirs.toml")
    os.lchown(tmp_path / "xpolicy.toml", ME, ME)
    trust = ownership(tmp_path / "xpolicy.toml", tmp_path, uid=lambda: ME)
    assert not trust.ok
    assert "theirs.toml" in trust.reason


@needs_root
def test_the_real_user_is_asked_for(tmp_path, unprivileged):
    path = unprivileged / "xpolicy.toml"
    path.touch()
    os.chown(path, STRANGER, STRANGER)
    assert not ownership(path, unprivileged).ok
    os.chown(unprivileged, STRANGER, STRANGER)
    assert ownership(path, unprivileged).ok
    os.chown(path, 65534, 65534)
    assert not ownership(path, unprivileged).ok
    with unprivileged.rights():
        assert ownership(path, unprivileged).ok


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs a platform with POSIX permissions")
def test_world_writable(tmp_path):
    path = tmp_path / "xpolicy.toml"
    path.touch()
    path.chmod(0o664)
    assert not world_writable(path)
    path.chmod(0o666)
    assert world_writable(path)
    (tmp_path / "link").symlink_to(path)
    path.chmod(0o644)
    assert not world_writable(tmp_path / "link")  # whose own mode is 0777
    assert not world_writable(tmp_path / "gone")
    path.chmod(0o666)
    assert not world_writable(path, uid=lambda: None)
