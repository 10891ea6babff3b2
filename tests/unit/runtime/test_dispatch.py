"""What a call of a decorated function comes to: which callable, with which arguments."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import traceback
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from tests.unit.runtime.entries import Recorder
from xpolicy.runtime import dispatch
from xpolicy.runtime.dispatch import build

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = torch.ones(1)
N = np.ones(1)


def recorded(fn: Callable[..., Any]) -> tuple[Any, Recorder]:
    entry = Recorder(fn)
    return build(fn, entry), entry


@pytest.fixture
def overrides() -> Iterator[None]:
    dispatch.set_overrides_active(True)
    yield
    dispatch.set_overrides_active(False)


SIGNATURES = [
    "",
    "x",
    "x, /",
    "x=1",
    "x, y",
    "x, /, y",
    "x, y=2",
    "x, y=2, z=3",
    "x=1, /, y=2",
    "x=1, /, y=2, *, k=3",
    "*, k",
    "*, k=1",
    "x, *, k, m=2, p=3",
    "x, y=2, *, k=3, m=4",
    "a, b=1, c=2, d=3, e=4, f=5",  # more defaults than are enumerated
    "a=0, b=1, /, c=2, d=3, e=4, *, f=5, g",
    "a, b=1, c=2, d=3, *rest, e=4, f=5, **more",
    "*args",
    "**kwargs",
    "*args, **kwargs",
    "x, *args",
    "x, y=2, *args, k=3, **kwargs",
    "x, /, **kwargs",
    "_xp_table, _xp_fn=1",  # names of the generated code's own kind
    "type, table, fn, call, entry=1",
    "_xp, *, _xp_call=2",
    "self, dispatch, factory",
]

CALLS: list[tuple[tuple[Any, ...], tuple[str, ...]]] = [
    (tuple(range(10, 10 + count)), names)
    for count in range(6)
    for size in range(3)
    for names in itertools.combinations(
        ["x", "y", "k", "m", "b", "c", "d", "f", "g", "_xp_fn", "entry", "other"], size
    )
]


def outcome(call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return call(*args, **kwargs)
    except TypeError as error:
        return str(error)


@pytest.mark.parametrize("signature", SIGNATURES)
@pytest.mark.parametrize("first", [0, N, T], ids=["no array", "numpy", "torch"])
def test_every_form_of_call_gives_what_the_function_gives(signature: str, first: Any) -> None:
    scope: dict[str, Any] = {}
    exec(f"def f({signature}): return dict(locals())", scope)
    dispatcher, entry = recorded(scope["f"])
    called = 0
    for others, names in CALLS:
        kwargs: dict[str, Any] = {name: index for index, name in enumerate(names)}
        args = (first, *others[1:]) if others else ()
        if kwargs and not args:
            kwargs[names[-1]] = first
        expected = outcome(scope["f"], args, kwargs)
        # The text of Python's own TypeError included.
        assert outcome(dispatcher, args, kwargs) == expected
        called += isinstance(expected, dict) and bool(args or kwargs)
    assert called or not signature
    assert len(entry.calls) == (called if first is T else 0)


def test_an_omitted_default_stays_omitted() -> None:
    def f(x: Any, n: int = 1, *, axis: int = 0) -> None: ...

    dispatcher, entry = recorded(f)
    dispatcher(T)
    dispatcher(T, 1)
    dispatcher(T, n=1)
    dispatcher(T, axis=0)
    dispatcher(x=T, n=1, axis=0)
    assert [(args[1:], kwargs) for _, args, kwargs in entry.calls] == [
        ((), {}),
        ((1,), {}),
        ((1,), {}),
        ((), {"axis": 0}),
        ((1,), {"axis": 0}),
    ]


def test_arguments_after_an_omitted_one_are_passed_by_keyword() -> None:
    def few(x: Any, a: int = 1, b: int = 2) -> None: ...
    def many(x: Any, a: int = 1, b: int = 2, c: int = 3, d: int = 4, e: int = 5) -> None: ...

    for f in (few, many):
        dispatcher, entry = recorded(f)
        dispatcher(T, b=7)
        dispatcher(T, b=7, a=6)
        assert [(args[1:], kwargs) for _, args, kwargs in entry.calls] == [
            ((), {"b": 7}),
            ((6, 7), {}),
        ]


def test_defaults_keep_their_identity() -> None:
    mark: list[int] = []

    def f(x: Any, a: list[int] = mark, *, b: Any = threading.Lock()) -> Any:  # noqa: B008
        return a, b

    dispatcher, _ = recorded(f)
    a, b = dispatcher(T)
    assert a is mark
    assert b is f.__kwdefaults__["b"]


def test_defaults_that_are_changed_later_count() -> None:
    def f(x: Any, n: int = 1) -> int:
        return n

    dispatcher, _ = recorded(f)
    f.__defaults__ = (5,)
    assert dispatcher(T) == 5


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ((T, N), {}, "torch"),
        ((N, T), {}, "torch"),
        ((N, N, T), {}, "torch"),
        ((1, None, T), {}, "torch"),
        (((1, 2), T), {}, "torch"),
        (([N], N, T), {}, "torch"),
        ((N,), {"k": T}, "torch"),
        ((1,), {"k": T}, "torch"),
        ((1,), {"k": [T]}, "torch"),
        (([1, {"a": (T,)}],), {}, "torch"),
        ((N, [T]), {}, None),
        ((N, (0, 1)), {}, None),
        ((np.float64(1), [T]), {}, "torch"),
        ((1, 2), {}, None),
        (([1], "x"), {}, None),
    ],
)
def test_the_deciding_array_is_found(args: Any, kwargs: Any, expected: str | None) -> None:
    def exact(a: Any, b: Any = None, c: Any = None, *, k: Any = None) -> None: ...
    def starred(*args: Any, **kwargs: Any) -> None: ...
    def mixed(a: Any, *args: Any, k: Any = None, **kwargs: Any) -> None: ...

    for f in (exact, starred, mixed):
        dispatcher, entry = recorded(f)
        for _ in range(3):  # the first call, and those that the table answers
            dispatcher(*args, **kwargs)
        assert entry.namespaces == ([expected] * 3 if expected else [])


def test_arrays_in_stars_decide() -> None:
    def f(x: Any, *args: Any, k: Any = 1, **kwargs: Any) -> None: ...

    dispatcher, entry = recorded(f)
    for _ in range(2):
        dispatcher(1, 2, T)
        dispatcher(N, N, T)
        dispatcher(1, other=T)
        dispatcher(N, (1, 2), other=T)
        dispatcher(N, other=[T])
        dispatcher(1, [T])
    assert entry.namespaces == ["torch"] * 10


def test_a_library_without_a_compiler_is_asked_for_once() -> None:
    def f(x: Any, y: Any = None) -> Any:
        return x

    dispatcher, entry = recorded(f)
    for _ in range(3):
        assert dispatcher(N) is N
        dispatcher(N, N)
        dispatcher(N, [1])
    assert entry.bound == [(np.ndarray, "numpy")]


def test_a_later_torch_array_beats_a_library_that_has_a_compiler() -> None:
    def f(x: Any, y: Any = None) -> None: ...

    entry = Recorder(f, compilers=("torch", "numpy"))
    dispatcher = build(f, entry)
    for _ in range(2):
        dispatcher(N)
        dispatcher(N, T)
        dispatcher(N, 1)
        dispatcher(np.float64(1))
    assert entry.namespaces == ["numpy", "torch", "numpy", "numpy"] * 2


def test_a_library_that_has_a_compiler_is_asked_for_once() -> None:
    def f(x: Any, y: Any = None) -> None: ...

    entry = Recorder(f, compilers=("torch", "numpy"))
    dispatcher = build(f, entry)
    for _ in range(3):
        dispatcher(N)
        dispatcher(N, N)
        dispatcher(N, T)
    assert entry.bound == [(np.ndarray, "numpy"), (torch.Tensor, "torch")]
    assert entry.namespaces == ["numpy", "numpy", "torch"] * 3
    entry.table.clear()  # a changed policy
    dispatcher(N)
    assert entry.bound[2:] == [(np.ndarray, "numpy")]


def test_numpy_alone_after_numpy_with_torch_still_asks() -> None:
    def f(x: Any, y: Any = None) -> None: ...

    entry = Recorder(f, compilers=("torch", "numpy"))
    dispatcher = build(f, entry)
    dispatcher(N, T)
    dispatcher(N)
    assert entry.namespaces == ["torch", "numpy"]


def test_each_type_is_bound_once() -> None:
    def f(x: Any, y: Any = None) -> None: ...

    dispatcher, entry = recorded(f)
    parameter = torch.nn.Parameter(torch.ones(1))
    for _ in range(3):
        dispatcher(T)
        dispatcher(1, parameter)
        dispatcher([parameter])
    assert entry.bound == [(torch.Tensor, "torch"), (torch.nn.Parameter, "torch")]


def test_a_numpy_scalar_that_was_met_alone_hides_no_array_later() -> None:
    def f(x: Any, y: Any = None) -> None: ...

    dispatcher, entry = recorded(f)
    for _ in range(2):
        dispatcher(np.float64(1))
        dispatcher(np.float64(1), [T])
    assert entry.namespaces == ["torch"] * 2


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((T,), {}),
        ((N,), {}),
        ((N, N), {}),
        ((N, T), {}),
        ((N, (0, 1)), {}),
        (((0, 1), N), {}),
        (((0, 1), T), {}),
        ((1, "x"), {}),
        ((N,), {"k": None}),
        ((np.float64(1),), {}),
    ],
)
def test_a_known_form_of_call_runs_no_code_but_the_dispatchers(args: Any, kwargs: Any) -> None:
    def exact(a: Any, b: Any = 1, *, k: Any = 2) -> None: ...
    def starred(*args: Any, **kwargs: Any) -> None: ...

    for f in (exact, starred):
        entry = Recorder(f)
        entry._recording = lambda name, f=f: f  # type: ignore[method-assign, misc]
        dispatcher = build(f, entry)
        dispatcher(*args, **kwargs)
        codes = []
        sys.setprofile(lambda frame, event, _, codes=codes: codes.append((event, frame.f_code)))
        try:
            dispatcher(*args, **kwargs)
        finally:
            sys.setprofile(None)
        ran = [code for event, code in codes if event == "call"]
        assert ran == [dispatcher.__code__, f.__code__]


def test_clearing_the_table_asks_again() -> None:
    def f(x: Any) -> None: ...

    dispatcher, entry = recorded(f)
    dispatcher(T)
    dispatcher(N)
    entry.table.clear()
    dispatcher(T)
    dispatcher(N)
    assert [namespace for _, namespace in entry.bound] == ["torch", "numpy"] * 2


def test_a_policy_error_comes_alone_and_is_not_remembered() -> None:
    def f(x: Any) -> str:
        return "ran"

    dispatcher, entry = recorded(f)
    entry.failure = ValueError("a bad policy")
    for _ in range(2):
        with pytest.raises(ValueError, match="a bad policy") as caught:
            dispatcher(T)
        assert caught.value.__context__ is None
    entry.failure = None
    assert dispatcher(T) == "ran"


@pytest.mark.parametrize("argument", [1, N, T, [T]], ids=["scalar", "numpy", "torch", "list"])
def test_an_exception_of_the_function_passes_untouched(argument: Any) -> None:
    error = KeyError("mine")

    def f(x: Any) -> None:
        raise error

    dispatcher, _ = recorded(f)
    for _ in range(2):
        with pytest.raises(KeyError) as caught:
            dispatcher(argument)
        assert caught.value is error
        assert error.__context__ is None
        assert error.__cause__ is None


def test_tracebacks_show_the_dispatchers_source() -> None:
    def f(x: Any, n: int = 1) -> None:
        raise ValueError

    dispatcher, _ = recorded(f)
    for _ in range(2):
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            dispatcher(T)
        frame = traceback.extract_tb(caught.value.__traceback__)[1]
        assert frame.filename == "<xpolicy dispatch(x, n=d0)>"
        assert frame.line == "return _xp_call(x)"


def test_a_function_that_calls_itself_by_name() -> None:
    scope: dict[str, Any] = {}
    exec("def f(x, n):\n    return x if n == 0 else f(x + 1, n - 1)", scope)
    original = scope["f"]
    scope["f"], entry = recorded(original)
    assert scope["f"](T, 3) == 4
    assert scope["f"](N, 3) == 4
    assert len(entry.calls) == 4


def test_overrides_are_asked_on_every_call_and_leave_nothing_behind(overrides: None) -> None:
    def f(x: Any, n: int = 1) -> Any:
        return x

    dispatcher, entry = recorded(f)
    dispatcher(T)
    dispatcher(N, 1)
    dispatcher([T], n=2)
    assert dispatcher(1) == 1
    assert entry.namespaces == ["overridden torch", "overridden numpy", "overridden torch"]
    assert entry.bound == []
    assert entry.table == {}
    dispatch.set_overrides_active(False)
    dispatcher(T)
    assert entry.namespaces[3:] == ["torch"]


def test_overrides_switch_every_dispatcher_at_once() -> None:
    def f(x: Any) -> None: ...
    def g(*args: Any) -> None: ...

    made = [recorded(f), recorded(g)]
    try:
        dispatch.set_overrides_active(True)
        for dispatcher, _ in made:
            dispatcher(T)
    finally:
        dispatch.set_overrides_active(False)
    for dispatcher, entry in made:
        dispatcher(T)
        assert entry.namespaces == ["overridden torch", "torch"]


class Unhashable(type):
    def __hash__(cls) -> int:
        raise RuntimeError("no hash")


class Failing:
    def __array_namespace__(self, api_version: str | None = None) -> Any:
        raise RuntimeError("not now")


class Liar:
    @property
    def __class__(self) -> Any:  # type: ignore[override]
        return torch.Tensor


@pytest.mark.parametrize("value", [Unhashable("A", (), {})(), Failing(), Liar()])
def test_hostile_objects_reach_the_function_as_they_are(value: object) -> None:
    def f(x: Any, y: Any = None) -> Any:
        return x

    dispatcher, entry = recorded(f)
    for _ in range(2):
        assert dispatcher(value) is value
        assert dispatcher(value, N) is value
        assert dispatcher([value])[0] is value
        assert entry.calls == []
    assert dispatcher(value, T) is value
    assert entry.namespaces == ["torch"]
    assert [namespace for _, namespace in entry.bound] == ["numpy", "torch"]


def test_arrays_whose_type_cannot_be_remembered_still_decide() -> None:
    class Array(np.ndarray, metaclass=Unhashable):
        pass

    class Tensor(torch.Tensor, metaclass=type("Meta", (Unhashable, type(torch.Tensor)), {})):
        pass

    def f(x: Any, y: Any = None) -> Any:
        return x

    dispatcher, entry = recorded(f)
    array, tensor = N.view(Array), T.as_subclass(Tensor)
    for _ in range(2):
        assert dispatcher(array) is array
        assert dispatcher(array, tensor) is array
    assert entry.namespaces == ["overridden numpy", "overridden torch"] * 2
    assert entry.bound == []


def test_types_made_on_the_fly_are_forgotten() -> None:
    def f(x: Any, y: Any = None) -> None: ...

    dispatcher, entry = recorded(f)
    dispatcher(T)
    made = []
    for number in range(5000):
        cls = type(f"Made{number}", (), {})
        made.append(weakref.ref(cls))
        dispatcher(cls(), T)
        entry.calls.clear()
        del cls
    gc.collect()
    assert len(entry.table) <= dispatch._TABLE_LIMIT + 1
    assert sum(reference() is not None for reference in made) <= 1024 + dispatch._TABLE_LIMIT


def test_threads_that_call_first_all_get_their_answer() -> None:
    def f(x: Any, y: Any) -> Any:
        return x

    dispatcher, entry = recorded(f)
    barrier = threading.Barrier(8)
    answers: list[Any] = []

    def run() -> None:
        barrier.wait()
        answers.extend(dispatcher(N, T) for _ in range(50))

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == len(entry.calls) == 400
    assert set(entry.namespaces) == {"torch"}
