"""The dispatcher as a function: what introspection, copying and other decorators see."""

from __future__ import annotations

import abc
import asyncio
import copy
import doctest
import functools
import inspect
import pickle
import pydoc
import subprocess
import sys
import tracemalloc
import types
from typing import Any, get_type_hints

import numpy as np
import pytest
import torch

from tests.unit.runtime.entries import Recorder
from xpolicy.errors import DecorationError, XPolicyError
from xpolicy.runtime.dispatch import build
from xpolicy.runtime.shapes import shape_of

T = torch.ones(1)
MARK: list[int] = []


def decorate(fn: Any) -> Any:
    inner = fn.__func__ if isinstance(fn, (staticmethod, classmethod)) else fn
    return build(fn, Recorder(inner))


def plain(x: Any, /, n: int = 1, *args: float, axis: int | None = None, **more: str) -> Any:
    """Add.

    >>> 1 + 1
    2
    """
    return x


plain.attribute = "kept"  # type: ignore[attr-defined]


@decorate
def decorated(x: Any, n: int = 1, *, mark: list[int] = MARK) -> Any:
    """Multiply.

    >>> decorated(3, 4)
    12
    """
    return x * n


def test_names_and_attributes_are_the_originals() -> None:
    made = decorate(plain)
    assert type(made) is types.FunctionType
    for name in (*functools.WRAPPER_ASSIGNMENTS, "attribute", "__globals__"):
        assert getattr(made, name) == getattr(plain, name)
    assert made.__wrapped__ is plain
    assert repr(made).startswith("<function plain at ")


def test_introspection_sees_the_original_signature() -> None:
    made = decorate(plain)
    assert inspect.signature(made) == inspect.signature(plain)
    assert inspect.signature(made, eval_str=True) == inspect.signature(plain, eval_str=True)
    assert inspect.getfullargspec(made) == inspect.getfullargspec(plain)
    assert get_type_hints(made) == get_type_hints(plain)
    assert pydoc.render_doc(made) == pydoc.render_doc(plain)
    assert inspect.getsource(made) == inspect.getsource(plain)
    assert inspect.isfunction(made)


def test_defaults_look_like_the_originals() -> None:
    marker = object()

    def f(
        x: Any,
        a: Any = marker,
        b: Any = None,
        z: Any = 0.0,
        t: Any = True,
        *,
        big: int = 10**5000,
        c: Any = -0.0,
    ) -> None: ...

    made = decorate(f)
    assert made.__defaults__ == f.__defaults__
    assert made.__kwdefaults__ == f.__kwdefaults__
    assert repr(made.__kwdefaults__["c"]) == "-0.0"
    assert repr(made.__defaults__) == repr(f.__defaults__)
    assert hash(made.__defaults__) == hash(f.__defaults__)
    assert inspect.signature(made).parameters["a"].default is marker


def test_a_function_without_a_body_of_python_takes_the_general_form() -> None:
    ufunc = decorate(np.add)
    assert ufunc.__name__ == "add"
    assert ufunc(1, 2) == 3
    partial = decorate(functools.partial(plain, n=2))
    assert partial(1) == 1

    class Callable:
        def __call__(self, x: Any) -> Any:
            return x + 1

    instance = decorate(Callable())
    assert instance(1) == 2
    assert instance.__name__ == "Callable"
    assert instance.__annotations__ == {}
    assert torch.equal(instance(T), T + 1)


def test_a_bound_method_keeps_its_signature() -> None:
    class Model:
        def step(self, x: Any, n: int = 1) -> Any:
            return self, x, n

    model = Model()
    made = decorate(model.step)
    assert made(5) == (model, 5, 1)
    assert made(x=5, n=2) == (model, 5, 2)
    assert inspect.signature(made) == inspect.signature(model.step)
    with pytest.raises(TypeError, match="step"):
        made()


def test_methods_of_every_kind() -> None:
    class Model:
        scale = 3

        @decorate
        def method(self, x: Any) -> Any:
            return self.scale * x

        @decorate
        @classmethod
        def above_class(cls, x: Any) -> Any:
            return cls.scale * x

        @classmethod
        @decorate
        def below_class(cls, x: Any) -> Any:
            return cls.scale * x

        @decorate
        @staticmethod
        def above_static(x: Any) -> Any:
            return x

        @staticmethod
        @decorate
        def below_static(x: Any) -> Any:
            return x

        @property
        @decorate
        def prop(self) -> Any:
            return self.scale

        @functools.cached_property
        @decorate
        def cached(self) -> Any:
            return self.scale

        @decorate
        def __mangled(self, __x: Any, *, __n: Any = 1) -> Any:  # noqa: PYI063  # mangled
            return __x, __n

        def call_mangled(self) -> Any:
            return self.__mangled(1), self.__mangled(1, _Model__n=2)

        @decorate
        def __call__(self, x: Any) -> Any:
            return super().__repr__() and x

    class Child(Model):
        scale = 4

    model = Child()
    assert model.method(2) == Child.method(model, 2) == 8
    assert model.above_class(2) == Child.below_class(2) == 8
    assert model.above_static(2) == Child.below_static(2) == 2
    assert model.prop == model.cached == 4
    assert model.call_mangled() == ((1, 1), (1, 2))
    assert model(7) == 7


def test_abstract_methods_stay_abstract() -> None:
    class Above(abc.ABC):
        @abc.abstractmethod
        @decorate
        def f(self) -> None: ...

    class Below(abc.ABC):
        @decorate
        @abc.abstractmethod
        def f(self) -> None: ...

    for cls in (Above, Below):
        with pytest.raises(TypeError, match="abstract"):
            cls()


def test_standard_wrappers_of_it_work() -> None:
    made = decorate(lambda x, n=1: (x, n))
    assert functools.partial(made, n=3)(1) == (1, 3)
    assert functools.lru_cache(made)(1) == (1, 1)

    @functools.singledispatch
    @decorate
    def general(x: Any) -> str:
        return "general"

    @general.register
    @decorate
    def _(x: int) -> str:
        return "int"

    assert general("s") == "general"
    assert general(1) == "int"


def test_wrappers_below_it_are_called_by_their_own_parameters() -> None:
    def doubling(f: Any) -> Any:
        @functools.wraps(f)
        def wrapper(*args: Any, twice: bool = True, **kwargs: Any) -> Any:
            return f(*args, **kwargs) * (2 if twice else 1)

        return wrapper

    def f(x: int, n: int = 1) -> int:
        return x * n

    made = decorate(doubling(f))
    assert made(2, n=3) == 12
    assert made(2, 3, twice=False) == 6
    assert inspect.signature(made) == inspect.signature(f)
    assert doubling(decorate(f))(2, n=3) == 12


def test_parameters_that_no_source_can_name_take_the_general_form() -> None:
    def f(x: Any, y: Any = 1) -> Any:
        return x, y

    for name in ("class", "not a name", "1x", "ﬁ"):
        odd = types.FunctionType(
            f.__code__.replace(co_varnames=("x", name)), globals(), "odd", f.__defaults__
        )
        made = decorate(odd)
        assert made(1) == (1, 1)
        assert made(1, **{name: 2}) == (1, 2)
        with pytest.raises(TypeError, match=r"f\(\) missing 1 required positional argument: 'x'"):
            made()


def test_it_pickles_by_name_and_copies_to_itself() -> None:
    scope = types.ModuleType("somewhere")
    scope.f = decorate(plain)  # type: ignore[attr-defined]
    scope.f.__module__, scope.f.__qualname__ = "somewhere", "f"
    sys.modules["somewhere"] = scope
    try:
        assert pickle.loads(pickle.dumps(scope.f)) is scope.f
    finally:
        del sys.modules["somewhere"]
    assert copy.copy(scope.f) is copy.deepcopy(scope.f) is scope.f


def test_doctest_finds_it_in_its_module() -> None:
    module = types.ModuleType(__name__)
    module.__dict__.update({"decorated": decorated, "__file__": __file__})
    found = doctest.DocTestFinder().find(decorated, globs={"decorated": decorated})
    assert [len(test.examples) for test in found] == [1]
    assert doctest.DocTestRunner().run(found[0]).failed == 0
    assert decorated.__globals__ is globals()  # what doctest goes by, in a whole module


def test_functions_of_one_parameter_list_share_their_code() -> None:
    def f(x: Any, n: int = 1) -> Any:
        local = n
        return x, local

    def g(x: Any, n: str = "other") -> Any:
        return n

    def h(x: Any, m: int = 1) -> Any: ...

    assert decorate(f).__code__ is decorate(g).__code__
    assert decorate(f).__code__ is not decorate(h).__code__
    assert decorate(g)(T) == "other"


class Module(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x


async def coroutine() -> None: ...


async def async_generator() -> Any:
    yield


def generator() -> Any:
    yield


class Asynchronous:
    async def __call__(self) -> None: ...

    async def method(self) -> None: ...

    @property
    def prop(self) -> None: ...


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (Asynchronous, "is a class"),
        (coroutine, "coroutine is a coroutine function"),
        (types.coroutine(lambda: (yield)), "a coroutine function"),
        (async_generator, "async_generator is an async generator function"),
        (generator, "generator is a generator function"),
        (functools.partial(generator), "a generator function"),
        (Asynchronous(), "a coroutine function"),
        (Asynchronous().method, "Asynchronous.method is a coroutine function"),
        (staticmethod(coroutine), "coroutine is a coroutine function"),
        (classmethod(generator), "generator is a generator function"),
        (Asynchronous.prop, "put @property above"),
        (Module(), "Module.forward"),
        (3, "can't be called"),
    ],
)
def test_what_no_compiler_takes_is_refused_at_decoration(target: Any, said: str) -> None:
    with pytest.raises(DecorationError, match=said) as caught:
        decorate(target)
    assert isinstance(caught.value, XPolicyError)
    assert isinstance(caught.value, TypeError)
    assert caught.value.problems[0].fix


def test_a_refusal_names_the_place() -> None:
    with pytest.raises(DecorationError) as caught:
        decorate(coroutine)
    assert caught.value.file == __file__
    assert caught.value.line == coroutine.__code__.co_firstlineno
    assert caught.value.key == f"{__name__}.coroutine"
    assert asyncio.iscoroutinefunction(coroutine)


def test_a_module_class_may_be_decorated_in_its_method() -> None:
    class Decorated(torch.nn.Module):
        @decorate
        def forward(self, x: Any) -> Any:
            return x * 2

    assert torch.equal(Decorated()(T), T * 2)


def test_a_decorated_function_is_small() -> None:
    scope: dict[str, Any] = {}
    for number in range(1000):
        exec(f"def f{number}(x, y, n=1, *, axis=None): ...", scope)
    functions = [scope[f"f{number}"] for number in range(1000)]
    entries = [Recorder(function) for function in functions]
    shape_of(functions[0])
    tracemalloc.start()
    try:
        made = [build(*both) for both in zip(functions, entries, strict=True)]
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(made) == 1000
    # 970 bytes on CPython 3.11. The budget of 2 kB is for the entry as well.
    assert used / 1000 < 1100


def test_decorating_imports_little() -> None:
    code = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "from xpolicy.runtime.dispatch import build\n"
        "class Entry: table = {}\n"
        "build(lambda x, n=1: x, Entry())\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(*sorted(new - {'xpolicy', '__future__', '_functools', 'itertools'}))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert run.stdout.split() == []
