"""The `testing` table is checked like the rest of a document, and takes part in no policy."""

from __future__ import annotations

import pickle

import pytest

from tests.unit.policy.building import layer_of, problems_of
from xpolicy.policy.testing import settings

TEXT = """
[testing]
modes = ["eager", "compile"]
graph-breaks = 2
torch.compilations = 4

[testing.functions."mylib.*"]
compilations = 3
dask.compute-limit = 0

[testing.functions."mylib.f".torch]
graph-breaks = "unset"
"""


def said(text, *asked, layer="project"):
    return {name: found.value for name, found in settings([layer_of(text, layer)], *asked).items()}


def test_the_more_specific_table_wins():
    assert said(TEXT) == {"modes": ("eager", "compile"), "graph_breaks": 2}
    assert said(TEXT, "other.f", "torch")["compilations"] == 4
    assert said(TEXT, "mylib.g", "torch")["compilations"] == 3
    assert said(TEXT, "mylib.g", "dask")["compute_limit"] == 0


def test_unset_withdraws_what_stands_below():
    assert said(TEXT, "mylib.g", "torch")["graph_breaks"] == 2
    assert "graph_breaks" not in said(TEXT, "mylib.f", "torch")


def test_a_higher_layer_beats_a_more_specific_table():
    low = layer_of('[testing.functions."mylib.f"]\ncompilations = 1', "user")
    high = layer_of("[testing]\ncompilations = 5", "project")
    assert settings([low, high], "mylib.f", "torch")["compilations"].value == 5


def test_each_value_knows_where_it_stands():
    found = settings([layer_of(TEXT, "project")], "mylib.g", "torch")["compilations"]
    assert found.origin.key == ("testing", "functions", "mylib.*", "compilations")


def test_no_rule_comes_of_it():
    layer = layer_of(TEXT, "project")
    assert layer.rules == ()
    assert pickle.loads(pickle.dumps(layer)).testing == layer.testing


@pytest.mark.parametrize(
    ("text", "key", "nearest"),
    [
        ('testing.modes = ["egaer"]', "testing.modes[0]", '"eager"'),
        ("testing.graph_breaks = 1", "testing.graph_breaks", "graph-breaks"),
        ("testing.compilations = 0", "testing.compilations", None),
        ('testing.mode = "eager"', "testing.mode", "modes"),
        ("testing.torch.compute-limit = 1", "testing.torch.compute-limit", None),
        ('testing.functions."f".modes = ["eager"]', "testing.functions.f.modes", None),
        ('testing.functions."my*".compilations = 1', 'testing.functions."my*"', None),
        ("testing = 1", "testing", None),
    ],
)
def test_what_is_wrong_in_it(text, key, nearest):
    (problem,) = problems_of(text)
    assert (problem.key, problem.nearest) == (key, nearest)
    assert problem.severity == "error"


@pytest.mark.parametrize("key", ["graph-breaks", "compilations"])
def test_budgets_stand_below_testing_only(key):
    (problem,) = problems_of(f'functions."mylib.f".{key} = 1')
    assert problem.message == f'unknown key {key!r} in [functions."mylib.f"]'
