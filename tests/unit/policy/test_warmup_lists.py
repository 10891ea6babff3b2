"""`warmup` lists: their form, whose holds, and that no policy depends on them."""

from __future__ import annotations

import pickle

import pytest

from tests.unit.policy.building import layer_of, policy, problems_of
from xpolicy.policy.specs import Spec
from xpolicy.policy.warmup import calls
from xpolicy.runtime.session import place

KEY = "mylib.f"
ONE = """
[functions."mylib.f"]
warmup = [{ x = "float32[128, 64]", n = 3 }]
"""


def said(*layers: object, namespace: str = "torch", device: str | None = None) -> list[str]:
    stack = [layer_of(layer) if isinstance(layer, str) else layer for layer in layers]
    found = calls(stack, KEY, namespace, device)
    return ["nobody"] if found is None else list(map(str, found))


def test_specs_stand_for_arrays_and_all_else_for_itself():
    text = """
    functions."mylib.f".warmup = [
        { x = { a = "int8[2] on cuda", b = ["~float32[]", 1, true] }, s = "linear" },
        { x = "bool[]", dtype = "float32", s = "'int8[2]'", t = "''", half = 0.5 },
    ]
    """
    first, second = calls([layer_of(text)], KEY, "jax")
    assert first.arguments == {
        "x": {
            "a": Spec("int8", (2,), device="cuda"),
            "b": [Spec("float32", (), weak=True), 1, True],
        },
        "s": "linear",
    }
    assert second.arguments["dtype"] == "float32"
    assert second.arguments["s"] == "int8[2]"
    assert second.arguments["t"] == ""
    assert str(first) == 'x={a: int8[2] on cuda, b: [~float32[], 1, true]}, s="linear"'


def test_a_namespaces_own_list_replaces_the_general_one():
    text = ONE + '[functions."mylib.f".jax]\nwarmup = [{ x = "int8[2]" }]'
    assert said(text) == ["x=float32[128, 64], n=3"]
    assert said(text, namespace="jax") == ["x=int8[2]"]


def test_the_highest_layer_that_sets_a_list_decides():
    low = layer_of(ONE + 'jax.warmup = [{ x = "int8[2]" }]', "author", package="mylib")
    assert said(low, namespace="jax") == ["x=int8[2]"]
    high = layer_of('functions."mylib.f".warmup = [{ x = "int8[3]" }]')
    assert said(low, high, namespace="jax") == ["x=int8[3]"]
    assert said(low, layer_of('functions."mylib.f".warmup = []')) == []
    assert said('functions."mylib.g".warmup = []') == ["nobody"]


def test_conditions_hold_for_lists_too():
    text = """
    [functions."mylib.f"]
    warmup = [{ x = "int8[1]" }]
    [[when]]
    device = "cuda"
    functions."mylib.f".warmup = [{ x = "int8[2]" }]
    [[when]]
    versions.torch = "<2"
    functions."mylib.f".warmup = [{ x = "int8[3]" }]
    """
    assert said(text) == ["x=int8[1]"]
    assert said(text, device="cuda") == ["x=int8[2]"]


def test_each_call_knows_where_it_stands():
    layer = pickle.loads(pickle.dumps(layer_of(ONE)))
    (call,) = calls([layer], KEY, "torch")
    (problem,) = problems_of(ONE.replace("float32[", "flaot32["))
    assert call.origin.key == ("functions", KEY, "warmup", 0)
    assert call.layer == "project"
    assert str(place(problem)).splitlines()[1] == "  --> xpolicy.toml:3:13 (project layer)"


def test_two_names_of_one_namespace_may_not_say_different_lists():
    text = """
    [functions."mylib.f".jax]
    warmup = [{ x = "int8[1]" }]
    [functions."mylib.f"."jax.numpy"]
    warmup = [{ x = "int8[2]" }]
    """
    (problem,) = problems_of(text)
    assert "two rules of the same rank set warmup differently" in problem.message
    assert problems_of(text.replace("int8[2]", "int8[1]")) == []


def test_no_policy_depends_on_it():
    assert layer_of(ONE).rules == ()
    assert policy(ONE, key=KEY).fingerprint == policy("", key=KEY).fingerprint


@pytest.mark.parametrize("where", ["", "torch.", 'testing.functions."mylib.f".'])
def test_it_stands_in_the_table_of_a_function_only(where: str):
    (problem,) = problems_of(f'{where}warmup = [{{ x = "int8[1]" }}]')
    assert "'warmup' may not stand" in problem.message
    assert problem.fix == 'move it to [functions."NAME"], or the table of a namespace in it'


def test_a_misspelt_key_finds_it():
    for table in ('functions."mylib.f"', 'functions."mylib.f".torch'):
        (problem,) = problems_of(f"{table}.warmpu = []")
        assert problem.nearest == "warmup"
    (problem,) = problems_of("torch.warmpu = []")
    assert problem.nearest != "warmup"
