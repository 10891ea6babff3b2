"""What was recorded may get better and nothing worse; what is proposed is policy."""

from __future__ import annotations

import random
import tomllib

import pytest

import xpolicy
from xpolicy.testing.ratchet import Row, compare, gather, read, written

pytest_plugins = ["pytester"]

MODES = "--xpolicy-modes=eager,compile,fullgraph"
FILE = "xpolicy-ratchet.toml"
TESTS = """
    import pytest, mylib, torch, jax.numpy as jnp

    @pytest.fixture(params=["numpy", "torch", "jax"])
    def xp(request):
        return {"numpy": __import__("numpy"), "torch": torch, "jax": jnp}[request.param]

    @pytest.mark.xpolicy
    def test_scale(xp):
        mylib.scale(xp.ones(2))
        mylib.scale(xp.ones(3))

    @pytest.mark.xpolicy
    def test_breaks(xp):
        mylib.breaks(xp.ones(2))

    @pytest.mark.xpolicy
    def test_undeclared(xp):
        assert mylib.undeclared(xp.ones(2)).shape == (2,)
"""
RECORDED = """\
# What tests observed of each function, for each array namespace that has a compiler.
# `pytest --xpolicy-record` writes this file; a run without it fails on anything worse:
# a lower mode, more graph breaks, more compilations of one function again in one test.
# Graph breaks are those of mode compile. Under fullgraph torch captures more (operators
# whose result's shape depends on values), so a function may reach fullgraph and have some.

[functions."mylib.breaks".jax]
mode = "fullgraph"
graph-breaks = 0
recompilations = 0

[functions."mylib.breaks".torch]
mode = "compile"
graph-breaks = 1
recompilations = 0
because = [
    "compile: graph break in mylib.py: Failed to trace builtin operator",
    "fullgraph: Unsupported: Failed to trace builtin operator",
]

[functions."mylib.scale".jax]
mode = "fullgraph"
graph-breaks = 0
recompilations = 1

[functions."mylib.scale".torch]
mode = "fullgraph"
graph-breaks = 0
recompilations = 1

[functions."mylib.undeclared".jax]
mode = "eager"
graph-breaks = 0
recompilations = 0
because = [
    "compile: TracerBoolConversionError: Attempted boolean conversion of traced array with shape bool[].",
    "fullgraph: TracerBoolConversionError: Attempted boolean conversion of traced array with shape bool[].",
]

[functions."mylib.undeclared".torch]
mode = "compile"
graph-breaks = 1
recompilations = 0
because = [
    "compile: graph break in mylib.py: generic_jump TensorVariable()",
    "fullgraph: Unsupported: Data-dependent branching",
]
"""


def change(project, old, new, file="mylib.py"):
    path = project.path / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.fixture
def recorded(project):
    (project.path / FILE).write_text(RECORDED)
    return project


# --- recording ----------------------------------------------------------------------------


def test_what_is_observed_is_recorded_and_fails_nothing(project):
    result = project("--xpolicy-record", test_it=TESTS)
    outcome = result.parseoutcomes()
    assert (outcome["passed"], outcome["xfailed"]) == (17, 4)
    assert result.ret == 0
    assert (project.path / FILE).read_text() == RECORDED
    result.stdout.fnmatch_lines(
        ["function * namespace *", "mylib.breaks * torch * compile * 1 * 0", f"{FILE}: 6 recorded"]
    )


def test_a_part_of_the_tests_leaves_the_rest_as_it_was(recorded):
    change(recorded, '    print(end="")\n', "")
    result = recorded("--xpolicy-record", "-k", "breaks", test_it=TESTS)
    assert f"{FILE}: 2 recorded; 4 that did not run stay as they were" in result.stdout.str()
    rows = read(recorded.path / FILE)
    assert rows["mylib.breaks", "torch"] == Row("fullgraph")
    assert rows["mylib.undeclared", "torch"].mode == "compile"


def test_nothing_to_record_is_said(project):
    result = project("--xpolicy-record", test_it="def test_it(): pass")
    assert "was not written: no test marked xpolicy" in result.stdout.str()
    assert not (project.path / FILE).exists()


def test_calls_under_another_trace_show_nothing(project):
    # A jax.jit around a call is what compiles: the function's own policy isn't applied.
    result = project(
        "--xpolicy-record",
        test_it="""
        import jax, jax.numpy as jnp, mylib, pytest

        @pytest.mark.xpolicy
        def test_outer():
            jax.jit(mylib.scale)(jnp.ones(2))

        @pytest.mark.xpolicy
        def test_own():
            mylib.breaks(jnp.ones(2))
        """,
    )
    assert result.parseoutcomes() == {"passed": 6}
    assert set(read(project.path / FILE)) == {("mylib.breaks", "jax")}
    assert "nothing is known of mylib.scale for jax: tests call it under" in result.stdout.str()


def test_a_run_that_was_broken_off_is_not_recorded(project):
    broken = TESTS + "\n    def test_stop():\n        pytest.exit('enough')\n"
    (project.path / "test_it.py").write_text("")
    result = project("--xpolicy-record", "-k", "scale or stop", test_it=broken)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert not (project.path / FILE).exists()


def test_a_test_that_fails_in_mode_eager_fails_and_tells_nothing(project):
    result = project(
        "--xpolicy-record",
        test_it="""
        import pytest, mylib, torch

        @pytest.mark.xpolicy
        def test_it():
            mylib.scale(torch.ones(2))
            assert False
        """,
    )
    assert result.parseoutcomes() == {"failed": 1, "xfailed": 2}
    assert result.ret == 1
    assert not (project.path / FILE).exists()


# --- comparing ----------------------------------------------------------------------------


def test_what_is_as_recorded_passes(recorded):
    result = recorded(MODES, "-rx", test_it=TESTS)
    assert result.ret == 0
    assert result.parseoutcomes() == {"passed": 17, "skipped": 6, "xfailed": 4}
    assert f"recorded in {FILE}: mylib.breaks doesn't reach mode fullgraph" in result.stdout.str()
    assert "WORSE" not in result.stdout.str()


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "return x * n",
            "print(end=''); return x * n",
            "mylib.scale for torch: 1 graph break, 0 recorded",
        ),
        (
            "def scale(x, n=2):\n    return",
            "def scale(x, n=2):\n    x = x if x.sum() > 0 else -x\n    return",
            "mylib.scale for jax: mode fullgraph is recorded, compile fails",
        ),
        (
            "@xpolicy.compile\ndef scale",
            "@xpolicy.compile(supports='compile')\ndef scale",
            'mylib.scale for torch: mode fullgraph is recorded, supports = "compile" caps it',
        ),
    ],
    ids=["break", "mode", "supports"],
)
def test_what_is_worse_fails(recorded, old, new, told):
    change(recorded, old, new)
    result = recorded(MODES, "-k", "torch or jax", "--tb=no", test_it=TESTS)
    text = result.stdout.str()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert f"WORSE than {FILE}:" in text
    assert told in text
    if "graph break" in told:
        assert "  mylib.py:5: " in text
        assert result.parseoutcomes().get("failed", 0) == 1  # fullgraph, which was reached


def test_more_recompilations_fail_though_every_test_passes(recorded):
    more = TESTS.replace("mylib.breaks(xp.ones(2))", "[mylib.breaks(xp.ones(n)) for n in (2, 3)]")
    result = recorded("--xpolicy-modes=compile", test_it=more)
    assert "failed" not in result.parseoutcomes()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "mylib.breaks for jax: 1 recompilation, 0 recorded" in result.stdout.str()


def test_what_is_better_is_reported(recorded):
    change(recorded, '    print(end="")\n', "")
    result = recorded(MODES, test_it=TESTS)
    assert result.ret == 0
    text = result.stdout.str()
    assert "mylib.breaks for torch: reaches mode fullgraph, compile is recorded" in text
    assert "mylib.breaks for torch: 0 graph breaks, 1 recorded" in text


def test_what_was_not_run_is_neither(recorded):
    result = recorded("--xpolicy-modes=eager", test_it=TESTS)
    assert result.ret == 0
    assert FILE not in result.stdout.str()


def test_a_function_that_is_new_is_named(recorded):
    rows = read(recorded.path / FILE)
    del rows["mylib.scale", "jax"]
    (recorded.path / FILE).write_text(written(rows))
    result = recorded(MODES, test_it=TESTS)
    assert f"not in {FILE}: mylib.scale for jax" in result.stdout.str()
    assert result.ret == 0


def test_another_file_by_option_or_table(recorded):
    (recorded.path / FILE).rename(recorded.path / "other.toml")
    change(recorded, "return x * n", "print(end=''); return x * n")
    run = ("--xpolicy-modes=compile", "-k", "scale")
    assert recorded(*run, test_it=TESTS).ret == 0
    result = recorded(*run, "--xpolicy-ratchet=other.toml")
    assert "WORSE than other.toml" in result.stdout.str()
    result = recorded(*run, xpolicy_toml='testing.ratchet = "other.toml"')
    assert "WORSE than other.toml" in result.stdout.str()


def test_a_broken_file_is_told(recorded):
    (recorded.path / FILE).write_text('[functions."mylib.f".torch]\nmode = "best"')
    result = recorded(MODES, test_it=TESTS)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "the ratchet holds no mode for mylib.f" in result.stderr.str()


# --- putting observations together -----------------------------------------------------------


def seen(mode, *, key="f", breaks=(), recompilations=0, failed=None, fallback=None):
    return {
        "key": key,
        "namespace": "torch",
        "mode": mode,
        "supports": None,
        "breaks": breaks,
        "compilations": recompilations + 1,
        "recompilations": recompilations,
        "fallback": fallback,
        "failed": failed,
    }


def run(test, mode, *functions):
    failed = any(one["failed"] for one in functions)
    outcome = "failed" if failed else "passed"
    return {"test": test, "mode": mode, "outcome": outcome, "functions": list(functions)}


def test_the_order_of_tests_changes_nothing():
    observed = [
        run("a", "eager", seen("eager")),
        run("a", "compile", seen("compile", breaks=[("m.py", 1, "one")], recompilations=2)),
        run("b", "compile", seen("compile", breaks=[("m.py", 2, "two"), ("m.py", 1, "one")])),
        run("a", "fullgraph", seen("fullgraph", failed="Unsupported at 0x7f00")),
        run("b", "fullgraph", seen("fullgraph")),
    ]
    expected = Row(
        "compile",
        2,
        2,
        (
            "compile: graph break in m.py: one",
            "compile: graph break in m.py: two",
            "fullgraph: Unsupported at 0x...",
        ),
        "fullgraph",
        None,
        ("m.py:1: one", "m.py:2: two"),
    )
    for number in range(20):
        random.Random(number).shuffle(observed)
        assert gather(observed) == {("f", "torch"): expected}


def test_each_reason_names_the_mode_that_it_is_from():
    # Mode fullgraph tells of a break and goes no further: it isn't a break that was survived.
    refused = seen("fullgraph", breaks=[("m.py", 9, "strict")], failed="strict")
    broken = seen("compile", breaks=[("m.py", 1, "one")])
    row = gather([run("a", "compile", broken), run("a", "fullgraph", refused)])["f", "torch"]
    assert (row.mode, row.graph_breaks, row.places) == ("compile", 1, ("m.py:1: one",))
    assert row.because == ("compile: graph break in m.py: one", "fullgraph: strict")


def test_one_graph_under_fullgraph_and_a_break_in_compile_are_told_apart(project):
    # torch takes operators with a data-dependent shape into a graph under fullgraph only.
    change(project, "return x * n", "return (x * n).nonzero()")
    result = project(
        "--xpolicy-record",
        test_it="""
        import pytest, mylib, torch

        @pytest.mark.xpolicy
        def test_it():
            assert mylib.scale(torch.ones(2)).shape == (2, 1)
        """,
    )
    assert result.parseoutcomes() == {"passed": 3}
    row = read(project.path / FILE)["mylib.scale", "torch"]
    assert (row.mode, row.graph_breaks) == ("fullgraph", 1)
    assert row.because == ("compile: graph break in mylib.py: Dynamic shape operator",)
    result.stdout.fnmatch_lines(
        ["function * mode reached *breaks in compile *", "mylib.scale * torch * fullgraph * 1 * 0"]
    )


def test_a_function_that_ran_uncompiled_has_not_reached_mode_compile():
    rows = gather([run("a", "compile", seen("compile", fallback="why"))])
    assert rows["f", "torch"].mode == "eager"
    assert rows["f", "torch"].because == ("compile: why",)


def test_a_mode_that_fails_in_one_test_is_not_reached():
    rows = gather(
        [run("a", "compile", seen("compile")), run("b", "compile", seen("compile", failed="no"))]
    )
    assert rows["f", "torch"].mode == "eager"


def test_rows_survive_the_file(tmp_path):
    rows = {
        ("a.f", "torch"): Row("compile", 2, 1, ('a "quoted" reason',)),
        ("a.<locals>.g", "array-api"): Row("eager"),
    }
    file = tmp_path / FILE
    file.write_text(written(rows))
    assert read(file) == rows
    assert compare(read(file), rows).worse == ()
    assert written(dict(reversed(rows.items()))) == written(rows)


# --- proposals --------------------------------------------------------------------------------


def test_what_functions_support_is_proposed_as_policy(project):
    calls = TESTS + (
        "\n    @pytest.mark.xpolicy(functions=mylib.declared)"
        "\n    def test_declared(xp):"
        "\n        mylib.declared(xp.ones(2))\n"
    )
    result = project("--xpolicy-infer-supports=proposed.toml", "-k", "torch or jax", test_it=calls)
    assert result.ret == 0
    assert "proposed.toml: what each function supports" in result.stdout.str()
    proposed = project.path / "proposed.toml"
    functions = tomllib.loads(proposed.read_text())["functions"]
    assert functions == {
        "mylib.breaks": {
            "jax": {"supports": "fullgraph"},
            "torch": {
                "supports": "compile",
                "reason": "graph break in mylib.py: Failed to trace builtin operator",
            },
        },
        # What is declared is put aside, so that it can be found to be too little.
        **{
            key: {
                "jax": {
                    "supports": "eager",
                    "reason": "TracerBoolConversionError: Attempted boolean conversion of "
                    "traced array with shape bool[].",
                },
                "torch": {
                    "supports": "compile",
                    "reason": "graph break in mylib.py: generic_jump TensorVariable()",
                },
            }
            for key in ("mylib.declared", "mylib.undeclared")
        },
        "mylib.scale": {"jax": {"supports": "fullgraph"}, "torch": {"supports": "fullgraph"}},
    }
    assert xpolicy.check(proposed) == []
    # Under the proposal the tests that failed are skipped, with the reason.
    (project.path / "xpolicy.toml").write_text(proposed.read_text())
    result = project(MODES, "-rs", "-k", "torch or jax", "--xpolicy-ratchet=none.toml")
    assert "failed" not in result.parseoutcomes()
    assert "graph break in mylib.py: generic_jump TensorVariable()" in result.stdout.str()


def test_a_declaration_that_is_too_little_is_pointed_out(project):
    change(project, "    if x.sum() > 0:\n        return x\n    return -x", "    return -x")
    result = project(
        "--xpolicy-infer-supports",
        test_it="""
        import pytest, mylib, torch

        @pytest.mark.xpolicy
        def test_it():
            mylib.declared(torch.ones(2))
        """,
    )
    result.stdout.fnmatch_lines(
        [
            '# declared now: "compile"',
            '[[]functions."mylib.declared".torch]',
            'supports = "fullgraph"',
        ]
    )
