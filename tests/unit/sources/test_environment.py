"""The environment grammar, read from an injected mapping."""

from __future__ import annotations

import pytest

from tests.unit.policy.building import FACTS, KEY, TABLE, policy
from xpolicy.runtime.session import place
from xpolicy.sources.environment import injected, kill_switch, read_environment


def read(environ):
    return read_environment(environ, TABLE, FACTS, version="0.1")


def said(environ, namespace="torch", **how):
    layers, problems = read(environ)
    assert problems == [], "\n".join(map(str, problems))
    return policy(*layers, namespace=namespace, **how)


def problem(environ):
    layers, (found,) = read(environ)
    assert all(layer.rules == () for layer in layers)
    return place(found)


# -- what a variable sets --------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "option", "value"),
    [
        ("XPOLICY_MODE", "fullgraph", "mode", "fullgraph"),
        ("XPOLICY_MODE", "  eager\t", "mode", "eager"),
        ("XPOLICY_ON_FAILURE", "eager", "on_failure", "eager"),
        ("XPOLICY_TORCH__MODE", "eager", "mode", "eager"),
        ("XPOLICY_TORCH__BACKEND", "aot_eager", "backend", "aot_eager"),
        ("XPOLICY_TORCH__COMPILE_MODE", "max-autotune", "compile_mode", "max-autotune"),
        ("XPOLICY_TORCH__RECOMPILE_LIMIT", "4", "recompile_limit", 4),
        ("XPOLICY_TORCH__RECOMPILE_LIMIT", " +4 ", "recompile_limit", 4),
        ("XPOLICY_TORCH__GRAPH_BREAK_LIMIT", "2", "graph_break_limit", 2),
        ("XPOLICY_TORCH__DYNAMIC", "no", "dynamic", False),
        ("XPOLICY_TORCH__OPTIONS", "{max_autotune = true}", "options", {"max_autotune": True}),
        ("XPOLICY_TORCH__OPTIONS", "{ a.b = [1, 'x'] }  # why", "options", {"a.b": [1, "x"]}),
        ("XPOLICY_TORCH__OPTIONS", "{triton.cudagraphs = true}", "cudagraphs", True),
        ("XPOLICY_TORCH__OPTIONS", "{'cpp.cxx' = 'g++'}", "options", {"cpp.cxx": "g++"}),
        ("XPOLICY_TORCH__OPTIONS", "{}", "options", None),
        ("XPOLICY_JAX__DONATE_ARGNAMES", "a,b", "donate_argnames", ("a", "b")),
        ("XPOLICY_JAX__DONATE_ARGNAMES", " a , b ,", "donate_argnames", ("a", "b")),
        ("XPOLICY_JAX__DONATE_ARGNAMES", "a", "donate_argnames", ("a",)),
        ("XPOLICY_JAX__DONATE_ARGNAMES", '["a", "b"]', "donate_argnames", ("a", "b")),
        ("XPOLICY_JAX__DONATE_ARGNAMES", "[]", "donate_argnames", ()),
        ("XPOLICY_JAX__STATIC", "auto", "static", "auto"),
    ],
)
def test_values_are_read_by_the_options_type(name, text, option, value):
    namespace = "jax" if "JAX" in name else "torch"
    found = said({name: text}, namespace)
    assert found.values[option] == value
    assert type(found.values[option]) is type(value)


TRUE = ["1", "true", "TRUE", "True", "yes", "Yes", "on", "ON", " true "]
FALSE = ["0", "false", "FALSE", "no", "No", "off", "OFF"]


@pytest.mark.parametrize(("text", "value"), [(t, True) for t in TRUE] + [(f, False) for f in FALSE])
def test_booleans(text, value):
    assert said({"XPOLICY_TORCH__CUDAGRAPHS": text}).cudagraphs is value
    assert said({"XPOLICY_TORCH__FULLGRAPH": text}).mode == ("fullgraph" if value else "compile")
    assert kill_switch({"XPOLICY_DISABLE": text}) == (value, None)


@pytest.mark.parametrize("text", ["2", "t", "y", "tru", "truefalse", "-1", "null", "ja", "01"])
def test_what_no_boolean_is(text):
    found = problem({"XPOLICY_TORCH__CUDAGRAPHS": text})
    assert found.message == "XPOLICY_TORCH__CUDAGRAPHS has a value that can't be read"
    assert found.value == f'"{text}"'
    assert found.allowed.startswith("1/0, true/false, yes/no, on/off")
    # the kill switch has to work all the same
    on, warning = kill_switch({"XPOLICY_DISABLE": text})
    assert on
    assert warning.severity == "warning"
    assert "counts as true" in warning.message


@pytest.mark.parametrize("option", ["MODE", "TORCH__OPTIONS", "TORCH__RECOMPILE_LIMIT", "TOML",
                                    "TORCH__BACKEND", "JAX__DONATE_ARGNAMES", "NOVELTY"])  # fmt: skip
@pytest.mark.parametrize("text", ["", " ", "\t\n"])
def test_empty_is_as_if_absent(option, text):
    assert read({f"XPOLICY_{option}": text}) == ([], [])
    assert kill_switch({"XPOLICY_DISABLE": text}) == (False, None)


@pytest.mark.parametrize("name", ["MODE", "TORCH__OPTIONS", "TORCH__RECOMPILE_LIMIT",
                                  "TORCH__DYNAMIC", "JAX__DONATE_ARGNAMES", "TORCH__BACKEND"])  # fmt: skip
def test_any_preference_can_be_unset(name):
    layers, problems = read({f"XPOLICY_{name}": "unset"})
    assert problems == []
    (rule,) = layers[0].rules
    assert list(rule.values.values()) == ["unset"]


def test_tables_merge_by_key_with_the_files():
    (layer,), _ = read({"XPOLICY_TORCH__OPTIONS": "{a = 1, b = 2}"})
    from tests.unit.policy.building import layer_of

    below = layer_of("torch.options = {b = 1, c = 3}", "file")
    assert policy(below, layer).options == {"a": 1, "b": 2, "c": 3}


def test_a_namespace_beats_the_general_variable():
    environ = {"XPOLICY_MODE": "eager", "XPOLICY_TORCH__MODE": "fullgraph"}
    assert said(environ).mode == "fullgraph"
    assert said(environ, "jax").mode == "eager"


def test_the_variable_is_told_as_the_origin():
    history = said({"XPOLICY_TORCH__OPTIONS": "{triton.cudagraphs = true, a = 1}",
                    "XPOLICY_TORCH__DYNAMIC": "1"}).provenance  # fmt: skip
    for option in ("cudagraphs", "options.a"):
        assert str(history[option].winner.origin) == "XPOLICY_TORCH__OPTIONS"
        assert history[option].winner.layer == "environment"
    assert str(history["dynamic"].winner.origin) == "XPOLICY_TORCH__DYNAMIC"


def test_two_variables_that_contradict_each_other():
    _, (found,) = read({"XPOLICY_TORCH__OPTIONS": "{triton.cudagraphs = true}",
                        "XPOLICY_TORCH__CUDAGRAPHS": "0"})  # fmt: skip
    assert found.severity == "error"
    assert str(found.origin) == "XPOLICY_TORCH__CUDAGRAPHS, XPOLICY_TORCH__OPTIONS"


def test_every_preference_has_a_variable_and_no_fact_has():
    for namespace in (None, "torch", "jax", "cupy", "array_api_strict"):
        for row in TABLE.of(namespace).values():
            prefix = f"{namespace.upper()}__" if namespace else ""
            _, problems = read({f"XPOLICY_{prefix}{row.name.upper()}": "unset"})
            assert [p.severity for p in problems] == (["error"] if row.capability else [])


@pytest.mark.parametrize("name", ["XPOLICY_SUPPORTS", "XPOLICY_TORCH__STATIC_ARGNAMES"])
def test_facts_are_refused_with_the_way_to_state_them(name):
    found = problem({name: "eager"})
    assert found.message.startswith(f"{name} can't be set: ")
    key = name.removeprefix("XPOLICY_TORCH__").removeprefix("XPOLICY_").lower().replace("_", "-")
    assert found.fix == f"""set XPOLICY_TOML='functions."NAME".{key} = …' for one function"""
    # and that works
    value = '"eager"' if key == "supports" else '["n"]'
    assert said({"XPOLICY_TOML": f'functions."{KEY}".{key} = {value}'}).values[
        key.replace("-", "_")
    ]


# -- bad values ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "allowed", "fix"),
    [
        ("XPOLICY_MODE", "fulgraph", "eager", "set XPOLICY_MODE=fullgraph"),
        ("XPOLICY_MODE", "EAGER", "eager", "set XPOLICY_MODE=eager"),
        ("XPOLICY_MODE", "max-autotune", "eager", "set XPOLICY_TORCH__COMPILE_MODE=max-autotune"),
        ("XPOLICY_TORCH__RECOMPILE_LIMIT", "0", "at least 1", None),
        ("XPOLICY_TORCH__RECOMPILE_LIMIT", "4.0", "whole number", None),
        ("XPOLICY_TORCH__RECOMPILE_LIMIT", "four", "whole number", None),
        ("XPOLICY_TORCH__RECOMPILE_LIMIT", "9" * 5000, "whole number", None),
        ("XPOLICY_TORCH__RECOMPILE_LIMIT", "１", "whole number", None),  # noqa: RUF001
        ("XPOLICY_TORCH__OPTIONS", "max_autotune=true", "inline TOML table", None),
        ("XPOLICY_TORCH__OPTIONS", "{a = }", "inline TOML table", None),
        ("XPOLICY_TORCH__OPTIONS", "[1]", "inline TOML table", None),
        ("XPOLICY_TORCH__OPTIONS", "1", "inline TOML table", None),
        ("XPOLICY_TORCH__OPTIONS", "{}\nmode = 'eager'", "inline TOML table", None),
        ("XPOLICY_TORCH__OPTIONS", "{}\n[functions]", "inline TOML table", None),
        ("XPOLICY_TORCH__OPTIONS", "{a = 1979-05-27}", "booleans, numbers", None),
        ("XPOLICY_TORCH__OPTIONS", "{a = " + "9" * 5000 + "}", "inline TOML table", None),
        ("XPOLICY_TORCH__OPTIONS", "{" + ".".join("a" * 40) + " = 1}", "inline TOML table", None),
        ("XPOLICY_TORCH__OPTIONS", "{a = " + "[" * 40 + "]" * 40 + "}", "inline TOML table", None),
        ("XPOLICY_JAX__DONATE_ARGNAMES", "[1]", "list of strings", None),
        ("XPOLICY_JAX__DONATE_ARGNAMES", "['a'", "commas", None),
    ],
)  # fmt: skip
def test_a_bad_value_names_the_variable_the_value_and_what_is_allowed(name, text, allowed, fix):
    found = problem({name: text})
    assert found.severity == "error"
    assert name in found.message
    assert str(found.origin).split(":")[0] == name
    assert found.origin.kind == "variable"
    assert found.value is not None
    assert text[:20].split("\n")[0].strip() in found.value
    assert allowed in found.allowed
    assert fix is None or found.fix == fix
    assert len(str(found)) < 2000


def test_the_place_inside_a_table_is_told():
    assert str(problem({"XPOLICY_TORCH__OPTIONS": "{a = 1, b = }"}).origin).endswith(":1:13")


def test_all_bad_variables_are_told_at_once():
    _, problems = read({"XPOLICY_MODE": "x", "XPOLICY_TORCH__DYNAMIC": "x", "XPOLICY_TOML": "x"})
    assert [p.severity for p in problems] == ["error"] * 3


# -- unknown variables -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("XPOLICY_MOD", "XPOLICY_MODE"),
        ("XPOLICY_TORCH_FULLGRAPH", "XPOLICY_TORCH__FULLGRAPH"),
        ("XPOLICY_JAX_RECOMPILE_LIMIT", "XPOLICY_JAX__RECOMPILE_LIMIT"),
        ("XPOLICY_TORCH__FULL_GRAPH", "XPOLICY_TORCH__FULLGRAPH"),
        ("XPOLICY_DISABLED", "XPOLICY_DISABLE"),
        ("XPOLICY_FILES", "XPOLICY_FILE"),
        ("XPOLICY_TORCH__MODE__X", "XPOLICY_TORCH__MODE"),
        ("XPOLICY_Q", None),
    ],
)
def test_an_unknown_variable_warns_with_the_nearest_name(name, nearest):
    found = problem({name: "1"})
    assert found.severity == "warning"
    assert found.message == f"unknown variable {name}, ignored"
    assert found.nearest == nearest


def test_other_programs_variables_are_not_looked_at():
    environ = {"MODE": "x", "XPOLICYMODE": "x", "MY_XPOLICY_MODE": "x", "xpolicy_mode": "x"}
    assert read(environ) == ([], [])


INJECTED = {
    "XPOLICY_PORT": "tcp://10.0.0.1:80",
    "XPOLICY_SERVICE_HOST": "10.0.0.1",
    "XPOLICY_SERVICE_PORT": "80",
    "XPOLICY_SERVICE_PORT_HTTP": "80",
    "XPOLICY_PORT_80_TCP": "tcp://10.0.0.1:80",
    "XPOLICY_PORT_80_TCP_PROTO": "tcp",
    "XPOLICY_PORT_80_TCP_PORT": "80",
    "XPOLICY_PORT_80_TCP_ADDR": "10.0.0.1",
    "XPOLICY_WEB_PORT": "udp://10.0.0.1:53",
    "XPOLICY_WEB_SERVICE_HOST": "10.0.0.1",
    "XPOLICY_WEB_SERVICE_PORT_METRICS": "9090",
    "XPOLICY_WEB_PORT_53_UDP_ADDR": "10.0.0.1",
}


def test_what_an_orchestrator_injects_is_ignored():
    assert read(INJECTED) == ([], [])
    assert said({**INJECTED, "XPOLICY_MODE": "eager"}).mode == "eager"


def test_a_port_that_nobody_injects_is_unknown():
    assert not injected("XPOLICY_PORT", "80")
    assert "unknown" in problem({"XPOLICY_PORT": "80"}).message


# -- XPOLICY_TOML ------------------------------------------------------------------------


def test_a_whole_document_in_a_variable_above_the_others():
    text = """
functions."mylib.*".torch.mode = "eager"
[[when]]
python = ">=3"
on-failure = "eager"
"""
    environ = {
        "XPOLICY_TOML": text,
        "XPOLICY_MODE": "fullgraph",
        "XPOLICY_TORCH__MODE": "fullgraph",
    }
    assert said(environ).mode == "eager"
    assert said(environ, key="other.f").mode == "fullgraph"
    assert said(environ).on_failure == "eager"
    assert (
        said({"XPOLICY_TOML": 'mode = "eager"', "XPOLICY_TORCH__MODE": "fullgraph"}).mode == "eager"
    )


def test_its_errors_have_positions_inside_the_variable():
    found = problem({"XPOLICY_TOML": 'mode = "eager"\ntorch = { fullgraf = true }'})
    assert str(found.origin) == "XPOLICY_TOML:2:11"
    assert found.nearest == "fullgraph"
    assert found.severity == "error"
    found = problem({"XPOLICY_TOML": 'mode = "eager'})
    assert str(found.origin).startswith("XPOLICY_TOML:1:")
    _, problems = read({"XPOLICY_TOML": '[[when]]\npython = ">=3"\nmode = "eager"\n'
                                        '[[when]]\nversions.torch = ">=2"\nmode = "compile"'})  # fmt: skip
    assert str(place(problems[0]).other) == "XPOLICY_TOML:3:1"


def test_it_is_told_as_the_origin():
    from xpolicy.sources.positions import located

    winner = said({"XPOLICY_TOML": '\ntorch.mode = "eager"'}).provenance["mode"].winner
    assert str(located(winner.origin)) == "XPOLICY_TOML:2:14"
    assert winner.layer == "environment"


def test_it_may_require_a_version():
    assert "requires" in problem({"XPOLICY_TOML": 'requires = ">=99"\nnovelty = 1'}).message


# -- injection ---------------------------------------------------------------------------


def test_an_injected_empty_environment_never_leaks_the_real_one(monkeypatch):
    monkeypatch.setenv("XPOLICY_MODE", "eager")
    monkeypatch.setenv("XPOLICY_TOML", 'mode = "eager"')
    monkeypatch.setenv("XPOLICY_DISABLE", "1")
    monkeypatch.setenv("XPOLICY_NOVELTY", "1")
    assert read({}) == ([], [])
    assert kill_switch({}) == (False, None)


def test_nor_does_loading_with_one(monkeypatch, tmp_path):
    from xpolicy.sources.load import Surroundings, load

    file = tmp_path / "named.toml"
    file.write_text('mode = "eager"')
    monkeypatch.setenv("XPOLICY_MODE", "eager")
    monkeypatch.setenv("XPOLICY_FILE", str(file))
    monkeypatch.setenv("XPOLICY_PROJECT", str(tmp_path))
    found = load(
        Surroundings({}, tmp_path, tmp_path, tmp_path / "config", FACTS),
        lambda: TABLE,
        version="0.1",
    )
    assert found.layers == ()
    assert found.problems == ()
