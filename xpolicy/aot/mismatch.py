"""Arguments compared with what a function was compiled for, before anything runs."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xpolicy.backends.structure import Branch, Difference, Leaf, difference
from xpolicy.errors import StructureMismatchError
from xpolicy.policy.options import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from xpolicy.backends.stages import Stage

_KIND = inspect.Parameter
_STARS = (_KIND.VAR_POSITIONAL, _KIND.VAR_KEYWORD)
#: The signature of what tells none: NumPy's ufuncs and the like.
ANY = inspect.Signature([_KIND("args", _KIND.VAR_POSITIONAL), _KIND("kwargs", _KIND.VAR_KEYWORD)])


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return a function's signature; any arguments if it tells none."""
    try:
        return inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return ANY


def spelled(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> inspect.BoundArguments:
    """Bind a call, as the dispatcher forwards it: by position as far as it goes."""
    return signature.bind(*args, **kwargs)


@dataclass(frozen=True)
class Expected:
    """What a function was compiled for.

    Parameters
    ----------
    key, namespace, file, line
        The function, and where it is written.
    call : Branch
        Every argument by its path: ``"args[0]"``, ``"kwargs['n']"``.
    constants : mapping
        Values of static arguments by name; they may be left out of a call.
    device : str or None
        The kind of device that the policy was resolved for.
    """

    key: str
    namespace: str
    file: str
    line: int
    call: Branch
    constants: Mapping[str, Any]
    device: str | None = None


def outlined(stage: Stage, bound: inspect.BoundArguments) -> Branch:
    """Return the structure of a call, an item for each argument."""
    return Branch("call", dict(_items(stage, bound)))


def _items(stage: Stage, bound: inspect.BoundArguments) -> Iterator[tuple[str, Leaf | Branch]]:
    for place, (name, parameter) in enumerate(bound.signature.parameters.items()):
        path = path_of(place, parameter)
        if parameter.kind is _KIND.VAR_POSITIONAL:
            for number, value in enumerate(bound.arguments.get(name, ()), place):
                yield f"args[{number}]", stage.outline(name, value)
        elif parameter.kind is _KIND.VAR_KEYWORD:
            for key, value in sorted(bound.arguments.get(name, {}).items()):
                yield f"kwargs[{key!r}]", stage.outline(key, value)
        elif name in bound.arguments:
            yield path, stage.outline(name, bound.arguments[name])
        elif parameter.default is not parameter.empty:
            if stage.fills_defaults or name in stage.statics:
                yield path, stage.outline(name, parameter.default)
            else:  # to jax a default that is left out is a constant of the function
                yield path, Leaf("left out", (("given", False),))


def path_of(place: int, parameter: inspect.Parameter) -> str:
    """Return how an argument is named in errors."""
    if parameter.kind is _KIND.KEYWORD_ONLY:
        return f"kwargs[{parameter.name!r}]"
    return f"args[{place}]"


def checked(
    expected: Expected,
    stage: Stage,
    signature: inspect.Signature,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> inspect.BoundArguments:
    """Return a call's arguments, bound; constants that were left out are filled in.

    Raises
    ------
    StructureMismatchError
        If they are not what the function was compiled for.
    """
    try:
        bound = signature.bind_partial(*args, **kwargs)
    except TypeError as error:
        found = _unbindable(signature, args, kwargs) or Difference("", "", str(error), "call")
        raise mismatch(expected, signature, found) from None
    for name, parameter in signature.parameters.items():
        if name in bound.arguments or parameter.kind in _STARS:
            continue
        if name in expected.constants:
            bound.arguments[name] = expected.constants[name]
        # a required one that is missing has no item in the outline of the call
    try:
        got = outlined(stage, bound)
    except TypeError as error:  # a static argument that can't be hashed
        found = Difference("", "", str(error), "static value")
        raise mismatch(expected, signature, found) from None
    difference_found = difference(expected.call, got, "")
    if difference_found is not None:
        raise mismatch(expected, signature, difference_found)
    return bound


def _unbindable(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Difference | None:
    """Say what keeps arguments from being bound at all."""
    parameters = signature.parameters
    positional = [
        p
        for p in parameters.values()
        if p.kind in (_KIND.POSITIONAL_ONLY, _KIND.POSITIONAL_OR_KEYWORD)
    ]
    kinds = {p.kind for p in parameters.values()}
    if len(args) > len(positional) and _KIND.VAR_POSITIONAL not in kinds:
        got = type(args[len(positional)]).__name__
        hint = f"it takes {len(positional)} positional arguments, {len(args)} were given"
        return Difference(f"args[{len(positional)}]", "nothing", got, "extra", hint)
    for name, value in kwargs.items():
        got, path = type(value).__name__, f"kwargs[{name!r}]"
        known = parameters.get(name)
        if known is not None and known.kind is _KIND.POSITIONAL_ONLY:
            if _KIND.VAR_KEYWORD not in kinds:
                hint = f"{name!r} is positional-only: it is args[{positional.index(known)}]"
                return Difference(path, "nothing", got, "keyword for positional", hint)
        elif known in positional and positional.index(known) < len(args):
            hint = f"it is given as args[{positional.index(known)}] already"
            return Difference(path, "nothing", got, "extra", hint)
        elif (known is None or known.kind in _STARS) and _KIND.VAR_KEYWORD not in kinds:
            names = [n for n, p in parameters.items() if p.kind is not _KIND.POSITIONAL_ONLY]
            near = nearest(name, names)
            hint = f"did you mean {near!r}?" if near else f"it takes {', '.join(names)}"
            return Difference(path, "nothing", got, "renamed" if near else "extra", hint)
    return None


def mismatch(
    expected: Expected, signature: inspect.Signature, found: Difference
) -> StructureMismatchError:
    """Return the error that shows the first difference and the function it is about."""
    where = f"{expected.key} ({expected.file}:{expected.line})"
    lines = [f"{where} was compiled for {expected.namespace} with other arguments than these"]
    if found.expected:
        name = _argument(signature, found.path)
        lines.append(f"  {found.path}: {found.expected} expected, {found.got} given{name}")
    else:
        lines.append(f"  {found.got}")
    if found.hint:
        lines.append(f"  {found.hint}")
    if found.kind == "static value":
        lines.append(
            "  a static argument is part of what was compiled: leave it out, or pass it equal"
        )
    lines.append(
        f"  fix: call {expected.key} itself, which compiles what it is given, or lower it "
        "for these arguments too"
    )
    error = StructureMismatchError("\n".join(lines))
    error.path, error.expected, error.got = found.path, found.expected, found.got
    error.kind = found.kind
    return error


def _argument(signature: inspect.Signature, path: str) -> str:
    """Return the parameter's name, where the path has only its place."""
    for place, parameter in enumerate(signature.parameters.values()):
        own = path_of(place, parameter)
        if parameter.kind not in _STARS and own.startswith("args") and path.startswith(own):
            return f" (in {parameter.name}{path[len(own) :]})"
    return ""
