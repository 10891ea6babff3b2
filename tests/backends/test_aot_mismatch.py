"""Calls of what was compiled ahead of time with arguments that it is not for."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import xpolicy

if TYPE_CHECKING:
    from collections.abc import Callable

jax = pytest.importorskip("jax", reason="these tests run jax: pip install jax")
torch = pytest.importorskip("torch", reason="these tests run torch: pip install torch")
import jax.numpy as jnp  # noqa: E402  # only where the library is there

KEY = "mylib.affine"
EFFECTS: list[str] = []
GONE = object()


def affine(params, x, /, y, n=2, *, scale):
    EFFECTS.append("ran")
    return (params["w"] * x + params["inner"]["c"][0] + y) * n * scale[0]


class Library:
    """How one library makes the arrays of the call that everything is compiled for."""

    def __init__(self, name: str, ones: Callable[..., Any], **policy: Any) -> None:
        self.name = name
        self.ones = ones
        self.function = xpolicy.compile(name=KEY, static_argnames=("n",), **policy)(affine)
        args, kwargs = self.call()
        self.compiled = self.function.lower(*args, **kwargs).compile()

    def call(self) -> tuple[list[Any], dict[str, Any]]:
        params = {"w": self.ones(4), "inner": {"c": [self.ones(4), self.ones(4)]}}
        return [params, self.ones(4), self.ones(4)], {"n": 3, "scale": (self.ones(4),)}


MAKERS: dict[str, Callable[[], Library]] = {
    "jax": lambda: Library("jax", lambda *s, dtype="float32": jnp.ones(s, dtype)),
    "torch": lambda: Library(
        "torch",
        lambda *s, dtype="float32": torch.ones(s, dtype=getattr(torch, dtype)),
        torch={"backend": "eager"},  # dynamo's part is what is tested; inductor takes 13 s
    ),
    "numpy": lambda: Library("numpy", lambda *s, dtype="float32": np.ones(s, dtype)),
}


@pytest.fixture(params=MAKERS)
def library(request: pytest.FixtureRequest) -> Library:
    return MAKERS[request.param]()


def change(**changes: Any) -> Callable[[Library], tuple[list[Any], dict[str, Any]]]:
    """Return a call with some arguments replaced: by place (``a0``) or by name."""

    def made(library: Library) -> tuple[list[Any], dict[str, Any]]:
        args, kwargs = library.call()
        for name, value in changes.items():
            given = value(library) if callable(value) else value
            if name[0] == "a" and name[1:].isdecimal():
                args[int(name[1:]) :] = [given, *args[int(name[1:]) + 1 :]]
            else:
                kwargs[name] = given
        return args, kwargs

    return made


def without(name: str | int) -> Callable[[Library], tuple[list[Any], dict[str, Any]]]:
    def made(library: Library) -> tuple[list[Any], dict[str, Any]]:
        args, kwargs = library.call()
        if isinstance(name, int):
            del args[name:]
        else:
            del kwargs[name]
        return args, kwargs

    return made


def params(**changes: Any) -> Callable[[Library], Any]:
    """Return the first argument with entries replaced; GONE takes one out."""

    def made(library: Library) -> Any:
        found = library.call()[0][0]
        for name, value in changes.items():
            found[name] = value(library) if callable(value) else value
        return {name: value for name, value in found.items() if value is not GONE}

    return made


def keyword_for_positional(library: Library) -> tuple[list[Any], dict[str, Any]]:
    args, kwargs = library.call()
    return [], {**kwargs, "params": args[0], "x": args[1], "y": args[2]}


def another_library(library: Library) -> Any:
    return np.ones(4, "float32") if library.name == "torch" else torch.ones(4)


F = "float32[4]"
TABLE: dict[str, tuple[Any, str, str, str]] = {
    # kind: the call, the path, what was expected, what was given (a part of it)
    "missing positional": (without(2), "args[2]", F, "nothing"),
    "missing keyword": (without("scale"), "kwargs['scale']", "tuple of 1", "nothing"),
    "extra positional": (change(a3=lambda a: 1, a4=lambda a: a.ones(4)), "args[4]", "nothing", ""),
    "extra keyword": (change(other=1), "kwargs['other']", "nothing", "int"),
    "given twice": (change(y=1), "kwargs['y']", "nothing", "int"),
    "misspelt keyword": (change(scael=1), "kwargs['scael']", "nothing", "int"),
    "keyword for positional": (keyword_for_positional, "kwargs['params']", "nothing", "dict"),
    "renamed entry": (
        change(a0=params(w=GONE, v=lambda a: a.ones(4))),
        "args[0]['w']",
        F,
        "nothing",
    ),
    "missing entry": (change(a0=params(w=GONE)), "args[0]['w']", F, "nothing"),
    "extra entry": (change(a0=params(v=lambda a: a.ones(4))), "args[0]['v']", "nothing", F),
    "nested shape": (
        change(a0=params(inner=lambda a: {"c": [a.ones(4), a.ones(7)]})),
        "args[0]['inner']['c'][1]",
        F,
        "float32[7]",
    ),
    "fewer items": (
        change(a0=params(inner=lambda a: {"c": [a.ones(4)]})),
        "args[0]['inner']['c'][1]",
        F,
        "nothing",
    ),
    "list for tuple": (
        change(scale=lambda a: [a.ones(4)]),
        "kwargs['scale']",
        "tuple of 1",
        "list of 1",
    ),
    "array for container": (change(a0=lambda a: a.ones(4)), "args[0]", "dict of 2", F),
    "shape": (change(a1=lambda a: a.ones(5)), "args[1]", F, "float32[5]"),
    "rank": (change(a1=lambda a: a.ones(4, 1)), "args[1]", F, "float32[4, 1]"),
    "dtype": (change(a1=lambda a: a.ones(4, dtype="int32")), "args[1]", F, "int32[4]"),
    "static value": (change(n=4), "args[3]", "3", "4"),
    "static type": (change(n=3.0), "args[3]", "3", "3.0"),
    "static left at its default": (change(n=2), "args[3]", "3", "2"),
    "array of another library": (change(a1=another_library), "args[1]", F, "[4]"),
    "None for array": (change(a1=None), "args[1]", F, "None"),
    "scalar for array": (change(a1=2.0), "args[1]", F, "float"),
    "text for array": (change(a1="two"), "args[1]", F, "str"),
}


@pytest.mark.parametrize("kind", TABLE)
def test_a_call_that_does_not_fit_is_told_where_and_nothing_runs(
    library: Library, kind: str
) -> None:
    call, path, expected, got = TABLE[kind]
    args, kwargs = call(library)
    EFFECTS.clear()
    with pytest.raises(xpolicy.StructureMismatchError) as caught:
        library.compiled(*args, **kwargs)
    error = caught.value
    assert isinstance(error, TypeError)
    assert error.path == path
    assert expected in error.expected
    assert got in error.got
    assert f"{path}: {error.expected} expected, {error.got} given" in str(error)
    assert f"{KEY} ({__file__}:{affine.__code__.co_firstlineno})" in str(error)
    assert EFFECTS == []


def test_the_table_has_every_kind_and_the_fitting_call_runs(library: Library) -> None:
    assert len(TABLE) >= 15
    args, kwargs = library.call()
    assert np.asarray(library.compiled(*args, **kwargs)).tolist() == [9.0] * 4


def test_static_arguments_may_be_left_out_or_passed_if_equal() -> None:
    library = MAKERS["jax"]()
    args, kwargs = library.call()
    del kwargs["n"]
    assert library.compiled(*args, **kwargs).tolist() == [9.0] * 4
    with pytest.raises(xpolicy.StructureMismatchError, match="leave it out, or pass it equal"):
        library.compiled(*args, n=4, **kwargs)


def test_nearest_name_of_a_misspelt_keyword(library: Library) -> None:
    args, kwargs = library.call()
    with pytest.raises(xpolicy.StructureMismatchError, match="did you mean 'scale'"):
        library.compiled(*args, n=3, scael=kwargs["scale"])


def test_jax_weak_types_are_told_apart() -> None:
    @xpolicy.compile(name="mylib.half")
    def half(x):
        return x / 2

    strong, weak = jnp.float32(2.0), jnp.asarray(2.0)
    assert (strong.weak_type, weak.weak_type) == (False, True)
    compiled = half.lower(strong).compile()
    with pytest.raises(xpolicy.StructureMismatchError, match=r"float32\[\] expected, ~float32\[\]"):
        compiled(weak)
    with pytest.raises(xpolicy.StructureMismatchError, match="a Python float"):
        compiled(2.0)
    assert float(half.lower(weak).compile()(2.0)) == 1.0


def test_jax_default_that_was_left_out_may_not_be_passed() -> None:
    @xpolicy.compile(name="mylib.power")
    def power(x, k=2):
        return x**k

    compiled = power.lower(jnp.ones(3)).compile()
    with pytest.raises(xpolicy.StructureMismatchError, match=r"args\[1\]: left out expected"):
        compiled(jnp.ones(3), 2)
    assert compiled(2 * jnp.ones(3)).tolist() == [4.0] * 3


def test_jax_tracers_are_refused() -> None:
    @xpolicy.compile(name="mylib.twice")
    def twice(x):
        return 2 * x

    compiled = twice.lower(jnp.ones(())).compile()
    with pytest.raises(xpolicy.StructureMismatchError, match="being traced"):
        jax.vmap(compiled)(jnp.ones(3))


def test_jax_device() -> None:
    code = """
    import jax, jax.numpy as jnp, xpolicy

    @xpolicy.compile(name="mylib.twice")
    def twice(x):
        return 2 * x

    first, second = jax.devices()
    compiled = twice.lower(jnp.ones(3)).compile()
    print(compiled(jnp.ones(3)))
    try:
        compiled(jax.device_put(jnp.ones(3), second))
    except xpolicy.StructureMismatchError as error:
        print(error.kind, error.expected, error.got)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[0] == "[2. 2. 2.]"
    assert done.stdout.splitlines()[1:] == ["device float32[3] on cpu:0 float32[3] on cpu:1"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (lambda: torch.ones(4, device="meta"), "float32[4] on meta"),
        (lambda: torch.ones(4, requires_grad=True), "float32[4] requires_grad"),
        (lambda: torch.ones(8)[::2], "float32[4] strides=(2,)"),
        (lambda: torch.nn.Parameter(torch.ones(4), requires_grad=False), "Parameter float32[4]"),
        (lambda: torch.ones(4).to_sparse(), "float32[4]"),
    ],
    ids=["device", "requires_grad", "strides", "subclass", "layout"],
)
def test_torch_tells_tensors_apart_by_more_than_shape(given: Callable[[], Any], told: str) -> None:
    library = MAKERS["torch"]()
    args, kwargs = library.call()
    args[1] = given()
    with pytest.raises(xpolicy.StructureMismatchError) as caught:
        library.compiled(*args, **kwargs)
    assert caught.value.path == "args[1]"
    assert told in caught.value.got


def test_torch_compiled_in_other_circumstances() -> None:
    library = MAKERS["torch"]()
    args, kwargs = library.call()
    with (
        torch.no_grad(),
        pytest.raises(xpolicy.StructureMismatchError, match="grad mode: True -> False"),
    ):
        library.compiled(*args, **kwargs)
