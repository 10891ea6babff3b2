"""Every file in `configs/` is one that its user can take as it stands."""

from __future__ import annotations

import inspect
import shutil
import tomllib
from pathlib import Path

import pytest

import xpolicy

CONFIGS = Path(__file__).parents[2] / "configs"
# What tests observed is no policy.
FILES = sorted(file for file in CONFIGS.rglob("*.toml") if file.parent.name != "ratchets")
APPLICATION = CONFIGS / "application"
LIBRARY = CONFIGS / "library" / "mylib" / "xpolicy-library.toml"
# The rest are named in XPOLICY_FILE.
NAMED = [file for file in FILES if file != LIBRARY and file.parent != APPLICATION]

PRODUCTION = {
    "on_failure": "eager",
    "dynamic": True,
    "cudagraphs": False,
    "recompile_limit": 4,
    "on_recompile_limit": "error",
    "graph_break_limit": 2,
    "on_graph_break_limit": "warn",
}
TUNED = {
    "compile_mode": "max-autotune",
    "cudagraphs": False,
    "dynamic": False,
    "options": {"max_autotune_gemm_search_space": "EXHAUSTIVE"},
}

EXTRA = "array-api-extra"

# file, function, namespace, device, mode, options
CASES = [
    (EXTRA, "array_api_extra.pad", "torch", None, "compile", {"on_recompile_limit": "eager"}),
    (EXTRA, "array_api_extra.pad", "jax", None, "compile", {"static": "auto"}),
    ("demo", "demo.classify", "torch", None, "fullgraph", {"recompile_limit": 1, "dynamic": False}),
    ("demo", "demo.classify", "jax", None, "compile", {"recompile_limit": 1}),
    ("demo", "demo.other", "torch", None, "compile", {"fullgraph": None, "on_failure": "error"}),
    ("eager", "mylib.f", "torch", None, "eager", {}),
    ("eager", "mylib.f", "jax", "cuda", "eager", {}),
    ("production", "mylib.f", "torch", None, "compile", PRODUCTION),
    ("production", "mylib.f", "jax", None, "compile", {"recompile_limit": 16}),
    ("production", "mylib.report.daily", "torch", None, "eager", {}),
    ("production", "mylib.search", "torch", None, "compile", {"on_recompile_limit": "eager"}),
    ("production", "mylib.search", "jax", None, "compile", {"on_recompile_limit": "error"}),
    ("ci-fullgraph", "mylib.f", "torch", None, "fullgraph", {"backend": "aot_eager"}),
    ("ci-fullgraph", "mylib.f", "jax", None, "fullgraph", {"on_failure": "error"}),
    ("ci-fullgraph", "mylib.legacy.g", "torch", None, "compile", {"graph_break_limit": 3}),
    ("gpu-max-autotune", "mylib.f", "torch", "cuda", "compile", TUNED),
    ("gpu-max-autotune", "mylib.f", "torch", "cpu", "compile", dict.fromkeys(TUNED)),
    (
        "gpu-max-autotune",
        "mylib.step",
        "jax",
        "cuda",
        "compile",
        {"donate_argnames": ("state",), "compiler_options": {"xla_gpu_autotune_level": 4}},
    ),
    ("gpu-max-autotune", "mylib.step", "jax", "cpu", "compile", {"compiler_options": None}),
]


def name_of(file):
    return str(file.relative_to(CONFIGS))


@pytest.fixture
def no_project(monkeypatch):
    monkeypatch.setenv("XPOLICY_PROJECT", "none")


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_nothing_is_wrong_with_it(file):
    assert list(xpolicy.check(file)) == []


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_it_says_first_who_would_use_it_and_explains_what_it_sets(file):
    lines = file.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# For ")
    settings = [line for line in lines if " = " in line and not line.startswith(("#", "name", "v"))]
    # Conditions speak for themselves, and so do lines that repeat what the line above explains.
    explained = [line for line in settings if " # " in line]
    assert len(explained) * 2 >= len(settings)


@pytest.mark.usefixtures("no_project")
@pytest.mark.parametrize(
    ("file", "function", "namespace", "device", "mode", "options"),
    CASES,
    ids=[" ".join(filter(None, case[:4])) for case in CASES],
)
def test_it_decides_what_it_says(monkeypatch, file, function, namespace, device, mode, options):
    monkeypatch.setenv("XPOLICY_FILE", str(CONFIGS / f"{file}.toml"))
    xpolicy.reload()
    policy = xpolicy.resolve(function, namespace, device=device)
    assert policy.mode == mode
    told = getattr(policy, namespace)
    assert {name: getattr(told, name) for name in options} == options


@pytest.mark.usefixtures("no_project")
@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("file", NAMED, ids=name_of)
def test_the_installed_compilers_take_all_of_it(monkeypatch, file, device):
    import jax
    import torch  # noqa: F401  # what explain expands and checks against

    monkeypatch.setenv("XPOLICY_FILE", str(file))
    xpolicy.reload()
    for namespace in ("torch", "jax"):
        told = xpolicy.explain("mylib.step", namespace, device=device)
        assert [note for note in told.notes if "error" in note] == []
        # Which options XLA has is known to XLA alone, when it compiles.
        given = told.policy.values.get("compiler_options")
        assert jax.jit(lambda x: x + 1, compiler_options=given)(1) == 2


def test_arguments_that_are_told_to_jax_are_there(monkeypatch, no_project):
    import array_api_extra

    monkeypatch.setenv("XPOLICY_FILE", str(CONFIGS / f"{EXTRA}.toml"))
    xpolicy.reload()
    told = 0
    with xpolicy.apply(array_api_extra) as applied:
        for key in applied.keys:
            function = getattr(array_api_extra, key.rpartition(".")[2])
            named = xpolicy.resolve(function, "jax").static_argnames or ()
            told += len(named)
            assert set(named) <= set(inspect.signature(function).parameters), key
    assert told > 20


def test_every_file_that_is_named_in_a_variable_has_such_a_case():
    assert {file.stem for file in NAMED} == {case[0] for case in CASES}


def test_a_block_for_new_versions_of_torch_waits_for_one(monkeypatch, tmp_path, no_project):
    text = (CONFIGS / "gpu-max-autotune.toml").read_text(encoding="utf-8")

    def limit_if_torch_is(wanted):
        file = tmp_path / "gpu.toml"
        file.write_text(text.replace(">=2.13", wanted), encoding="utf-8")
        monkeypatch.setenv("XPOLICY_FILE", str(file))
        xpolicy.reload()
        return xpolicy.resolve("mylib.f", "torch", device="cuda").torch.recompile_limit

    assert limit_if_torch_is(">=0") == 2
    assert limit_if_torch_is(">=99") is None


def test_eager_beats_what_a_project_asks_of_one_function(monkeypatch, tmp_path):
    project = tmp_path / "xpolicy.toml"
    project.write_text('[functions."mylib.f".torch]\nmode = "fullgraph"\n')
    monkeypatch.setenv("XPOLICY_PROJECT", str(tmp_path))
    xpolicy.reload()
    assert xpolicy.resolve("mylib.f", "torch").mode == "fullgraph"
    monkeypatch.setenv("XPOLICY_FILE", str(CONFIGS / "eager.toml"))
    xpolicy.reload()
    assert xpolicy.resolve("mylib.f", "torch").mode == "eager"


def test_the_line_that_eager_offers_works(monkeypatch, tmp_path):
    text = (CONFIGS / "eager.toml").read_text(encoding="utf-8")
    offered = text.replace('# [functions."mylib.f"]', '[functions."mylib.f"]')
    offered = offered.replace('# mode = "compile"', 'mode = "compile"')
    file = tmp_path / "mostly-eager.toml"
    file.write_text(offered, encoding="utf-8")
    monkeypatch.setenv("XPOLICY_PROJECT", "none")
    monkeypatch.setenv("XPOLICY_FILE", str(file))
    xpolicy.reload()
    assert xpolicy.resolve("mylib.f", "torch").mode == "compile"
    assert xpolicy.resolve("mylib.g", "torch").mode == "eager"


def test_the_application_is_a_project(monkeypatch):
    monkeypatch.setenv("XPOLICY_PROJECT", str(APPLICATION))
    xpolicy.reload()
    scale = xpolicy.resolve("mylib.scale", "torch")
    assert (scale.mode, scale.torch.cudagraphs, scale.torch.recompile_limit) == (
        "fullgraph",
        True,
        4,
    )
    assert xpolicy.resolve("mylib.scale", "jax").mode == "fullgraph"  # exact beats the prefix
    assert xpolicy.resolve("mylib.other", "jax").mode == "eager"
    assert xpolicy.resolve("other.f", "jax").mode == "compile"
    tuned = xpolicy.resolve("mylib.other", "torch", device="cuda").torch
    assert tuned.compile_mode == "max-autotune"


def test_the_application_file_is_one_for_packaging_tools_too():
    text = (APPLICATION / "pyproject.toml").read_text(encoding="utf-8")
    assert tomllib.loads(text)["project"]["name"] == "application"


def test_the_library_file_works_from_inside_its_package(monkeypatch, tmp_path, no_project):
    package = tmp_path / "mylib"
    package.mkdir()
    (package / "__init__.py").touch()
    shutil.copy(LIBRARY, package)
    monkeypatch.syspath_prepend(str(tmp_path))
    xpolicy.reload()

    power = xpolicy.resolve("mylib.linalg.power", "torch")
    assert (power.mode, power.supports, power.static_argnames) == ("compile", "fullgraph", ("n",))
    assert xpolicy.resolve("mylib.anything", "torch").mode == "eager"
    assert xpolicy.resolve("mylib.special.gamma", "jax").jax.inline is True

    # A user opts in for the package; the author's facts stand.
    monkeypatch.setenv("XPOLICY_TOML", 'functions."mylib.*".mode = "fullgraph"')
    xpolicy.reload()
    assert xpolicy.resolve("mylib.anything", "torch").mode == "fullgraph"
    assert xpolicy.resolve("mylib.io.load", "torch").mode == "eager"
    capped = xpolicy.resolve("mylib.optimize.minimize", "torch")
    assert (capped.mode, capped.requested_mode) == ("compile", "fullgraph")
    assert capped.reason == "the number of iterations depends on the data"
