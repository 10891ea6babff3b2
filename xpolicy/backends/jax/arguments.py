"""From the function's own signature to one calling convention, whatever the spelling.

jax keys a call by how it was written: positional, by keyword, with a default left out. A
function with static arguments gets a shim with its exact signature that brings every
spelling to one: a key that holds the constants, then the traced arguments in order.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from xpolicy.backends.jax.statics import (
    OMITTED,
    PLAIN,
    TRACED,
    AutoStatics,
    is_constant_type,
    value_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from xpolicy.backends.jax.plan import Plan


_KIND = inspect.Parameter
_VARIADIC = (_KIND.VAR_POSITIONAL, _KIND.VAR_KEYWORD)
#: What our own names in a shim begin with, so that they meet none of the function's.
_OURS = "_xpolicy_"


class Convention:
    """One calling convention for a function with constants: ``jitted(key, *traced)``.

    Parameters
    ----------
    layout : Plan
        Which arguments are constants.
    """

    def __init__(self, layout: Plan) -> None:
        assert layout.signature is not None
        self.plan = layout
        self.parameters = layout.signature.parameters
        #: Names of constants, in the order of the key. Under ``auto`` every argument has
        #: a place, for what its value turns out to be.
        self.keyed = tuple(
            name for name in self.parameters if name in layout.static or name in layout.auto
        ) + tuple(name for name in layout.caught if name in layout.static)
        #: Names of what is passed to jax after the key, in order.
        self.passed = tuple(name for name in self.parameters if name not in layout.static) + tuple(
            name for name in layout.caught if name not in layout.static
        )

    @property
    def donated(self) -> tuple[int, ...]:
        """Positions of donated arguments, the key being at 0."""
        return tuple(1 + self.passed.index(name) for name in self.plan.donated)

    def signature(self) -> inspect.Signature:
        """Return the signature of the traced body, with names that jax's messages can use."""
        names = (f"{_OURS}static", *self.passed)
        return inspect.Signature([_KIND(n, _KIND.POSITIONAL_ONLY) for n in names])

    def shim(
        self, jitted: Callable[..., Any], key: Callable[[Any, str], Any], name: str
    ) -> Callable[..., Any]:
        """Return a callable with the function's exact signature that calls ``jitted``.

        Generated, because binding with `inspect` costs 5 µs a call.

        Parameters
        ----------
        jitted : callable
            Takes the key and the traced arguments.
        key : callable
            Takes a value and an argument's name, returns the value's key.
        name : str
            The function's name, for tracebacks.
        """
        auto = AutoStatics(key)
        scope: dict[str, Any] = {
            "__name__": __name__,
            f"{_OURS}jitted": jitted,
            f"{_OURS}key": key,
            f"{_OURS}plain": PLAIN,
            f"{_OURS}omitted": OMITTED,
            f"{_OURS}traced": TRACED,
            f"{_OURS}seen": auto.traced,
            f"{_OURS}split": auto.split,
        }
        head: list[str] = []
        lines: list[str] = []
        kinds = [p.kind for p in self.parameters.values()]
        for place, (arg, parameter) in enumerate(self.parameters.items()):
            if parameter.kind is _KIND.KEYWORD_ONLY and not (
                {_KIND.KEYWORD_ONLY, _KIND.VAR_POSITIONAL} & set(kinds[:place])
            ):
                head.append("*")
            head.append(self._declared(arg, parameter, place, scope))
            if parameter.kind is _KIND.POSITIONAL_ONLY and (
                place + 1 == len(kinds) or kinds[place + 1] is not _KIND.POSITIONAL_ONLY
            ):
                head.append("/")
            if arg in self.plan.auto and arg in self.passed:
                lines.append(f"if type({arg}) in {_OURS}seen: {_OURS}k{place} = {_OURS}traced")
                lines.append(f"else: {_OURS}k{place}, {arg} = {_OURS}split({arg}, {arg!r})")
        return self._compiled(head, lines, scope, name)

    def _declared(
        self, arg: str, parameter: inspect.Parameter, place: int, scope: dict[str, Any]
    ) -> str:
        if parameter.kind is _KIND.VAR_POSITIONAL:
            return f"*{arg}"
        if parameter.kind is _KIND.VAR_KEYWORD:
            return f"**{arg}"
        if parameter.default is _KIND.empty:
            return arg
        constant = arg in self.plan.static
        if constant or (arg in self.plan.auto and is_constant_type(parameter.default)):
            scope[f"{_OURS}default{place}"] = parameter.default
            return f"{arg}={_OURS}default{place}"
        return f"{arg}={_OURS}omitted"

    def _compiled(
        self, head: list[str], lines: list[str], scope: dict[str, Any], name: str
    ) -> Callable[..., Any]:
        places = {arg: place for place, arg in enumerate(self.parameters)}
        rest = next((n for n, p in self.parameters.items() if p.kind is _KIND.VAR_KEYWORD), "")
        for number, arg in enumerate(self.plan.caught):
            lines.append(f"{_OURS}c{number} = {rest}.pop({arg!r}, {_OURS}omitted)")
            places[arg] = -1 - number
        keys = []
        for arg in self.keyed:
            if arg not in self.plan.static:
                keys.append(f"{_OURS}k{places[arg]}")
                continue
            local = arg if places[arg] >= 0 else f"{_OURS}c{-1 - places[arg]}"
            keys.append(
                f"{local} if type({local}) in {_OURS}plain else {_OURS}key({local}, {arg!r})"
            )
        passed = [arg if places[arg] >= 0 else f"{_OURS}c{-1 - places[arg]}" for arg in self.passed]
        key = f"({', '.join(keys)},)" if keys else "()"
        lines.append(f"return {_OURS}jitted({', '.join([key, *passed])})")
        text = f"def _shim({', '.join(head)}):\n" + "".join(f"    {line}\n" for line in lines)
        # The names come from a signature, so they are identifiers; no text of a user is run.
        exec(compile(text, f"<xpolicy: arguments of {name}>", "exec"), scope)
        made: Callable[..., Any] = scope["_shim"]
        made.__name__ = made.__qualname__ = name
        return made

    def told(
        self, key: tuple[Any, ...], passed: Iterable[Any]
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Return traced arguments, keys of constants and omitted defaults, by name."""
        static = {
            n: k
            for n, k in zip(self.keyed, key, strict=True)
            if k is not TRACED and value_of(k) is not OMITTED
        }
        traced: dict[str, Any] = {}
        omitted: dict[str, Any] = {}
        for name, value in zip(self.passed, passed, strict=True):
            if value is not OMITTED:
                traced[name] = value
            elif name not in static and name in self.parameters:
                omitted[name] = self.parameters[name].default
        return traced, static, omitted

    def restore(
        self, key: tuple[Any, ...], passed: Iterable[Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and keyword arguments that the function is to be called with."""
        values: dict[str, Any] = dict(zip(self.passed, passed, strict=True))
        for name, item in zip(self.keyed, key, strict=True):
            if item is not TRACED:
                values[name] = value_of(item)
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        by_keyword = False
        for name, parameter in self.parameters.items():
            value = values[name]
            if parameter.kind is _KIND.VAR_POSITIONAL:
                args += value
                by_keyword = True
            elif parameter.kind is _KIND.VAR_KEYWORD:
                kwargs.update(value)
            elif value is OMITTED:
                by_keyword = True
            elif by_keyword or parameter.kind is _KIND.KEYWORD_ONLY:
                kwargs[name] = value
            else:
                args.append(value)
        for name in self.plan.caught:
            if values[name] is not OMITTED:
                kwargs[name] = values[name]
        return args, kwargs
