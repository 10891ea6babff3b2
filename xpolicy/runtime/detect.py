"""Which of a call's arguments is an array, and of which array library.

Types are asked, never values: a type is sorted once and remembered. (So JAX's zero
gradients, NumPy arrays of the dtype ``float0``, are NumPy's here and JAX's to
array-api-compat.) No array library is imported; one that the process has not imported
has no arrays to be asked about.

The rule, over the arguments in the order of the function's parameters:

1. the first torch or jax array decides;
2. if there is none, the first other array does;
3. if there is none, the arrays inside containers (`list`, `tuple`, named tuples,
   `dict`, dataclasses) are looked at in the same way, no deeper than `DEPTH` containers,
   no more than `WIDTH` items of each, and none once `ITEMS` have been looked at;
4. if there is none, the first NumPy scalar does (array-api-compat counts
   ``np.float64(1)`` as NumPy's; it never hides an array in a container).
"""

from __future__ import annotations

import sys
from itertools import islice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

__all__ = [
    "CONTAINER",
    "DEPTH",
    "ITEMS",
    "OTHER",
    "SCALAR",
    "STRONG",
    "WEAK",
    "WIDTH",
    "deciding",
    "namespace_of",
    "sort",
]

DEPTH = 4
"""Containers inside containers that are searched: ``{"a": [(x,)]}`` is three."""
WIDTH = 64
"""Items of one container that are looked at: a list of a million floats costs 2 µs."""
ITEMS = 256
"""No container is opened once so many items have been looked at in one call."""

# What a type can be to a call.
OTHER, CONTAINER, SCALAR, WEAK, STRONG = range(5)

# Namespaces whose arrays decide wherever they stand: those with a compiler of their own.
_DECIDING = frozenset({"torch", "jax"})

# (namespace, module, class). array-api-compat asks the same classes; a module that is
# not in `sys.modules` has no instances. Tracers left jax.Array's MRO in jax 0.8.2.
_ARRAY_CLASSES = (
    ("torch", "torch", "Tensor"),
    ("jax", "jax", "Array"),
    ("jax", "jax.core", "Tracer"),
    ("numpy", "numpy", "ndarray"),
    ("numpy", "numpy", "generic"),
    ("cupy", "cupy", "ndarray"),
    ("dask", "dask.array", "Array"),
    ("sparse", "sparse", "SparseArray"),
    ("ndonnx", "ndonnx", "Array"),
    ("dpnp", "dpnp", "ndarray"),
)

# type -> (sort, namespace). Dropped whole when full, so that classes made on the fly
# are not kept alive for ever.
_SORTED: dict[type, tuple[int, str]] = {}
_SORTED_LIMIT = 1024

_NOTHING = (OTHER, "")


def namespace_of(cls: type, array: object = None) -> str | None:
    """Name the array library whose arrays are instances of a type.

    Parameters
    ----------
    cls : type
        The exact type, ``type(x)``.
    array : object, optional
        An instance. Only types that no known library owns need it: their
        ``__array_namespace__()`` says which module they belong to. Without it the
        module that defines the type counts.

    Returns
    -------
    str or None
        ``"numpy"``, ``"torch"``, ``"jax"``, ``"cupy"``, ``"dask"``, … as array-api-compat
        names them; the top-level module of any other namespace; None if instances are
        not arrays.

    Examples
    --------
    >>> import numpy as np
    >>> namespace_of(np.ndarray)
    'numpy'
    >>> namespace_of(list) is None
    True
    """
    for namespace, module, name in _ARRAY_CLASSES:
        known = _loaded(module, name)
        if known is not None and issubclass(cls, known):
            return namespace
    # On the type, not on the instance: objects that answer to every attribute
    # (mocks, proxies) are no arrays.
    if not _defines(cls, "__array_namespace__"):
        return None
    if array is None:
        return _top_level(cls.__module__)
    xp: Any = array.__array_namespace__()  # type: ignore[attr-defined]
    return _top_level(getattr(xp, "__name__", None) or type(xp).__module__)


def _loaded(module: str, name: str) -> type | None:
    found = sys.modules.get(module)
    if found is None:
        return None
    # Past the module's own __getattr__ (which may warn) and past a lazy module's
    # __getattribute__ (which would import it).
    try:
        known = object.__getattribute__(found, "__dict__").get(name)
    except AttributeError:  # sys.modules may hold any object
        return None
    return known if isinstance(known, type) else None


def _defines(cls: type, name: str) -> bool:
    return any(name in vars(base) for base in cls.__mro__)


def _top_level(module: str) -> str:
    return module.removeprefix("array_api_compat.").partition(".")[0]


def sort(value: object) -> tuple[int, str]:
    """Say what a value is to a call, by its type.

    Parameters
    ----------
    value : object
        Any argument.

    Returns
    -------
    tuple of (int, str)
        One of `OTHER`, `CONTAINER`, `SCALAR`, `WEAK`, `STRONG`, and the namespace (empty
        for the first two). An object that fails when asked is `OTHER`: what is wrong with
        it is for the function to meet.
    """
    cls = type(value)
    try:
        known = _SORTED.get(cls)
    except Exception:  # noqa: BLE001  # a metaclass may raise anything from __hash__
        return _classify(cls, value)[0]
    if known is not None:
        return known
    result, lasting = _classify(cls, value)
    if lasting:
        if len(_SORTED) >= _SORTED_LIMIT:
            _SORTED.clear()
        _SORTED[cls] = result
    return result


def _classify(cls: type, value: object) -> tuple[tuple[int, str], bool]:
    """Sort a type; the second item says whether the answer holds for the whole type."""
    try:
        namespace = namespace_of(cls, value)
    except Exception:  # noqa: BLE001  # a foreign __array_namespace__ may raise anything
        return _NOTHING, False
    if namespace in _DECIDING:
        return (STRONG, namespace), True
    if namespace is not None:
        scalar = _loaded("numpy", "generic")
        if scalar is not None and issubclass(cls, scalar):
            return (SCALAR, namespace), True
        return (WEAK, namespace), True
    if issubclass(cls, (list, tuple, dict)) or _defines(cls, "__dataclass_fields__"):
        return (CONTAINER, ""), True
    return _NOTHING, True


def deciding(values: Iterable[object]) -> tuple[object, str, int] | None:
    """Find the array that decides a call.

    Parameters
    ----------
    values : iterable of object
        The arguments, in the order of the function's parameters.

    Returns
    -------
    tuple of (object, str, int) or None
        The array, its namespace and its sort; None if there is no array.
    """
    containers: list[object] = []
    found = _first(values, containers)
    if not containers or (found is not None and found[2] != SCALAR):
        return found
    left = ITEMS
    inside: tuple[object, str, int] | None = None
    for _ in range(DEPTH):  # level by level, the outermost first
        level, containers = containers, []
        for container in level:
            if left <= 0:
                return inside or found
            try:
                items = _head(container)
            # A dict that another thread changes meanwhile, a property that fails.
            except Exception:  # noqa: BLE001, S112
                continue
            left -= len(items)
            array = _first(items, containers)
            if array is None or array[2] == SCALAR:
                continue
            if array[2] == STRONG:
                return array
            inside = inside or array
        if not containers:
            break
    return inside or found


def _first(values: Iterable[object], containers: list[object]) -> tuple[object, str, int] | None:
    """Return the deciding one of some values, and add the containers among them."""
    known = _SORTED
    skipped = weak = scalar = None
    for value in values:
        cls = type(value)
        if cls is skipped:  # a list of floats is one question
            continue
        try:
            kind, namespace = known[cls]
        except Exception:  # noqa: BLE001  # not seen yet, or it can't be hashed
            kind, namespace = sort(value)
        if kind == OTHER:
            skipped = cls
        elif kind == STRONG:
            return value, namespace, kind
        elif kind == CONTAINER:
            containers.append(value)
        elif kind == WEAK:
            weak = weak or (value, namespace, kind)
        else:
            scalar = scalar or (value, namespace, kind)
    return weak or scalar


def _head(container: Any) -> Sequence[object]:
    """Return the first items of a container."""
    cls = type(container)
    if cls is list or cls is tuple:
        return container[:WIDTH]  # type: ignore[no-any-return]
    # By the built-in methods: a subclass's own may compute, print or never end.
    if issubclass(cls, dict):
        return list(islice(dict.values(container), WIDTH))
    if issubclass(cls, list):
        return list.__getitem__(container, slice(WIDTH))
    if issubclass(cls, tuple):
        return tuple.__getitem__(container, slice(WIDTH))
    fields = islice(container.__dataclass_fields__, WIDTH)
    return [getattr(container, name, None) for name in fields]
