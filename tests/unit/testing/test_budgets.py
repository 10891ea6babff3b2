"""A test fails when a function needs more than its budget, and is told what allows it."""

from __future__ import annotations

import re

# Here, not by a run inside: importing it brings a backport that takes the standard library's
# finder of distributions out, and pytester takes the backport's away with the run.
import dask.array  # noqa: F401
import pytest

pytest_plugins = ["pytester"]

BREAKS = """
    import pytest, mylib, torch

    @pytest.mark.xpolicy{mark}
    def test_it():
        mylib.breaks(torch.ones(3))
        mylib.breaks(torch.ones(3, dtype=torch.float64))
"""

MARKED = "(@pytest.mark.xpolicy of test_it)"


def failure(result):
    """Return the lines that a failing test is explained with."""
    text = result.stdout.str()
    found = re.search(r"^_+ test_it.*?_+$(.*?)^(?:=====|-----)", text, re.DOTALL | re.MULTILINE)
    assert found is not None, text
    return [line for line in found[1].splitlines() if line.strip()]


def test_each_break_is_told_with_its_place(project):
    result = project(test_it=BREAKS.format(mark="(graph_breaks=0)"))
    result.assert_outcomes(failed=1)
    assert failure(result) == [
        f"mylib.breaks for torch needs 1 graph break in this test: graph-breaks = 0 {MARKED}",
        f"  {project.path / 'mylib.py'}:10: Failed to trace builtin operator",
        "  to allow it: @pytest.mark.xpolicy(graph_breaks=1)",
    ]


def test_each_compilation_is_told_with_its_cause(project):
    result = project(test_it=BREAKS.format(mark="(compilations=1)"))
    result.assert_outcomes(failed=1)
    assert failure(result) == [
        f"mylib.breaks for torch needs 2 compilations in this test: compilations = 1 {MARKED}",
        "  1. x: float32[3] (first)",
        "  2. x: float64[3] (x: float32[3] -> float64[3])",
        "  to allow it: @pytest.mark.xpolicy(compilations=2)",
    ]


def test_on_jax_too(project):
    result = project(
        test_it="""
        import pytest, mylib, jax.numpy as jnp

        @pytest.mark.xpolicy(graph_breaks=0, compilations=1)
        def test_it():
            mylib.breaks(jnp.ones(3))
            mylib.breaks(jnp.ones(4))
        """,
    )
    result.assert_outcomes(failed=1)
    assert failure(result)[2:] == [
        "  2. x: float32[4] (x: shape [3] -> [4])",
        "  to allow it: @pytest.mark.xpolicy(compilations=2)",
    ]


@pytest.mark.parametrize("mark", ["", "(graph_breaks=1, compilations=2)", "(compilations=3)"])
def test_within_the_budget(project, mark):
    project(test_it=BREAKS.format(mark=mark)).assert_outcomes(passed=1)


TABLES = """\
[tool.xpolicy.testing]
compilations = 2

[tool.xpolicy.testing.functions."mylib.*"]
torch.graph-breaks = 0
"""


def test_tables_say_it_for_functions_and_what_is_proposed_mends_it(project):
    files = {"test_it": BREAKS.format(mark=""), "pyproject_toml": TABLES}
    result = project(**files)
    result.assert_outcomes(failed=1)
    told = failure(result)
    assert told[0] == (
        "mylib.breaks for torch needs 1 graph break in this test: graph-breaks = 0 "
        f"(set at {project.path / 'pyproject.toml'}:5:7)"
    )
    fix = re.fullmatch(r"  to allow it: (.*) under (\[.*\]) in (.*)", told[-1])
    assert fix[3] == str(project.path / "pyproject.toml")
    files["pyproject_toml"] += f"\n{fix[2]}\n{fix[1]}\n"
    project(**files).assert_outcomes(passed=1)


def test_a_mark_is_nearer_than_the_tables(project):
    files = {"pyproject_toml": TABLES}
    mark = "(graph_breaks=None)"
    project(test_it=BREAKS.format(mark=mark), **files).assert_outcomes(passed=1)
    mark = "(graph_breaks=1, compilations=1)"
    result = project(test_it=BREAKS.format(mark=mark), **files)
    result.assert_outcomes(failed=1)
    assert "compilations = 1 (@pytest.mark.xpolicy of test_it)" in failure(result)[0]


def test_a_test_about_some_functions_holds_these_only(project):
    result = project(
        test_it="""
        import pytest, mylib, torch

        @pytest.mark.xpolicy("mylib.scale", graph_breaks=0)
        def test_it():
            mylib.breaks(mylib.scale(torch.ones(3)))

        @pytest.mark.xpolicy(functions=[mylib.breaks], graph_breaks=0)
        def test_other():
            mylib.breaks(mylib.scale(torch.ones(3)))
        """,
    )
    result.assert_outcomes(passed=1, failed=1)


def test_what_fixtures_compile_does_not_count(project):
    result = project(
        test_it="""
        import pytest, mylib, torch

        @pytest.fixture
        def data():
            return mylib.breaks(torch.ones(5))

        @pytest.mark.xpolicy(graph_breaks=0, compilations=1)
        def test_it(data):
            mylib.scale(data)
        """,
    )
    result.assert_outcomes(passed=1)


def test_a_test_that_fails_by_itself_fails_with_its_own_error(project):
    result = project(
        test_it="""
        import pytest, mylib, torch

        @pytest.mark.xpolicy(graph_breaks=0)
        def test_it():
            mylib.breaks(torch.ones(3))
            assert 1 == 2
        """,
    )
    result.assert_outcomes(failed=1)
    assert "assert 1 == 2" in result.stdout.str()
    assert "needs 1 graph break" not in result.stdout.str()


# --- computing lazy arrays ----------------------------------------------------------------

LAZY = """
    import dask.array as da, mylib, pytest

    @pytest.mark.xpolicy{mark}
    def test_it():
        x = da.ones(3)
        x.compute()  # the test's own is nobody's
        mylib.scale(x)
        mylib.declared(x)
"""


def test_each_computation_of_a_lazy_array_is_told_with_its_place(project):
    result = project(test_it=LAZY.format(mark="(compute_limit=0)"))
    result.assert_outcomes(failed=1)
    assert failure(result) == [
        "mylib.declared for dask needs 1 computation in this test: compute-limit = 0 " + MARKED,
        f"  {project.path / 'mylib.py'}:15: the whole graph is computed",
        "  to allow it: @pytest.mark.xpolicy(compute_limit=1)",
    ]


def test_the_limit_of_computations_may_stand_in_a_table(project):
    budgets = '[testing.functions."mylib.*".dask]\ncompute-limit = 0\n'
    result = project(test_it=LAZY.format(mark=""), xpolicy_toml=budgets)
    result.assert_outcomes(failed=1)
    file = project.path / "xpolicy.toml"
    told = failure(result)
    assert told[0].startswith("mylib.declared for dask needs 1 computation in this test: ")
    assert f"{file}:2:1" in told[0]
    key = 'testing.functions."mylib.declared".dask'
    assert told[-1] == f"  to allow it: compute-limit = 1 under [{key}] in {file}"
    enough = budgets.replace("= 0", "= 1")
    project(test_it=LAZY.format(mark=""), xpolicy_toml=enough).assert_outcomes(passed=1)


def test_what_a_function_calls_computes_for_it(project):
    outer = "\n@xpolicy.compile\ndef outer(x):\n    return declared(x)\n"
    library = (project.path / "mylib.py").read_text() + outer
    mark = "(functions='mylib.outer', compute_limit=0)"
    lazy = LAZY.format(mark=mark).replace("mylib.declared(x)", "mylib.outer(x)")
    result = project(mylib=library, test_it=lazy)
    result.assert_outcomes(failed=1)
    assert "mylib.outer for dask needs 1 computation" in failure(result)[0]
