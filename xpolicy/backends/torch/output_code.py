"""The code that inductor wrote for a compiled variant.

Stands on dynamo keeping compiled graphs as globals named ``__compiled_fn…``, and on
`CompiledFxGraph.source_code` being found behind them (torch 2.13). Where torch lacks
either, there is no text, and nothing else changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType

#: How far behind a compiled graph inductor's own object is looked for; seen: 5.
_DEPTH = 12
_LINKS = ("__wrapped__", "__self__", "__func__", "compiled_fn")


def output_code(code: CodeType, scope: dict[str, Any]) -> list[str]:
    """Return inductor's code of each graph that a variant calls.

    Parameters
    ----------
    code : CodeType
        What dynamo runs in the function's place.
    scope : dict
        The function's globals.
    """
    seen: set[int] = set()
    found: list[str] = []
    for name in code.co_names:
        if name.startswith("__compiled_fn") and name in scope:
            found += _texts(scope[name], seen, _DEPTH)
    return found


def _texts(value: Any, seen: set[int], depth: int) -> Iterator[str]:
    if id(value) in seen or not depth:
        return
    seen.add(id(value))
    text = getattr(value, "source_code", None)
    if isinstance(text, str) and type(value).__name__ == "CompiledFxGraph":
        yield text
        return
    for inner in _behind(value):
        yield from _texts(inner, seen, depth - 1)


def _behind(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        yield from value
        return
    for cell in getattr(value, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:  # empty
            continue
    for name in _LINKS:
        inner = getattr(value, name, None)
        if inner is not None and not isinstance(inner, type):
            yield inner
