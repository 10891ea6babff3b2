"""Warm-up lists on real compilers: afterwards the calls that they name compile nothing."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import xpolicy
from xpolicy.aot.warmup import Warmed, WarmupError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

jax = pytest.importorskip("jax", reason="these tests run jax: pip install jax")
torch = pytest.importorskip("torch", reason="these tests run torch: pip install torch")
import jax.numpy as jnp  # noqa: E402  # only where the library is there
from torch._dynamo.utils import counters  # noqa: E402  # only where the library is there

QUICK = {"backend": "eager"}
ONES = {"jax": jnp.ones, "torch": torch.ones}
_compiled: Counter[str] = Counter()
_numbers = iter(range(10**6))
Say = Any


def _count(event: str, _duration: float, **told: Any) -> None:
    if event == "/jax/core/compile/backend_compile_duration":
        _compiled[str(told.get("fun_name"))] += 1


@pytest.fixture(scope="module", autouse=True)
def listening() -> Iterator[None]:
    jax.monitoring.register_event_duration_secs_listener(_count)
    yield
    jax.monitoring.unregister_event_duration_listener(_count)


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let a project's file say something, from now on."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(xpolicy, "_cwd", str(tmp_path))
    (tmp_path / ".git").mkdir()

    def say(text: str) -> None:
        (tmp_path / "xpolicy.toml").write_text(text, encoding="utf-8")
        xpolicy.reload()

    return say


def fresh(function: Callable[..., Any], **options: Any) -> tuple[Any, str]:
    """Decorate a function under a name of its own, by which programs are counted."""
    name = f"warmed{next(_numbers)}"
    function.__name__ = function.__qualname__ = name
    options.setdefault("torch", QUICK)
    return xpolicy.compile(name=f"mylib.{name}", **options)(function), name


def programs(namespace: str, name: str) -> int:
    """How many programs a compiler has been given: of a function on jax, of all on torch."""
    if namespace == "torch":
        return int(counters["stats"]["unique_graphs"])
    return sum(count for told, count in _compiled.items() if name in told)


def scaled(x: Any, n: int = 2) -> Any:
    return x * n


def statuses(results: list[Warmed]) -> list[str]:
    return [result.status for result in results]


@pytest.mark.parametrize("namespace", ONES)
@pytest.mark.parametrize("jobs", [1, 2])
def test_the_calls_of_a_list_compile_nothing_more(say: Say, namespace: str, jobs: int) -> None:
    f, name = fresh(lambda x, n=2: x * n, static_argnames=("n",))
    say(
        f'functions."mylib.{name}".warmup = [{{ x = "float32[4, 3]", n = 3 }}, {{ x = "int32[]" }}]'
    )
    before = programs(namespace, name)
    results = xpolicy.warmup(f, namespaces=[namespace], jobs=jobs)
    assert statuses(results) == ["compiled", "compiled"]
    assert [result.signature for result in results] == ["x=float32[4, 3], n=3", "x=int32[]"]
    assert all(result.seconds for result in results)
    assert programs(namespace, name) - before == 2
    ones = ONES[namespace]
    f(ones((4, 3)), 3)
    f(x=ones((4, 3)), n=3)
    f(ones((), dtype=jnp.int32 if namespace == "jax" else torch.int32))
    assert programs(namespace, name) - before == 2
    assert f.stats().compilations == 2


@pytest.mark.parametrize("namespace", ONES)
def test_what_is_compiled_already_is_said_to_be(say: Say, namespace: str) -> None:
    f, name = fresh(scaled)
    say(f'functions."mylib.{name}".warmup = [{{ x = "float32[5]" }}]')
    f(ONES[namespace]((5,)))
    before = programs(namespace, name)
    (result,) = xpolicy.warmup(f, namespaces=[namespace])
    assert (result.status, result.seconds, result.cache) == ("known", None, None)
    assert str(result).endswith(f"for {namespace}: compiled already")
    assert programs(namespace, name) == before


def inner(tree: Any, names: Any, kind: str) -> Any:
    assert (names, kind) == (("a", "b"), "int8[4]")
    return tree["a"] + tree["b"][0] * tree["b"][1]


@pytest.mark.parametrize("namespace", ONES)
def test_containers_constants_and_quoted_strings_arrive(say: Say, namespace: str) -> None:
    f, name = fresh(
        lambda tree, names, kind: inner(tree, names, kind), static_argnames=("names", "kind")
    )
    say(
        f'functions."mylib.{name}".warmup = [{{ names = ["a", "b"], kind = "\'int8[4]\'", '
        'tree = { a = "float32[2]", b = ["float32[2]", 2.5] } }]'
    )
    (result,) = xpolicy.warmup(f, namespaces=[namespace])
    assert result.status == "compiled"
    before = programs(namespace, name)
    ones = ONES[namespace]
    # Not one array twice: torch compiles that as a case of its own.
    f({"a": ones((2,)), "b": [ones((2,)), 2.5]}, ("a", "b"), "int8[4]")
    assert programs(namespace, name) == before


def test_every_kind_of_parameter_is_given_its_argument(say: Say) -> None:
    def f(x: Any, /, y: Any, *more: Any, z: Any = None, **named: Any) -> Any:
        assert (y, len(more), set(named)) == (2, 2, {"w"})
        return x * y + more[0] + more[1] + z + named["w"]

    f, name = fresh(f, static_argnames=("y",))
    array = '"float32[2]"'
    say(
        f'functions."mylib.{name}".warmup = [{{ w = {array}, z = {array}, y = 2, x = {array}, '
        f"more = [{array}, {array}] }}]"
    )
    (result,) = xpolicy.warmup(f, namespaces=["jax"])
    assert result.status == "compiled"
    before = programs("jax", name)
    ones = jnp.ones(2)
    f(ones, 2, ones, ones, z=ones, w=ones)
    assert programs("jax", name) == before


def test_a_general_list_is_for_every_compiler_and_a_namespaces_own_replaces_it(say: Say) -> None:
    f, name = fresh(scaled)
    say(
        f'[functions."mylib.{name}"]\nwarmup = [{{ x = "float32[2]" }}]\n'
        f'jax.warmup = [{{ x = "float32[3]" }}, {{ x = "float32[4]" }}]'
    )
    told = [(r.namespace, r.signature) for r in xpolicy.warmup(f)]
    assert sorted(told) == [
        ("jax", "x=float32[3]"),
        ("jax", "x=float32[4]"),
        ("torch", "x=float32[2]"),
    ]


def test_device_conditions_mean_the_librarys_default_device(say: Say) -> None:
    f, name = fresh(scaled)
    say(
        f'functions."mylib.{name}".warmup = []\n'
        f'[[when]]\ndevice = "cpu"\nfunctions."mylib.{name}".warmup = [{{ x = "float32[7]" }}]\n'
        f'[[when]]\ndevice = "tpu"\nfunctions."mylib.{name}".warmup = [{{ x = "float32[8]" }}]\n'
    )
    for namespace in ONES:
        (result,) = xpolicy.warmup(f, namespaces=[namespace])
        assert (result.signature, result.status) == ("x=float32[7]", "compiled")


def test_eager_functions_have_nothing_to_compile(say: Say) -> None:
    f, name = fresh(scaled, supports="eager")
    say(
        f'[functions."mylib.{name}"]\nwarmup = [{{ x = "float32[2]" }}]\n'
        f'numpy.warmup = [{{ x = "float32[2]" }}]'
    )
    results = xpolicy.warmup(f)
    assert statuses(results) == ["eager"] * 3
    reasons = {result.namespace: result.reason for result in results}
    assert reasons["numpy"] == "nothing compiles for numpy"
    assert reasons["jax"].startswith("its mode for jax is eager (")
    with xpolicy.override(mode="eager"):
        assert not any(result.failed for result in xpolicy.warmup(f, jobs=2))


def fails(x: Any) -> Any:
    raise ValueError("no such luck")


def test_a_function_that_ends_the_program_fails_and_stops_no_other(say: Say) -> None:
    bad, bad_name = fresh(lambda x: sys.exit(0))
    good, good_name = fresh(scaled)
    call = 'warmup = [{ x = "float32[2]" }]'
    say(f'functions."mylib.{bad_name}".{call}\nfunctions."mylib.{good_name}".{call}\n')
    first, second = xpolicy.warmup(bad, good, namespaces=["jax"])
    assert (first.failed, second.status) == (True, "compiled")
    assert "as this call says: SystemExit: 0" in str(first.problem)


@pytest.mark.parametrize("namespace", ONES)
def test_shapes_that_dont_fit_are_told_as_the_compiler_does(say: Say, namespace: str) -> None:
    call, name = fresh(lambda x, y: x + y)
    say(f'[functions."mylib.{name}"]\n  warmup = [{{ x = "float32[2]", y = "float32[3]" }}]\n')
    (found,) = xpolicy.warmup(call, namespaces=[namespace])
    why = {"jax": "incompatible shapes for broadcasting", "torch": "broadcast a dimension"}
    assert found.failed
    assert why[namespace] in str(found.problem)


@pytest.mark.parametrize("namespace", ONES)
def test_a_call_that_fails_has_its_place_and_stops_no_other(say: Say, namespace: str) -> None:
    bad, bad_name = fresh(lambda x: fails(x), mode="fullgraph")
    good, good_name = fresh(scaled)
    say(
        f'[functions."mylib.{bad_name}"]\n  warmup = [{{ x = "float32[2]" }}]\n'
        f'[functions."mylib.{good_name}"]\n  warmup = [{{ x = "float32[2]" }}]\n'
    )
    first, second = xpolicy.warmup(bad, good, namespaces=[namespace])
    assert (first.failed, second.status) == (True, "compiled")
    assert first.origin.startswith("xpolicy.toml:2:")
    text = str(first.problem)
    why = {"jax": "ValueError: no such luck", "torch": "Unsupported: Observed exception"}[namespace]
    assert f"{bad_name} can't be compiled for {namespace} as this call says: {why}" in text
    assert first.error is not None
    assert f'key: functions."mylib.{bad_name}".warmup[0]' in text
    with pytest.raises(WarmupError, match=why) as caught:
        xpolicy.warmup(bad, good, namespaces=[namespace], raise_on_failure=True)
    assert statuses(list(caught.value.results)) == ["failed", "known"]


@pytest.mark.parametrize(
    ("call", "message", "fix"),
    [
        ('{ y = "float32[2]", nn = 1 }', 'has no argument "y"', "remove y"),
        ('{ x = "float32[2]", factr = 1 }', 'has no argument "factr"', "write factor"),
        ('{ factor = "float32[2]" }', "missing a required argument: 'x'", "add x to the call"),
    ],
)
def test_arguments_that_the_function_does_not_have(
    say: Say, call: str, message: str, fix: str
) -> None:
    f, name = fresh(lambda x, factor=2: x * factor)
    say(f'functions."mylib.{name}".warmup = [{call}]')
    (result,) = xpolicy.warmup(f, namespaces=["jax"])
    assert result.failed
    assert message in str(result.problem)
    assert f"fix: {fix}" in str(result.problem)
    assert "xpolicy.toml:1:" in str(result.problem)


def test_lists_of_functions_that_are_not_there(say: Say) -> None:
    f, name = fresh(scaled)
    package = f"absent{next(_numbers)}"
    say(
        f'functions."mylib.{name}x".warmup = [{{ x = "float32[2]" }}]\n'
        f'functions."{package}.f".warmup = [{{ x = "float32[2]" }}]\n'
    )
    sys.modules["mylib"] = sys  # as if the package were imported
    try:
        results = {r.function: r for r in xpolicy.warmup(namespaces=["jax"])}
    finally:
        del sys.modules["mylib"]
    missing = results[f"mylib.{name}x"]
    assert missing.failed
    assert missing.problem is not None
    assert missing.problem.nearest == f"mylib.{name}"
    assert results[f"{package}.f"].told == f"skipped: {package} isn't imported"
    del f


def test_a_seal_and_a_limit_are_kept(say: Say) -> None:
    f, name = fresh(scaled, jax={"recompile_limit": 1})
    say(f'functions."mylib.{name}".warmup = [{{ x = "float32[2]" }}, {{ x = "float32[3]" }}]')
    with xpolicy.seal():
        sealed = xpolicy.warmup(f, namespaces=["jax"])
    assert [r.status for r in sealed] == ["failed", "failed"]
    assert "SealedError" in sealed[0].reason
    first, second = xpolicy.warmup(f, namespaces=["jax"])
    assert (first.status, second.status) == ("compiled", "failed")
    assert "RecompileLimitError" in second.reason


def test_progress_is_told_of_each_call(say: Say) -> None:
    f, name = fresh(scaled)
    say(f'functions."mylib.{name}".warmup = [{{ x = "float32[2]" }}, {{ x = "float32[3]" }}]')
    told: list[tuple[int, int, str]] = []
    xpolicy.warmup(
        f, namespaces=["jax"], progress=lambda done, total, r: told.append((done, total, r.status))
    )
    assert told == [(1, 2, "compiled"), (2, 2, "compiled")]


def test_torchs_grad_mode_and_overrides_reach_the_threads(say: Say) -> None:
    f, name = fresh(scaled)
    say(f'functions."mylib.{name}".warmup = [{{ x = "float32[6]" }}]')
    with torch.no_grad(), xpolicy.override(mode="fullgraph"):
        assert statuses(xpolicy.warmup(f, namespaces=["torch"], jobs=2)) == ["compiled"]
        before = programs("torch", name)
        f(torch.ones(6))
        assert programs("torch", name) == before


def test_what_a_call_with_gradients_compiles_is_its_own_variant(say: Say) -> None:
    f, name = fresh(scaled)
    say(f'functions."mylib.{name}".warmup = [{{ x = "float32[6]" }}]')
    xpolicy.warmup(f, namespaces=["torch"])
    before = programs("torch", name)
    f(torch.ones(6, requires_grad=True))
    assert programs("torch", name) - before == 1


def test_what_stands_behind_a_graph_break_is_told(say: Say) -> None:
    def f(x: Any) -> Any:
        y = x * 2
        torch._dynamo.graph_break()
        return y + 1

    f, name = fresh(f)
    say(f'functions."mylib.{name}".warmup = [{{ x = "float32[6]" }}]')
    (result,) = xpolicy.warmup(f, namespaces=["torch"])
    assert result.status == "compiled"
    assert "test_aot_warmup.py" in str(result)


# -- what the compilers say of their caches --------------------------------------------


@contextlib.contextmanager
def jax_cache(folder: Path) -> Iterator[None]:
    from jax.experimental.compilation_cache import compilation_cache

    settings = {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    try:
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()


def test_jax_says_whether_its_cache_had_it(say: Say, tmp_path: Path) -> None:
    f, name = fresh(lambda x: x * 3 + 1)
    say(f'functions."mylib.{name}".warmup = [{{ x = "float32[9]" }}]')
    outcomes = []
    for cache in (contextlib.nullcontext(), jax_cache(tmp_path / "c"), jax_cache(tmp_path / "c")):
        with cache:
            jax.clear_caches()
            f.clear()
            (result,) = xpolicy.warmup(f, namespaces=["jax"])
            outcomes.append((result.status, result.cache))
    assert outcomes == [("compiled", "off"), ("compiled", "miss"), ("compiled", "hit")]


def test_torchs_other_backends_say_nothing_of_a_cache(say: Say) -> None:
    f, name = fresh(scaled)
    say(f'functions."mylib.{name}".warmup = [{{ x = "float32[6]" }}]')
    (result,) = xpolicy.warmup(f, namespaces=["torch"])
    assert result.cache == "unknown"


@pytest.mark.slow
def test_inductor_says_whether_its_cache_had_it(say: Say) -> None:
    f, name = fresh(lambda x: (x * 7 + 5).sum(), torch={})
    say(f'functions."mylib.{name}".warmup = [{{ x = "float32[11, 3]" }}]')
    outcomes = []
    for _ in range(2):
        f.clear()
        (result,) = xpolicy.warmup(f, namespaces=["torch"])
        outcomes.append((result.status, result.cache))
        before = programs("torch", name)
        assert float(f(torch.ones(11, 3))) == 12 * 33
        assert programs("torch", name) == before
    assert outcomes == [("compiled", "miss"), ("compiled", "hit")]
