"""The options of jax as data: names, types, and what a project file may set."""

from __future__ import annotations

import tomllib
from importlib import resources

import pytest
from pydantic import ValidationError

from xpolicy.backends.jax.options import SPEC, JaxOptions, allowed, normalise, refused
from xpolicy.policy.options import GeneralOptions


def test_the_options_and_their_kinds():
    assert {name: row.kind for name, row in SPEC.options.items()} == {
        "recompile_limit": "integer",
        "on_recompile_limit": "choice",
        "inline": "boolean",
        "donate_argnames": "list",
        "keep_unused": "boolean",
        "compiler_options": "table",
        "static": "choice",
    }
    assert SPEC.options["static"].choices == ("auto",)
    assert SPEC.options["compiler_options"].allow_listed
    assert not any(row.capability for row in SPEC.options.values())
    assert not set(SPEC.options) & set(GeneralOptions.model_fields)


def test_every_option_may_be_unset_and_none_has_a_builtin():
    for row in SPEC.options.values():
        read = JaxOptions.model_validate({row.key: "unset"})
        assert getattr(read, row.name) == "unset"
        # Limits are unset, so that none applies; on_recompile_limit is the one default.
        assert row.builtin == ("warn" if row.name == "on_recompile_limit" else None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("inline", 1),
        ("inline", "yes"),
        ("donate-argnames", "x"),
        ("donate-argnames", [1]),
        ("keep-unused", "true"),
        ("compiler-options", {"xla_a": [1]}),
        ("compiler-options", {"xla_a": {"b": 1}}),
        ("static", "all"),
        ("static", True),
        ("recompile-limit", 0),
        ("keep_unused", True),
    ],
)
def test_wrong_types_and_spellings_are_refused(key, value):
    with pytest.raises(ValidationError):
        JaxOptions.model_validate({key: value})


@pytest.mark.parametrize("value", [True, 1, 1.5, "text"])
def test_compiler_options_keep_their_types(value):
    read = JaxOptions.model_validate({"compiler-options": {"xla_a": value}})
    assert type(read.compiler_options["xla_a"]) is type(value)


def test_one_name_for_a_compiler_option():
    values = {"compiler_options": {"xla-cpu-enable-fast-math": True, "xla_cpu_max_isa": "AVX2"}}
    assert normalise(values) == []
    assert values["compiler_options"] == {
        "xla_cpu_enable_fast_math": True,
        "xla_cpu_max_isa": "AVX2",
    }


@pytest.mark.parametrize(("first", "second"), [(True, False), (True, 1), (1, 1.0)])
def test_two_spellings_that_disagree(first, second):
    values = {"compiler_options": {"xla-a": first, "xla_a": second}}
    ((option, message),) = normalise(values)
    assert option == "compiler_options"
    assert "xla_a" in message


def test_two_spellings_that_agree():
    values = {"compiler_options": {"xla-a": 1, "xla_a": 1}}
    assert normalise(values) == []
    assert values == {"compiler_options": {"xla_a": 1}}


@pytest.mark.parametrize("value", ["unset", None])
def test_nothing_to_normalise(value):
    values = {"compiler_options": value, "inline": True}
    assert normalise(values) == []
    assert values == {"compiler_options": value, "inline": True}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("xla_dump_to", "writes files"),
        ("xla_dump_hlo_as_text", "writes files"),
        ("xla_gpu_dump_llvmir", "writes files"),
        ("xla_gpu_dump_autotune_results_to", "writes files"),
        ("xla_gpu_kernel_cache_file", "writes files"),
        ("xla_gpu_per_fusion_autotune_cache_dir", "writes files"),
        ("xla_gpu_cuda_data_dir", "reads files or folders"),
        ("xla_gpu_load_autotune_results_from", "reads files or folders"),
        ("xla_gpu_ptx_file", "reads files or folders"),
        ("xla_gpu_llvm_ir_file", "reads files or folders"),
        ("xla_gpu_target_config_filename", "reads files or folders"),
        ("xla_gpu_pgle_profile_file_or_directory_path", "reads files or folders"),
        ("xla_gpu_ptx_compiler_extra_flags", "another program"),
        ("xla_backend_extra_options", "another program"),
        ("xla_gpu_executable_terminate_timeout_seconds", "end or stall"),
        ("xla_disable_all_hlo_passes", "wrong"),
        ("xla_something_new", "not on the reviewed list"),
        ("", "not on the reviewed list"),
    ],
)
def test_what_a_project_file_may_not_set(name, said):
    assert said in refused("compiler_options", name)


def test_what_a_project_file_may_set():
    assert all(refused("compiler_options", name) is None for name in allowed())
    assert refused("donate_argnames", "xla_dump_to") is None  # no table of compiler options


def test_the_list_is_in_order():
    text = resources.files("xpolicy.backends.jax").joinpath("allowed_compiler_options.toml")
    groups = tomllib.loads(text.read_text(encoding="utf-8"))
    names = [name for group in groups["allowed"] for name in group["names"]]
    assert len(names) == len(set(names))
    assert all(group["about"] for group in groups["allowed"])
    assert all(group["reason"] and group["patterns"] for group in groups["left-out"])
    # Nothing allowed is also described as left out: a reader could not tell which holds.
    for name in names:
        assert not any(
            word in name for word in ("dump", "_file", "_dir", "_path", "_from", "timeout", "crash")
        )


def test_the_namespace():
    assert (SPEC.name, SPEC.aliases, SPEC.strict_option) == ("jax", ("jax.numpy",), None)
