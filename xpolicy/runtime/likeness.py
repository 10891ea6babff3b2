"""What a dispatcher shows of its function: names, annotations, attributes, defaults."""

from __future__ import annotations

from xpolicy.runtime.callables import FunctionType, MethodType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Cell", "Omitted", "dress", "stand_in", "text"]


def _closure(value: object) -> Any:
    return lambda: value


# `types.CellType`
Cell: Any = type(_closure(None).__closure__[0])


class Omitted:
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
        if isinstance(other, Omitted):
            other = other.value
        return self.value is other or self.value == other

    def __hash__(self) -> int:
        return hash(self.value)


# Most defaults are None, a flag or a number: functions share what stands in for those
# (it saves 80 bytes each; a decorated function has 2 kB).
_STAND_INS: dict[tuple[type, object], Any] = {}
_STAND_INS_LIMIT = 1024


def stand_in(value: object) -> Any:
    """Return a cell with what stands in for a default."""
    cls = type(value)
    if value is None or cls is bool or cls is int or cls is str:
        key: tuple[type, object] = (cls, value)
    elif cls is float:
        key = (cls, repr(value))  # -0.0 equals 0.0, and shows otherwise
    else:
        return Cell(Omitted(value))
    cell = _STAND_INS.get(key)
    if cell is None:
        cell = Cell(Omitted(value))
        if len(_STAND_INS) < _STAND_INS_LIMIT:
            _STAND_INS[key] = cell
    return cell


# What `xpolicy.compile` puts on a dispatcher.
_OURS = frozenset({"__xpolicy__", "lower", "trace", "explain", "stats", "clear"})


class _Attributes(dict[str, object]):
    """A dispatcher's ``__dict__``: what speaks of it alone can't be copied to another function.

    `functools.wraps` copies the ``__dict__`` of what it wraps. A wrapper around a
    dispatcher would say by ``_torchdynamo_inline`` that the original may be traced in
    *its* place, and torch.compile would drop what the wrapper does. By ``lower`` it would
    lower the original, and `jax.jit`, which copies attributes over its own, too.
    """

    __slots__ = ()

    def keys(self) -> Any:
        """Return the names that may be copied."""
        return [
            name
            for name in dict.keys(self)
            if not name.startswith("_torchdynamo_") and name not in _OURS
        ]

    def __iter__(self) -> Any:
        # With an own iterator `dict.update(other, this)` goes by `keys`.
        return iter(self.keys())

    def items(self) -> Any:
        """Return all that a pickle of the dispatcher carries: cloudpickle asks for this."""
        names = [name for name in dict.keys(self) if not name.startswith("_torchdynamo_")]
        return [(name, self[name]) for name in names]

    def copy(self) -> dict[str, object]:
        """Copy what may be copied."""
        return dict(self)


# Where Python keeps them: 3.14 evaluates `__annotations__` when it is read, so there
# the function that makes them is copied instead.
_KEPT = vars(FunctionType)  # not hasattr: it would ask `type` for the function type's own
_ANNOTATIONS = (
    "__annotate__" if "__annotate__" in _KEPT else "__annotations__",
    *(("__type_params__",) if "__type_params__" in _KEPT else ()),
)


def dress(dispatcher: Any, fn: Any) -> None:
    """Do what `functools.update_wrapper` does, without importing it."""
    # Of an instance with __call__ these would be its class's.
    of_class = isinstance(getattr(type(fn), "__annotations__", None), dict)
    for name in _ANNOTATIONS if not of_class else ():
        try:
            setattr(dispatcher, name, getattr(fn, name))
        except AttributeError:
            continue
    dispatcher.__module__ = getattr(fn, "__module__", None)
    dispatcher.__doc__ = getattr(fn, "__doc__", None)
    # Python names this one in the TypeError for wrong arguments.
    dispatcher.__qualname__ = text(fn, "__qualname__") or dispatcher.__name__
    own = _Attributes()
    if type(fn) in (FunctionType, MethodType):
        own.update(fn.__dict__)
    own["__wrapped__"] = fn
    # An outer torch.compile traces the original instead of this code. Otherwise it
    # guards on the table that it sees here, and compiles again whenever that changes
    # (torch 2.13). Private to torch; without it the trace is right but not as stable.
    own["_torchdynamo_inline"] = fn
    if not _in_class(fn):
        # The same for what is handed to torch.compile itself. Not for methods: before
        # torch looked at the second one it lost the `self` of bound ones.
        own["_torchdynamo_orig_callable"] = fn
        own["_torchdynamo_wrapper_id"] = id(dispatcher)
    dispatcher.__dict__ = own


def _in_class(fn: object) -> bool:
    scope = (text(fn, "__qualname__") or "").rpartition(".")[0]
    return bool(scope) and not scope.endswith("<locals>")


def text(fn: object, name: str) -> str | None:
    """Return an attribute if it is text: a callable's ``__name__`` may be anything."""
    value = getattr(fn, name, None)
    return value if isinstance(value, str) else None
