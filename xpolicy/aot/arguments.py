"""The arguments that a policy writes, as a function takes them."""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, Any

from xpolicy.aot.specs import replaced
from xpolicy.errors import Problem
from xpolicy.policy.options import nearest
from xpolicy.policy.warmup import written_key
from xpolicy.policy.writing import show

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from xpolicy.policy.specs import Spec
    from xpolicy.policy.warmup import WarmupCall

_KIND = inspect.Parameter
_BY_POSITION = (_KIND.POSITIONAL_ONLY, _KIND.POSITIONAL_OR_KEYWORD)


def argument_problems(
    call: WarmupCall, signature: inspect.Signature, key: str
) -> Iterator[Problem]:
    """Yield what keeps a function from being called so, each with its place.

    Parameters
    ----------
    call : WarmupCall
        What a policy says.
    signature : inspect.Signature
        The function's own.
    key : str
        The function's key.
    """
    parameters = signature.parameters
    free = any(p.kind is _KIND.VAR_KEYWORD for p in parameters.values())
    unknown = [name for name in call.arguments if name not in parameters and not free]
    for name in unknown:
        near = nearest(name, parameters)
        yield Problem(
            f"{key} has no argument {show(name)}",
            origin=call.origin.child(name),
            key=written_key(call, name),
            layer=call.layer,
            value=show(name),
            allowed=", ".join(parameters) or "nothing: it has no arguments",
            nearest=near,
            fix=f"write {near}" if near else f"remove {name}",
        )
    if unknown:
        return
    args, kwargs = spread(call.arguments, signature)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        missing = [
            name
            for name, p in parameters.items()
            if p.default is p.empty
            and p.kind not in (_KIND.VAR_POSITIONAL, _KIND.VAR_KEYWORD)
            and name not in call.arguments
        ]
        fix = f"add {', '.join(missing)} to the call" if missing else None
        if missing[:1] in (["self"], ["cls"]):
            fix = "compile it from Python, xpolicy.lower(model.method, ...).compile()"
        yield Problem(
            f"{key} can't be called so: {error}",
            origin=call.origin,
            key=written_key(call),
            layer=call.layer,
            value=str(call),
            allowed=f"{key}{signature}",
            fix=fix,
        )


def spread(
    arguments: dict[str, Any] | Any, signature: inspect.Signature
) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments by name as positional ones, as far as these go, and keywords."""
    rest = dict(arguments)
    args: list[Any] = []
    whole = True  # nothing was left out in front
    for name, parameter in signature.parameters.items():
        if parameter.kind in _BY_POSITION:
            whole = whole and name in rest
            if whole:
                args.append(rest.pop(name))
        elif parameter.kind is _KIND.VAR_POSITIONAL and whole and name in rest:
            given = rest.pop(name)
            args += given if isinstance(given, list) else [given]
        elif parameter.kind is _KIND.VAR_KEYWORD and isinstance(rest.get(name), dict):
            rest |= rest.pop(name)
    return args, rest


def arguments_for(call: WarmupCall, namespace: str, static: Collection[str]) -> dict[str, Any]:
    """Return a call's arguments with specs of a namespace, and constants that can be hashed."""

    def named(spec: Spec) -> Spec:
        return dataclasses.replace(spec, namespace=namespace)

    return {
        name: _hashable(value) if name in static else replaced(value, named)
        for name, value in call.arguments.items()
    }


def _hashable(value: Any) -> Any:
    """Return a list as a tuple: a constant is a key to what is compiled for it."""
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
