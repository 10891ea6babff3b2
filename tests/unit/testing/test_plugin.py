"""Marked tests run once in each mode; nothing happens to the others."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

pytest_plugins = ["pytester"]

ALL = "--xpolicy-modes=eager,compile,fullgraph"

ONE = """
    import pytest, mylib

    @pytest.mark.xpolicy
    def test_scale(xpolicy_xp):
        assert mylib.scale(xpolicy_xp.ones(3)).shape == (3,)

    def test_other():
        pass
"""


def child(folder, *arguments, **environment):
    """Run pytest in an interpreter of its own."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


# --- unused -----------------------------------------------------------------------------


def test_it_is_registered_with_pytest():
    found = [p.value for p in entry_points(group="pytest11") if p.name == "xpolicy"]
    assert found == ["xpolicy.pytest_plugin"]


def test_unused_it_loads_itself_and_nothing_else(tmp_path):
    (tmp_path / "test_it.py").write_text(
        """
import os, sys
import pytest

@pytest.mark.parametrize("n", [1, 2])
def test_it(n):
    with open(os.environ["MODULES"], "w") as file:
        print(*sys.modules, file=file)
"""
    )
    modules = []
    for switch in ("no:xpolicy", "no:nothing"):
        done = child(
            tmp_path, "-W", "error", "-m", "pytest", "-v", "-p", "no:cacheprovider", "-W",
            "error", "-p", switch,
            MODULES=str(tmp_path / "modules"),
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "test_it.py::test_it[1] PASSED" in done.stdout
        modules.append(set((tmp_path / "modules").read_text().split()))
    assert modules[1] - modules[0] == {"xpolicy", "xpolicy.pytest_plugin"}


def test_without_modes_a_marked_test_is_one_test(project, outcomes):
    result = project(
        "-v",
        test_it="""
        import pytest, mylib, torch, xpolicy

        @pytest.mark.xpolicy
        def test_it(xpolicy_mode):
            assert xpolicy_mode is None
            mylib.scale(torch.ones(2))
            assert xpolicy.resolve("mylib.scale", "torch").mode == "compile"
        """,
    )
    assert outcomes(result) == ["test_it PASSED"]


# --- modes ------------------------------------------------------------------------------


def test_once_in_each_mode_with_readable_ids(project, outcomes):
    result = project("-v", ALL, "--xpolicy-namespaces=numpy,torch,jax", test_it=ONE)
    assert outcomes(result) == [
        "test_scale[numpy-eager] PASSED",  # nothing compiles: all modes are this one
        *(
            f"test_scale[{namespace}-{mode}] PASSED"
            for namespace in ("torch", "jax")
            for mode in ("eager", "compile", "fullgraph")
        ),
        "test_other PASSED",
    ]


def test_the_mode_is_the_one_that_functions_run_in(project, outcomes):
    result = project(
        "-v",
        ALL,
        "--xpolicy-namespaces=torch",
        test_it="""
        import threading, pytest, mylib, torch, xpolicy

        @pytest.fixture
        def early():
            return xpolicy.resolve("mylib.scale", "torch").mode

        @pytest.mark.xpolicy
        @pytest.mark.parametrize("dtype", ["float32", "int64"])
        def test_it(dtype, early, xpolicy_mode, xpolicy_xp):
            assert early == xpolicy_mode
            inside = []
            def work():
                inside.append(xpolicy.resolve("mylib.scale", "torch").mode)
                mylib.scale(xpolicy_xp.ones(2, dtype=getattr(xpolicy_xp, dtype)))
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            assert inside == [xpolicy_mode]
            compiled = mylib.scale.stats()["torch"].counts["compile"]
            assert compiled == (0 if xpolicy_mode == "eager" else 1)

        def test_after():
            assert xpolicy.resolve("mylib.scale", "torch").mode == "compile"
            assert xpolicy.resolve("mylib.scale", "torch").torch.backend is None
        """,
    )
    assert outcomes(result) == [
        *(
            f"test_it[{dtype}-torch-{mode}] PASSED"
            for dtype in ("float32", "int64")
            for mode in ("eager", "compile", "fullgraph")
        ),
        "test_after PASSED",
    ]


@pytest.mark.parametrize(("option", "backend"), [((), "eager"), (("--xpolicy-real",), "aot_eager")])
def test_torch_only_captures_graphs_unless_real(project, option, backend):
    result = project(
        "--xpolicy-modes=compile",
        "--xpolicy-namespaces=torch",
        *option,
        xpolicy_toml='torch.backend = "aot_eager"',
        test_it=f"""
        import pytest, mylib, xpolicy

        @pytest.mark.xpolicy
        def test_it(xpolicy_xp):
            assert xpolicy.resolve(mylib.scale, "torch").torch.backend == {backend!r}
            mylib.scale(xpolicy_xp.ones(2))
        """,
    )
    result.assert_outcomes(passed=1)


def test_the_testing_table_says_what_no_option_does(project, outcomes):
    pyproject = """
    [tool.xpolicy.testing]
    modes = ["eager", "fullgraph"]
    namespaces = ["torch"]
    """
    files = {"pyproject_toml": pyproject, "test_it": ONE}
    assert outcomes(project("-v", **files)) == [
        "test_scale[torch-eager] PASSED",
        "test_scale[torch-fullgraph] PASSED",
        "test_other PASSED",
    ]
    result = project("-v", "--xpolicy-modes=compile", "--xpolicy-namespaces=jax.numpy")
    assert outcomes(result) == ["test_scale[jax-compile] PASSED", "test_other PASSED"]


def test_marks_of_classes_and_modules_and_their_modes(project, outcomes):
    result = project(
        "-v",
        ALL,
        test_it="""
        import unittest, pytest, mylib, torch

        pytestmark = pytest.mark.xpolicy(modes=["eager", "compile"])

        class TestIt:
            def test_method(self):
                mylib.scale(torch.ones(2))

            @pytest.mark.xpolicy(modes=["fullgraph"])
            def test_nearest(self, xpolicy_mode):
                assert xpolicy_mode == "fullgraph"

        class TestOld(unittest.TestCase):
            def test_once(self):
                mylib.scale(torch.ones(2))
        """,
    )
    assert outcomes(result) == [
        "TestIt::test_method[eager] PASSED",
        "TestIt::test_method[compile] PASSED",
        "TestIt::test_nearest[fullgraph] PASSED",
        "TestOld::test_once PASSED",
    ]


# --- supports -----------------------------------------------------------------------------


def test_a_mode_above_supports_is_skipped_before_fixtures_run(project):
    result = project(
        "-rs",
        ALL,
        "--xpolicy-namespaces=torch,jax",
        test_it="""
        import pytest, mylib, xpolicy

        @pytest.fixture
        def dear():
            assert xpolicy.resolve(mylib.declared, "torch").requested_mode != "fullgraph"

        @pytest.mark.xpolicy(functions=mylib.declared)
        def test_it(xpolicy_xp, dear):
            mylib.declared(xpolicy_xp.ones(2))
        """,
    )
    result.assert_outcomes(passed=3, skipped=3)
    text = result.stdout.str()
    assert 'mylib.declared for torch: supports = "compile", it branches on data' in text
    assert 'mylib.declared for jax: supports = "eager", it branches on data' in text


def test_so_it_is_where_the_test_names_no_function(project, outcomes):
    result = project(
        "-v",
        "-rs",
        ALL,
        "--xpolicy-namespaces=torch",
        test_it="""
        import pytest, mylib

        @pytest.mark.xpolicy
        def test_it(xpolicy_xp):
            mylib.declared(xpolicy_xp.ones(2))

        @pytest.mark.xpolicy("mylib.declared", "mylib.scale")
        def test_one_of_two_is_not_capped(xpolicy_xp):
            mylib.declared(mylib.scale(xpolicy_xp.ones(2)))
        """,
    )
    assert [line.split()[-1] for line in outcomes(result)] == [
        "PASSED", "PASSED", "SKIPPED", "PASSED", "PASSED", "PASSED",
    ]  # fmt: skip
    assert "it branches on data" in result.stdout.str()


# --- namespaces ---------------------------------------------------------------------------

OWN_XP = """
import enum, importlib, pytest

class Library(enum.Enum):
    numpy = "numpy"
    torch = "torch"
    jax = "jax.numpy"

@pytest.fixture(params=list(Library), ids=lambda member: member.name)
def library(request):
    return request.param

@pytest.fixture
def xp(library):
    return importlib.import_module(library.value)
"""
USES_XP = """
import pytest, mylib

@pytest.mark.xpolicy(functions=[mylib.declared])
def test_marked(xp):
    mylib.declared(xp.ones(2))

def test_unmarked(xp):
    assert not hasattr(xp, "nothing")
"""


def test_beside_a_project_s_own_xp(project, outcomes):
    result = project(
        "-v", ALL, "--xpolicy-namespaces=numpy,torch", conftest=OWN_XP, test_it=USES_XP
    )
    assert outcomes(result) == [
        "test_marked[numpy-eager] PASSED",
        "test_marked[numpy-compile] SKIPPED",
        "test_marked[numpy-fullgraph] SKIPPED",
        "test_marked[torch-eager] PASSED",
        "test_marked[torch-compile] PASSED",
        "test_marked[torch-fullgraph] SKIPPED",
        "test_unmarked[numpy] PASSED",
        "test_unmarked[torch] PASSED",
        "test_unmarked[jax] PASSED",
    ]
    assert result.parseoutcomes()["deselected"] == 3  # the marked one with jax


def test_beside_an_xp_that_no_parameter_tells_of(project, outcomes):
    own = """
    import pytest

    @pytest.fixture
    def xp():
        import jax.numpy
        return jax.numpy
    """
    result = project("-v", "-rs", ALL, conftest=own, test_it=USES_XP)
    assert [line.split()[-1] for line in outcomes(result)] == [
        "PASSED", "SKIPPED", "SKIPPED", "PASSED",
    ]  # fmt: skip
    assert 'mylib.declared for jax: supports = "eager"' in result.stdout.str()
    result = project("-v", ALL, "--xpolicy-namespaces=torch", "-rs")
    assert "--xpolicy-namespaces leaves jax out" in result.stdout.str()


def test_a_library_that_is_not_there_skips(project, monkeypatch):
    monkeypatch.setitem(sys.modules, "array_api_compat.cupy", None)
    result = project("-rs", "--xpolicy-namespaces=cupy", test_it=ONE)
    result.assert_outcomes(passed=1, skipped=1)
    assert "cupy is not installed" in result.stdout.str()


# --- switches -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "value"), [("XPOLICY_DISABLE", "1"), ("TORCHDYNAMO_DISABLE", "1")]
)
def test_a_run_that_cannot_compile_says_so(project, monkeypatch, variable, value, outcomes):
    monkeypatch.setenv(variable, value)
    result = project("-v", "-rs", ALL, "--xpolicy-namespaces=torch", test_it=ONE)
    assert outcomes(result) == [
        "test_scale[torch-eager] PASSED",
        "test_scale[torch-compile] SKIPPED",
        "test_scale[torch-fullgraph] SKIPPED",
        "test_other PASSED",
    ]
    assert variable in result.stdout.str()


# --- mistakes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--xpolicy-modes=eager,compiel", "'compiel'; did you mean compile?"),
        ("--xpolicy-namespaces=trch", "'trch'; did you mean torch?"),
        ("--xpolicy-infer-supports=tests", "must end in .toml"),
    ],
)
def test_wrong_options(project, option, told):
    result = project(option, test_it=ONE)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert told in result.stderr.str()


def test_a_broken_policy_file_is_told_with_its_line(project):
    result = project(ALL, test_it=ONE, xpolicy_toml='[testing]\nmodes = ["egaer"]')
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "xpolicy.toml:2:10" in result.stderr.str()
    assert 'did you mean: "eager"' in result.stderr.str()


@pytest.mark.parametrize(
    ("mark", "told"),
    [
        ("graph_break=1", "not graph_break; did you mean graph_breaks?"),
        ("graph_breaks=-1", "graph_breaks must be a whole number of at least 0"),
        ("compilations=0", "compilations must be a whole number of at least 1"),
        ("compilations=True", "compilations must be a whole number"),
        ("modes='eager'", "modes must be a list"),
        ("functions=[len]", "is not under policy: decorate it with @xpolicy.compile"),
    ],
)
def test_wrong_marks(project, mark, told):
    result = project(
        test_it=f"import pytest\n@pytest.mark.xpolicy({mark})\ndef test_it():\n    pass\n"
    )
    result.assert_outcomes(errors=1)
    assert told in result.stdout.str()


# --- the order of tests, workers, warnings ----------------------------------------------------

COUNTS = """
    import pytest, mylib, torch

    @pytest.mark.xpolicy(compilations=1, graph_breaks=0)
    @pytest.mark.parametrize("size", [2, 3, 4, 5])
    def test_one_shape(size):
        mylib.scale(torch.ones(size))

    @pytest.mark.xpolicy(compilations=1, graph_breaks=1)
    def test_breaks():
        mylib.breaks(torch.ones(3))

    @pytest.mark.xpolicy(compilations=1)
    def test_too_many():
        mylib.scale(torch.ones(2))
        mylib.scale(torch.ones(3))
"""
SHUFFLED = """
    import os, random

    def pytest_collection_modifyitems(items):
        random.Random(int(os.environ["ORDER"])).shuffle(items)
"""


@pytest.mark.parametrize("order", ["1", "2", "3"])
def test_no_count_depends_on_what_ran_before(project, monkeypatch, order, outcomes):
    monkeypatch.setenv("ORDER", order)
    result = project(
        "-v", "-p", "no:randomly", "--xpolicy-modes=compile", conftest=SHUFFLED, test_it=COUNTS
    )
    found = outcomes(result)
    assert found != sorted(found)
    assert [line for line in found if not line.endswith("PASSED")] == [
        "test_too_many[compile] FAILED"
    ]


@pytest.mark.slow
def test_with_workers_and_warnings_as_errors(project):
    project("--collect-only", test_it=COUNTS)  # writes the files
    done = child(
        project.path, "-W", "error", "-m", "pytest", "-n2", "-W", "error", "-p", "no:randomly",
        "-p", "no:cacheprovider", "--xpolicy-modes=eager,compile", "--xpolicy-record",
    )  # fmt: skip
    assert "1 failed, 11 passed" in done.stdout, done.stdout + done.stderr
    # What workers observed is put together by the controller, in a file that is the same
    # as that of one process.
    recorded = (project.path / "xpolicy-ratchet.toml").read_text()
    assert '[functions."mylib.breaks".torch]\nmode = "compile"\ngraph-breaks = 1' in recorded
    alone = project("--xpolicy-modes=eager,compile", "--xpolicy-record")
    alone.assert_outcomes(failed=1, passed=11)
    assert (project.path / "xpolicy-ratchet.toml").read_text() == recorded


# --- failures ---------------------------------------------------------------------------------


def test_a_compiler_s_failure_shows_the_test_and_what_to_say(project):
    result = project(
        "--xpolicy-modes=fullgraph",
        "--xpolicy-namespaces=torch,jax",
        "--show-capture=no",
        test_it="""
        import pytest, mylib

        @pytest.mark.xpolicy
        def test_it(xpolicy_xp):
            mylib.undeclared(xpolicy_xp.ones(2))
        """,
    )
    result.assert_outcomes(failed=2)
    text = result.stdout.str()
    assert "mylib.undeclared(xpolicy_xp.ones(2))" in text
    assert 'supports = "compile" under functions."mylib.undeclared".torch' in text
    assert 'functions."mylib.undeclared".jax.supports = "eager"' in text
    for file in ("convert_frame.py", "symbolic_convert.py", "misses.py"):
        assert f"{file}:" not in text
