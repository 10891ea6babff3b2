"""Layer, then pattern, then namespace, then number of conditions; never the place in a file."""

from __future__ import annotations

import itertools

import pytest

from tests.unit.policy.building import KEY, decorated, layer_of, overridden, policy
from xpolicy.policy.layers import Layer

# From weak to strong, inside one layer; each block says its own place.
LADDER = [
    "recompile-limit = {n}",  # [torch]
    '[[when]]\npython = ">=3"\ntorch.recompile-limit = {n}',
    '[[when]]\npython = ">=3"\nversions.torch = ">=2"\ntorch.recompile-limit = {n}',
    (
        '[[when]]\npython = ">=3"\nversions = {{ torch = ">=2", jax = ">=0" }}\n'
        "torch.recompile-limit = {n}"
    ),
    '[functions."*".torch]\nrecompile-limit = {n}',
    '[[when]]\npython = ">=3"\nfunctions."*".torch.recompile-limit = {n}',
    '[functions."mylib.*".torch]\nrecompile-limit = {n}',
    '[[when]]\ndevice = "cpu"\nfunctions."mylib.*".torch.recompile-limit = {n}',
    '[functions."mylib.linalg.*".torch]\nrecompile-limit = {n}',
    f'[functions."{KEY}".torch]\nrecompile-limit = {{n}}',
    f'[[when]]\npython = ">=3"\nfunctions."{KEY}".torch.recompile-limit = {{n}}',
]


def ladder(*steps):
    """Write the steps of the ladder in the order given, in one file."""
    texts = []
    for step in steps:
        text = LADDER[step].format(n=step + 1)
        texts.append(f"[torch]\n{text}" if step == 0 else text)
    return "\n\n".join(texts)


@pytest.mark.parametrize(("weak", "strong"), list(itertools.combinations(range(len(LADDER)), 2)))
def test_the_stronger_rule_wins_wherever_it_stands(weak, strong):
    for steps in ((weak, strong), (strong, weak)):
        assert policy(ladder(*steps), device="cpu").recompile_limit == strong + 1


@pytest.mark.parametrize(
    ("weak", "strong"),
    [
        ("mode = 'eager'", "[torch]\nmode = 'fullgraph'"),  # none, any < none, named
        ("[torch]\nmode = 'eager'", '[functions."*"]\nmode = "fullgraph"'),  # pattern first
        ('[functions."mylib.*".torch]\nmode = "eager"', f'[functions."{KEY}"]\nmode = "fullgraph"'),
        (
            "[[when]]\npython='>=3'\nversions.torch='>=2'\nmode = 'eager'",
            "[torch]\nmode = 'fullgraph'",
        ),  # namespace before conditions
    ],
)
def test_pattern_comes_before_namespace_and_namespace_before_conditions(weak, strong):
    texts = [f"{weak}\n{strong}"]
    if weak.startswith("["):  # a top-level key can't follow a table
        texts.append(f"{strong}\n{weak}")
    for text in texts:
        assert policy(text).mode == "fullgraph"


def test_a_layer_beats_any_specificity_below_it():
    exact = f'[[when]]\npython = ">=3"\nfunctions."{KEY}".torch.mode = "fullgraph"'
    names = ("author", "user", "project", "file", "environment", "runtime")
    for lower, higher in itertools.combinations(names, 2):
        below = Layer(lower, lower, layer_of(exact).rules)
        above = Layer(higher, higher, layer_of('mode = "eager"').rules)
        assert policy(below, above).mode == "eager"
        assert policy(above, below).mode == "fullgraph"  # the order given, not the name


def test_later_files_are_higher():
    first = layer_of('[torch]\nbackend = "eager"', "file", label="one.toml")
    second = layer_of('[torch]\nbackend = "aot_eager"', "file", label="two.toml")
    assert policy(first, second).backend == "aot_eager"
    assert policy(second, first).backend == "eager"


def test_later_overrides_are_higher():
    assert policy(overridden(KEY, mode="eager"), overridden(mode="fullgraph")).mode == "fullgraph"


def test_the_libraries_exact_rule_beats_the_decorator_in_any_namespace():
    library = f'[functions."{KEY}"]\nmode = "eager"'
    assert policy(decorated(library, mode="fullgraph")).mode == "eager"
    assert policy(decorated(library, torch={"mode": "fullgraph"})).mode == "eager"


@pytest.mark.parametrize("broad", ["", "[torch]\n", '[functions."mylib.linalg.*".torch]\n'])
def test_the_libraries_broader_rules_do_not(broad):
    assert policy(decorated(f'{broad}mode = "eager"', mode="fullgraph")).mode == "fullgraph"


def test_a_library_may_make_everything_eager_and_a_user_opt_in_with_one_line():
    author = decorated('mode = "eager"')
    assert policy(author).mode == "eager"
    assert (
        policy(author, layer_of('functions."mylib.*".mode = "compile"', "user")).mode == "compile"
    )


def test_a_rule_of_another_namespace_has_no_say():
    text = '[jax]\nmode = "eager"\n[functions."mylib.*".jax]\nrecompile-limit = 3'
    assert policy(text).mode == "compile"
    assert policy(text).recompile_limit is None
    assert policy(text, namespace="jax").recompile_limit == 3
    assert policy(text, namespace="jax.numpy").mode == "eager"
    assert policy(text, namespace="cupy").mode == "compile"


def test_what_nobody_sets_is_unset():
    said = policy()
    assert said.mode == "compile"
    assert said.on_failure == "error"
    assert (said.on_recompile_limit, said.on_graph_break_limit) == ("warn", "warn")
    rest = set(said.values) - {"mode", "on_failure", "on_recompile_limit", "on_graph_break_limit"}
    assert {said.values[name] for name in rest} == {None}
