"""Facts are the author's: others state them for one function, and broadly only lower the cap."""

from __future__ import annotations

import pytest

from tests.unit.policy.building import (
    KEY,
    TABLE,
    decorated,
    layer_of,
    overridden,
    policy,
    problems_of,
)
from xpolicy._origin import Origin
from xpolicy.sources.author import keyword_rules

OTHERS = ("user", "project", "file", "environment")
FACTS = ('static-argnames = ["n"]', 'reason = "why"')


@pytest.mark.parametrize("layer", OTHERS)
@pytest.mark.parametrize("fact", FACTS)
@pytest.mark.parametrize(
    "table", ["", "[torch]", '[functions."*"]', '[functions."mylib.*"]', '[functions."mylib.*".jax]',
              "[[when]]\npython = '>=3'"],
)  # fmt: skip
def test_a_broad_rule_outside_the_author_layer_states_no_fact(layer, fact, table):
    (problem,) = problems_of(f"{table}\n{fact}", layer)
    name = fact.split(" ")[0]
    assert problem.severity == "error"
    assert problem.message == f"{name} is a fact about one function; a broad rule may not state it"
    assert '[functions."NAME"]' in problem.fix


@pytest.mark.parametrize("layer", OTHERS)
@pytest.mark.parametrize("table", [f'[functions."{KEY}"]', f'[functions."{KEY}".torch]'])
def test_an_exact_rule_states_any_fact_in_any_layer(layer, table):
    text = f'{table}\nstatic-argnames = ["n"]\nreason = "why"\nsupports = "fullgraph"'
    said = policy(decorated(supports="eager", static_argnames=("axis",)), layer_of(text, layer))
    assert (said.supports, said.reason, said.static_argnames) == ("fullgraph", "why", ("n",))


@pytest.mark.parametrize("table", ["", '[functions."mylib.*"]\n', "[torch]\n"])
def test_an_author_states_facts_broadly(table):
    text = f'{table}static-argnames = ["n"]\nreason = "why"\nsupports = "compile"'
    said = policy(layer_of(text, "author"))
    assert (said.supports, said.reason, said.static_argnames) == ("compile", "why", ("n",))
    # and a more specific rule of the author's raises what a broad one of theirs said
    text += f'\n[functions."{KEY}"]\nsupports = "fullgraph"'
    assert policy(layer_of(text, "author")).supports == "fullgraph"


@pytest.mark.parametrize("layer", OTHERS)
@pytest.mark.parametrize(
    ("declared", "broad", "result"),
    [
        ("fullgraph", "compile", "compile"),
        ("fullgraph", "eager", "eager"),
        ("compile", "eager", "eager"),
        ("compile", "compile", "compile"),
        ("compile", "fullgraph", "compile"),
        ("eager", "fullgraph", "eager"),
        ("eager", "compile", "eager"),
        (None, "eager", "eager"),  # no cap is the highest
    ],
)
def test_a_broad_rule_lowers_supports_and_never_raises_it(layer, declared, broad, result):
    author = decorated(**({"supports": declared} if declared else {}))
    said = policy(author, layer_of(f'supports = "{broad}"', layer))
    assert said.supports == result
    raised = [note for note in said.notes if "never raise" in note]
    assert len(raised) == ((declared, broad) in [("compile", "fullgraph"), ("eager", "fullgraph"),
                                                 ("eager", "compile")])  # fmt: skip
    # The layer that decided is the one that is told.
    winner = said.provenance["supports"].winner
    assert winner.value == result
    assert (winner.layer == "author") is (declared == result)


def test_an_exact_rule_above_a_broad_one_raises_again():
    said = policy(
        decorated(supports="fullgraph"),
        layer_of('supports = "eager"', "project"),
        layer_of(f'[functions."{KEY}"]\nsupports = "compile"', "file"),
    )
    assert said.supports == "compile"


def test_an_override_states_facts_for_one_function_only():
    assert policy(overridden(KEY, static_argnames=("n",))).static_argnames == ("n",)
    for pattern in (None, "*", "mylib.*"):
        _, problems = keyword_rules(
            {"static_argnames": ("n",)},
            Origin("runtime", "app.py", line=1),
            TABLE,
            pattern=pattern,
            layer="runtime",
        )
        assert [p.message for p in problems] == [
            "static_argnames is a fact about one function; name the function"
        ]
        lowered = policy(decorated(supports="fullgraph"), overridden(pattern, supports="eager"))
        assert lowered.supports == "eager"
        kept = policy(decorated(supports="compile"), overridden(pattern, supports="fullgraph"))
        assert kept.supports == "compile"


@pytest.mark.parametrize("fact", ['supports = "unset"', 'static-argnames = "unset"'])
def test_a_fact_can_not_be_unset(fact):
    (problem,) = problems_of(f'[functions."{KEY}"]\n{fact}')
    assert '"unset"' not in problem.allowed


def test_facts_may_differ_by_namespace():
    author = decorated(supports="fullgraph", jax={"supports": "eager"})
    assert policy(author).supports == "fullgraph"
    assert policy(author, namespace="jax").supports == "eager"
