"""What a document may say, and what it is told when it says something else."""

from __future__ import annotations

import pytest

from tests.unit.policy.building import KEY, messages, policy, problems_of, read
from xpolicy.policy.options import RESERVED

STRICT = ("project", "file", "environment")
LENIENT = ("user", "author")


# -- requires ------------------------------------------------------------------------


def test_a_file_for_a_newer_version_is_told_that_and_nothing_else():
    text = (
        'requires = ">=9"\nnovelty = 1\nmode = "quick"\n[functions."a*"]\n[[when]]\ndevice = "qpu"'
    )
    found, problems = read(text, version="0.3.1")
    assert found.rules == ()
    (problem,) = problems
    assert problem.message == "this file requires xpolicy >=9, and 0.3.1 is installed"
    assert problem.fix == 'install a matching version: pip install "xpolicy>=9"'
    assert problem.origin.key == ("requires",)


@pytest.mark.parametrize("wanted", [">=0.3", "~=0.3.0", "<1", "==0.3.1.dev2", ">=0.3,!=0.3.0"])
def test_requires_that_is_met_changes_nothing(wanted):
    found, problems = read(f'requires = "{wanted}"\nmode = "eager"', version="0.3.1.dev2")
    assert problems == []
    assert len(found.rules) == 1


@pytest.mark.parametrize("wanted", ['"0.3"', "0.3", '""', "[]", "{}", '[">=0.3"]', '"new"', "true"])
def test_requires_that_can_not_be_read(wanted):
    assert [p.key for p in problems_of(f"requires = {wanted}\nnovelty = 1")] == ["requires"]


# -- unknown names -------------------------------------------------------------------

UNKNOWN = ["modde = 'eager'", "[torch]\nfullgraf = true", "[torhc]\nmode = 'eager'", "[cache]\nx = 1",
           f"[functions.'{KEY}'.tensorflow]\nmode = 'eager'", "[[when]]\npython = '>=3'\nx = 1"]  # fmt: skip


@pytest.mark.parametrize("layer", STRICT)
@pytest.mark.parametrize("text", UNKNOWN)
def test_an_unknown_name_is_an_error_where_one_environment_is_meant(layer, text):
    found, (problem,) = read(f"on-failure = 'eager'\n{text}", layer)
    assert problem.severity == "error"
    assert found.rules == ()


@pytest.mark.parametrize("layer", LENIENT)
@pytest.mark.parametrize("text", UNKNOWN)
def test_it_is_a_warning_where_the_file_is_for_many_and_the_rest_applies(layer, text):
    found, (problem,) = read(f"on-failure = 'eager'\n{text}", layer)
    assert problem.severity == "warning"
    assert policy(found).on_failure == "eager"


@pytest.mark.parametrize("layer", STRICT + LENIENT)
@pytest.mark.parametrize("value", ["quick", "Eager", ""])
def test_a_wrong_value_is_an_error_everywhere(layer, value):
    found, (problem,) = read(f'mode = "{value}"\non-failure = "eager"', layer)
    assert problem.severity == "error"
    assert found.rules == ()


def test_a_namespace_without_a_backend_warns_of_keys_that_it_may_take():
    found, (problem,) = read("[cupy]\nmode = 'eager'\nfuse = true")
    assert problem.severity == "warning"
    assert "no backend is installed" in problem.message
    assert policy(found, namespace="cupy").mode == "eager"
    # what every namespace has is checked
    assert read("[cupy]\nmode = 'quick'")[1][0].severity == "error"
    assert read("[cupy]\non_failure = 'eager'")[1][0].nearest == "on-failure"


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("modee = 'eager'", "mode"),
        ("[torch]\nfull-graph = true", "fullgraph"),
        ("[torch]\nrecompile-limits = 1", "recompile-limit"),
        ("[functions.f]\nmod = 'eager'", "mode"),
        ("[pytorch]\nmode = 'eager'", "torch"),
        ("[function.f]\nmode = 'eager'", "functions"),
        ("[[whens]]\npython = '>=3'", "when"),
        ("[[when]]\nversion.torch = '>=2'\nmode = 'eager'", "versions"),
        ("[[when]]\ndevise = 'cuda'\nmode = 'eager'", "device"),
        ("recompile-limit = 3", "torch.recompile-limit"),
        ("inline = true", "jax.inline"),
        ("[functions.f]\ncompile_mode = 'default'", "torch.compile-mode"),
        ("zzz = 1", None),
    ],
)
def test_the_nearest_name(text, nearest):
    (problem,) = problems_of(text)
    assert problem.nearest == nearest
    if nearest:
        assert nearest in problem.fix


def test_the_nearest_value():
    (problem,) = problems_of('mode = "fulgraph"')
    assert problem.fix == 'write mode = "fullgraph"'
    (problem,) = problems_of('mode = "max-autotune"')
    assert problem.nearest == "torch.compile-mode"


# -- reserved words and spellings ------------------------------------------------------


@pytest.mark.parametrize("key", [key for key in RESERVED if key != "warmup"])
@pytest.mark.parametrize("table", ["torch", 'functions."a.f"', 'functions."a.f".torch'])
@pytest.mark.parametrize("layer", ["project", "user"])
def test_reserved_keys_elsewhere(key, table, layer):
    (problem,) = problems_of(f"[{table}]\n{key} = {{}}", layer)
    assert problem.message == f"'{key}' may not stand in [{table}]"
    assert problem.severity == "error"


@pytest.mark.parametrize("layer", STRICT + LENIENT)
@pytest.mark.parametrize(
    ("text", "right"),
    [("on_failure = 'eager'", "on-failure"), ("torch.recompile_limit = 2", "recompile-limit"),
     (f"functions.'{KEY}'.static_argnames = ['n']", "static-argnames"),
     ("[[when]]\ndevice = 'cpu'\njax.donate_argnames = ['a']", "donate-argnames")],
)  # fmt: skip
def test_options_have_one_spelling(layer, text, right):
    (problem,) = problems_of(text, layer)
    assert problem.severity == "error"
    assert problem.message.startswith("options are spelt with hyphens")
    assert problem.fix == f"write {right}"


# -- keys with dots ----------------------------------------------------------------------


@pytest.mark.parametrize("layer", STRICT + LENIENT)
@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("[functions.scipy.linalg.norm]\nmode='eager'", '[functions."scipy.linalg.norm"]'),
        ("[functions.a.f]\nmode='eager'", '[functions."a.f"]'),
        ("[functions.a.b.f.torch]\nfullgraph=true", '[functions."a.b.f".torch]'),
        ("functions.a.f.mode = 'eager'", '[functions."a.f"]'),
        ("[functions]\na.f = {mode = 'eager'}", '[functions."a.f"]'),
        ("[functions.a.b.f]\nmode='eager'\n[functions.a.b.g]\nmode='eager'", '[functions."a.b.f"]'),
        ("[functions.scipy.sparse.norm]\nmode='eager'", '[functions."scipy.sparse.norm"]'),
        ("[functions.a.f]\nmode='eager'\ntorch.dynamic=true", '[functions."a.f"]'),
        ("[[when]]\npython='>=3'\nfunctions.a.b.f.mode='eager'", '[functions."a.b.f"]'),
        ("[functions.a.f]", '[functions."a.f"]'),
    ],
)
def test_an_unquoted_key_is_shown_quoted(layer, text, fix):
    (problem,) = problems_of(text, layer)
    assert problem.severity == "error"
    assert problem.message.startswith("a function key with dots must be quoted")
    assert problem.fix == f"write {fix}"


def test_an_unquoted_key_or_a_slip_in_a_namespace():
    (problem,) = problems_of("[functions.f.torhc]\nmode='eager'")
    assert problem.fix == 'write torch, or [functions."f.torhc"]'
    (problem,) = problems_of("[functions.'a.f'.torhc]\nmode='eager'")
    assert (problem.message, problem.nearest) == (
        "unknown key 'torhc' in [functions.\"a.f\"]",
        "torch",
    )


@pytest.mark.parametrize("alias", ["jax.numpy", "dask.array"])
def test_the_array_api_names_of_namespaces(alias):
    own = alias.split(".")[0]
    for text in (f'["{alias}"]\nmode = "eager"', f'functions."{KEY}"."{alias}".mode = "eager"',
                 f"[[when]]\npython = '>=3'\n\"{alias}\".mode = 'eager'"):  # fmt: skip
        assert policy(text, namespace=own).mode == "eager"
        assert policy(text, namespace=alias).mode == "eager"
        assert policy(text, namespace="torch").mode == "compile"
    (problem,) = problems_of(f'[{alias}]\nmode = "eager"')
    assert problem.fix == f'write ["{alias}"] or [{own}]'


# -- types -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["mode = true", "mode = 1", "mode = ['eager']", "mode = {}", "torch.fullgraph = 1",
     "torch.fullgraph = 'true'", "torch.dynamic = 1.0", "torch.recompile-limit = 0",
     "torch.recompile-limit = -1", "torch.recompile-limit = 1.0", "torch.recompile-limit = true",
     "torch.recompile-limit = '4'", "torch.graph-break-limit = -1", "torch.backend = 1",
     "torch.options = 1", "torch.options = [1]", "torch.options.x = 1979-05-27",
     "torch.on-recompile-limit = 'never'", "jax.donate-argnames = 'x'", "jax.donate-argnames = [1]",
     "jax.compiler-options.a.b = 1", "jax.static = true", "torch = 1", "torch = []", "functions = []",
     "functions.f = 1", "when = {}", "when = [1]", "when = 1"],
)  # fmt: skip
def test_types_are_strict_and_one_mistake_is_one_problem(text):
    (problem,) = problems_of(text, "file")
    assert problem.severity == "error"
    assert problem.value is not None
    assert problem.allowed is not None


def test_what_a_value_in_a_table_may_be():
    (problem,) = problems_of("torch.options = { x = 1979-05-27, y = 1 }", "file")
    assert problem.key == "torch.options.x"
    assert problem.message == "torch.options can't hold a date"


# -- all at once ---------------------------------------------------------------------------


def test_problems_of_every_kind_are_told_at_once():
    text = f"""
modee = "eager"
torch.fullgraph = "yes"
torch.options."cpp.cxx" = "x"
static-argnames = ["n"]

[functions."a*"]
mode = "eager"

[functions."{KEY}".torch]
backend = "eager"
compile-mode = "default"

[[when]]
device = "gpu"
mode = "quick"

[[when]]
python = ">=3"
on-failure = "eager"

[[when]]
versions.torch = ">=2"
on-failure = "error"

[[when]]
mode = "eager"
"""
    found = messages(text)
    expected = ["unknown key 'modee'", "torch.fullgraph can't be", "cpp.cxx may not be set",
                "static-argnames is a fact", "not a function key", "the same rule sets backend",
                "not a device", 'mode can\'t be "quick"', "two rules of the same rank",
                "without a condition"]  # fmt: skip
    assert len(found) == len(expected)
    for start in expected:
        assert sum(start in message for message in found) == 1, start


def test_a_wrong_block_is_not_also_said_to_lack_a_condition():
    assert len(messages("[[when]]\ndevise = 'cuda'\nmode = 'eager'")) == 1
    assert len(messages("[[when]]\ndevice = 'gpu'\nmode = 'eager'")) == 1


def test_blocks_keep_their_number_when_one_is_wrong():
    (first, second) = problems_of("when = [1, { device = 'gpu' }]")
    assert first.key == "when[0]"
    assert second.key == "when[1].device"


def test_a_layer_with_an_error_sets_nothing():
    found, _ = read("mode = 'eager'\ntorch.fullgraph = 'yes'")
    assert found.rules == ()


# -- a library's file ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["other.f", "mylibs.f", "mylib2.*", "*", "other.*"])
@pytest.mark.parametrize("prefix", ["", "[[when]]\npython = '>=3'\n"])
def test_a_library_speaks_of_its_own_package_only(name, prefix):
    (problem,) = problems_of(
        f'{prefix}functions."{name}".mode = "eager"', "author", package="mylib"
    )
    assert problem.severity == "error"
    assert problem.message == "a library's file may speak of its own package only: mylib"


@pytest.mark.parametrize("name", ["mylib", "mylib.f", "mylib.*", "mylib.a.b.*"])
def test_keys_of_its_own(name):
    assert problems_of(f'functions."{name}".mode = "eager"', "author", package="mylib") == []


# -- pyproject -------------------------------------------------------------------------------


def test_in_pyproject_fixes_have_the_prefix():
    from tests.unit.policy.building import FACTS, TABLE
    from xpolicy.policy.document import read_document
    from xpolicy.sources.toml import parse

    document = parse("[tool.xpolicy.functions.a.f]\nmode = 'eager'", "pyproject.toml", "project")
    data = document.data["tool"]["xpolicy"]
    root = document.origin.child("tool", "xpolicy")
    _, (problem,) = read_document(data, root, "project", TABLE, FACTS, version="0.1")
    assert problem.fix == 'write [tool.xpolicy.functions."a.f"]'
    assert problem.key == "functions.a.f"
    assert problem.origin.key == ("tool", "xpolicy", "functions", "a", "f")


# -- what is shown -----------------------------------------------------------------------------


def test_a_file_can_not_move_the_cursor_of_a_terminal():
    for problem in problems_of('"mo\\u001b[31mde" = "\\u001b]0;x\\u0007"\n"\\u202e" = 1'):
        text = str(problem)
        assert all(c.isprintable() or c == "\n" for c in text), repr(text)


def test_long_values_are_cut():
    (problem,) = problems_of(f'mode = "{"x" * 100000}"')
    assert len(str(problem)) < 1000
    (problem,) = problems_of(f"{'x' * 100000} = 1")
    assert len(str(problem)) < 1000
    (problem,) = problems_of(f"mode = {list(range(100))}")
    assert len(str(problem)) < 1000
