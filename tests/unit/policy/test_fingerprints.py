from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys

import pytest

from tests.unit.policy.building import KEY, TABLE, decorated, layer_of, overridden, policy
from xpolicy.policy.resolve import fingerprint

# One other value for every option.
OTHER = {
    "boolean": True,
    "integer": 7,
    "string": "eager",
    "list": ["x"],
    "table": {"x": 1},
}


def settings(namespace):
    for row in TABLE.of(namespace).values():
        value = OTHER.get(row.kind)
        if row.kind == "choice":
            value = next(c for c in row.choices if c != row.builtin)
        yield row, value


@pytest.mark.parametrize("namespace", ["torch", "jax", "numpy"])
def test_every_option_changes_it_except_reason(namespace):
    base = policy(namespace=namespace)
    seen = {base.fingerprint}
    for row, value in settings(namespace):
        given = {namespace: {row.name: value}}
        said = policy(overridden(KEY, **given), namespace=namespace)
        if row.name == "reason":
            assert said.fingerprint == base.fingerprint
            continue
        assert said.fingerprint not in seen, row.name
        seen.add(said.fingerprint)


def test_values_that_python_calls_equal_differ():
    texts = ["1", "true", "1.0", '"1"', "[1]", "[true]", "0", "false", "0.0", "-0.0", '""', "[]"]
    layers = [layer_of(f"torch.options.x = {text}", "file") for text in texts]
    policies = [policy(layer) for layer in layers]
    assert len({said.fingerprint for said in policies}) == len(texts)
    assert len(set(policies)) == len(texts)


def test_where_a_value_stands_is_no_part_of_it():
    one = policy('mode = "eager"')
    two = policy(
        layer_of('# moved\n\n\n[torch]\nmode = "eager"', "environment", label="other.toml")
    )
    assert one == two
    assert hash(one) == hash(two)
    assert one.fingerprint == two.fingerprint
    assert one.provenance != two.provenance
    assert one.fingerprint == policy('mode = "eager"', key="other.f").fingerprint


def test_the_order_of_entries_is_no_part_of_it():
    one = policy(layer_of("torch.options = {a = 1, b = {c = 2, d = 3}}", "file"))
    two = policy(layer_of("torch.options = {b = {d = 3, c = 2}, a = 1}", "file"))
    assert one.fingerprint == two.fingerprint


def test_namespaces_differ():
    assert policy(namespace="numpy").fingerprint != policy(namespace="cupy").fingerprint


def test_it_is_short_and_plain():
    text = policy().fingerprint
    assert len(text) == 16
    assert int(text, 16) >= 0


CHILD = """
import sys
from tests.unit.policy.building import decorated, layer_of, policy
class Mesh: ...
author = decorated(jax={"static_argnums": {"b", "a", "c"}, "in_shardings": Mesh(), "f": len,
                        "static_argnames": {"n", "m", "k"}, "device": {1: "x", "y": (2, None)}})
layer = layer_of('[jax]\\ncompiler-options = {b = 1, a = true}\\ndonate-argnames = ["z", "a"]', "file")
print(policy(author, layer, namespace="jax").fingerprint)
"""


def test_it_is_the_same_in_every_process():
    found = set()
    for seed in ("0", "1", "4711"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        run = subprocess.run(
            [sys.executable, "-c", CHILD],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(run.stdout.strip())
    assert len(found) == 1


def test_keywords_that_only_code_can_give_count():
    base = policy(decorated(), namespace="jax").fingerprint
    one = policy(decorated(jax={"static_argnums": (1,)}), namespace="jax").fingerprint
    two = policy(decorated(jax={"static_argnums": (2,)}), namespace="jax").fingerprint
    sets = {policy(decorated(jax={"x": x}), namespace="jax").fingerprint for x in ({1}, {2}, (1,))}
    assert len({base, one, two} | sets) == 6


@pytest.mark.parametrize(
    "odd",
    [[10**5000], float("nan"), {1: 2, "a": 3}, {(1, 2): 3}, str.upper, object(), b"x", 1j],
    ids=lambda odd: type(odd).__name__,
)
def test_any_python_object_has_one(odd):
    assert fingerprint("jax", {}, {"odd": odd}) == fingerprint("jax", {}, {"odd": odd})


def test_a_policy_pickles_and_copies():
    said = policy(decorated(supports="compile", reason="why"), 'mode = "fullgraph"',
                  '[torch.options]\nmax_autotune = true')  # fmt: skip
    for again in (
        *(pickle.loads(pickle.dumps(said, n)) for n in range(2, pickle.HIGHEST_PROTOCOL + 1)),
        copy.copy(said),
        copy.deepcopy(said),
    ):
        assert again == said
        assert hash(again) == hash(said)
        assert again.provenance == said.provenance
        assert (again.notes, again.requested_mode) == (said.notes, said.requested_mode)
        assert again.torch.options == {"max_autotune": True}
    for again in (pickle.loads(pickle.dumps(said.torch)), copy.copy(said.torch)):
        assert again.options == {"max_autotune": True}


def test_a_layer_pickles():
    layer = layer_of(
        '[[when]]\ndevice = "cpu"\nmode = "eager"\n[[when]]\npython = ">=9"\nmode = "eager"'
    )
    again = pickle.loads(pickle.dumps(layer))
    assert policy(again, device="cpu") == policy(layer, device="cpu")
    assert again.unmet[0].reason == layer.unmet[0].reason
    assert again.devices


def test_options_read_as_attributes():
    said = policy("torch.recompile-limit = 3")
    assert said.recompile_limit == said.torch.recompile_limit == 3
    assert "recompile_limit" in list(said.torch)
    with pytest.raises(AttributeError, match="has no option 'recompile_limits'"):
        _ = said.recompile_limits
    with pytest.raises(AttributeError, match="has no option 'inline'"):
        _ = said.torch.inline
    assert not hasattr(said, "jax")
    assert json.dumps(said.mode) == '"compile"'
