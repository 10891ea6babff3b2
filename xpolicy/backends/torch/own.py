"""Whether torch gave up on a function that was about to raise an exception of its own.

Dynamo traces few exceptions: not one whose class has an ``__init__``, none that is given
an attribute, no failed ``assert`` with a message under ``fullgraph``, no missing name. It
then says `Unsupported` at some place on the way to the ``raise``. Running the function
would raise the real exception; but where it would do anything else, it must not be run,
because its effects would come before torch's error. So the source decides: the function is
one that raises if from the place where torch stopped there is no way around a ``raise``,
and nothing in the traced functions would catch it.
"""

from __future__ import annotations

import ast
import itertools
import linecache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_FAILED_ASSERT = "Data-dependent assertion failed"
#: Reading such a name is a `NameError`, in whatever statement it stands.
_NO_SUCH_NAME = ("failed to find name in frame builtins", "Attempted to read undefined local")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
#: Statements that go on with the next one, or raise.
_STRAIGHT = (
    ast.Expr,
    ast.Assign,
    ast.AugAssign,
    ast.AnnAssign,
    ast.Delete,
    ast.Pass,
    ast.Import,
    ast.ImportFrom,
    ast.Assert,
    ast.Raise,
)


def is_own(failure: BaseException) -> bool:
    """Return whether the compiler failed on an exception that the function itself raises.

    Seen while tracing, it is an `ObservedException`; out of an operation on tensors that
    have no data, a `TorchRuntimeError`. With ``fullgraph`` it is the cause of torch's own.
    """
    from torch._dynamo import exc

    kinds = (exc.ObservedException, exc.TorchRuntimeError)
    seen: BaseException | None = failure
    while seen is not None:
        if isinstance(seen, kinds):
            return True
        seen = seen.__cause__
    if isinstance(failure, exc.Unsupported):
        return _leads_to_raise(getattr(failure, "real_stack", None) or (), str(failure))
    # Dynamo lets these two through as they are.
    return isinstance(failure, IndexError | AssertionError)


def _leads_to_raise(stack: Iterable[Any], message: str) -> bool:
    """Return whether some traced function can't but raise, and none before it catches."""
    frames = list(stack)
    nameless = message.startswith(_NO_SUCH_NAME)
    for index, frame in enumerate(frames):
        innermost = index == len(frames) - 1
        path = _path(frame)
        if path is None:
            if frame.name.startswith("<"):  # a lambda or comprehension can't catch
                if innermost and nameless:
                    return True
                continue
            return False
        if any(_catches(outer, inner) for outer, inner in itertools.pairwise(path)):
            return False
        if innermost and nameless:
            return True
        if _certain(path, frame, failed=innermost and message.startswith(_FAILED_ASSERT)):
            return True
    return False


def _path(frame: Any) -> list[ast.AST] | None:
    """Return the statements around a place, from its function inwards; None if unknown."""
    if frame.lineno is None or getattr(frame, "colno", None) is None:
        return None  # Python without column positions (``-X no_debug_ranges``)
    lines = linecache.getlines(frame.filename)
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        return None
    at = (frame.lineno, frame.colno)
    path: list[ast.AST] = [tree]
    while True:
        inside = next((node for node in _statements(path[-1]) if _holds(node, at)), None)
        if inside is None:
            break
        path.append(inside)
    starts = [i for i, node in enumerate(path) if isinstance(node, _FUNCTIONS)]
    if not starts or path[starts[-1]].name != frame.name:  # type: ignore[attr-defined]
        return None
    path = path[starts[-1] :]
    # A generator may never be asked for more.
    yields = (ast.Yield, ast.YieldFrom, ast.Await)
    return None if any(isinstance(node, yields) for node in ast.walk(path[0])) else path


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Return the statements directly in another one, and its except and case clauses."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            yield from _statements(child)


def _holds(node: Any, at: tuple[int, int]) -> bool:
    return (node.lineno, node.col_offset) <= at < (node.end_lineno, node.end_col_offset)


def _catches(node: Any, inner: ast.AST) -> bool:
    """Return whether a statement may end an exception that comes out of one inside it."""
    if isinstance(node, ast.Try | ast.TryStar):
        caught = node.handlers and inner in node.body
        leaves = (ast.Return, ast.Break, ast.Continue)
        final = (each for last in node.finalbody for each in ast.walk(last))
        return bool(caught) or any(isinstance(each, leaves) for each in final)
    if isinstance(node, ast.With | ast.AsyncWith):  # torch's own (no_grad, …) catch nothing
        return not all(ast.unparse(i.context_expr).startswith("torch.") for i in node.items)
    return False


def _certain(path: list[ast.AST], frame: Any, *, failed: bool) -> bool:
    """Return whether a ``raise`` comes next, whatever the statement here does."""
    here = path[-1]
    if isinstance(here, ast.Raise):
        return True
    if isinstance(here, ast.Assert):
        told = here.msg  # evaluated only once the assertion has failed
        if failed or (told is not None and _holds(told, (frame.lineno, frame.colno))):
            return True
    if not isinstance(here, _STRAIGHT):
        return False
    for outer, inner in zip(path[-2::-1], path[:0:-1], strict=True):
        for after in _after(outer, inner):
            if isinstance(after, ast.Raise):
                return True
            if not isinstance(after, _STRAIGHT):
                return False
        if not isinstance(outer, ast.If):
            return False
    return False


def _after(outer: ast.AST, inner: ast.AST) -> list[Any]:
    """Return the statements that follow one in its block."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(outer, name, None) or []
        if inner in block:
            return list(block[block.index(inner) + 1 :])
    return []
