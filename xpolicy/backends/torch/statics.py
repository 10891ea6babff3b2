"""Static arguments: integers and floats that dynamo is to take as constants.

Dynamo makes an integer argument a symbol at its second value, and a float a tensor. A
function that names static arguments is therefore compiled through a shim of the same
signature, in which those arguments are pinned while it is traced. All other dimensions
stay dynamic, which ``dynamic=False`` would not allow.
"""

from __future__ import annotations

import inspect
import itertools
import linecache
import operator
import threading
from functools import partial
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

_numbers = itertools.count(1)
_numbering = threading.Lock()


def _number() -> int:
    """Return a number that nobody has had; without a GIL two threads can get one of a count."""
    with _numbering:
        return next(_numbers)


def pinned(value: Any) -> Any:
    """Return a value as a constant; runs inside dynamo's trace, where it adds guards.

    Examples
    --------
    >>> pinned((2, (0.5, "same")))
    (2, (0.5, 'same'))
    """
    kind = type(value)
    if kind is int:
        return operator.index(value)
    if kind is float:
        from torch.fx.experimental.symbolic_shapes import guard_scalar

        return guard_scalar(value)
    if kind is tuple:
        return tuple([pinned(item) for item in value])
    return value


_ANY = inspect.Signature(
    [
        inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
        inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
    ]
)


def pinned_entries(given: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return ``**kwargs`` with those of `names` as constants."""
    return {name: pinned(value) if name in names else value for name, value in given.items()}


def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return a callable's own parameters; of built-in ones that don't tell, any.

    What it says of itself (``__wrapped__``, ``__signature__``) is not looked at where its
    code can be: `functools.wraps` leaves the outer function with the inner one's signature,
    and a call in the inner one's order would give the outer one wrong arguments.
    """
    try:
        return inspect.signature(_bare(function), follow_wrapped=False).parameters
    except ValueError:
        return _ANY.parameters


def static_parameters(function: Callable[..., Any], names: Collection[str]) -> tuple[str, ...]:
    """Return which of some names a function can be given: by a parameter or ``**kwargs``."""
    parameters = parameters_of(function)
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return tuple(names)
    return tuple(name for name in names if name in parameters)


def _bare(function: Any) -> Any:
    """Return a callable of the same parameters that carries no attributes of the original."""
    if isinstance(function, FunctionType):
        bare = FunctionType(
            function.__code__,
            function.__globals__,
            function.__name__,
            function.__defaults__,
            function.__closure__,
        )
        bare.__kwdefaults__ = function.__kwdefaults__
        return bare
    if isinstance(function, MethodType):
        return MethodType(_bare(function.__func__), function.__self__)
    if type(function) is partial:
        return partial(_bare(function.func), *function.args, **function.keywords)
    return function


def clone(function: Any) -> Any:
    """Return the same function with a code object of its own.

    Dynamo keeps compiled variants with the code object, which all closures made by one
    ``def`` share.
    """
    made = FunctionType(
        function.__code__.replace(),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    made.__kwdefaults__ = function.__kwdefaults__
    made.__qualname__ = function.__qualname__
    made.__module__ = function.__module__
    made.__doc__ = function.__doc__
    made.__annotations__ = function.__annotations__
    made.__dict__.update(function.__dict__)
    return made


def shim(function: Callable[..., Any], names: Collection[str]) -> Any:
    """Return a function of the same signature that pins some arguments and calls `function`.

    Its code is its own, with a file name that no other has: what dynamo learns about
    dynamic sizes is kept by file, line and name. The signature is exact, so that
    positional, keyword and defaulted spellings end in the same frame.
    """
    # The signature of a ufunc or a C function is told, not had: what was left out of the
    # call must be left out of ours.
    told_only = not names and not hasattr(function, "__defaults__")
    parameters = _ANY.parameters if told_only else parameters_of(function)
    # A ufunc has no module, a partial no name.
    module = getattr(function, "__module__", None)
    told = getattr(function, "__name__", None) or type(function).__name__
    name = told if told.isidentifier() else "function"
    qualname = getattr(function, "__qualname__", None) or told
    file = f"<xpolicy: {module}.{qualname} #{_number()}>"
    source = f"def {name}({_declared(parameters)}):\n    return __xpolicy_function({_passed(parameters, names)})\n"
    scope: dict[str, Any] = {
        "__xpolicy_function": function,
        "__xpolicy_pinned": pinned,
        "__xpolicy_pinned_entries": pinned_entries,
        "__xpolicy_names": tuple(names),
    }
    exec(compile(source, file, "exec"), scope)  # the source is made of parameter names only
    made = scope[name]
    given = [p for p in parameters.values() if p.default is not p.empty]
    made.__defaults__ = tuple(p.default for p in given if p.kind is not p.KEYWORD_ONLY)
    made.__kwdefaults__ = {p.name: p.default for p in given if p.kind is p.KEYWORD_ONLY}
    made.__module__ = module
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    return made


def _declared(parameters: Any) -> str:
    """Return the parameters of a ``def``, all defaults standing for ones set later."""
    told: list[str] = []
    positional_only = False
    starred = False
    for p in parameters.values():
        if positional_only and p.kind is not p.POSITIONAL_ONLY:
            told.append("/")
        positional_only = p.kind is p.POSITIONAL_ONLY
        if p.kind is p.KEYWORD_ONLY and not starred:
            told.append("*")
            starred = True
        starred = starred or p.kind is p.VAR_POSITIONAL
        text = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "") + p.name
        told.append(text if p.default is p.empty else f"{text}=None")
    if positional_only:
        told.append("/")
    return ", ".join(told)


def _passed(parameters: Any, names: Collection[str]) -> str:
    """Return the arguments of the call inside the shim."""
    told: list[str] = []
    loose = any(name not in parameters for name in names)
    for p in parameters.values():
        if p.kind is p.VAR_KEYWORD and loose:
            told.append(f"**__xpolicy_pinned_entries({p.name}, __xpolicy_names)")
            continue
        value = f"__xpolicy_pinned({p.name})" if p.name in names else p.name
        if p.kind is p.KEYWORD_ONLY:
            told.append(f"{p.name}={value}")
        else:
            stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
            told.append(stars + value)
    return ", ".join(told)


def check_hashable(key: str, names: Collection[str], arguments: dict[str, Any]) -> None:
    """Raise a `TypeError` that names the static argument whose value can't be hashed."""
    for name in names:
        if name in arguments:
            try:
                hash(arguments[name])
            except Exception:  # noqa: BLE001  # whatever a `__hash__` of its own raises
                kind = type(arguments[name]).__name__
                raise TypeError(
                    f"static argument {name!r} of {key} must be hashable, and a {kind} "
                    f"isn't: pass a tuple, or take {name!r} out of static_argnames"
                ) from None
