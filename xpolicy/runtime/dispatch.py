"""Dispatchers: the functions that stand in for decorated ones.

`build` makes one. Its code comes from `codegen`; here is what that code calls when the
table does not know the answer, and how a dispatcher is made to look like its function.

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
"""

from __future__ import annotations

from xpolicy.runtime.callables import FunctionType, MethodType, check
from xpolicy.runtime.codegen import GENERAL, Parameters, code_for, parameters_of, publish
from xpolicy.runtime.detect import OTHER, SCALAR, STRONG, deciding, sort

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    class Entry(Protocol):
        """What a dispatcher needs to know about its function."""

        fn: Callable[..., Any]
        table: dict[type, object]

        def bind(self, cls: type, namespace: str, array: object, /) -> Callable[..., Any]:
            """Resolve the policy and return what to call; put it into the table."""

        def overridden(self, namespace: str, array: object, /) -> Callable[..., Any]:
            """Return what to call inside `xpolicy.override`; remember nothing."""


__all__ = ["build", "set_overrides_active"]

# Types that one table remembers. Programs pass a handful to a function; a table that
# fills up is being fed classes made on the fly, which must not be kept alive for ever.
_TABLE_LIMIT = 256


class _Omitted:
    """Stands in a dispatcher for a default: given means omitted.

    It shows and compares as the default, for those who read ``__defaults__`` or
    ``inspect.getfullargspec``; ``inspect.signature`` shows the function's own.
    """

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        return repr(self.value)

    def __eq__(self, other: object) -> Any:
        return self.value == (other.value if isinstance(other, _Omitted) else other)

    def __hash__(self) -> int:
        return hash(self.value)


def _cell(value: object) -> Any:
    return (lambda: value).__closure__[0]  # type: ignore[index]


# --- the slow path ---------------------------------------------------------------


def _resolve(entry: Entry, /, *args: Any, **kwargs: Any) -> Any:
    """Find out what to call, remember it, and call it."""
    publish()
    return _choose(entry, (*args, *kwargs.values()))(*args, **kwargs)


def _choose(entry: Entry, values: tuple[object, ...]) -> Callable[..., Any]:
    found = deciding(values)
    _remember(entry.table, values)
    if found is None:
        return entry.fn
    array, namespace, kind = found
    cls = type(array)
    try:
        known: Any = entry.table.get(cls)
    except Exception:
        known = None
    if known:
        return known  # type: ignore[no-any-return]
    call = entry.bind(cls, namespace, array)
    if kind != STRONG:
        _weaken(entry, cls, call, kind)
    return call


def _remember(table: dict[type, object], values: tuple[object, ...]) -> None:
    """Note the types that decide nothing. What is noted depends on no policy."""
    table[_Omitted] = 0  # never among the values: it is not passed on
    for value in values:
        cls = type(value)
        try:
            if cls in table:
                continue
            kind, _ = sort(value)
            if kind == STRONG:
                continue
            if len(table) >= _TABLE_LIMIT:
                table.clear()
            table[cls] = 0 if kind == OTHER else None
        except Exception:  # a type that can't be hashed or compared: asked anew each time
            continue


def _weaken(entry: Entry, cls: type, call: object, kind: int) -> None:
    """Let a later torch or jax array decide over what was bound for this type.

    Only where ``bind`` put it into the table: not while an override is active.
    """
    table = entry.table
    try:
        if table.get(cls) is call:
            # A NumPy scalar with nothing to compile does not hide a container's arrays.
            nothing = 0 if kind == SCALAR else False
            table[cls] = nothing if call is entry.fn else None
    except Exception:
        return


def _overridden(entry: Entry, /, *args: Any, **kwargs: Any) -> Any:
    """Ask the entry on every call: some `xpolicy.override` is active somewhere."""
    publish()
    found = deciding((*args, *kwargs.values()))
    if found is None:
        return entry.fn(*args, **kwargs)
    array, namespace, _ = found
    return entry.overridden(namespace, array)(*args, **kwargs)


# --- making a dispatcher ---------------------------------------------------------

# One cell for all dispatchers: setting its content switches them all at once.
_OVERRIDES = _cell(False)

_SHARED = {
    "method": _cell(MethodType),
    "overridden": _cell(_overridden),
    "overrides": _OVERRIDES,
    "resolve": _cell(_resolve),
    "type": _cell(type),
}

# Copied like functools.WRAPPER_ASSIGNMENTS, newer Pythons' included.
_COPIED = ("__module__", "__doc__", "__annotations__", "__type_params__", "__annotate__")


def set_overrides_active(active: bool) -> None:
    """Send every call of every dispatcher through ``entry.overridden``, or none.

    Parameters
    ----------
    active : bool
        Whether any override is active in any context.
    """
    _OVERRIDES.cell_contents = bool(active)


def build(fn: Any, entry: Entry) -> Any:
    """Make the function that stands in for a decorated one.

    Parameters
    ----------
    fn : callable
        The original. A `staticmethod` or `classmethod` object is taken apart and put
        together again around the dispatcher of what it holds.
    entry : Entry
        Resolves policies for it. ``entry.fn`` is the original (what the
        `staticmethod` holds), and ``entry.table`` is never rebound.

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
    parameters, positional, keyword = _signature(fn)
    made = code_for(parameters)
    if made is None:
        parameters, positional, keyword = GENERAL, (), {}
        made = code_for(parameters)
        assert made is not None
    code, names = made
    defaults = tuple(_Omitted(value) for value in positional)
    keyword_defaults = {name: _Omitted(keyword[name]) for name in parameters.keyword_defaulted()}
    own = {"entry": entry, "fn": fn, "table": entry.table}
    for index, omitted in enumerate((*defaults, *keyword_defaults.values())):
        own[f"d{index}"] = omitted
    closure = tuple(_SHARED[name] if name in _SHARED else _cell(own[name]) for name in names)
    # The function's own globals: doctest and others take them for the place that a
    # function was defined in. The code reads no global name.
    scope = getattr(fn, "__globals__", None)
    name = getattr(fn, "__name__", None) or type(fn).__name__
    dispatcher = FunctionType(
        code, scope if type(scope) is dict else {}, name, defaults or None, closure
    )
    if keyword_defaults:
        dispatcher.__kwdefaults__ = keyword_defaults
    _dress(dispatcher, fn)
    return dispatcher


def _signature(fn: Any) -> tuple[Parameters, tuple[object, ...], dict[str, object]]:
    """Return the parameters to give to the dispatcher, and their defaults."""
    if type(fn) is FunctionType:
        function, skip = fn, 0
    elif type(fn) is MethodType and type(fn.__func__) is FunctionType:
        function, skip = fn.__func__, 1
    else:
        return GENERAL, (), {}
    parameters = parameters_of(function, skip=skip)
    defaults = function.__defaults__ or ()
    return (
        parameters,
        defaults[len(defaults) - parameters.defaults :],
        function.__kwdefaults__ or {},
    )


def _dress(dispatcher: Any, fn: Any) -> None:
    """Do what `functools.update_wrapper` does, without importing it."""
    for name in _COPIED:
        try:
            value = getattr(fn, name)
        except AttributeError:
            continue
        if name == "__annotations__" and hasattr(fn, "__annotate__"):
            continue  # Python 3.14 evaluates them when asked: don't ask
        setattr(dispatcher, name, value)
    # Python names this one in the TypeError for wrong arguments.
    dispatcher.__qualname__ = getattr(fn, "__qualname__", None) or dispatcher.__name__
    own = getattr(fn, "__dict__", None)
    if own and type(fn) in (FunctionType, MethodType):
        dispatcher.__dict__.update(own)
    dispatcher.__wrapped__ = fn
    # An outer torch.compile traces the original instead of this code. Otherwise it
    # guards on the table that it sees here, and compiles again whenever that changes
    # (torch 2.13). Private to torch; without it the trace is right but not as stable.
    dispatcher._torchdynamo_inline = fn
