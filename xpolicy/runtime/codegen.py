"""Source code of dispatchers: one code object for each parameter list, shared.

A dispatcher has its function's exact parameters, because that is what makes it cheap:
over a function that returns None, forwarding with the exact signature costs half of
what ``*args, **kwargs`` costs. Functions with the same parameter list share one code
object; what is their own (the function, its table, the stand-ins for its defaults)
reaches the code through closure cells. (The table does so by its entry: what pickles
closures would otherwise take compiled callables along, and give the copy a table that
its entry doesn't know. A slot costs as much as a cell.) The sharing is why decorating takes
microseconds: running the compiler for each function takes 120.

For ``def f(x, n=1)`` the code is, without its prefixes::

    def dispatch(x, n=d0):
        if overrides:
            call = partial(overridden, entry)
        else:
            try:
                table = entry.table
                call = (v0 := table[kind := type(x)]) or (
                    fn
                    if v0 is False and (n is d0 or type(n) is kind)
                    else (v1 := 0 if n is d0 else table[type(n)])
                    or (
                        fn
                        if v0 is False or v1 is False or (v0 is not None and v1 is not None)
                        else partial(resolve, entry)
                    )
                )
            except Exception:
                call = partial(resolve, entry)
        if n is d0:
            return call(x)
        else:
            return call(x, n)

The table says for a type: the callable to call (an array that decides), ``False`` (an
array of a library that has no compiler here), ``0`` (not an array), ``None`` (ask the
slow path unless another argument decides). A type that it lacks raises KeyError, and a
type that can't be hashed raises what it likes: both go the slow way, which is called
outside the ``except`` so that no later error shows ours as its context.

NumPy arrays only, the commonest call of all, are through after one lookup: with four of
them that is 45 ns less than four lookups (`python -m benchmarks dispatch`).

An omitted argument is left out of the call that is forwarded, whatever its default:
jax.jit keeps an omitted default as a Python constant and traces one that is passed.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FunctionType

__all__ = ["GENERAL", "Parameters", "Writer", "parameters_of"]

VARARGS, VARKEYWORDS = 0x04, 0x08  # inspect.CO_VARARGS, CO_VARKEYWORDS

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


def parameters_of(function: FunctionType, *, skip: int = 0) -> Parameters:
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
    star = names[end] if code.co_flags & VARARGS else None
    end += star is not None
    keyword_only = names[count : count + code.co_kwonlyargcount]
    given = function.__kwdefaults__ or {}
    return Parameters(
        names[skip:only],
        names[max(only, skip) : count],
        min(len(function.__defaults__ or ()), count - skip),
        star,
        keyword_only,
        frozenset(name for name in keyword_only if name in given),
        names[end] if code.co_flags & VARKEYWORDS else None,
    )


class Writer:
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
        """Write the module whose one function makes dispatchers."""
        own = self._own
        cells = ("entry", "fn", "overridden", "overrides", "partial", "resolve", "type")
        lines = [
            f"def factory({', '.join([own(name) for name in cells] + [*self.default.values()])}):",
            f"    def dispatch({self.signature()}):",
        ]
        if self.parameters.names():
            lines += [
                f"        if {own('overrides')}:",
                f"            {own('call')} = {own('partial')}({own('overridden')}, {own('entry')})",
                "        else:",
                "            try:",
                f"                {own('table')} = {own('entry')}.table",
                *("                " + line for line in self._choice()),
                "            except Exception:",
                f"                {own('call')} = {self._slow()}",
            ]
        else:
            lines.append(f"        {own('call')} = {own('fn')}")
        lines += ("        " + line for line in self._forward())
        return "\n".join([*lines, "    return dispatch", ""])

    def signature(self) -> str:
        """Write the parameters, defaults by the names of their stand-ins."""
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
        return f"{self._own('partial')}({self._own('resolve')}, {self._own('entry')})"

    def _lookup(self, name: str) -> str:
        return f"{self._own('table')}[{self._own('type')}({name})]"

    def _chain(self, names: tuple[str, ...]) -> str:
        def verdict(name: str) -> str:
            if name in self.default:  # an omitted argument is no array: don't look
                return f"0 if {name} is {self.default[name]} else {self._lookup(name)}"
            return self._lookup(name)

        return " or ".join(f"({self.verdict[name]} := {verdict(name)})" for name in names)

    def _choice(self) -> list[str]:
        p, own = self.parameters, self._own
        positional = p.positional_only + p.positional
        if p.varargs or p.varkeywords:
            return self._choice_with_stars()
        names = positional + p.keyword_only
        verdicts = [self.verdict[name] for name in names]
        fine = " and ".join(f"{verdict} is not None" for verdict in verdicts)
        if len(names) == 1:
            return [
                f"{own('call')} = {self._chain(names)} or (",
                f"    {own('fn')} if {fine} else {self._slow()}",
                ")",
            ]
        weak = " or ".join(f"{verdict} is False" for verdict in verdicts)
        alike = " and ".join(self._alike(name) for name in names[1:])
        first = self._chain(names[:1]).replace("[", f"[{own('kind')} := ", 1)
        return [
            f"{own('call')} = {first} or (",
            f"    {own('fn')} if {verdicts[0]} is False and {alike} else",
            f"    {self._chain(names[1:])} or (",
            f"        {own('fn')} if {weak} or ({fine}) else {self._slow()}",
            "    )",
            ")",
        ]

    def _alike(self, name: str) -> str:
        """Write the test that an argument is of the first one's type, or was omitted."""
        same = f"{self._own('type')}({name}) is {self._own('kind')}"
        return f"({name} is {self.default[name]} or {same})" if name in self.default else same

    def _choice_with_stars(self) -> list[str]:
        p, own = self.parameters, self._own
        call, weak, ask, value = own("call"), own("weak"), own("ask"), own("value")
        positional = p.positional_only + p.positional
        if positional:
            lines = [f"{call} = {self._chain(positional)}", f"if not {call}:"]
            lines += ("    " + line for line in self._noted(positional, first=True))
        else:
            first = self._lookup(f"{p.varargs}[0]") + f" if {p.varargs} else " if p.varargs else ""
            lines = [f"{call} = {first}False", f"{weak} = {ask} = False"]
        for star, values in (
            (p.varargs, p.varargs),
            (None, None),
            (p.varkeywords, f"{p.varkeywords}.values()"),
        ):
            if star:
                lines += [
                    f"if not {call} and {star}:",
                    f"    for {value} in {values}:",
                    f"        {call} = {self._lookup(value)}",
                    f"        if {call}:",
                    "            break",
                    f"        if {call} is False:",
                    f"            {weak} = True",
                    f"        elif {call} is None:",
                    f"            {ask} = True",
                ]
            elif star is values and p.keyword_only:
                lines += [
                    f"if not {call}:",
                    f"    {call} = {self._chain(p.keyword_only)}",
                    f"    if not {call}:",
                    *("        " + line for line in self._noted(p.keyword_only, first=False)),
                ]
        return [
            *lines,
            f"if not {call}:",
            f"    {call} = {own('fn')} if {weak} or not {ask} else {self._slow()}",
        ]

    def _noted(self, names: tuple[str, ...], *, first: bool) -> Iterator[str]:
        for flag, verdict in ((self._own("weak"), "False"), (self._own("ask"), "None")):
            tests = [f"{self.verdict[name]} is {verdict}" for name in names]
            yield f"{flag} = {' or '.join(tests if first else [flag, *tests])}"

    # --- with which arguments ---------------------------------------------------

    def _forward(self) -> list[str]:
        """Call with what was given: leading positional arguments, the rest by keyword."""
        p = self.parameters
        required = (p.positional_only + p.positional)[: -p.defaults or None]
        if len(self.default) <= _ENUMERATED:
            return list(self._enumerated(list(self.default), list(required), [], gap=False))
        return self._collected(list(required))

    def _call(self, positional: list[str], keywords: list[str], *, gap: bool) -> Iterator[str]:
        """Write the call; the stars only where there is something in them."""
        p = self.parameters
        keywords = [
            *(f"{name}={name}" for name in p.keyword_only if name not in self.default),
            *keywords,
        ]

        def call(*parts: str) -> str:
            return f"return {self._own('call')}({', '.join(parts)})"

        args = f"*{p.varargs}" if p.varargs and not gap else ""  # with a gap it is empty
        kwargs = f"**{p.varkeywords}"
        if p.varkeywords:
            yield f"if {p.varkeywords}:"
            yield "    " + call(*positional, *([args] if args else []), *keywords, kwargs)
        if args and positional:
            yield f"if {p.varargs}:"
            yield "    " + call(*positional, args, *keywords)
            args = ""
        yield call(*positional, *([args] if args else []), *keywords)

    def _enumerated(
        self, undecided: list[str], positional: list[str], keywords: list[str], *, gap: bool
    ) -> Iterator[str]:
        if not undecided:
            yield from self._call(positional, keywords, gap=gap)
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
        return [*lines, *self._call(leading, [f"**{extra}"], gap=False)]
