"""Compiler options that start programs or write files: never from a project's or library's file."""

from __future__ import annotations

import pytest

from tests.unit.policy.building import KEY, layer_of, messages, policy, problems_of, read
from xpolicy.backends.jax.options import allowed
from xpolicy.backends.torch.options import reviewed

RESTRICTED = ("project", "author")
FREE = ("user", "file", "environment")

# A value that would run or write something, in every way that TOML and the language have.
TORCH = [
    'torch.options."cpp.cxx" = ["./x.sh"]',
    'torch.options.cpp.cxx = ["./x.sh"]',
    'torch.options = { cpp = { cxx = ["./x.sh"] } }',
    '[torch.options.cpp]\ncxx = ["./x.sh"]',
    '[torch]\noptions."cpp".cxx = "./x.sh"',
    "[torch.options]\n'cpp.cxx' = './x.sh'",
    'torch.options."\\u0063pp.cxx" = "./x.sh"',  # an escaped c
    'torch.options.cpp."cxx" = "unset"',
    'torch.options.cpp.cxx.deeper = "./x.sh"',
    'torch.options."CPP.cxx" = "./x.sh"',
    'torch.options."Cpp.Cxx" = "./x.sh"',
    'torch.options." cpp.cxx" = "./x.sh"',
    'torch.options."cpp.cxx " = "./x.sh"',
    'torch.options."cpp..cxx" = "./x.sh"',
    'torch.options."" = "./x.sh"',
    'torch.options."cpp.сxx" = "./x.sh"',  # noqa: RUF001  # a Cyrillic letter
    'torch.options."cuda.compile-opt-level" = "-O1"',
    'torch.options."cuda.cutlass-dir" = "/tmp"',
    'torch.options.rocm.rocm_home = "/tmp"',
    "torch.options.trace.enabled = true",
    'torch.options."trace.debug-dir" = "/tmp"',
    'torch.options.aot-inductor.output-path = "/tmp/x.so"',
    'torch.options."aot_inductor.output_path" = "/tmp/x.so"',
    'torch.options."max_autotune.x" = 1',  # below an allowed name
    'torch.options.post-grad-custom-pre-pass = "os.system"',
    "torch.options.never_heard_of = 1",
]
JAX = [
    'jax.compiler-options.xla_dump_to = "/tmp/x"',
    'jax.compiler-options.xla-dump-to = "/tmp/x"',
    'jax.compiler-options."--xla_dump_to" = "/tmp/x"',
    'jax.compiler-options."--xla-dump-to" = "/tmp/x"',
    'jax.compiler-options."XLA_DUMP_TO" = "/tmp/x"',
    'jax.compiler-options."xla_dump_to " = "/tmp/x"',
    'jax.compiler-options.xla_gpu_cuda_data_dir = "/tmp/x"',
    '["jax.numpy".compiler-options]\nxla_dump_to = "/tmp/x"',
    'jax.compiler-options."xla_cpu_enable_fast_math.x" = "1"',
    "jax.compiler-options.xla_never_heard_of = 1",
]
WRAPPERS = [
    "{}",
    "[[when]]\npython = '>=3'\n{}",
    "[[when]]\ndevice = 'cuda'\n{}",
    "[[when]]\nversions.absent = '>=1'\n{}",  # a block that doesn't hold here may hold there
    f'functions."{KEY}".{{}}',
    'functions."mylib.*".{}',
    'functions."*".{}',
    "[[when]]\npython = '>=3'\nfunctions.\"mylib.*\".{}",
]


def wrapped(wrapper, attack):
    """Put a text into a block or function table; a header can only be prefixed."""
    if attack.startswith("["):
        header, _, rest = attack[1:].partition("]")
        if wrapper == "{}":
            return attack
        if wrapper.startswith("[[when]]") and not wrapper.endswith(".{}"):
            return wrapper.format(f"[when.{header}]{rest}")
        prefix = "when." if wrapper.startswith("[[when]]") else ""
        name = wrapper.rpartition("\n")[2].removesuffix("{}")
        return wrapper.rpartition("\n")[0] + f"\n[{prefix}{name}{header}]{rest}"
    return wrapper.format(attack)


@pytest.mark.parametrize("layer", RESTRICTED)
@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("attack", TORCH + JAX)
def test_none_gets_through(layer, wrapper, attack):
    found, problems = read(wrapped(wrapper, attack), layer)
    assert found.rules == ()
    assert any(p.severity == "error" and "may not be set in" in p.message for p in problems) or any(
        "can't hold" in p.message for p in problems
    )


@pytest.mark.parametrize("layer", FREE)
@pytest.mark.parametrize("attack", [TORCH[0], TORCH[2], JAX[0]])
def test_whoever_runs_the_program_may_set_them(layer, attack):
    namespace = "jax" if attack.startswith("jax") else "torch"
    said = policy(layer_of(attack, layer), namespace=namespace)
    assert (
        said.options == {"cpp.cxx": ["./x.sh"]} if namespace == "torch" else said.compiler_options
    )


@pytest.mark.parametrize("layer", RESTRICTED)
def test_reviewed_options_may_be_set(layer):
    names, _ = reviewed()
    text = "[torch.options]\n" + "\n".join(f'"{name}" = true' for name in sorted(names))
    assert messages(text, layer) == []
    text = "[torch.options]\n" + "\n".join(
        f"{name.replace('_', '-')} = true" for name in sorted(names)
    )
    assert messages(text, layer) == []
    text = "[jax.compiler-options]\n" + "\n".join(f"{name} = 1" for name in sorted(allowed()))
    assert messages(text, layer) == []
    assert messages("torch.options.triton.cudagraphs = true", layer) == []
    assert messages('torch.options = "unset"', layer) == []


def test_the_error_says_why_and_where_it_may_stand():
    (problem,) = problems_of('[torch.options.cpp]\ncxx = ["./x.sh"]')
    assert problem.message.startswith("cpp.cxx may not be set in a project's file: ")
    for place in ("user file", "XPOLICY_FILE", "a variable", "xpolicy.override"):
        assert place in problem.allowed
    assert problem.origin.key == ("torch", "options", "cpp", "cxx")
    assert problem.value == '["./x.sh"]'
    (problem,) = problems_of("torch.options.trace.enabled = true", "author")
    assert "in a library's file" in problem.message


def test_every_refused_entry_is_told():
    text = 'torch.options = { "cpp.cxx" = "x", trace.enabled = true, max_autotune = true }'
    assert len(messages(text)) == 2
