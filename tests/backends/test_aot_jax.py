"""Ahead of time on jax: what is compiled is found by later calls, counted at XLA."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import xpolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

jax = pytest.importorskip("jax", reason="these tests run jax: pip install jax")
import jax.numpy as jnp  # noqa: E402  # only where the library is there
import numpy as np  # noqa: E402  # only where the library is there

_compiled: Counter[str] = Counter()


def _count(event: str, _duration: float, **told: Any) -> None:
    if event == "/jax/core/compile/backend_compile_duration":
        _compiled[str(told.get("fun_name"))] += 1


@pytest.fixture(scope="module", autouse=True)
def listening() -> Iterator[None]:
    jax.monitoring.register_event_duration_secs_listener(_count)
    yield
    jax.monitoring.unregister_event_duration_listener(_count)


def times(name: str) -> int:
    """How many programs XLA has compiled for functions of a name."""
    return sum(count for told, count in _compiled.items() if name in told)


_numbers = iter(range(10**6))


def fresh(function: Callable[..., Any], **options: Any) -> tuple[Any, str]:
    """Decorate a function under a name of its own, by which XLA's programs are counted."""
    name = f"counted{next(_numbers)}"
    function.__name__ = function.__qualname__ = name
    return xpolicy.compile(name=f"mylib.{name}", **options)(function), name


def committed(x: Any) -> Any:
    return jax.device_put(x, jax.devices()[0])


def weak(x: float) -> Any:
    made = jnp.asarray(x)
    assert made.weak_type
    return made


ARRAY = ((4,), "float32")
ARGUMENTS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    # what is lowered for, and what is called with
    "array": (lambda: jnp.ones(4), lambda: jnp.ones(4)),
    "committed array": (lambda: committed(jnp.ones(4)), lambda: committed(jnp.ones(4))),
    "weak-typed array": (lambda: weak(1.0), lambda: weak(2.0)),
    "Python number": (lambda: 1.0, lambda: 2.0),
    "NumPy array": (lambda: np.ones(4, "float32"), lambda: jnp.ones(4)),
    "spec": (lambda: xpolicy.spec("float32[4]"), lambda: jnp.ones(4)),
    "weak spec": (lambda: xpolicy.spec("~float32[]"), lambda: 2.0),
    "shape struct": (lambda: jax.ShapeDtypeStruct(*ARRAY), lambda: jnp.ones(4)),
    "specs inside": (
        lambda: {"a": (xpolicy.spec("float32[4]"), jnp.ones(2))},
        lambda: {"a": (jnp.ones(4), jnp.ones(2))},
    ),
}


@pytest.mark.parametrize("kind", ARGUMENTS)
def test_a_call_after_compiling_ahead_compiles_nothing(kind: str) -> None:
    lowered_for, called_with = ARGUMENTS[kind]
    f, name = fresh(lambda x, y: jax.tree_util.tree_map(lambda item: item * 2, x))
    marker = jnp.ones(())  # decides, where x itself is no array
    lowered = f.lower(lowered_for(), marker)
    assert times(name) == 0
    compiled = lowered.compile()
    assert (times(name), compiled.remaining) == (1, ())
    f(called_with(), marker)
    compiled(called_with(), marker)
    assert times(name) == 1
    assert f.stats().compilations == 1


@pytest.mark.parametrize("kind", ARGUMENTS)
def test_compiling_after_a_call_compiles_nothing(kind: str) -> None:
    lowered_for, called_with = ARGUMENTS[kind]
    f, name = fresh(lambda x, y: jax.tree_util.tree_map(lambda item: item * 2, x))
    marker = jnp.ones(())
    f(called_with(), marker)
    f.lower(lowered_for(), marker).compile()
    assert times(name) == 1
    assert f.stats().compilations == 1


def _scaled(x: Any, n: Any = 2, *, mode: str = "up") -> Any:
    return x * n if mode == "up" else x / n


SPELLINGS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((2,), {}),
    ((), {"n": 2}),
    ((2,), {"mode": "up"}),
    ((), {"mode": "up", "n": 2}),
]


@pytest.mark.parametrize("lowered_as", range(len(SPELLINGS)))
def test_every_spelling_of_static_arguments_is_one_compilation(lowered_as: int) -> None:
    def scaled(x, n=2, *, mode="up"):
        return _scaled(x, n, mode=mode)

    f, name = fresh(scaled, static_argnames=("n", "mode"))
    args, kwargs = SPELLINGS[lowered_as]
    compiled = f.lower(jnp.ones(3), *args, **kwargs).compile()
    for args, kwargs in SPELLINGS:
        assert f(jnp.ones(3), *args, **kwargs).tolist() == [2.0] * 3
        assert compiled(jnp.ones(3), *args, **kwargs).tolist() == [2.0] * 3
    assert f(x=jnp.ones(3)).tolist() == [2.0] * 3
    assert times(name) == 1


@pytest.mark.parametrize("lowered_by_keyword", [False, True])
def test_traced_arguments_by_position_or_keyword_are_one_compilation(
    lowered_by_keyword: bool,
) -> None:
    f, name = fresh(lambda x, y: x + y)
    x = jnp.ones(3)
    (f.lower(x=x, y=x) if lowered_by_keyword else f.lower(x, x)).compile()
    f(x, x)
    f(y=x, x=x)
    f(x, y=x)
    assert times(name) == 1


def test_nothing_of_the_function_runs() -> None:
    ran = []

    def noisy(x):
        jax.debug.callback(lambda value: ran.append(value), x)
        return x + 1

    f, name = fresh(noisy)
    f.lower(jnp.ones(2)).compile()
    jax.effects_barrier()
    assert (times(name), ran) == (1, [])
    f(jnp.ones(2))
    jax.effects_barrier()
    assert (times(name), len(ran)) == (1, 1)


def test_policy_options_are_in_what_is_compiled() -> None:
    f, name = fresh(lambda x: x * 2, jax={"donate_argnames": ("x",)})
    compiled = f.lower(jnp.ones(3)).compile()
    assert compiled.policy.jax.donate_argnames == ("x",)
    x = jnp.ones(3)
    assert compiled(x).tolist() == [2.0] * 3
    assert x.is_deleted()
    f(jnp.ones(3))
    assert times(name) == 1


def test_what_there_is_to_see() -> None:
    f, _ = fresh(lambda x, y: {"sum": x + y, "pair": (x, y)})
    x = jnp.ones((2, 3))
    lowered = f.lower(x, y=x)
    assert "stablehlo.add" in lowered.as_text()
    assert "stablehlo.add" in lowered.as_text(dialect="stablehlo")
    assert "HloModule" in lowered.as_text(dialect="hlo")
    assert "add" in lowered.as_text(dialect="jaxpr")
    assert lowered.cost_analysis()["flops"] == 6.0
    assert lowered.in_tree == jax.tree_util.tree_structure(((0, 0), {}))
    info = lowered.out_info
    assert (info["sum"].shape, str(info["pair"][1].dtype)) == ((2, 3), "float32")
    assert lowered.policy.namespace == "jax"
    compiled = lowered.compile()
    assert compiled.as_text().startswith("HloModule")
    assert compiled.memory_analysis().argument_size_in_bytes == 48
    assert f.trace(x, x).jaxpr.eqns[0].primitive.name == "add"


def test_a_limit_that_allows_no_more_is_an_error_whatever_the_action() -> None:
    f, name = fresh(lambda x: x + 1, jax={"recompile_limit": 1, "on_recompile_limit": "eager"})
    f.lower(jnp.ones(2)).compile()
    with pytest.raises(xpolicy.RecompileLimitError, match="recompile-limit = 1"):
        f.lower(jnp.ones(3))
    f.lower(jnp.ones(2)).compile()
    assert times(name) == 1


def test_compiling_is_told_once() -> None:
    f, _ = fresh(lambda x: x + 1)
    told: list[Any] = []
    stop = xpolicy.subscribe(told.append)
    f.lower(jnp.ones(2)).compile()
    f.lower(jnp.ones(2)).compile()
    f.lower(jnp.ones(3)).compile()
    stop()
    assert [event.kind for event in told] == ["compile", "compile", "recompile"]
    assert "shape [2] -> [3]" in told[2].message


def test_eager_mode_and_disable_jit_compile_nothing() -> None:
    f, name = fresh(lambda x: x + 1)
    with xpolicy.override(mode="eager"):
        lowered = f.lower(jnp.ones(2))
    with pytest.raises(xpolicy.XPolicyError, match="its mode for jax is eager"):
        lowered.as_text()
    with jax.disable_jit():
        compiled = f.lower(jnp.ones(2)).compile()
    assert compiled(jnp.ones(2)).tolist() == [2.0, 2.0]
    assert "disable_jit" in compiled.remaining[0]
    assert times(name) == 0


def test_the_device_decides_for_specs_too() -> None:
    f, _ = fresh(lambda x: x + 1)
    text = '[[when]]\ndevice = "cpu"\njax.recompile-limit = 7'
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XPOLICY_TOML", text)
        xpolicy.reload()
        for given in (jnp.ones(2), xpolicy.spec("float32[2]", namespace="jax", device="cpu")):
            assert f.lower(given).policy.recompile_limit == 7
        f.lower(xpolicy.spec("float32[2]", namespace="jax")).compile()


def test_methods() -> None:
    @jax.tree_util.register_pytree_node_class
    class Model:
        def __init__(self, w):
            self.w = w

        def tree_flatten(self):
            return (self.w,), None

        @classmethod
        def tree_unflatten(cls, _, children):
            return cls(*children)

        @xpolicy.compile(name="mylib.Model.apply")
        def apply(self, x):
            return self.w * x

    model = Model(jnp.ones(3))
    compiled = xpolicy.lower(model.apply, jnp.ones(3)).compile()
    assert compiled(model, jnp.ones(3)).tolist() == [1.0] * 3
    with pytest.raises(xpolicy.StructureMismatchError, match=r"Model of 1 expected"):
        compiled(jnp.ones(3), jnp.ones(3))
    with pytest.raises(xpolicy.StructureMismatchError, match=r"float32\[3\] expected"):
        compiled(Model(jnp.ones(4)), jnp.ones(3))


def test_specs_that_cannot_be_read() -> None:
    for text, told in [
        ("float33[3]", "did you mean: float32"),
        ("float32", "a dtype and a shape"),
        ("float32[3 4]", "made of numbers"),
        ("float32[-1]", "a dtype and a shape"),
        ("float32[,]", "made of numbers"),
    ]:
        with pytest.raises(ValueError, match="float3") as caught:
            xpolicy.spec(text)
        assert told in str(caught.value)
    with pytest.raises(ValueError, match="no device"):
        xpolicy.spec("float32[3]", device="gpu")
    assert xpolicy.spec(" bool[2,] ").shape == (2,)
    assert str(xpolicy.spec("~float32[]")) == "~float32[]"


def test_a_spec_alone_must_say_whose_it_is_where_two_are_imported() -> None:
    pytest.importorskip("torch", reason="two libraries must be imported: pip install torch")
    f, _ = fresh(lambda x: x + 1)
    with pytest.raises(xpolicy.XPolicyError, match='namespace="torch"'):
        f.lower(xpolicy.spec("float32[4]"))
    assert f.lower(xpolicy.spec("float32[4]", namespace="jax")).policy.namespace == "jax"
