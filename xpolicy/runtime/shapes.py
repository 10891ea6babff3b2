"""Code of dispatchers, compiled once for each parameter list and kept."""

from __future__ import annotations

import sys

from xpolicy.runtime.codegen import GENERAL, VARARGS, VARKEYWORDS, Parameters, Writer, parameters_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FunctionType

__all__ = ["Shape", "publish", "shape_of"]


class Shape:
    """The code that functions of one parameter list share.

    Attributes
    ----------
    code : code
        The dispatcher's code.
    cells : tuple of str
        Names of its closure cells, in their order: ``"fn"``, ``"table"``, …, and
        ``"d0"``, ``"d1"``, … for the defaults.
    defaults : int
        How many positional parameters have a default.
    keyword_defaulted : tuple of str
        Keyword-only parameters that have one.
    """

    __slots__ = ("cells", "code", "defaults", "keyword_defaulted")

    def __init__(self, code: CodeType, cells: tuple[str, ...], parameters: Parameters) -> None:
        self.code = code
        self.cells = cells
        self.defaults = parameters.defaults
        self.keyword_defaulted = parameters.keyword_defaulted()


# What decides a parameter list, as it stands in a function -> its shape.
_SHAPES: dict[tuple[object, ...], Shape] = {}

# File name -> source, of codes that `linecache` does not know yet.
_UNPUBLISHED: dict[str, str] = {}


def shape_of(function: FunctionType | None, *, skip: int = 0) -> Shape:
    """Return the code for a function's parameter list.

    Parameters
    ----------
    function : function or None
        A plain Python function; None for ``(*args, **kwargs)``, which also stands in
        for a list that can't be written as source (a name that is a keyword, made by
        ``code.replace``).
    skip : int
        Leading positional parameters to leave out (1 for a bound method).
    """
    key: tuple[object, ...] = ()
    if function is not None:
        code = function.__code__
        only_by_keyword = code.co_kwonlyargcount
        stars = code.co_flags & (VARARGS | VARKEYWORDS)
        count = code.co_argcount + only_by_keyword + stars.bit_count()
        key = (
            code.co_varnames[:count],
            code.co_posonlyargcount,
            code.co_argcount,
            only_by_keyword,
            stars,
            len(function.__defaults__ or ()),
            tuple(function.__kwdefaults__ or ()) if only_by_keyword else (),
            skip,
        )
    try:
        return _SHAPES[key]
    except KeyError:
        pass
    shape = None
    if function is not None:
        shape = _written(parameters_of(function, skip=skip)) or shape_of(None)
    else:
        shape = _written(GENERAL)
        assert shape is not None
    _SHAPES[key] = shape
    return shape


def _written(parameters: Parameters) -> Shape | None:
    if not all(name.isidentifier() for name in parameters.names()):
        return None
    writer = Writer(parameters)
    source = writer.source()
    shown = writer.signature().replace(writer.prefix + "_", "")
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
    own = writer.prefix + "_"
    return Shape(code, tuple(name.removeprefix(own) for name in code.co_freevars), parameters)


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
