"""Dispatchers: the functions that stand in for decorated ones.

`build` makes one. Its code comes from `shapes`, its looks from `likeness`; here is what
that code calls when the table does not know the answer.

The table of an entry (``type`` → verdict) is filled here and by ``entry.bind``:

========  =================================================================
verdict   meaning
========  =================================================================
callable  a torch or jax array: it decides, call this (it must be truthy)
False     an array of a library that compiles nothing here
0         not an array
None      ask the slow path unless another argument decides: a container, or
          an array for which no policy has been asked yet, or a library other
          than torch and jax that has a compiler
absent    never seen
========  =================================================================

What was bound for a library other than torch and jax stands in the same table under the
key ``(type,)``, where the slow path finds it.
"""

from __future__ import annotations

# `functools` itself imports more than this package does.
from _functools import partial  # type: ignore[import-not-found]

from xpolicy.runtime.callables import FunctionType, MethodType, check
from xpolicy.runtime.detect import OTHER, SCALAR, STRONG, deciding, sort
from xpolicy.runtime.likeness import Cell, dress, stand_in, text
from xpolicy.runtime.shapes import publish, shape_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    class Entry(Protocol):
        """What a dispatcher needs to know about its function."""

        fn: Callable[..., Any]
        table: dict[Any, Any]

        def bind(self, cls: type, namespace: str, array: object, /) -> Callable[..., Any]:
            """Resolve the policy and return what to call; `note` it in the table."""

        def overridden(self, namespace: str, array: object, /) -> Callable[..., Any]:
            """Return what to call now, overrides included; put nothing into the table."""


__all__ = ["bound", "build", "note", "set_overrides_active"]

# Types that one table remembers. Programs pass a handful to a function; a table that
# fills up is being fed classes made on the fly, which must not be kept alive for ever.
_TABLE_LIMIT = 256


# --- the slow path ---------------------------------------------------------------


def _resolve(entry: Entry, /, *args: Any, **kwargs: Any) -> Any:
    """Find out what to call, remember it, and call it."""
    return _choose(entry, (*args, *kwargs.values()))(*args, **kwargs)


def _choose(entry: Entry, values: tuple[object, ...]) -> Callable[..., Any]:
    found = deciding(values)
    _remember(entry.table, values)
    if found is None:
        return entry.fn
    array, namespace, _ = found
    cls = type(array)
    try:
        known = bound(entry, cls)
    except Exception:  # noqa: BLE001  # a metaclass may raise anything from __hash__
        # It can't be remembered in a table; this asks and does not remember.
        return entry.overridden(namespace, array)
    if known is not None:
        return known
    publish()
    return entry.bind(cls, namespace, array)


def bound(entry: Entry, cls: type) -> Callable[..., Any] | None:
    """Return what was bound for arrays of one type, or None."""
    known = entry.table.get(cls)
    if known is None:
        known = entry.table.get((cls,))
    # Of an array's type, False and 0 both mean that there is nothing to compile.
    return None if known is None else known or entry.fn


def note(entry: Entry, cls: type, array: object, call: Callable[..., Any]) -> None:
    """Put what is to be called for arrays of one type into the table.

    At once in its final form: another thread must never see an array that lets torch and
    jax arrays go first as one that decides.
    """
    kind, _ = sort(array)
    if kind == STRONG:
        entry.table[cls] = call
    elif call is not entry.fn:
        entry.table[cls,] = call
        entry.table[cls] = None
    else:
        # A NumPy scalar with nothing to compile does not hide a container's arrays.
        entry.table[cls] = 0 if kind == SCALAR else False


def _remember(table: dict[Any, Any], values: tuple[object, ...]) -> None:
    """Note the types that decide nothing. What is noted depends on no policy."""
    for value in values:
        cls = type(value)
        try:
            if cls in table:
                continue
            kind, _ = sort(value)
            if kind == STRONG:
                continue
            if not table:  # the first call
                publish()
            if len(table) >= _TABLE_LIMIT:
                table.clear()
            table[cls] = 0 if kind == OTHER else None
        except Exception:  # noqa: BLE001, S112  # can't be hashed: asked anew each time
            continue


def _overridden(entry: Entry, /, *args: Any, **kwargs: Any) -> Any:
    """Ask the entry on every call: some `xpolicy.override` is active somewhere."""
    found = deciding((*args, *kwargs.values()))
    if found is None:
        return entry.fn(*args, **kwargs)
    array, namespace, _ = found
    return entry.overridden(namespace, array)(*args, **kwargs)


def _direct(entry: Entry, /, *args: Any, **kwargs: Any) -> Any:
    return entry.fn(*args, **kwargs)


# torch.compile traces `_direct` in their place, where it comes to a dispatcher's own
# code: the bound method of one, handed to torch.compile, is not looked through.
_resolve._torchdynamo_inline = _direct  # type: ignore[attr-defined]
_overridden._torchdynamo_inline = _direct  # type: ignore[attr-defined]

# --- making a dispatcher ---------------------------------------------------------


class _Flag(set[bool]):
    """True while it has an item; one object for all dispatchers switches them all at once.

    Not a cell with True or False in it: a closure is pickled by its contents, and the copy
    in a worker must ask that process's flag. That a set is empty is found out in C, also
    of a subclass (4 ns; of a list's subclass it takes 30, by way of its ``__len__``).
    """

    __slots__ = ()

    def __reduce__(self) -> str:
        return "_OVERRIDES"  # the name that it has in this module


_OVERRIDES = _Flag()

_SHARED = {
    "overridden": Cell(_overridden),
    "overrides": Cell(_OVERRIDES),
    "partial": Cell(partial),
    "resolve": Cell(_resolve),
    "type": Cell(type),
}


def set_overrides_active(active: bool) -> None:
    """Send every call of every dispatcher through ``entry.overridden``, or none.

    Parameters
    ----------
    active : bool
        Whether any override is active in any context.
    """
    if active:
        _OVERRIDES.add(True)
    else:
        _OVERRIDES.clear()


def build(fn: Any, entry: Entry) -> Any:
    """Make the function that stands in for a decorated one.

    Parameters
    ----------
    fn : callable
        The original. A `staticmethod` or `classmethod` object is taken apart and put
        together again around the dispatcher of what it holds.
    entry : Entry
        Resolves policies for it. ``entry.fn`` is the original (what the
        `staticmethod` holds), and ``entry.table`` is what the code looks types up in.

    Returns
    -------
    function
        A plain Python function with the parameters, names, annotations and
        attributes of the original; ``__wrapped__`` is the original.

    Raises
    ------
    DecorationError
        For what can't be decorated: see `xpolicy.runtime.callables.check`.
    """
    if isinstance(fn, (staticmethod, classmethod)):
        return type(fn)(build(fn.__func__, entry))
    check(fn)
    function, skip = _function_of(fn)
    shape = shape_of(function, skip=skip)
    cells = {**_SHARED, "entry": Cell(entry), "fn": Cell(fn)}
    defaults, keyword_defaults = None, None
    if shape.defaults:
        made = [stand_in(value) for value in function.__defaults__[-shape.defaults :]]
        defaults = tuple([cell.cell_contents for cell in made])
        for index, cell in enumerate(made):
            cells[f"d{index}"] = cell
    if shape.keyword_defaulted:
        keyword_defaults = {}
        for index, name in enumerate(shape.keyword_defaulted, shape.defaults):
            cells[f"d{index}"] = cell = stand_in(function.__kwdefaults__[name])
            keyword_defaults[name] = cell.cell_contents
    # The function's own globals: doctest and others take them for the place that a
    # function was defined in. The code reads no global name.
    scope = getattr(fn, "__globals__", None)
    dispatcher: Any = FunctionType(
        shape.code,
        scope if type(scope) is dict else {},
        text(fn, "__name__") or type(fn).__name__,
        defaults,
        tuple([cells[name] for name in shape.cells]),
    )
    dispatcher.__kwdefaults__ = keyword_defaults
    dress(dispatcher, fn)
    return dispatcher


def _function_of(fn: Any) -> tuple[Any, int]:
    """Return the plain function whose parameters a call must fit, and how many it has had."""
    if type(fn) is FunctionType:
        return fn, 0
    if type(fn) is MethodType and type(fn.__func__) is FunctionType:
        return fn.__func__, 1
    return None, 0
