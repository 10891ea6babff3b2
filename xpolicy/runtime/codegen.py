"""Source code of dispatchers: one code object for each parameter list, shared.

A dispatcher has its function's exact parameters, because that is what makes it cheap:
over a function that returns None, forwarding with the exact signature costs half of
what ``*args, **kwargs`` costs. Functions with the same parameter list share one code
object; what is their own (the function, its table, the stand-ins for its defaults)
reaches the code through closure cells. The sharing is why decorating takes
microseconds: running the compiler for each function takes 120.

For ``def f(x, n=1)`` the code is, without its prefixes::

    def dispatch(x, n=d0):
        if overrides:
            call = method(overridden, entry)
        else:
            try:
                call = (v0 := table[type(x)]) or (v1 := table[type(n)]) or (
                    fn
                    if v0 is False or v1 is False or (v0 is not None and v1 is not None)
                    else method(resolve, entry)
                )
            except Exception:
                call = method(resolve, entry)
        if n is d0:
            return call(x)
        else:
            return call(x, n)

The table says for a type: the callable to call (an array that decides), ``False`` (an
array of a library that has no compiler here), ``0`` (not an array), ``None`` (ask the
slow path unless another argument decides). A type that it lacks raises KeyError, and a
type that can't be hashed raises what it likes: both go the slow way, which is called
outside the ``except`` so that no later error shows ours as its context.

An omitted argument is left out of the call that is forwarded, whatever its default:
jax.jit keeps an omitted default as a Python constant and traces one that is passed.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType

__all__ = ["GENERAL", "Parameters", "code_for", "parameters_of", "publish"]

_VARARGS, _VARKEYWORDS = 0x04, 0x08  # inspect.CO_VARARGS, CO_VARKEYWORDS

# With so many defaults or fewer every combination of given and omitted ones has its
# own call in the code: 2**4 = 16 of them.
_ENUMERATED = 4


class Parameters:
    """A function's parameter list, without the values of its defaults.

    Parameters
    ----------
    positional_only, positional, keyword_only : tuple of str
        Names of each kind, in order; `positional` are those that may also be given by
        keyword.
    defaults : int
        How many of the last positional parameters (of both kinds) have a default.
    keyword_defaults : frozenset of str
        Keyword-only parameters that have one.
    varargs, varkeywords : str or None
        Names of the ``*args`` and ``**kwargs`` parameters.
    """

    __slots__ = (
        "defaults",
        "keyword_defaults",
        "keyword_only",
        "positional",
        "positional_only",
        "varargs",
        "varkeywords",
    )

    def __init__(
        self,
        positional_only: tuple[str, ...] = (),
        positional: tuple[str, ...] = (),
        defaults: int = 0,
        varargs: str | None = None,
        keyword_only: tuple[str, ...] = (),
        keyword_defaults: frozenset[str] = frozenset(),
        varkeywords: str | None = None,
    ) -> None:
        self.positional_only = positional_only
        self.positional = positional
        self.defaults = defaults
        self.varargs = varargs
        self.keyword_only = keyword_only
        self.keyword_defaults = keyword_defaults
        self.varkeywords = varkeywords

    def key(self) -> tuple[object, ...]:
        """Return what tells this list from others."""
        return tuple(getattr(self, name) for name in self.__slots__)

    def names(self) -> tuple[str, ...]:
        """Return every parameter's name, in the order of the signature."""
        return (
            *self.positional_only,
            *self.positional,
            *((self.varargs,) if self.varargs else ()),
            *self.keyword_only,
            *((self.varkeywords,) if self.varkeywords else ()),
        )

    def defaulted(self) -> tuple[str, ...]:
        """Return the names of positional parameters with a default."""
        names = self.positional_only + self.positional
        return names[len(names) - self.defaults :]

    def keyword_defaulted(self) -> tuple[str, ...]:
        """Return the names of keyword-only parameters with a default."""
        return tuple(name for name in self.keyword_only if name in self.keyword_defaults)


GENERAL = Parameters(varargs="args", varkeywords="kwargs")
"""What fits every callable."""


def parameters_of(function: Callable[..., object], *, skip: int = 0) -> Parameters:
    """Read a plain function's own parameters off its code.

    Parameters
    ----------
    function : function
        A Python function. What it wraps (``__wrapped__``) is not looked at: the call
        must fit this function.
    skip : int
        Leading positional parameters to leave out (1 for a bound method).
    """
    code = function.__code__
    names = code.co_varnames
    only, count = code.co_posonlyargcount, code.co_argcount
    if skip > count:  # a method whose `self` is in its *args
        return GENERAL
    end = count + code.co_kwonlyargcount
    star = names[end] if code.co_flags & _VARARGS else None
    end += star is not None
    keyword_only = names[count : count + code.co_kwonlyargcount]
    given = function.__kwdefaults__ or {}  # type: ignore[attr-defined]
    return Parameters(
        names[skip:only],
        names[max(only, skip) : count],
        min(len(function.__defaults__ or ()), count - skip),  # type: ignore[attr-defined]
        star,
        keyword_only,
        frozenset(name for name in keyword_only if name in given),
        names[end] if code.co_flags & _VARKEYWORDS else None,
    )


class _Writer:
    """Writes the dispatcher of one parameter list."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.prefix = "_xp"
        while any(name.startswith(self.prefix) for name in parameters.names()):
            self.prefix += "_"
        stars = [name for name in (parameters.varargs, parameters.varkeywords) if name]
        arguments = [name for name in parameters.names() if name not in stars]
        self.verdict = {name: self._own(f"v{i}") for i, name in enumerate(arguments)}
        with_default = parameters.defaulted() + parameters.keyword_defaulted()
        self.default = {name: self._own(f"d{i}") for i, name in enumerate(with_default)}

    def _own(self, name: str) -> str:
        return f"{self.prefix}_{name}"

    def source(self) -> str:
        own = self._own
        cells = ("entry", "fn", "method", "overridden", "overrides", "resolve", "table", "type")
        lines = [
            f"def factory({', '.join([own(name) for name in cells] + [*self.default.values()])}):",
            f"    def dispatch({self._signature()}):",
        ]
        if self.parameters.names():
            lines += [
                f"        if {own('overrides')}:",
                f"            {own('call')} = {own('method')}({own('overridden')}, {own('entry')})",
                "        else:",
                "            try:",
                *("                " + line for line in self._choice()),
                "            except Exception:",
                f"                {own('call')} = {self._slow()}",
            ]
        else:
            lines.append(f"        {own('call')} = {own('fn')}")
        lines += ("        " + line for line in self._forward())
        return "\n".join([*lines, "    return dispatch", ""])

    def _signature(self) -> str:
        p = self.parameters

        def shown(name: str) -> str:
            return f"{name}={self.default[name]}" if name in self.default else name

        parts = [shown(name) for name in p.positional_only]
        parts += ["/"] if parts else []
        parts += [shown(name) for name in p.positional]
        if p.varargs or p.keyword_only:
            parts.append(f"*{p.varargs or ''}")
        parts += [shown(name) for name in p.keyword_only]
        parts += [f"**{p.varkeywords}"] if p.varkeywords else []
        return ", ".join(parts)

    # --- which callable ---------------------------------------------------------

    def _slow(self) -> str:
        return f"{self._own('method')}({self._own('resolve')}, {self._own('entry')})"

    def _lookup(self, name: str) -> str:
        return f"{self._own('table')}[{self._own('type')}({name})]"

    def _chain(self, names: tuple[str, ...]) -> str:
        return " or ".join(f"({self.verdict[name]} := {self._lookup(name)})" for name in names)

    def _choice(self) -> list[str]:
        p, own = self.parameters, self._own
        positional = p.positional_only + p.positional
        if p.varargs or p.varkeywords:
            return self._choice_with_stars()
        names = positional + p.keyword_only
        verdicts = [self.verdict[name] for name in names]
        fine = " and ".join(f"{verdict} is not None" for verdict in verdicts)
        if len(names) > 1:
            weak = " or ".join(f"{verdict} is False" for verdict in verdicts)
            fine = f"{weak} or ({fine})"
        return [
            f"{own('call')} = {self._chain(names)} or (",
            f"    {own('fn')} if {fine} else {self._slow()}",
            ")",
        ]

    def _choice_with_stars(self) -> list[str]:
        p, own = self.parameters, self._own
        call, weak, ask, value = own("call"), own("weak"), own("ask"), own("value")
        lines = [f"{call} = {weak} = {ask} = None"]
        for names, star in (
            (p.positional_only + p.positional, p.varargs),
            (p.keyword_only, p.varkeywords and f"{p.varkeywords}.values()"),
        ):
            if names:
                verdicts = [self.verdict[name] for name in names]
                lines += [
                    f"if not {call}:",
                    f"    {call} = {self._chain(names)}",
                    f"    if not {call}:",
                    f"        {weak} = {weak} or {' or '.join(f'{v} is False' for v in verdicts)}",
                    f"        {ask} = {ask} or {' or '.join(f'{v} is None' for v in verdicts)}",
                ]
            if star:
                lines += [
                    f"if not {call} and {star.removesuffix('.values()')}:",
                    f"    for {value} in {star}:",
                    f"        {call} = {self._lookup(value)}",
                    f"        if {call}:",
                    "            break",
                    f"        if {call} is False:",
                    f"            {weak} = True",
                    f"        elif {call} is None:",
                    f"            {ask} = True",
                ]
        lines += [
            f"if not {call}:",
            f"    {call} = {own('fn')} if {weak} or not {ask} else {self._slow()}",
        ]
        return lines

    # --- with which arguments ---------------------------------------------------

    def _forward(self) -> list[str]:
        """Call with what was given: leading positional arguments, the rest by keyword."""
        p = self.parameters
        required = (p.positional_only + p.positional)[: -p.defaults or None]
        if len(self.default) <= _ENUMERATED:
            return list(self._enumerated(list(self.default), list(required), [], gap=False))
        return self._collected(list(required))

    def _call(self, positional: list[str], keywords: list[str], *, gap: bool) -> str:
        p = self.parameters
        parts = list(positional)
        if p.varargs and not gap:  # with a gap nothing can be in it
            parts.append(f"*{p.varargs}")
        parts += [f"{name}={name}" for name in p.keyword_only if name not in self.default]
        parts += keywords
        parts += [f"**{p.varkeywords}"] if p.varkeywords else []
        return f"return {self._own('call')}({', '.join(parts)})"

    def _enumerated(
        self, undecided: list[str], positional: list[str], keywords: list[str], *, gap: bool
    ) -> Iterator[str]:
        if not undecided:
            yield self._call(positional, keywords, gap=gap)
            return
        name, *rest = undecided
        p = self.parameters
        by_position = name not in p.keyword_only
        if by_position and gap and name in p.positional_only:  # can't have been given
            yield from self._enumerated(rest, positional, keywords, gap=gap)
            return
        yield f"if {name} is {self.default[name]}:"
        for line in self._enumerated(rest, positional, keywords, gap=gap or by_position):
            yield "    " + line
        yield "else:"
        if by_position and not gap:
            positional = [*positional, name]
        else:
            keywords = [*keywords, f"{name}={name}"]
        for line in self._enumerated(rest, positional, keywords, gap=gap):
            yield "    " + line

    def _collected(self, required: list[str]) -> list[str]:
        """Do the same for many defaults, in code that grows with their number only."""
        p, own = self.parameters, self._own
        extra, count = own("extra"), own("count")
        defaulted = p.defaulted()
        lines = [f"{extra} = {{}}"]
        if defaulted:
            for index, name in enumerate(defaulted):
                lines += [
                    f"{'el' if index else ''}if {name} is {self.default[name]}:",
                    f"    {count} = {index}",
                ]
            lines += ["else:", f"    {count} = {len(defaulted)}"]
        for index, name in enumerate(defaulted):
            if index and name in p.positional:
                lines += [
                    f"if {count} < {index} and {name} is not {self.default[name]}:",
                    f"    {extra}[{name!r}] = {name}",
                ]
        for name in p.keyword_defaulted():
            lines += [
                f"if {name} is not {self.default[name]}:",
                f"    {extra}[{name!r}] = {name}",
            ]
        leading = [*required, f"*({', '.join(defaulted)},)[:{count}]"] if defaulted else required
        lines.append(self._call(leading, [f"**{extra}"], gap=False))
        return lines


# parameter list -> (code, its cells' names), or None where no such code can be written.
_CODES: dict[tuple[object, ...], tuple[CodeType, tuple[str, ...]] | None] = {}

# File name -> source, of codes that `linecache` does not know yet.
_UNPUBLISHED: dict[str, str] = {}


def code_for(parameters: Parameters) -> tuple[CodeType, tuple[str, ...]] | None:
    """Return the code of a parameter list's dispatcher.

    Parameters
    ----------
    parameters : Parameters
        The list.

    Returns
    -------
    tuple of (code, tuple of str) or None
        The code, and the names of its closure cells in their order: ``"fn"``,
        ``"table"``, … and ``"d0"``, ``"d1"``, … for the defaults. None if the list
        can't be written as source (a name that is a keyword, made by
        ``code.replace``).
    """
    key = parameters.key()
    try:
        return _CODES[key]
    except KeyError:
        made = _CODES[key] = _compile(parameters)
        return made


def _compile(parameters: Parameters) -> tuple[CodeType, tuple[str, ...]] | None:
    if not all(name.isidentifier() for name in parameters.names()):
        return None
    writer = _Writer(parameters)
    source = writer.source()
    shown = writer._signature().replace(writer.prefix + "_", "")
    filename = f"<xpolicy dispatch({shown})>"
    try:
        code = compile(source, filename, "exec", dont_inherit=True, optimize=0)
    except (SyntaxError, RecursionError, MemoryError):
        return None
    for _ in range(2):  # the module holds the factory, the factory holds dispatch
        code = next(inner for inner in code.co_consts if isinstance(inner, type(code)))
    if code.co_varnames[: len(parameters.names())] != _as_in_code(parameters):
        return None  # the compiler normalised a name (NFKC)
    _UNPUBLISHED[filename] = source
    if "linecache" in sys.modules:
        publish()
    return code, tuple(name.removeprefix(writer.prefix + "_") for name in code.co_freevars)


def _as_in_code(parameters: Parameters) -> tuple[str, ...]:
    stars = tuple(name for name in (parameters.varargs, parameters.varkeywords) if name)
    return tuple(name for name in parameters.names() if name not in stars) + stars


def publish() -> None:
    """Give the sources to `linecache`, for tracebacks and debuggers.

    `linecache` imports the tokenizer, so this waits until somebody else has imported it
    or a first call goes the slow way: no frame of ours is in a traceback before that.
    """
    if not _UNPUBLISHED:
        return
    import linecache

    while _UNPUBLISHED:
        try:
            filename, source = _UNPUBLISHED.popitem()
        except KeyError:  # another thread took the last one
            return
        # No modification time: `checkcache` keeps such entries.
        linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
