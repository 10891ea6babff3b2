"""The names in a policy, matched with a function's parameters."""

from __future__ import annotations

import functools
import inspect
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xpolicy.backends.jax.lowering import problem
from xpolicy.errors import BackendOptionError
from xpolicy.policy.options import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from xpolicy.errors import Problem
    from xpolicy.policy.resolve import ResolvedPolicy

_KIND = inspect.Parameter
_VARIADIC = (_KIND.VAR_POSITIONAL, _KIND.VAR_KEYWORD)


@dataclass(frozen=True)
class Plan:
    """How the arguments of one function are passed to jax.

    Parameters
    ----------
    signature : inspect.Signature or None
        The function's own, None for a callable that hides it. Of a function that takes
        ``(*args, **kwargs)`` and says what it wraps, that of what it wraps.
    static, donated : tuple of str
        Names of arguments that are constants, or whose memory is given away.
    auto : tuple of str
        Names of arguments that are constants if their value's type says so.
    """

    signature: inspect.Signature | None
    static: tuple[str, ...]
    donated: tuple[str, ...]
    auto: tuple[str, ...]
    #: Whether the function takes ``(*args, **kwargs)`` and `signature` is what it wraps.
    forwards: bool = False

    @property
    def needs_shim(self) -> bool:
        """Whether calls must be brought to one spelling before jax sees them."""
        return bool(self.static or self.auto)

    @property
    def caught(self) -> tuple[str, ...]:
        """Static or donated names that only ``**kwargs`` can take."""
        known = self.signature.parameters if self.signature else {}
        return tuple(dict.fromkeys(n for n in (*self.static, *self.donated) if n not in known))


def plan(function: Callable[..., Any], policy: ResolvedPolicy, keywords: Mapping[str, Any]) -> Plan:
    """Match the names in a policy with a function's parameters.

    Parameters
    ----------
    function : callable
        The original function.
    policy : ResolvedPolicy
        For origins, and for ``static``.
    keywords : mapping
        Keywords of ``jax.jit`` as lowered.

    Raises
    ------
    BackendOptionError
        If a name is none of the function's parameters and it has no ``**kwargs``.
    """
    auto = policy.values.get("static") == "auto"
    signature, forwards = signature_of(function)
    problems: list[Problem] = []
    found = {}
    for use in ("static", "donate"):
        names = list(_listed(keywords.get(f"{use}_argnames")))
        numbers = _listed(keywords.get(f"{use}_argnums"))
        if signature is not None:
            problems += _wrong_numbers(policy, f"{use}_argnums", numbers, signature)
            problems += _wrong_names(policy, f"{use}_argnames", names, signature)
            positional = _positional(signature)
            count = len(positional)
            names += [positional[n] for n in numbers if -count <= n < count]
        elif names or numbers or auto:
            problems.append(
                problem(
                    policy,
                    f"{use}_argnames",
                    f"{policy.key} doesn't tell its parameters (inspect.signature fails), "
                    "so none can be named",
                    fix="wrap it in a function with the parameters written out",
                )
            )
        found[use] = tuple(dict.fromkeys(names))
    problems += [
        problem(
            policy,
            "donate_argnames",
            f"{policy.key}: {name!r} is both static and donated; a constant has no memory to give",
            value=repr(name),
            fix=f"take {name!r} out of donate-argnames or static-argnames",
        )
        for name in found["donate"]
        if name in found["static"]
    ]
    if problems:
        raise BackendOptionError(problems)
    return Plan(signature, found["static"], found["donate"], _auto(signature, auto), forwards)


def signature_of(function: Callable[..., Any]) -> tuple[inspect.Signature | None, bool]:
    """Return the parameters that a call must fit, and whether they are only forwarded to.

    ``functools.wraps`` and ``__signature__`` make a wrapper look like what it wraps, but
    it is the wrapper that is called: one with other parameters, or in another order,
    would be given the wrong values.

    Parameters
    ----------
    function : callable
        Anything that can be called.
    """
    try:
        own = inspect.signature(_bare(function), follow_wrapped=False)
    except (TypeError, ValueError):  # a builtin that tells nobody its parameters
        own = None
    kinds = () if own is None else tuple(p.kind for p in own.parameters.values())
    wrapped = getattr(function, "__wrapped__", None)
    # What is compiled and wraps (functools.lru_cache, jax.jit) passes on what it is given.
    if callable(wrapped) and (own is None or kinds == _VARIADIC):
        inner, _ = signature_of(wrapped)
        if inner is not None:
            return inner, own is not None
    return own, False


def _bare(function: Any) -> Any:
    """Return what has a function's own parameters, and nothing that says otherwise."""
    if isinstance(function, types.FunctionType):
        copy = types.FunctionType(
            function.__code__, {}, function.__name__, function.__defaults__, function.__closure__
        )
        copy.__kwdefaults__ = function.__kwdefaults__
        return copy
    if isinstance(function, types.MethodType):
        return types.MethodType(_bare(function.__func__), function.__self__)
    if isinstance(function, functools.partial):
        return functools.partial(_bare(function.func), *function.args, **function.keywords)
    call = inspect.getattr_static(type(function), "__call__", None)
    if isinstance(call, types.FunctionType) and not isinstance(function, type):
        return types.MethodType(_bare(call), function)
    return function


def _auto(signature: inspect.Signature | None, asked: bool) -> tuple[str, ...]:
    parameters = signature.parameters if signature is not None else {}
    if asked:
        return tuple(name for name, p in parameters.items() if p.kind not in _VARIADIC)
    # A class method's class is a constant: jax can't trace it, and it is its own key.
    return tuple(name for name in list(parameters)[:1] if name == "cls")


def _listed(value: Any) -> tuple[Any, ...]:
    return (value,) if isinstance(value, str | int) else tuple(value or ())


def _positional(signature: inspect.Signature) -> list[str]:
    kinds = (_KIND.POSITIONAL_ONLY, _KIND.POSITIONAL_OR_KEYWORD)
    return [name for name, p in signature.parameters.items() if p.kind in kinds]


def _wrong_numbers(
    policy: ResolvedPolicy, option: str, numbers: Iterable[int], signature: inspect.Signature
) -> Iterator[Problem]:
    positional = _positional(signature)
    for number in numbers:
        if not -len(positional) <= number < len(positional):
            yield problem(
                policy,
                option,
                f"{policy.key} has no positional argument {number}",
                value=str(number),
                allowed=f"0 to {len(positional) - 1}: {', '.join(positional)}",
            )


def _wrong_names(
    policy: ResolvedPolicy, option: str, names: Iterable[str], signature: inspect.Signature
) -> Iterator[Problem]:
    parameters = signature.parameters
    open_ended = any(p.kind is _KIND.VAR_KEYWORD for p in parameters.values())
    nameable = [name for name, p in parameters.items() if p.kind not in _VARIADIC]
    for name in names:
        if name not in nameable and (not open_ended or name in parameters):
            yield problem(
                policy,
                option,
                f"{policy.key} has no argument {name!r}",
                value=repr(name),
                allowed=", ".join(nameable) or "nothing: it takes no arguments",
                nearest=nearest(name, nameable),
            )
