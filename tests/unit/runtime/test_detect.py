"""Which argument decides, and how that compares with array-api-compat."""

from __future__ import annotations

import gc
import subprocess
import sys
import types
import weakref
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field
from typing import Any

import array_api_compat
import array_api_strict
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from xpolicy.runtime import detect
from xpolicy.runtime.detect import deciding, namespace_of, sort


class Subclassed(np.ndarray):
    pass


class Tensor(torch.Tensor):
    pass


class Foreign:
    """An array of a library that nobody has heard of."""

    def __array_namespace__(self, api_version: str | None = None) -> types.ModuleType:
        return types.ModuleType("elsewhere.arrays.v2")


Pair = namedtuple("Pair", "left right")  # noqa: PYI024  # the untyped kind is meant


@dataclass
class State:
    label: str
    value: object
    more: list[object] = field(default_factory=list)


def decided(*values: object) -> str | None:
    found = deciding(values)
    return None if found is None else found[1]


ARRAYS = {
    "numpy": np.ones(2),
    "numpy subclass": np.ones(2).view(Subclassed),
    "numpy masked": np.ma.ones(2),
    "numpy 0-d": np.asarray(1.0),
    "numpy scalar": np.float64(1),
    "numpy bool": np.bool_(True),
    "torch": torch.ones(2),
    "torch parameter": torch.nn.Parameter(torch.ones(2)),
    "torch subclass": torch.ones(2).as_subclass(Tensor),
    "jax": jnp.ones(2),
    "jax key": jax.random.key(0),
    "strict": array_api_strict.ones(2),
}


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_an_array_is_of_the_library_that_array_api_compat_says(array: Any) -> None:
    expected = array_api_compat.array_namespace(array).__name__
    expected = expected.removeprefix("array_api_compat.").partition(".")[0]
    assert namespace_of(type(array)) == expected
    assert namespace_of(type(array), array) == expected
    assert decided(array) == expected


@pytest.mark.parametrize(
    "value", [None, 1, 1.5, True, "text", b"", object(), ..., {1}, range(3), np, np.dtype(int)]
)
def test_what_array_api_compat_knows_no_namespace_of_decides_nothing(value: Any) -> None:
    if not isinstance(value, (int, float, type(None))):
        with pytest.raises(TypeError):
            array_api_compat.array_namespace(value)
    assert namespace_of(type(value)) is None
    assert decided(value) is None


def test_tracers_are_jax_arrays() -> None:
    seen = []

    def f(x: Any) -> Any:
        seen.append((type(x).__name__, decided(x)))
        return x * 2.0

    jax.make_jaxpr(f)(1.0)
    jax.vmap(f)(jnp.ones(2))
    jax.grad(f)(1.0)
    jax.jvp(f, (1.0,), (1.0,))
    assert len({name for name, _ in seen}) >= 3
    assert {namespace for _, namespace in seen} == {"jax"}


def test_an_unknown_array_names_the_top_level_module_of_its_namespace() -> None:
    assert namespace_of(Foreign, Foreign()) == "elsewhere"
    assert decided(Foreign()) == "elsewhere"
    # Without an instance only the module of the type is known.
    assert namespace_of(array_api_strict._array_object.Array) == "array_api_strict"


def test_the_first_torch_or_jax_array_decides_wherever_it_stands() -> None:
    n, t, j, s = np.ones(1), torch.ones(1), jnp.ones(1), array_api_strict.ones(1)
    assert decided(n, t) == "torch"
    assert decided(n, j) == "jax"
    assert decided(1, s, n, j, t) == "jax"
    assert decided(t, j) == "torch"
    assert decided(np.float64(1), t) == "torch"


def test_without_one_the_first_other_array_decides() -> None:
    assert decided(1, array_api_strict.ones(1), np.ones(1)) == "array_api_strict"
    assert decided("a", np.ones(1), array_api_strict.ones(1)) == "numpy"
    assert decided(np.float64(1), array_api_strict.ones(1)) == "array_api_strict"


def test_containers_are_searched_only_if_no_argument_is_an_array() -> None:
    t = torch.ones(1)
    assert decided([t]) == "torch"
    assert decided([t], np.ones(1)) == "numpy"
    assert decided([t], np.float64(1)) == "torch"  # a scalar hides no array


@pytest.mark.parametrize(
    "container",
    [
        [1, torch.ones(1)],
        (torch.ones(1), None),
        {"a": torch.ones(1)},
        OrderedDict(a=torch.ones(1)),
        Pair(1, torch.ones(1)),
        State("s", torch.ones(1)),
        {"a": [(State("s", torch.ones(1)),)]},
        [np.ones(1), torch.ones(1)],
        [[np.ones(1)], [torch.ones(1)]],
        [[1.0] * 1000, torch.ones(1)],
    ],
    ids=lambda value: type(value).__name__,
)
def test_arrays_are_found_in_containers(container: object) -> None:
    assert decided(container) == "torch"


def test_the_outermost_array_of_a_container_decides() -> None:
    assert decided([[jnp.ones(1)], torch.ones(1)]) == "torch"


def test_the_search_is_bounded() -> None:
    t = torch.ones(1)
    nested: object = t
    for _ in range(detect.DEPTH):
        nested = [nested]
    assert decided(nested) == "torch"
    assert decided([nested]) is None
    assert decided([0] * (detect.WIDTH - 1) + [t]) == "torch"
    assert decided([0] * detect.WIDTH + [t]) is None
    many = [[0] * detect.WIDTH for _ in range(detect.ITEMS // detect.WIDTH)]
    assert decided([*many[1:], [t]]) == "torch"
    assert decided([*many, [t]]) is None


def test_a_container_that_holds_itself_ends() -> None:
    loop: list[object] = []
    loop.append(loop)
    assert decided(loop) is None


def test_containers_are_not_asked_by_methods_of_their_own() -> None:
    class Endless(list[object]):
        def __iter__(self) -> Any:
            raise AssertionError("iterated")

        def __getitem__(self, index: Any) -> Any:
            raise AssertionError("indexed")

    class Computed(dict[str, object]):
        def values(self) -> Any:
            raise AssertionError("asked")

    assert decided(Endless([torch.ones(1)])) == "torch"
    assert decided(Computed(a=torch.ones(1))) == "torch"


class Failing:
    def __array_namespace__(self, api_version: str | None = None) -> Any:
        raise RuntimeError("not now")


class Unhashable(type):
    def __hash__(cls) -> int:
        raise RuntimeError("no hash")


class Unequal(type):
    def __eq__(cls, other: object) -> bool:
        raise RuntimeError("no comparison")

    def __hash__(cls) -> int:
        return hash(np.ndarray)


class Liar:
    @property
    def __class__(self) -> Any:  # type: ignore[override]
        return torch.Tensor


class Everything:
    def __getattr__(self, name: str) -> Any:
        return self


@dataclass
class Broken:
    value: int = 0

    def __getattribute__(self, name: str) -> Any:
        if name in ("__class__", "__dict__"):  # pytest asks for them while collecting
            return object.__getattribute__(self, name)
        raise RuntimeError("no attribute")


HOSTILE = [
    Failing(),
    Unhashable("A", (), {})(),
    Unequal("B", (), {})(),
    Liar(),
    Everything(),
    Broken(),
]


@pytest.mark.parametrize("value", HOSTILE, ids=[type.__repr__(type(v)) for v in HOSTILE])
def test_objects_that_fail_or_lie_are_no_arrays(value: object) -> None:
    sort(np.ones(1))
    assert decided(value) is None
    assert decided(value, torch.ones(1)) == "torch"
    assert decided([value, torch.ones(1)]) == "torch"
    assert decided(value, np.ones(1)) == "numpy"


def test_types_made_on_the_fly_are_not_kept_alive_without_limit() -> None:
    made = []
    for number in range(3 * detect._SORTED_LIMIT):
        cls = type(f"Made{number}", (), {})
        made.append(weakref.ref(cls))
        sort(cls())
        del cls
    gc.collect()
    alive = sum(reference() is not None for reference in made)
    assert alive <= detect._SORTED_LIMIT
    assert len(detect._SORTED) <= detect._SORTED_LIMIT


def test_no_array_library_is_imported() -> None:
    code = (
        "import sys\n"
        "from xpolicy.runtime.detect import deciding\n"
        "class A:\n"
        "    def __array_namespace__(self, api_version=None): return sys\n"
        "print(deciding(([1, A()], {}, 'x'))[1])\n"
        "print(sorted({'numpy', 'torch', 'jax', 'cupy', 'dask', 'array_api_compat'}"
        " & set(sys.modules)))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert run.stdout.split() == ["sys", "[]"]


def test_a_module_that_is_imported_lazily_stays_unimported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Lazy(types.ModuleType):
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(f"{name} was asked for")

    monkeypatch.setitem(sys.modules, "cupy", Lazy("cupy"))
    assert namespace_of(type("Fresh", (), {})) is None
