"""Does a function give the same in every mode? Values, structure, effects, exceptions."""

from __future__ import annotations

import copy
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, cast

import xpolicy
from xpolicy.policy.options import MODES
from xpolicy.runtime.detect import CONTAINER, deciding, namespace_of, sort
from xpolicy.runtime.session import find, session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Rounding may differ in every operation, and errors grow with their number: two thirds of
#: a type's digits have to agree (float32: 2.4e-5, float64: 3.7e-11, bfloat16: 0.039).
DIGITS = 2 / 3
#: Sums that cancel keep the error of their terms: absolute, in units of the type's
#: precision at the largest value of the array.
CANCELLATION = 8


def assert_same_in_all_modes(
    function: Callable[..., Any], *args: Any, within: float | None = None, **kwargs: Any
) -> None:
    """Assert that a function gives the same eager, compiled and in one graph.

    It is called once in each mode that it supports, each time with copies of the
    arguments. Compared with the eager call are: the structure of the result, type,
    shape and dtype of each array in it, values, what was done to the arguments, and the
    type and message of an exception. Integers, booleans and everything that is no number
    must be equal; NaN equals NaN.

    Parameters
    ----------
    function : callable
        A decorated function; any other is put under policy for the purpose.
    *args, **kwargs
        What it is called with.
    within : float, optional
        The relative tolerance, for all floating-point types. Default: each type's own,
        ``eps ** (2/3)`` of the lesser type on either side, and for values that cancel
        8 eps of the largest in the array.

    Raises
    ------
    AssertionError
        For the first difference: mode, place in the result, both values.

    Examples
    --------
    >>> import torch, xpolicy
    >>> from xpolicy.testing import assert_same_in_all_modes
    >>> @xpolicy.compile(name="mylib.mean", torch={"backend": "eager"})
    ... def mean(x, axis=-1):
    ...     return x.sum(axis) / x.shape[axis]
    >>> assert_same_in_all_modes(mean, torch.ones((2, 3)), axis=0)
    """
    key, entry = find(function)
    if entry is None:
        function = xpolicy.compile(function)
        key, entry = find(function)
    found = deciding((*args, *kwargs.values()))
    if found is None:
        raise TypeError(f"no argument of {key} is an array: nothing would be compiled")
    namespace = found[1]
    expected = _outcome(function, "eager", args, kwargs)
    for mode in MODES[1:]:
        with xpolicy.override(key, mode=mode):
            if session.resolve(key, namespace, entry).mode != mode:
                continue  # its author says that it isn't supported
        got = _outcome(function, mode, args, kwargs)
        for where, difference in _differences(expected, got, within):
            raise AssertionError(
                f"{key} for {namespace} differs between mode eager and mode {mode} "
                f"in {where}: {difference}"
            )


def _outcome(
    function: Callable[..., Any], mode: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    args, kwargs = copied(args), copied(kwargs)
    outcome: dict[str, Any] = {"its exception": None, "its result": None}
    with xpolicy.override(find(function)[0], mode=mode):
        try:
            outcome["its result"] = function(*args, **kwargs)
        except Exception as error:
            if mode != "eager" and _by_compiler(error):
                raise
            outcome["its exception"] = (type(error), str(error))
    outcome["its arguments"] = (args, kwargs)
    return outcome


def _by_compiler(error: BaseException) -> bool:
    """Return whether a compiler, or a limit of ours, refused; the call shows nothing then."""
    if isinstance(error, xpolicy.XPolicyError):
        return True
    return any(note.startswith("xpolicy: ") for note in getattr(error, "__notes__", ()))


def copied(value: Any) -> Any:
    """Return a copy of a value in which every array that can be changed is a copy.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.zeros(1)
    >>> copied({"x": [x]})["x"][0] is x
    False
    """
    namespace = namespace_of(type(value), value)
    if namespace == "torch":
        return value.detach().clone().requires_grad_(value.requires_grad)
    if namespace is not None:
        return copy.deepcopy(value) if namespace != "jax" else value  # jax's never change
    if sort(value)[0] != CONTAINER:
        return value
    return _rebuilt(value, copied)


def _rebuilt(value: Any, change: Callable[[Any], Any]) -> Any:
    cls = type(value)
    if isinstance(value, dict):
        made = copy.copy(value)  # keeps what a subclass adds, such as a default factory
        made.update({name: change(item) for name, item in value.items()})
        return made
    if hasattr(value, "_fields"):  # a named tuple
        return cls(*(change(item) for item in value))
    if isinstance(value, list | tuple):
        return cls(change(item) for item in value)
    if is_dataclass(value):
        made = copy.copy(cast(Any, value))
        for field in fields(value):
            object.__setattr__(made, field.name, change(getattr(value, field.name)))
        return made
    return value


def _differences(a: Any, b: Any, within: float | None) -> Iterator[tuple[str, str]]:
    for name, first in a.items():
        for path, text in differences(first, b[name], within=within):
            yield f"{name}{path}", text


def differences(
    a: Any, b: Any, path: str = "", *, within: float | None = None
) -> Iterator[tuple[str, str]]:
    """Yield where two values differ, and how.

    Examples
    --------
    >>> import numpy as np
    >>> list(differences([1.0, np.ones(1)], [1.0, np.ones(2)]))
    [('[1]', 'shape (1,) and (2,)')]
    """
    first, second = namespace_of(type(a), a), namespace_of(type(b), b)
    if first is not None or second is not None:
        yield from _array_differences(a, b, first, second, path, within)
    elif type(a) is not type(b):
        yield path, f"{_told(a)} and {_told(b)}"
    elif sort(a)[0] == CONTAINER:
        first_items, second_items = _items(a), _items(b)
        if [name for name, _ in first_items] != [name for name, _ in second_items]:
            yield path, f"{_told(a)} and {_told(b)}"
            return
        for (name, x), (_, y) in zip(first_items, second_items, strict=True):
            yield from differences(x, y, path + name, within=within)
    elif isinstance(a, float | complex):
        import numpy as np

        yield from _number_differences(np.asarray(a), np.asarray(b), path, within)
    elif a is not b and a != b:
        yield path, f"{_told(a)} and {_told(b)}"


def _items(container: Any) -> list[tuple[str, Any]]:
    """Return what a container holds, each with the way to it."""
    if isinstance(container, dict):
        return [(f"[{name!r}]", item) for name, item in container.items()]
    if isinstance(container, list | tuple):
        return [(f"[{number}]", item) for number, item in enumerate(container)]
    return [(f".{f.name}", getattr(container, f.name)) for f in fields(container)]


def _told(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


def _array_differences(
    a: Any, b: Any, first: str | None, second: str | None, path: str, within: float | None
) -> Iterator[tuple[str, str]]:
    if first != second:
        yield path, f"{first or _told(a)} and {second or _told(b)}"
        return
    for what in ("shape", "dtype"):
        x, y = getattr(a, what), getattr(b, what)
        if what == "shape":
            x, y = tuple(x), tuple(y)  # torch.Size
        if x != y:
            yield path, f"{what} {x} and {y}"
            return
    yield from _number_differences(_as_numpy(a), _as_numpy(b), path, within, _eps(a))


def _as_numpy(array: Any) -> Any:
    import numpy as np

    if namespace_of(type(array), array) == "torch":
        array = array.detach().cpu()
        if not array.is_complex() and array.is_floating_point():
            array = array.double()  # NumPy has no bfloat16
        return array.resolve_conj().resolve_neg().numpy()
    return np.asarray(array)


def _eps(array: Any) -> float | None:
    """Return the precision of an array's type; None if it holds no fractions."""
    dtype = array.dtype
    if namespace_of(type(array), array) == "torch":
        import torch

        floating = dtype.is_floating_point or dtype.is_complex
        return float(torch.finfo(dtype).eps) if floating else None
    return _numpy_eps(_as_numpy(array).dtype)


def _numpy_eps(dtype: Any) -> float | None:
    import numpy as np

    if dtype.kind in "fc":
        return float(np.finfo(dtype).eps)
    if dtype.kind == "V" or "float" in dtype.name:  # ml_dtypes: bfloat16, float8
        import ml_dtypes

        return float(cast(Any, ml_dtypes.finfo)(dtype).eps)
    return None


def _number_differences(
    a: Any, b: Any, path: str, within: float | None, eps: float | None = None
) -> Iterator[tuple[str, str]]:
    import numpy as np

    eps = _numpy_eps(a.dtype) if eps is None else eps
    if eps is None:
        wrong = a != b
        relative = absolute = 0.0
    else:
        kind = np.complex128 if a.dtype.kind == "c" else np.float64
        a, b = a.astype(kind), b.astype(kind)
        relative = eps**DIGITS if within is None else within
        finite = np.abs(a[np.isfinite(a)])
        absolute = CANCELLATION * eps * (float(finite.max()) if finite.size else 0.0)
        wrong = ~np.isclose(b, a, rtol=relative, atol=absolute, equal_nan=True)
    if not wrong.any():
        return
    place = tuple(int(i) for i in np.argwhere(wrong)[0]) if wrong.ndim else ()
    index = f"[{', '.join(map(str, place))}]" if place else ""
    allowed = f", more than {relative:.2g} apart" if eps is not None else ""
    count = f" ({int(wrong.sum())} of {wrong.size} differ)" if wrong.size > 1 else ""
    yield f"{path}{index}", f"{a[place]} and {b[place]}{allowed}{count}"
