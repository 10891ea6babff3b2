"""Who set a value, where, by which rule, and whom they beat."""

from __future__ import annotations

from tests.unit.policy.building import KEY, decorated, layer_of, overridden, policy
from xpolicy.sources.positions import located


def told(said, option):
    history = said.provenance[option]
    return [(c.value, c.layer, c.rule) for c in (history.winner, *history.beaten)]


def test_the_winner_and_all_that_it_beat_nearest_first():
    project = f"""
mode = "compile"
torch.mode = "eager"
[functions."mylib.*"]
mode = "fullgraph"
[functions."{KEY}".torch]
mode = "compile"
[functions."other.*"]
mode = "eager"
"""
    said = policy(
        decorated(mode="eager"),
        layer_of(project),
        layer_of('torch.mode = "eager"', "environment"),
        overridden("mylib.*", mode="compile"),
    )
    assert told(said, "mode") == [
        ("compile", "runtime", 'functions."mylib.*"'),
        ("eager", "environment", "torch"),
        ("compile", "project", f'functions."{KEY}".torch'),
        ("fullgraph", "project", 'functions."mylib.*"'),
        ("eager", "project", "torch"),
        ("compile", "project", "all functions"),
        ("eager", "author", f'functions."{KEY}"'),
        ("compile", "built-in", "all functions"),
    ]


def test_where_it_stands():
    said = policy(f'# first\n[functions."{KEY}".torch]\nrecompile-limit = 3')
    origin = said.provenance["recompile_limit"].winner.origin
    assert str(located(origin)) == "xpolicy.toml:3:19"
    author = policy(decorated(torch={"recompile_limit": 3})).provenance["recompile_limit"]
    assert str(author.winner.origin) == "mylib/linalg.py:7"
    runtime = policy(overridden(mode="eager")).provenance["mode"].winner
    assert (str(runtime.origin), runtime.origin.kind) == ("app.py:3", "runtime")


def test_the_condition_is_told():
    text = '[[when]]\npython = ">=3"\nversions.torch = ">=2"\nmode = "eager"'
    winner = policy(text).provenance["mode"].winner
    assert winner.condition == 'python = ">=3", versions.torch = ">=2"'


def test_entries_of_a_table_have_histories_of_their_own():
    low = layer_of("[torch.options]\na = 1\nb = 1", "file", label="low.toml")
    high = layer_of("[torch.options]\nb = 2", "file", label="high.toml")
    said = policy(low, high)
    assert [c[0] for c in told(said, "options.b")] == [2, 1]
    assert [c[0] for c in told(said, "options.a")] == [1]
    assert str(located(said.provenance["options.a"].winner.origin)) == "low.toml:2:5"
    assert str(located(said.provenance["options.b"].winner.origin)) == "high.toml:2:5"


def test_an_entry_that_was_respelt_keeps_its_place():
    text = (
        "[torch.options]\nmax-autotune = true\n"
        "triton.force_cudagraphs = 1\ntriton.cudagraphs = true\ntriton.x-y = 3\n"
    )
    said = policy(layer_of(text, "file"))
    places = {
        name: str(located(said.provenance[name].winner.origin))
        for name in ("options.max_autotune", "cudagraphs", "options.triton.x_y",
                     "options.triton.force_cudagraphs")
    }  # fmt: skip
    assert places == {
        "options.max_autotune": "xpolicy.toml:2:16",
        "options.triton.force_cudagraphs": "xpolicy.toml:3:27",
        "cudagraphs": "xpolicy.toml:4:21",
        "options.triton.x_y": "xpolicy.toml:5:14",
    }


def test_a_withdrawn_value_is_still_told():
    said = policy(
        layer_of("torch.options.a = 1", "user"), layer_of('torch.options = "unset"', "file")
    )
    assert [(value, layer) for value, layer, _ in told(said, "options.a")] == [
        ("unset", "file"),
        (1, "user"),
    ]


def test_a_broad_supports_that_was_not_applied_is_among_the_beaten():
    said = policy(decorated(supports="eager"), 'supports = "fullgraph"')
    assert told(said, "supports") == [
        ("eager", "author", f'functions."{KEY}"'),
        ("fullgraph", "project", "all functions"),
    ]
