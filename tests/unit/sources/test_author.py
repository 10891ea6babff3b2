"""The author layer: a package's own file, and the keywords of decorators and overrides."""

from __future__ import annotations

import importlib
import sys
import zipfile

import pytest

from tests.unit.policy.building import FACTS, KEY, TABLE, decorated, overridden, policy
from xpolicy._origin import Origin
from xpolicy.sources.author import keyword_rules, read_library
from xpolicy.sources.toml import MAX_BYTES

HERE = Origin("code", "mylib/linalg.py", line=7)


def library(name):
    return read_library(name, TABLE, FACTS, version="0.1")


def keywords(layer="author", pattern=KEY, namespace=None, /, **options):
    return keyword_rules(
        options,
        HERE,
        TABLE,
        pattern=pattern,
        namespace=namespace,
        layer=layer,
        declared=layer == "author",
    )


# -- the package's file --------------------------------------------------------------------


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that fails when it is imported."""

    def make(text, name="authored"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "__init__.py").write_text("raise RuntimeError('imported')")
        if text is not None:
            data = text if isinstance(text, bytes) else text.encode()
            (folder / "xpolicy-library.toml").write_bytes(data)
        importlib.invalidate_caches()
        return name

    monkeypatch.syspath_prepend(str(tmp_path))
    return make


def test_a_package_is_not_imported_to_read_its_file(package):
    name = package('mode = "eager"\n[functions."authored.f"]\nsupports = "compile"')
    layer, file, problems = library(name)
    assert problems == []
    assert file.found
    assert name not in sys.modules
    assert policy(layer, key="authored.f").supports == "compile"
    assert policy(layer, key="authored.f").mode == "eager"


def test_a_package_without_a_file(package):
    layer, file, problems = library(package(None))
    assert (layer.rules, problems) == ((), [])
    assert not file.found
    assert file.path.endswith("xpolicy-library.toml")


@pytest.mark.parametrize(
    "name", ["no_such_package", "__main__", "json.decoder", "", "a b", "sys", "abc"]
)
def test_what_no_package_is(name):
    layer, file, problems = library(name)
    assert (layer.rules, file, problems) == ((), None, [])


def test_a_namespace_package_has_no_init_to_stand_beside(tmp_path, monkeypatch):
    (tmp_path / "spread").mkdir()
    (tmp_path / "spread" / "xpolicy-library.toml").write_text('mode = "eager"')
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    assert library("spread")[1] is None


def test_a_zipped_package(tmp_path, monkeypatch):
    path = tmp_path / "wheel.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("zipped/__init__.py", "raise RuntimeError('imported')")
        archive.writestr("zipped/xpolicy-library.toml", 'functions."zipped.f".supports = "eager"')
    monkeypatch.syspath_prepend(str(path))
    importlib.invalidate_caches()
    layer, file, problems = library("zipped")
    assert problems == []
    assert "wheel.zip" in file.path
    assert policy(layer, key="zipped.f").supports == "eager"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"mode = ", ""),
        (b"\xff\xfe", "not UTF-8"),
        (b"#" * (MAX_BYTES + 1), "too large"),
        (b"mode = 'quick'", "mode can't be"),
        (b"functions.'other.f'.mode = 'eager'", "its own package only"),
        (b"torch.options.'cpp.cxx' = 'x'", "may not be set in a library's file"),
    ],
)
def test_what_is_wrong_with_a_file_is_a_problem_with_its_place(package, data, message):
    layer, file, (problem,) = library(package(data))
    assert layer.rules == ()
    assert message in problem.message
    assert problem.layer == "author"
    assert problem.origin.label == file.path


def test_an_unknown_key_is_a_warning_and_the_rest_applies(package):
    layer, _, (problem,) = library(package('novelty = 1\nmode = "eager"'))
    assert problem.severity == "warning"
    assert policy(layer).mode == "eager"


# -- keywords ------------------------------------------------------------------------------


def test_options_by_python_name():
    author = decorated(
        mode="fullgraph", supports="fullgraph", static_argnames=("n",), reason="why",
        on_failure="eager", torch={"compile_mode": "lite", "recompile_limit": 2},
        jax={"donate_argnames": "state"},
    )  # fmt: skip
    said = policy(author)
    assert (said.mode, said.static_argnames, said.on_failure) == ("fullgraph", ("n",), "eager")
    assert (said.compile_mode, said.recompile_limit) == ("lite", 2)
    assert policy(author, namespace="jax").donate_argnames == ("state",)
    assert policy(author, namespace="jax").recompile_limit is None


def test_they_are_for_one_function():
    assert policy(decorated(mode="eager"), key="mylib.linalg.other").mode == "compile"


@pytest.mark.parametrize("names", ["n", ("n",), ["n"], {"n"}, {"n": 1}.keys(), iter("n")])
def test_names_in_any_form(names):
    assert policy(decorated(static_argnames=names)).static_argnames == ("n",)


def test_a_sets_order_is_always_the_same():
    names = {f"argument{n}" for n in range(50)}
    assert policy(decorated(static_argnames=names)).static_argnames == tuple(sorted(names))


def test_none_sets_nothing():
    rules, problems = keywords(mode=None, torch=None, jax={"inline": None})
    assert (rules, problems) == ([], [])


def test_a_decorator_passes_keywords_that_only_code_can_give():
    guard, mesh = object(), object()
    author = decorated(torch={"guard_filter_fn": guard}, jax={"in_shardings": mesh})
    assert policy(author).extra == {"guard_filter_fn": guard}
    assert policy(author, namespace="jax").extra == {"in_shardings": mesh}
    assert "guard_filter_fn" not in policy(author).values


def test_an_override_does_not():
    rules, (problem,) = keywords("runtime", torch={"guard_filter_fn": object()})
    assert rules == []
    assert problem.message == "unknown option 'guard_filter_fn' for torch"


@pytest.mark.parametrize("layer", ["author", "runtime"])
@pytest.mark.parametrize(
    ("options", "message", "nearest"),
    [
        ({"modee": "eager"}, "unknown option 'modee'", "mode"),
        ({"mode": "fulgraph"}, 'mode can\'t be "fulgraph"', "fullgraph"),
        ({"mode": "max-autotune"}, 'mode can\'t be "max-autotune"', "compile_mode"),
        ({"torch": {"mode": "max-autotune"}}, 'mode can\'t be "max-autotune"', "compile_mode"),
        ({"mode": 1}, "mode can't be 1", None),
        ({"mode": {}}, "mode can't be {}", None),
        ({"static_argnames": 3}, "static-argnames can't be 3", None),
        ({"static_argnames": [3]}, "static-argnames can't be [3]", None),
        ({"supports": "unset"}, 'supports can\'t be "unset"', None),
        ({"torch": True}, "torch takes a mapping of its options", None),
        ({"torch": "eager"}, "torch takes a mapping of its options", None),
        ({"torch": {"fullgraph": "yes"}}, 'torch.fullgraph can\'t be "yes"', None),
        ({"torch": {"fullgraph": 1}}, "torch.fullgraph can't be 1", None),
        ({"torch": {"recompile_limit": 0}}, "torch.recompile-limit can't be 0", None),
        ({"torch": {"options": [1]}}, "torch.options can't be [1]", None),
        ({"torch": {"options": {1: 2}}}, "torch.options can't be { 1 = 2 }", None),
        (
            {"torch": {"recompile-limit": 1}},
            "options are spelt with underscores",
            "recompile_limit",
        ),
        ({"on-failure": "eager"}, "options are spelt with underscores", "on_failure"),
        ({"recompile_limit": 4}, "unknown option 'recompile_limit'", "torch"),
        ({"tensorflow": {}}, "unknown option 'tensorflow'", None),
        (
            {"torch": {"backend": "eager", "compile_mode": "lite"}},
            "the same rule sets backend",
            None,
        ),
        (
            {"jax": {"inline": True}, "jax.numpy": {"inline": False}},
            "two rules of the same rank",
            None,
        ),
    ],
)
def test_what_is_wrong_is_told_with_the_line_of_code(layer, options, message, nearest):
    _, (problem,) = keywords(layer, **options)
    assert problem.message.startswith(message)
    assert problem.severity == "error"
    assert problem.layer == layer
    assert str(problem.origin) == "mylib/linalg.py:7"
    assert problem.nearest == nearest


def test_all_that_is_wrong_is_told():
    _, problems = keywords(modee=1, mode="x", torch={"fullgraph": "x", "dynamic": "x"}, jax=1)
    assert len(problems) == 5


def test_an_override_for_one_namespace():
    said = overridden("mylib.*", "jax.numpy", inline=True)
    assert policy(said, namespace="jax").inline is True
    _, (problem,) = keywords("runtime", "mylib.*", "torch", inline=True)
    assert problem.message == "unknown option 'inline' for torch"


@pytest.mark.parametrize("pattern", ["mylib*", "", "mylib.f()", "a b"])
def test_a_pattern_that_is_none(pattern):
    rules, (problem,) = keywords("runtime", pattern, mode="eager")
    assert rules == []
    assert "is not a function key or pattern" in problem.message


def test_an_override_may_withdraw():
    low = decorated(torch={"options": {"a": 1, "b": 2}, "recompile_limit": 2})
    high = overridden(torch={"options": {"a": "unset"}, "recompile_limit": "unset"})
    said = policy(low, high)
    assert (said.options, said.recompile_limit) == ({"b": 2}, None)


def test_what_is_passed_in_is_not_kept():
    options, names = {"a": [1]}, ["n"]
    author = decorated(torch={"options": options}, static_argnames=names)
    options["b"] = 2
    names.append("m")
    said = policy(author)
    assert (said.options, said.static_argnames) == ({"a": [1]}, ("n",))
