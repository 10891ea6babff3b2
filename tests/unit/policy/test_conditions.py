from __future__ import annotations

import pytest

from tests.unit.policy.building import KEY, layer_of, policy, problems_of, read
from xpolicy.policy.conditions import Condition, Facts
from xpolicy.policy.options import DEVICES
from xpolicy.policy.resolve import device_matters


def facts(python="3.12.4", **versions):
    return Facts(python, versions.get)


@pytest.mark.parametrize(
    ("wanted", "found", "holds"),
    [
        (">=2.13", "2.13.0", True),
        (">=2.13", "2.9", False),  # not by letters
        (">=2.13", "2.13.0+cu128", True),
        (">=2.13", "2.14.0.dev20260101", True),  # a nightly build is meant
        ("<2.13", "2.13.0rc1", False),
        ("~=2.13", "2.20", True),
        ("==2.*", "2.1", True),
        ("!=2.13.0", "2.13.0", False),
        (">=2,<3", "3.0", False),
        ("===2.13.0", "2.13.0", True),
    ],
)
def test_versions_are_those_of_pep_440(wanted, found, holds):
    answer, reason = Condition("versions", wanted, "torch").holds(facts(torch=found))
    assert answer is holds
    assert found in reason
    assert holds or wanted in reason
    assert Condition("python", wanted).holds(facts(python=found))[0] is holds


def test_an_absent_package_is_no_and_no_error():
    found, problems = read('[[when]]\nversions.cupy = ">=1"\nmode = "eager"')
    assert problems == []
    assert found.rules == ()
    (unmet,) = found.unmet
    assert unmet.reason == "cupy is not installed"
    assert unmet.condition == 'versions.cupy = ">=1"'
    assert unmet.layer == "project"


def test_a_version_that_is_none_is_no():
    holds, reason = Condition("versions", ">=1", "odd").holds(facts(odd="unknown"))
    assert not holds
    assert "no PEP 440 version" in reason


def test_every_unmet_condition_is_told_with_its_reason():
    text = '[[when]]\npython = ">=4"\nversions = { torch = ">=2", jax = ">=9" }\nmode = "eager"'
    (unmet,) = layer_of(text).unmet
    assert unmet.reason == "python is 3.12.4, not >=4; jax is 0.10.2, not >=9"
    assert policy(text).mode == "compile"


def test_all_conditions_must_hold():
    both = '[[when]]\npython = ">=3"\nversions.torch = ">=2"\nmode = "eager"'
    assert policy(both).mode == "eager"
    assert policy(both.replace(">=3", ">=4")).mode == "compile"
    assert policy(both.replace(">=2", ">=9")).mode == "compile"


def test_conditions_are_settled_when_the_file_is_read():
    asked = []

    def version_of(name):
        asked.append(name)
        return "2.0"

    text = '[[when]]\nversions.torch = ">=2"\nmode = "eager"'
    layer = layer_of(text, facts=Facts("3.12", version_of))
    assert asked == ["torch"]
    policy(layer)
    assert asked == ["torch"]


@pytest.mark.parametrize("device", DEVICES)
def test_device_rules_hold_on_their_device_only(device):
    text = f'[[when]]\ndevice = "{device}"\nmode = "eager"'
    layer = layer_of(text)
    assert layer.unmet == ()
    for other in (*DEVICES, None):
        assert policy(layer, device=other).mode == ("eager" if other == device else "compile")


def test_what_a_device_rule_reaches():
    text = f'[[when]]\ndevice = "cuda"\nfunctions."{KEY}".torch.mode = "eager"'
    layers = [layer_of(text), layer_of('mode = "eager"')]
    assert device_matters(layers, KEY, "torch")
    assert not device_matters(layers, KEY, "jax")
    assert not device_matters(layers, "mylib.other", "torch")
    assert not device_matters(layers[1:], KEY, "torch")


def test_the_body_of_a_block_is_that_of_a_file():
    text = f"""
[[when]]
python = ">=3"
mode = "eager"
torch.recompile-limit = 2
functions."mylib.*".mode = "fullgraph"
functions."{KEY}".torch.recompile-limit = 3
"""
    assert policy(text, key="other.f").mode == "eager"
    assert policy(text, key="mylib.f").mode == "fullgraph"
    assert policy(text).recompile_limit == 3
    assert policy(text, key="other.f").recompile_limit == 2


@pytest.mark.parametrize("key", ["requires", "when", "cache", "apply"])
def test_a_block_holds_options_namespaces_and_functions_only(key):
    (problem,) = problems_of(f'[[when]]\npython = ">=3"\n{key} = ">=0"')
    assert problem.message == f"'{key}' may not stand in [[when]]"


def test_a_block_that_does_not_hold_is_checked_for_form():
    text = '[[when]]\nversions.cupy = ">=1"\n'
    assert len(problems_of(f'{text}mode = "quick"')) == 1
    assert len(problems_of(f'{text}functions."a*".mode = "eager"')) == 1
    assert len(problems_of(f"{text}torch.options.\"cpp.cxx\" = 'x'")) == 1
    assert len(problems_of(f'{text}static-argnames = ["n"]')) == 1


@pytest.mark.parametrize("text", ["", 'mode = "eager"', "versions = {}"])
def test_a_block_without_a_condition(text):
    (problem,) = problems_of(f"[[when]]\n{text}")
    assert problem.message == "a when block without a condition"


@pytest.mark.parametrize(
    "value",
    ['"3.11"', "3.11", '""', '" "', '","', '">=x"', '[">=3"]', "true", f'">={"1" * 5000}"',
     f'">={"1" * 900}.*"'],
)  # fmt: skip
@pytest.mark.parametrize("key", ["python", "versions.torch"])
def test_what_no_specifier_is(key, value):
    (problem,) = problems_of(f'[[when]]\n{key} = {value}\nmode = "eager"')
    assert problem.severity == "error"
    assert "PEP 440" in problem.allowed


def test_a_bare_version_is_told_how_to_be_a_condition():
    (problem,) = problems_of('[[when]]\npython = "3.11"\nmode = "eager"')
    assert problem.fix == 'write ">=3.11" for that or later, "==3.11.*" for exactly that'


@pytest.mark.parametrize("name", ["", "torch ", "a/b", "../torch", "torch>=2", "-x"])
def test_what_no_distribution_is(name):
    (problem,) = problems_of(f'[[when]]\nversions."{name}" = ">=2"\nmode = "eager"')
    assert problem.message == "not the name of a distribution"


@pytest.mark.parametrize(
    ("given", "meant"),
    [("gpu", "cuda or rocm"), ("GPU", "cuda or rocm"), ("CUDA", "cuda"), ("cudaa", "cuda"),
     ("nvidia", "cuda"), ("metal", "mps"), ("quantum", None)],
)  # fmt: skip
def test_other_words_for_devices(given, meant):
    (problem,) = problems_of(f'[[when]]\ndevice = "{given}"\nmode = "eager"')
    assert problem.nearest == meant
    assert problem.allowed == '"cpu", "cuda", "rocm", "xpu", "tpu", "mps"'


def test_a_list_of_devices_is_several_blocks():
    (problem,) = problems_of('[[when]]\ndevice = ["cuda", "cpu"]\nmode = "eager"')
    assert problem.fix == "write one block for each device"
