"""Layers as a process sees them: files, variables, code, and which of them wins."""

from __future__ import annotations

import os
import sys
import textwrap
import warnings

import pytest

import xpolicy


def mode(name: str = "mylib.f", namespace: str = "torch") -> str:
    return xpolicy.resolve(name, namespace).mode


def test_nobody_says_anything():
    policy = xpolicy.resolve("mylib.f", "torch")
    assert policy.mode == "compile"
    assert policy.supports is None
    assert policy.torch.fullgraph is None
    assert policy.torch.recompile_limit is None


def test_project_file_is_read_from_the_folder_of_import_not_from_a_later_one(
    project, tmp_path, monkeypatch
):
    project('mode = "eager"')
    other = tmp_path / "other"
    other.mkdir()
    (other / "xpolicy.toml").write_text('mode = "fullgraph"')
    monkeypatch.chdir(other)
    assert mode() == "eager"


def test_pyproject_table(project):
    project('[tool.xpolicy]\nmode = "fullgraph"\n', "pyproject.toml")
    assert mode() == "fullgraph"


def test_user_below_project(project, user_config):
    folder = user_config / "xpolicy"
    folder.mkdir(parents=True)
    (folder / "xpolicy.toml").write_text('mode = "eager"\non-failure = "eager"\n')
    project('mode = "fullgraph"')
    policy = xpolicy.resolve("mylib.f", "torch")
    assert (policy.mode, policy.on_failure) == ("fullgraph", "eager")


def test_every_layer_beats_the_one_below(project, user_config, tmp_path, monkeypatch):
    folder = user_config / "xpolicy"
    folder.mkdir(parents=True)
    (folder / "xpolicy.toml").write_text("[torch]\nrecompile-limit = 2\n")

    @xpolicy.compile(name="mylib.f", torch={"recompile_limit": 1})
    def f(x):
        return x

    def limit() -> int:
        xpolicy.reload()
        return xpolicy.resolve(f, "torch").torch.recompile_limit

    seen = [limit()]
    project("[torch]\nrecompile-limit = 3\n")
    seen.append(limit())
    first, second = tmp_path / "a.toml", tmp_path / "b.toml"
    first.write_text("[torch]\nrecompile-limit = 4\n")
    second.write_text("[torch]\nrecompile-limit = 5\n")
    monkeypatch.setenv("XPOLICY_FILE", str(first))
    seen.append(limit())
    monkeypatch.setenv("XPOLICY_FILE", f"{first}{os.pathsep}{second}")
    seen.append(limit())
    monkeypatch.setenv("XPOLICY_TORCH__RECOMPILE_LIMIT", "6")
    seen.append(limit())
    monkeypatch.setenv("XPOLICY_TOML", "torch.recompile-limit = 7")
    seen.append(limit())
    with xpolicy.override("mylib.f", "torch", recompile_limit=8):
        seen.append(limit())
    monkeypatch.setenv("XPOLICY_DISABLE", "1")
    xpolicy.reload()
    assert seen == [2, 3, 4, 5, 6, 7, 8]
    assert mode() == "eager"


def test_a_layer_beats_specificity(project, monkeypatch):
    project('[functions."mylib.f".torch]\nmode = "eager"\n')
    monkeypatch.setenv("XPOLICY_MODE", "fullgraph")
    assert mode() == "fullgraph"


def test_patterns_and_namespaces_of_one_file(project):
    project(
        """
        mode = "fullgraph"
        [functions."mylib.*"]
        mode = "compile"
        [functions."mylib.f".torch]
        mode = "eager"
        """
    )
    assert mode("mylib.f", "torch") == "eager"
    assert mode("mylib.f", "jax") == "compile"
    assert mode("mylib", "jax") == "fullgraph"
    assert mode("mylibrary.f", "jax") == "fullgraph"


def test_supports_caps_whatever_asks_for_more(project, monkeypatch):
    @xpolicy.compile(name="mylib.f", supports="compile", reason="it prints")
    def f(x):
        return x

    monkeypatch.setenv("XPOLICY_TORCH__FULLGRAPH", "1")
    policy = xpolicy.resolve(f, "torch")
    assert (policy.requested_mode, policy.mode, policy.torch.fullgraph) == (
        "fullgraph",
        "compile",
        False,
    )
    text = str(f.explain("torch"))
    assert "asked for fullgraph" in text
    assert "it prints" in text


def test_library_file_of_a_package(tmp_path, monkeypatch, project):
    package = tmp_path / "lib" / "shippedlib"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        textwrap.dedent(
            """
            import xpolicy

            @xpolicy.compile(mode="compile", torch={"dynamic": True})
            def f(x):
                return x
            """
        )
    )
    (package / "xpolicy-library.toml").write_text(
        'mode = "eager"\n'
        '[functions."shippedlib.f"]\nsupports = "compile"\n'
        '[functions."shippedlib.*".torch]\ndynamic = false\nrecompile-limit = 3\n'
    )
    monkeypatch.syspath_prepend(str(package.parent))
    # Found without importing: rules go by name.
    policy = xpolicy.resolve("shippedlib.g", "torch")
    assert (policy.mode, policy.torch.recompile_limit) == ("eager", 3)
    assert "shippedlib" not in sys.modules

    import shippedlib

    monkeypatch.delitem(sys.modules, "shippedlib")
    policy = xpolicy.resolve(shippedlib.f, "torch")
    # The decorator beats the file's broader rules; the file's exact rule stands.
    assert (policy.mode, policy.torch.dynamic, policy.torch.recompile_limit) == ("compile", True, 3)
    assert policy.supports == "compile"


@pytest.mark.parametrize("value", ["1", "true", "YES", "on"])
def test_kill_switch_works_when_everything_else_is_broken(project, monkeypatch, value):
    project("mode = [")
    monkeypatch.setenv("XPOLICY_MODE", "no such mode")
    monkeypatch.setenv("XPOLICY_FILE", "/no/such/file.toml")
    with pytest.raises(xpolicy.PolicyFileError):
        mode()
    monkeypatch.setenv("XPOLICY_DISABLE", value)
    xpolicy.reload()
    assert mode() == "eager"
    with xpolicy.override(mode="fullgraph"):
        assert mode() == "eager"


def test_kill_switch_that_cant_be_read_counts_as_on(monkeypatch):
    monkeypatch.setenv("XPOLICY_DISABLE", "maybe")
    with pytest.warns(xpolicy.XPolicyWarning, match="XPOLICY_DISABLE.*counts as true"):
        assert mode() == "eager"


@pytest.mark.parametrize("value", ["0", "false", "", "  "])
def test_kill_switch_off(monkeypatch, value):
    monkeypatch.setenv("XPOLICY_DISABLE", value)
    assert mode() == "compile"


def test_all_mistakes_of_all_files_at_once(project, tmp_path, monkeypatch):
    file = project('mode = "eagre"\n[torch]\nfullgrph = true\n')
    other = tmp_path / "more.toml"
    other.write_text("supports = 3\n")
    monkeypatch.setenv("XPOLICY_FILE", str(other))
    monkeypatch.setenv("XPOLICY_TORCH__FULLGRAPH", "maybe")
    with pytest.raises(xpolicy.PolicyFileError) as caught:
        mode()
    places = {(p.origin.label, p.origin.line) for p in caught.value.problems}
    assert places == {
        (str(file), 1),
        (str(file), 3),
        (str(other), 1),
        ("XPOLICY_TORCH__FULLGRAPH", None),
    }
    # The first is the file's, with what a program needs to show it.
    assert caught.value.line in (1, 3)
    assert "did you mean: fullgraph" in str(caught.value)


def test_bad_variable_alone_is_an_environment_error(monkeypatch):
    monkeypatch.setenv("XPOLICY_MODE", "fast")
    with pytest.raises(xpolicy.EnvironmentPolicyError, match="XPOLICY_MODE") as caught:
        mode()
    assert '"fast"' in str(caught.value)
    assert '"fullgraph"' in str(caught.value)


def test_wrong_names_in_the_users_own_file_only_warn(user_config):
    folder = user_config / "xpolicy"
    folder.mkdir(parents=True)
    (folder / "xpolicy.toml").write_text('mode = "eager"\n[torch]\nfrom-the-future = true\n')
    with pytest.warns(xpolicy.XPolicyWarning, match="from-the-future"):
        assert mode() == "eager"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert mode() == "eager"  # said once


def test_reload_reads_again(project):
    file = project('mode = "eager"')
    assert mode() == "eager"
    file.write_text('mode = "fullgraph"')
    assert mode() == "eager"
    xpolicy.reload()
    assert mode() == "fullgraph"


def test_fingerprint_ignores_where_and_why(project):
    file = project('mode = "eager"')
    before = xpolicy.fingerprint(), xpolicy.resolve("mylib.f", "torch").fingerprint
    file.write_text('\n\n# moved\nmode = "eager"\n')
    xpolicy.reload()
    assert (xpolicy.fingerprint(), xpolicy.resolve("mylib.f", "torch").fingerprint) == before
    file.write_text('mode = "fullgraph"')
    xpolicy.reload()
    after = xpolicy.fingerprint(), xpolicy.resolve("mylib.f", "torch").fingerprint
    assert after[0] != before[0]
    assert after[1] != before[1]
