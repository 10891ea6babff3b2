"""What torch.compile is given, and what is refused before it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from xpolicy.backends.torch import backend
from xpolicy.errors import BackendOptionError

if TYPE_CHECKING:
    from xpolicy.policy.resolve import ResolvedPolicy

Resolved = Any


def keywords(policy: ResolvedPolicy) -> dict[str, Any]:
    return dict(backend.lower(policy).keywords)


def test_what_nobody_sets_is_not_sent(resolved: Resolved) -> None:
    assert keywords(resolved()) == {}


def test_mode_fullgraph_and_the_option_alone_both_ask_for_one_graph(resolved: Resolved) -> None:
    assert keywords(resolved(mode="fullgraph")) == {"fullgraph": True}
    assert keywords(resolved(fullgraph=True)) == {"fullgraph": True}
    assert keywords(resolved(graph_break_limit=0)) == {"fullgraph": True}
    assert keywords(resolved(fullgraph=False)) == {"fullgraph": False}
    assert keywords(resolved(fullgraph="unset")) == {}


def test_a_limit_is_said_as_it_is_given(resolved: Resolved) -> None:
    # Not with isolate_recompiles: each function has a code object of its own instead.
    lowered = backend.lower(resolved(recompile_limit=3))
    assert dict(lowered.keywords) == {"recompile_limit": 3}
    assert [name for name, _, _ in lowered.rows] == ["recompile_limit"]


def test_preset_and_explicit_options_are_merged_and_never_passed_as_a_mode(
    resolved: Resolved,
) -> None:
    lowered = backend.lower(
        resolved(compile_mode="max-autotune", cudagraphs=False, options={"epilogue_fusion": True})
    )
    assert lowered.keywords == {
        "options": {
            "max_autotune": True,
            "coordinate_descent_tuning": True,
            "triton.cudagraphs": False,
            "epilogue_fusion": True,
        }
    }
    rows = {name: why for name, _, why in lowered.rows}
    assert 'compile-mode = "max-autotune" expands' in rows["options.max_autotune"]
    assert "over True of the preset" in rows["options.triton.cudagraphs"]
    assert len(rows) == len(lowered.rows)


@pytest.mark.parametrize("fullgraph", [None, True])
def test_what_the_policy_holds_is_not_what_torch_changes(
    compiled: Any, counter: Any, fullgraph: bool | None
) -> None:
    import torch

    def keep(guards: Any) -> Any:
        return [True for _ in guards]

    given = {"epilogue_fusion": True}
    call = compiled(lambda x: x + 1, {"guard_filter_fn": keep}, options=given, fullgraph=fullgraph)
    before = dict(call.lowered.keywords["options"])
    for _ in range(2):
        call(torch.ones(2))
        call.clear()
    assert given == {"epilogue_fusion": True}
    assert call.lowered.keywords["options"] == before == {**given, "guard_filter_fn": keep}


def test_cudagraphs_that_can_do_nothing_are_said_so(resolved: Resolved) -> None:
    import torch

    notes = backend.lower(resolved(cudagraphs=True)).notes
    assert any("no CUDA device" in note for note in notes) is not torch.cuda.is_available()
    assert backend.lower(resolved(cudagraphs=False)).notes == ()


@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
def test_explain_says_so_too_and_where_a_wrong_option_stands(mode: str) -> None:
    import torch

    import xpolicy

    f = xpolicy.compile(lambda x: x, name="mylib.f", mode=mode)  # type: ignore[arg-type]
    with xpolicy.override(torch={"cudagraphs": True}):
        told = str(f.explain("torch"))
        assert "options.triton.cudagraphs" in told
        assert ("cudagraphs can do nothing here" in told) is not torch.cuda.is_available()
    with xpolicy.override(torch={"options": {"max_autotun": True}}):
        told = str(f.explain("torch"))
        assert "did you mean: max_autotune" in told
        assert "test_lowering.py:" in told
        with pytest.raises(BackendOptionError, match="max_autotun"):
            f(torch.ones(2))


@pytest.mark.parametrize(
    ("options", "key", "told"),
    [
        ({"max_autotun": True}, "torch.options.max_autotun", "did you mean: max_autotune"),
        ({"max_autotune": "yes"}, "torch.options.max_autotune", "got: 'yes' (str)"),
        ({"cpp.threads": True}, "torch.options.cpp.threads", "got: True (bool)"),
        # Generic types, which torch itself doesn't check.
        ({"cpp.simdlen": "wide"}, "torch.options.cpp.simdlen", "int | None"),
        (
            {"max_autotune_gemm_search_space": "BIG"},
            "torch.options.max_autotune_gemm_search_space",
            "EXHAUSTIVE",
        ),
    ],
)
def test_wrong_inductor_options_name_the_line_that_set_them(
    resolved: Resolved, options: dict[str, Any], key: str, told: str
) -> None:
    with pytest.raises(BackendOptionError) as caught:
        backend.lower(resolved(options=options))
    assert caught.value.key == key
    assert "xpolicy.toml:3:1 (project layer)" in str(caught.value)
    assert told in str(caught.value)


def test_all_wrong_options_are_told_at_once(resolved: Resolved) -> None:
    with pytest.raises(BackendOptionError) as caught:
        backend.lower(resolved(options={"nonsense": 1, "max_autotune": 1}, extra={"modle": 1}))
    assert len(caught.value.problems) == 3


def test_numbers_and_lists_become_what_inductor_wants(resolved: Resolved) -> None:
    found = keywords(
        resolved(options={"score_fusion_memory_threshold": 10, "min_overlap_ratio": 1})
    )
    assert found["options"] == {"score_fusion_memory_threshold": 10, "min_overlap_ratio": 1.0}
    assert type(found["options"]["min_overlap_ratio"]) is float


def test_an_unknown_backend_names_the_nearest(resolved: Resolved) -> None:
    with pytest.raises(BackendOptionError) as caught:
        backend.lower(resolved(backend="aot_eagr"))
    assert "did you mean: aot_eager" in str(caught.value)
    assert "xpolicy.toml:3:1" in str(caught.value)


def test_keywords_of_the_decorator_are_passed_where_torch_wants_them(resolved: Resolved) -> None:
    def keep(guards: Any) -> Any:
        return [True for _ in guards]

    found = keywords(resolved(extra={"name": "region", "guard_filter_fn": keep}))
    assert found == {"name": "region", "options": {"guard_filter_fn": keep}}


def test_an_unknown_keyword_of_the_decorator_names_what_torch_takes(resolved: Resolved) -> None:
    with pytest.raises(BackendOptionError) as caught:
        backend.lower(resolved(extra={"nmae": "region"}))
    assert "no 'nmae' in torch.compile" in str(caught.value)
    assert "did you mean: name" in str(caught.value)
    assert "shapes_spec" in str(caught.value)


def test_sizes_are_either_dynamic_or_specified(resolved: Resolved) -> None:
    with pytest.raises(BackendOptionError, match="can't both be set"):
        backend.lower(resolved(dynamic=True, extra={"shapes_spec": {}}))


def test_options_of_another_backend_are_dropped_and_noted() -> None:
    from xpolicy._origin import Origin
    from xpolicy.backends.torch import SPEC
    from xpolicy.policy.layers import Layer, Rule, builtin_layer
    from xpolicy.policy.options import OptionTable
    from xpolicy.policy.resolve import resolve

    table = OptionTable([SPEC])
    user = Rule({"compile_mode": "max-autotune"}, Origin("file", "user.toml"), namespace="torch")
    project = Rule({"backend": "eager"}, Origin("file", "project.toml"), namespace="torch")
    layers = [
        builtin_layer(table),
        Layer("user", "user.toml", [user]),
        Layer("project", "project.toml", [project]),
    ]
    policy = resolve(layers, table, "mylib.f", "torch")
    assert keywords(policy) == {"backend": "eager"}
    assert any("compile-mode dropped" in note for note in policy.notes)


def test_the_library_that_is_not_imported_has_no_version() -> None:
    import torch

    assert backend.version() == torch.__version__


def test_device_kinds() -> None:
    import torch

    assert backend.device_of(torch.ones(1)) == "cpu"
    assert backend.device_of(torch.ones(1, device="meta")) == "meta"
    assert backend.device_of(3) is None
