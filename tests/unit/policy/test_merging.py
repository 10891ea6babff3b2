"""Scalars and lists replace, tables merge by key, "unset" withdraws."""

from __future__ import annotations

import pytest

from tests.unit.policy.building import KEY, layer_of, overridden, policy, problems_of


def two(low, high, **how):
    return policy(layer_of(low, "user"), layer_of(high, "file"), **how)


def test_scalars_replace():
    assert two("torch.recompile-limit = 3", "torch.recompile-limit = 5").recompile_limit == 5


def test_tables_merge_by_key():
    low = "[torch.options]\nmax_autotune = true\nepilogue_fusion = true"
    high = "[torch.options]\nepilogue_fusion = false\nshape_padding = true"
    assert two(low, high).options == {
        "max_autotune": True,
        "epilogue_fusion": False,
        "shape_padding": True,
    }
    xla = two(
        "[jax.compiler-options]\nxla_a = 1\nxla_b = 1",
        "[jax.compiler-options]\nxla_b = true",
        namespace="jax",
    )
    assert xla.compiler_options == {"xla_a": 1, "xla_b": True}


def test_lists_replace():
    low, high = 'jax.donate-argnames = ["a", "b"]', 'jax.donate-argnames = ["c"]'
    assert two(low, high, namespace="jax").donate_argnames == ("c",)
    # also as an option inside a table
    low, high = "torch.options.x = [1, 2]", "torch.options.x = [3]"
    assert two(low, high).options == {"x": [3]}


@pytest.mark.parametrize("spelling", ["max-autotune", "max_autotune"])
def test_an_entry_has_one_name_whichever_way_it_is_spelt(spelling):
    said = two("torch.options.max_autotune = true", f"torch.options.{spelling} = false")
    assert said.options == {"max_autotune": False}


def test_nested_and_dotted_entries_are_one():
    said = two("[torch.options.triton]\nunique_kernel_names = true",
               'torch.options."triton.unique_kernel_names" = false')  # fmt: skip
    assert said.options == {"triton.unique_kernel_names": False}


def test_unset_withdraws_everything_below():
    layers = [
        layer_of("torch.recompile-limit = 3", "user"),
        layer_of("torch.recompile-limit = 4", "project"),
        layer_of('torch.recompile-limit = "unset"', "file"),
    ]
    assert policy(*layers).recompile_limit is None
    assert policy(*layers, overridden(torch={"recompile_limit": 6})).recompile_limit == 6


def test_unset_lists_and_entries_and_tables():
    said = two('jax.donate-argnames = ["a"]', 'jax.donate-argnames = "unset"', namespace="jax")
    assert said.donate_argnames is None
    low = "[torch.options]\na = 1\nb = 2"
    assert two(low, 'torch.options.a = "unset"').options == {"b": 2}
    assert two(low, 'torch.options = "unset"').options is None
    assert two('torch.options = "unset"', low).options == {"a": 1, "b": 2}
    # an entry that comes after the table was withdrawn stands alone
    above = layer_of("torch.options.c = 3", "environment")
    assert policy(
        layer_of(low, "user"), layer_of('torch.options = "unset"', "file"), above
    ).options == {"c": 3}


@pytest.mark.parametrize(
    ("option", "builtin"),
    [("mode", "compile"), ("on-failure", "error"), ("torch.on-recompile-limit", "warn")],
)
def test_unset_leaves_what_is_built_in(option, builtin):
    said = two(f'{option} = "eager"', f'{option} = "unset"')
    name = option.rpartition(".")[2].replace("-", "_")
    assert said.values[name] == builtin
    assert said.provenance[name].winner.value == "unset"
    assert any("built-in" in note for note in said.provenance[name].notes)


def test_unset_is_as_if_nothing_below_had_been_said():
    assert two('mode = "fullgraph"', 'mode = "unset"') == policy()
    assert two("torch.options.a = 1", 'torch.options = "unset"').fingerprint == policy().fingerprint


@pytest.mark.parametrize(
    "text",
    ["triton.cudagraphs = true", '"triton.cudagraphs" = true', "triton = { cudagraphs = true }"],
)
def test_triton_cudagraphs_is_a_spelling_of_cudagraphs(text):
    said = policy(f"[torch.options]\n{text}")
    assert (said.cudagraphs, said.options) == (True, None)
    assert (
        two("torch.cudagraphs = true", "torch.options.triton.cudagraphs = false").cudagraphs
        is False
    )
    assert (
        two("torch.options.triton.cudagraphs = false", "torch.cudagraphs = true").cudagraphs is True
    )
    assert two(f"[torch.options]\n{text}", 'torch.cudagraphs = "unset"').cudagraphs is None


def test_the_two_spellings_of_cudagraphs_may_not_differ_in_one_rule():
    text = "[torch]\ncudagraphs = {one}\noptions = {{ triton.cudagraphs = true }}"
    assert problems_of(text.format(one="true")) == []
    (problem,) = problems_of(text.format(one="false"))
    assert "in the same rule" in problem.message
    assert problem.key == "torch.cudagraphs"


def test_a_change_of_backend_drops_what_it_does_not_take_and_says_so():
    low = '[torch]\ncompile-mode = "max-autotune"\ncudagraphs = true\noptions = { max_autotune = true }'
    said = two(low, 'torch.backend = "aot_eager"')
    assert (said.compile_mode, said.cudagraphs, said.options) == (None, None, None)
    dropped = [note for note in said.notes if "dropped" in note]
    assert len(dropped) == 3
    assert all("aot_eager" in note for note in dropped)
    assert any(note.startswith("torch.compile-mode dropped") for note in dropped)
    # and each option's own history says it
    for name in ("compile_mode", "cudagraphs", "options.max_autotune"):
        assert any("dropped" in note for note in said.provenance[name].notes)
    # It takes no part in what the policy is.
    assert said == policy('torch.backend = "aot_eager"')


@pytest.mark.parametrize("backend", ["inductor", "unset"])
def test_inductor_drops_nothing(backend):
    said = two("torch.options.max_autotune = true", f'torch.backend = "{backend}"')
    assert said.options == {"max_autotune": True}
    assert said.notes == ()


def test_one_rule_that_sets_both_is_an_error():
    text = '[torch]\nbackend = "eager"\ncompile-mode = "default"'
    (problem,) = problems_of(text)
    assert problem.severity == "error"
    assert problem.key == "torch.compile-mode"
    split = f'[torch]\nbackend = "eager"\n[functions."{KEY}".torch]\ncompile-mode = "default"'
    assert problems_of(split) == []


def test_one_rule_that_sets_an_entry_twice_is_an_error():
    assert problems_of('torch.options = { "a-b" = 1, a_b = 1 }', "file") == []
    (problem,) = problems_of('torch.options = { "a-b" = 1, a_b = true }', "file")
    assert "twice" in problem.message


def test_compile_mode_stays_beside_options_for_the_backend_to_expand():
    said = two('torch.compile-mode = "max-autotune"', "torch.options.max_autotune = false")
    assert said.compile_mode == "max-autotune"
    assert said.options == {"max_autotune": False}
