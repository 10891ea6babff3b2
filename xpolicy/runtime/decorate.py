"""``xpolicy.compile``: put a function under policy.

Imported by every program that decorates anything, so nothing is imported here that the
interpreter has not loaded by itself; what checks options runs at the first call.
"""

from __future__ import annotations

import sys

from xpolicy.runtime.callables import FunctionType, split
from xpolicy.runtime.dispatch import build
from xpolicy.runtime.entry import Entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, overload

    from xpolicy._typing import Compiled, Decorator, Mode, P, R
    from xpolicy.errors import DecorationError

# Options that need no namespace, and modes, for a check that imports nothing. A test holds
# them against the option table.
GENERAL_OPTIONS = ("mode", "supports", "reason", "static_argnames", "on_failure")
MODES = ("eager", "compile", "fullgraph")


if TYPE_CHECKING:
    # What the decorator gives back, for type checkers. `typing.overload` would have to be
    # imported to stand on the function itself.
    @overload
    def compile(
        fn: Callable[P, R],
        /,
        *,
        name: str | None = None,
        supports: Mode | None = None,
        reason: str | None = None,
        static_argnames: str | Iterable[str] | None = None,
        mode: Mode | None = None,
        **namespaces: Any,
    ) -> Compiled[P, R]: ...
    @overload
    def compile(
        fn: None = None,
        /,
        *,
        name: str | None = None,
        supports: Mode | None = None,
        reason: str | None = None,
        static_argnames: str | Iterable[str] | None = None,
        mode: Mode | None = None,
        **namespaces: Any,
    ) -> Decorator: ...


def compile(  # the public name is xpolicy.compile
    fn: Any = None,
    /,
    *,
    name: str | None = None,
    supports: Mode | None = None,
    reason: str | None = None,
    static_argnames: str | Iterable[str] | None = None,
    mode: Mode | None = None,
    **namespaces: Any,
) -> Any:
    """Let policies decide whether and how a function is compiled.

    What is given here is the author's say, the lowest layer but the built-in one: facts
    about the function (``supports``, ``reason``, ``static_argnames``), and preferences
    that users may override without touching the code.

    Parameters
    ----------
    fn : callable
        The function. Left out when the decorator is used with arguments.
    name : str, optional
        The function key: the public dotted name that policies name it by. Default:
        ``module.qualname``.
    supports : {"eager", "compile", "fullgraph"}, optional
        The strictest mode that the function can be run in.
    reason : str, optional
        Why; shown wherever a mode was capped.
    static_argnames : str or iterable of str, optional
        Names of arguments that are constants to the compiler.
    mode : {"eager", "compile", "fullgraph"}, optional
        The mode, where no higher layer says otherwise.
    **namespaces
        Options of one namespace, as mappings: ``torch={"fullgraph": True}``; any keyword
        of the installed ``torch.compile`` or ``jax.jit`` may stand in them. Other options
        without a namespace may be given by their Python names (``on_failure="eager"``).

    Returns
    -------
    function
        A plain function with the original's signature, and ``.lower``, ``.explain``,
        ``.stats``, ``.clear`` and ``__wrapped__`` on it.

    Raises
    ------
    DecorationError
        For what can't be decorated (classes, coroutines, generators), unknown options,
        and static arguments that the function doesn't have.

    Examples
    --------
    >>> import numpy as np
    >>> import xpolicy
    >>> @xpolicy.compile(name="mylib.scale", static_argnames=("n",), torch={"fullgraph": True})
    ... def scale(x, n=2):
    ...     return x * n
    >>> scale(np.asarray([1.0, 2.0]))
    array([2., 4.])
    >>> xpolicy.resolve(scale, "torch").mode
    'fullgraph'
    """
    options: dict[str, Any] = dict(namespaces)
    if supports is not None:
        options["supports"] = supports
    if reason is not None:
        options["reason"] = reason
    if static_argnames is not None:
        options["static_argnames"] = (
            (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
        )
    if mode is not None:
        options["mode"] = mode
    frame = sys._getframe(1)
    file, line = frame.f_code.co_filename, frame.f_lineno
    if name is not None and (not _is_name(name)):
        raise _wrong(f"name={name!r} is no function key", file, line, 'dotted names: "mylib.f"')
    _check(options, file, line)
    if fn is None:
        return lambda fn: _decorate(fn, name, options, file, line)
    return _decorate(fn, name, options, file, line)


def _decorate(fn: Any, name: str | None, options: Mapping[str, Any], file: str, line: int) -> Any:
    inner, rewrap = split(fn)
    code = getattr(inner, "__code__", None)
    if code is not None:
        _check_static(code, options.get("static_argnames", ()), file, line)
        file, line = code.co_filename, code.co_firstlineno
    if name is None:
        module = getattr(inner, "__module__", None) or "__main__"
        qualname = getattr(inner, "__qualname__", None) or type(inner).__qualname__
        name = f"{module}.{qualname}"
    entry = Entry(inner, name, options, file, line)
    made = build(inner, entry)
    made.__xpolicy__ = entry
    made.lower = entry.lower
    made.trace = entry.trace
    made.explain = entry.explain
    made.stats = entry.stats
    made.clear = entry.clear
    return made if rewrap is None else rewrap(made)


def decorated(fn: Any, key: str) -> Any:
    """Decorate a function that says nothing about itself, under a key.

    What is public on a callable that is no plain function (a ufunc's ``reduce``, a cache's
    ``cache_clear``) is on the decorated one, too.
    """
    module = sys.modules.get(getattr(fn, "__module__", None) or "")
    made = _decorate(fn, key, {}, getattr(module, "__file__", None) or key, 1)
    if type(fn) is not FunctionType:
        for name in dir(fn):
            if not name.startswith("_") and not hasattr(made, name):
                try:
                    setattr(made, name, getattr(fn, name))
                except AttributeError:  # listed, and not there
                    continue
    return made


def _is_name(name: object) -> bool:
    return isinstance(name, str) and all(part.isidentifier() for part in name.split("."))


def _check(options: Mapping[str, Any], file: str, line: int) -> None:
    """Refuse what is wrong at a glance; values of namespaces are checked when resolved."""
    for option, value in options.items():
        if option in ("mode", "supports"):
            if value not in MODES:
                raise _wrong(
                    f"{option}={value!r} is no mode", file, line, ", ".join(map(repr, MODES))
                )
        elif option not in GENERAL_OPTIONS and not hasattr(value, "keys"):
            raise _wrong(
                f"unknown option {option!r}",
                file,
                line,
                f"{', '.join(GENERAL_OPTIONS)}, or a namespace with a dict of its options",
                option,
            )


def _check_static(code: Any, names: Iterable[str], file: str, line: int) -> None:
    count = code.co_argcount + code.co_kwonlyargcount
    parameters = code.co_varnames[:count]
    takes_any = code.co_flags & 0x08  # inspect.CO_VARKEYWORDS
    for name in names:
        if name not in parameters and not takes_any:
            raise _wrong(
                f"static_argnames names {name!r}, which {code.co_name}() has no parameter for",
                file,
                line,
                ", ".join(parameters) or "nothing: the function has no parameters",
                name,
            )


def _wrong(
    message: str, file: str, line: int, allowed: str, given: str | None = None
) -> DecorationError:
    from xpolicy._origin import Origin
    from xpolicy.errors import DecorationError, Problem

    nearest = None
    if given is not None:
        from xpolicy.policy.options import nearest as find

        nearest = find(given, [word.strip() for word in allowed.split(",")])
    return DecorationError(
        [
            Problem(
                message,
                origin=Origin("code", file, line=line),
                layer="author",
                allowed=allowed,
                nearest=nearest,
            )
        ]
    )
