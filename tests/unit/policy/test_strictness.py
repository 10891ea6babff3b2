"""Compile or not, and strictly or not, are two axes; the cap comes last."""

from __future__ import annotations

import pytest

from tests.unit.policy.building import KEY, decorated, layer_of, overridden, policy


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("fullgraph = true", "fullgraph"),
        ("fullgraph = false", "compile"),
        ('mode = "compile"\nfullgraph = true', "fullgraph"),  # in one rule fullgraph wins
        ('fullgraph = false\nmode = "fullgraph"', "compile"),
        ('mode = "eager"\nfullgraph = true', "eager"),  # strictness alone compiles nothing
        ("graph-break-limit = 0", "fullgraph"),
        ("graph-break-limit = 1", "compile"),
        ('mode = "compile"\ngraph-break-limit = 0', "fullgraph"),
        ('mode = "eager"\ngraph-break-limit = 0', "eager"),
        ("fullgraph = false\ngraph-break-limit = 0", "fullgraph"),
    ],
)
def test_inside_one_rule(text, mode):
    said = policy(f"[torch]\n{text}")
    assert said.mode == mode
    assert (said.fullgraph is True) is (mode == "fullgraph")


@pytest.mark.parametrize(
    ("low", "high", "mode"),
    [
        ("torch.fullgraph = true", 'mode = "compile"', "compile"),  # mode sets both
        ('mode = "compile"', "torch.fullgraph = true", "fullgraph"),
        ('mode = "fullgraph"', "torch.fullgraph = false", "compile"),
        ("torch.fullgraph = false", 'mode = "fullgraph"', "fullgraph"),
        ('mode = "eager"', "torch.fullgraph = true", "eager"),
        ("torch.graph-break-limit = 0", 'mode = "compile"', "compile"),
        ('mode = "compile"', "torch.graph-break-limit = 0", "fullgraph"),
        ("torch.graph-break-limit = 0", "torch.fullgraph = false", "compile"),
        ("torch.fullgraph = false", "torch.graph-break-limit = 0", "fullgraph"),
        ("torch.fullgraph = true", 'torch.fullgraph = "unset"', "compile"),
        ('mode = "fullgraph"\ntorch.fullgraph = false', 'torch.fullgraph = "unset"', "fullgraph"),
        ('mode = "eager"', 'mode = "unset"', "compile"),  # as if nobody had said it
    ],
)
def test_between_layers_the_last_that_asks_decides(low, high, mode):
    said = policy(layer_of(low, "project"), layer_of(high, "file"))
    assert said.mode == mode
    assert (said.fullgraph is True) is (mode == "fullgraph")


@pytest.mark.parametrize("reversed_", [False, True])
def test_in_blocks_of_equal_rank_their_order_does_not_decide(reversed_):
    blocks = [
        '[[when]]\npython = ">=3"\ntorch.mode = "compile"',
        '[[when]]\nversions.torch = ">=2"\ntorch.fullgraph = true',
    ]
    text = "\n".join(blocks[::-1] if reversed_ else blocks)
    assert policy(text).mode == "fullgraph"


@pytest.mark.parametrize(
    "asked", ['mode = "fullgraph"', "fullgraph = true", "graph-break-limit = 0"]
)
def test_every_spelling_is_capped(asked):
    author = decorated(supports="compile", reason="a loop until it converges")
    said = policy(author, f"[torch]\n{asked}")
    assert (said.requested_mode, said.mode) == ("fullgraph", "compile")
    assert said.fullgraph is not True
    note = said.notes[-1]
    assert "asked for fullgraph" in note
    assert "supports = 'compile'" in note
    assert "a loop until it converges" in note
    assert note in said.provenance["mode"].notes


def test_a_function_that_supports_eager_only_is_never_compiled():
    said = policy(decorated(supports="eager"), overridden(KEY, mode="fullgraph"))
    assert (said.requested_mode, said.mode) == ("fullgraph", "eager")


def test_no_cap_where_nothing_is_declared_and_no_note_where_nothing_is_capped():
    said = policy('mode = "fullgraph"')
    assert (said.mode, said.supports, said.notes) == ("fullgraph", None, ())
    assert policy(decorated(supports="fullgraph"), 'mode = "fullgraph"').notes == ()


def test_a_cap_raises_nothing():
    assert policy(decorated(supports="fullgraph")).mode == "compile"


def test_on_jax_mode_alone_says_how_strictly():
    assert (
        policy('mode = "fullgraph"\n[torch]\nfullgraph = false', namespace="jax").mode
        == "fullgraph"
    )
    assert policy("[torch]\nfullgraph = true", namespace="jax").mode == "compile"
