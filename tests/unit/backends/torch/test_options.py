"""The option model, its spelling rules and its allow-list, without torch."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pydantic import ValidationError

from xpolicy.backends.torch.options import (
    SPEC,
    TorchOptions,
    dropped,
    normalise,
    refused,
    reviewed,
)


def test_importing_the_backend_imports_no_torch() -> None:
    code = (
        "import sys; from xpolicy.backends.torch import backend;"
        "assert backend.version() is None; assert backend.disabled_by() is None;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_option_reads_from_its_toml_name_and_from_unset() -> None:
    for row in SPEC.options.values():
        if not row.capability:
            model = TorchOptions.model_validate({row.key: "unset"})
            assert getattr(model, row.name) == "unset"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("fullgraph", "yes"),
        ("fullgraph", 1),
        ("dynamic", "auto"),
        ("compile-mode", "fast"),
        ("recompile-limit", 0),
        ("graph-break-limit", -1),
        ("on-graph-break-limit", "ignore"),
        ("on_graph_break_limit", "warn"),
        ("options", []),
        ("cudagraphs", "on"),
        ("backend", 3),
    ],
)
def test_wrong_types_and_names_are_refused(key: str, value: object) -> None:
    with pytest.raises(ValidationError):
        TorchOptions.model_validate({key: value})


def test_kinds_in_the_option_table() -> None:
    kinds = {name: row.kind for name, row in SPEC.options.items()}
    assert kinds == {
        "recompile_limit": "integer",
        "on_recompile_limit": "choice",
        "fullgraph": "boolean",
        "dynamic": "boolean",
        "backend": "string",
        "compile_mode": "choice",
        "options": "table",
        "cudagraphs": "boolean",
        "graph_break_limit": "integer",
        "on_graph_break_limit": "choice",
    }
    assert SPEC.options["options"].allow_listed
    assert SPEC.options["graph_break_limit"].minimum == 0
    assert SPEC.options["recompile_limit"].minimum == 1


def test_nested_tables_and_dashes_become_torch_names() -> None:
    values = {"options": {"triton": {"max-tiles": 2}, "max-autotune": True, "cpp.threads": 2}}
    assert normalise(values) == []
    assert values == {"options": {"triton.max_tiles": 2, "max_autotune": True, "cpp.threads": 2}}


@pytest.mark.parametrize(
    "options",
    [{"triton.cudagraphs": True}, {"triton": {"cudagraphs": True}}],
)
def test_triton_cudagraphs_is_a_spelling_of_cudagraphs(options: dict[str, object]) -> None:
    values: dict[str, object] = {"options": {**options, "max_autotune": True}}
    assert normalise(values) == []
    assert values == {"options": {"max_autotune": True}, "cudagraphs": True}
    alone: dict[str, object] = {"options": dict(options)}
    normalise(alone)
    assert alone == {"cudagraphs": True}


def test_both_spellings_of_cudagraphs_contradict_only_if_they_differ() -> None:
    same = {"cudagraphs": True, "options": {"triton.cudagraphs": True}}
    assert normalise(same) == []
    differ = {"cudagraphs": False, "options": {"triton.cudagraphs": True}}
    ((option, message),) = normalise(differ)
    assert option == "cudagraphs"
    assert "False" in message
    assert "True" in message


def test_one_name_in_two_spellings_contradicts_only_if_they_differ() -> None:
    assert normalise({"options": {"max-autotune": True, "max_autotune": True}}) == []
    ((option, _),) = normalise({"options": {"max-autotune": True, "max_autotune": False}})
    assert option == "options.max_autotune"
    ((option, _),) = normalise({"options": {"a.b": 1, "a": {"b": 2}}})
    assert option == "options.a.b"


def test_an_option_is_withdrawn_entry_by_entry_or_whole() -> None:
    values = {"options": {"triton.cudagraphs": "unset", "max_autotune": "unset"}}
    assert normalise(values) == []
    assert values == {"options": {"max_autotune": "unset"}, "cudagraphs": "unset"}
    whole = {"options": "unset"}
    assert normalise(whole) == []
    assert whole == {"options": "unset"}


@pytest.mark.parametrize("backend", [None, "inductor", "unset"])
def test_inductor_drops_nothing(backend: str | None) -> None:
    assert dropped({"backend": backend, "options": {"a": 1}, "cudagraphs": True}) == {}


def test_other_backends_drop_what_only_inductor_takes() -> None:
    values = {"backend": "eager", "options": {"a": 1}, "cudagraphs": None, "compile_mode": "lite"}
    assert set(dropped(values)) == {"options", "compile_mode"}
    assert all("eager" in reason for reason in dropped(values).values())


def test_one_rule_that_sets_a_backend_and_what_it_does_not_take_contradicts_itself() -> None:
    found = normalise({"backend": "eager", "options": {"max_autotune": True}})
    assert [option for option, _ in found] == ["options"]
    assert normalise({"backend": "eager", "cudagraphs": "unset"}) == []


@pytest.mark.parametrize(
    "name",
    [
        "cpp.cxx",
        "cpp.march",
        "cuda.cuda_cxx",
        "cuda.anything-new",
        "rocm.rocm_home",
        "trace.enabled",
        "trace.debug_dir",
        "aot_inductor.output_path",
        "global_cache_dir",
        "compile_threads",
        "post_grad_custom_pre_pass",
        "use_aoti",
        "guard_filter_fn",
    ],
)
def test_options_that_start_programs_or_write_files_are_refused_with_a_reason(name: str) -> None:
    reason = refused("options", name)
    assert reason
    assert "not been reviewed" not in reason


def test_an_option_nobody_reviewed_is_refused() -> None:
    assert refused("options", "invented_tomorrow") == "it has not been reviewed as harmless"


@pytest.mark.parametrize("name", ["max_autotune", "max-autotune", "triton.cudagraphs"])
def test_reviewed_options_are_allowed(name: str) -> None:
    assert refused("options", name) is None


def test_no_name_is_both_allowed_and_refused() -> None:
    allowed, refusals = reviewed()
    assert not allowed & {pattern for pattern, _ in refusals}
