"""From the function's own signature to one calling convention, whatever the spelling.

jax keys a call by how it was written: positional, by keyword, with a default left out. A
function with static arguments gets a shim with its exact signature that brings every
spelling to one: a key that holds the constants, then the traced arguments in order.
"""

from __future__ import annotations

import inspect
import keyword
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
    from collections.abc import Callable, Mapping, Sequence

    from xpolicy.backends.jax.plan import Plan


_KIND = inspect.Parameter
_VARIADIC = (_KIND.VAR_POSITIONAL, _KIND.VAR_KEYWORD)


def convention_of(layout: Plan) -> Convention:
    """Return the calling convention for a function with constants."""
    return Forwarding(layout) if layout.forwards else Convention(layout)


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
        #: What our own names in a shim begin with, so that they meet none of the function's.
        self.ours = "_xpolicy_"
        while any(name.startswith(self.ours) for name in self.parameters):
            self.ours += "_"
        #: Names of constants, in the order of the key. Under ``auto`` every argument has
        #: a place, for what its value turns out to be.
        self.keyed = tuple(
            name for name in self.parameters if name in layout.static or name in layout.auto
        ) + tuple(name for name in layout.caught if name in layout.static)
        #: Names of what is passed to jax after the key, in order.
        self.passed = tuple(name for name in self.parameters if name not in layout.static) + tuple(
            name for name in layout.caught if name not in layout.static
        )

    def donation(self) -> dict[str, Any]:
        """Return the keywords of ``jax.jit`` for donated arguments, the key being at 0."""
        places = tuple(1 + self.passed.index(name) for name in self.plan.donated)
        return {"donate_argnums": places}

    def signature(self) -> inspect.Signature:
        """Return the signature of the traced body, with names that jax's messages can use."""
        names = [f"{self.ours}static"]
        for place, name in enumerate(self.passed):  # `**kwargs` takes any string
            usable = name.isidentifier() and not keyword.iskeyword(name)
            names.append(name if usable else f"{self.ours}{place}")
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
            f"{self.ours}jitted": jitted,
            f"{self.ours}type": type,
            f"{self.ours}key": key,
            f"{self.ours}plain": PLAIN,
            f"{self.ours}omitted": OMITTED,
            f"{self.ours}traced": TRACED,
            f"{self.ours}seen": auto.traced,
            f"{self.ours}split": auto.split,
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
                lines.append(
                    f"if {self.ours}type({arg}) in {self.ours}seen: "
                    f"{self.ours}k{place} = {self.ours}traced"
                )
                lines.append(f"else: {self.ours}k{place}, {arg} = {self.ours}split({arg}, {arg!r})")
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
            scope[f"{self.ours}default{place}"] = parameter.default
            return f"{arg}={self.ours}default{place}"
        return f"{arg}={self.ours}omitted"

    def _compiled(
        self, head: list[str], lines: list[str], scope: dict[str, Any], name: str
    ) -> Callable[..., Any]:
        places = {arg: place for place, arg in enumerate(self.parameters)}
        rest = next((n for n, p in self.parameters.items() if p.kind is _KIND.VAR_KEYWORD), "")
        for number, arg in enumerate(self.plan.caught):
            lines.append(f"{self.ours}c{number} = {rest}.pop({arg!r}, {self.ours}omitted)")
            places[arg] = -1 - number
        keys = []
        for arg in self.keyed:
            if arg not in self.plan.static:
                keys.append(f"{self.ours}k{places[arg]}")
                continue
            local = arg if places[arg] >= 0 else f"{self.ours}c{-1 - places[arg]}"
            keys.append(
                f"{local} if {self.ours}type({local}) in {self.ours}plain "
                f"else {self.ours}key({local}, {arg!r})"
            )
        passed = [
            arg if places[arg] >= 0 else f"{self.ours}c{-1 - places[arg]}" for arg in self.passed
        ]
        key = f"({', '.join(keys)},)" if keys else "()"
        lines.append(f"return {self.ours}jitted({', '.join([key, *passed])})")
        text = f"def _shim({', '.join(head)}):\n" + "".join(f"    {line}\n" for line in lines)
        # The names come from a signature, so they are identifiers; no text of a user is run.
        exec(compile(text, f"<xpolicy: arguments of {name}>", "exec"), scope)
        made: Callable[..., Any] = scope["_shim"]
        made.__name__ = made.__qualname__ = name
        return made

    def told(
        self, key: tuple[Any, ...], passed: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Return traced arguments, keys of constants and omitted defaults, by name.

        Parameters
        ----------
        key, passed, named
            The key, and what jax was given by place and by name.
        """
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
        self, key: tuple[Any, ...], passed: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and keyword arguments that the function is to be called with.

        Parameters
        ----------
        key, passed, named
            The key, and what jax was given by place and by name.
        """
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


class Forwarding(Convention):
    """A convention for ``(*args, **kwargs)``: ``jitted(key, *args, **kwargs)``.

    Names are those of the function that is wrapped. What is called is the wrapper, so each
    argument reaches it as it was spelled, and one more or less is the wrapper's affair.
    A constant leaves a hole where it was.
    """

    def __init__(self, layout: Plan) -> None:
        super().__init__(layout)
        kinds = (_KIND.POSITIONAL_ONLY, _KIND.POSITIONAL_OR_KEYWORD)
        self._places = tuple(n for n, p in self.parameters.items() if p.kind in kinds)

    def donation(self) -> dict[str, Any]:
        """Return the keywords of ``jax.jit``: by place and by name, however it is spelled."""
        donated = self.plan.donated
        places = tuple(1 + self._places.index(n) for n in donated if n in self._places)
        return {"donate_argnums": places, "donate_argnames": donated}

    def signature(self) -> inspect.Signature:
        """Return the signature of the traced body."""
        rest = [_KIND("args", _KIND.VAR_POSITIONAL), _KIND("kwargs", _KIND.VAR_KEYWORD)]
        return inspect.Signature([_KIND(f"{self.ours}static", _KIND.POSITIONAL_ONLY), *rest])

    def shim(
        self, jitted: Callable[..., Any], key: Callable[[Any, str], Any], name: str
    ) -> Callable[..., Any]:
        """Return what takes any arguments and calls ``jitted``; see `Convention.shim`."""
        auto = AutoStatics(key)
        static, by_type = frozenset(self.plan.static), frozenset(self.plan.auto)

        def split(value: Any, argument: str) -> tuple[Any, Any]:
            if argument in static:
                return key(value, argument), OMITTED
            if argument in by_type and type(value) not in auto.traced:
                return auto.split(value, argument)
            return TRACED, value

        def shim(*args: Any, **kwargs: Any) -> Any:
            placed = [split(v, self._name(i)) for i, v in enumerate(args)]
            keys, named = [k for k, _ in placed], {}
            for argument in sorted(kwargs):  # in whatever order, one spelling
                k, value = split(kwargs[argument], argument)
                if k is TRACED:
                    named[argument] = value
                else:
                    keys.append((argument, k))
            return jitted(tuple(keys), *(value for _, value in placed), **named)

        shim.__name__ = shim.__qualname__ = name
        return shim

    def _name(self, place: int) -> str:
        return self._places[place] if place < len(self._places) else f"argument {place}"

    def told(
        self, key: tuple[Any, ...], passed: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Return traced arguments, keys of constants and nothing, by name."""
        count = len(passed)
        traced: dict[str, Any] = dict(named)
        static: dict[str, Any] = dict(key[count:])
        for place, (k, value) in enumerate(zip(key[:count], passed, strict=True)):
            if k is TRACED:
                traced[self._name(place)] = value
            else:
                static[self._name(place)] = k
        return traced, static, {}

    def restore(
        self, key: tuple[Any, ...], passed: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments as the caller spelled them; see `Convention.restore`."""
        count = len(passed)
        args = [
            value if k is TRACED else value_of(k)
            for k, value in zip(key[:count], passed, strict=True)
        ]
        return args, {**named, **{name: value_of(k) for name, k in key[count:]}}
