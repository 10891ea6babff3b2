"""Exceptions out of a graph that runs: what the function itself raises there, and in whose words.

Dynamo puts some checks of a function's into its graph. What they raise when it runs is the
compiler's: a `RuntimeError` for an ``assert`` on a tensor (`AssertionError` in eager code),
and under inductor also for an index out of range (`IndexError`). Nothing of the function but
the graph has run by then, if it is one graph and changes none of its inputs: there the
original function is run, and raises, or catches, what it does by itself.

On GPUs such a check fails in the device, which no program survives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xpolicy.backends.torch.watch import RunOriginal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xpolicy.backends.torch.breaks import Breaks

#: Parts of the names of operations that check values when they run.
_CHECKING = ("_assert", "_check", "index", "getitem", "gather", "take", "embedding", "scatter")
#: What dynamo says for an ``assert`` without words.
_WORDLESS = "assertion error"


class RaisedInGraphError(Exception):
    """A graph has raised an exception while it ran, before anything else has happened."""


def put_in_words(graph: Any) -> dict[str, Any]:
    """Make a string of each assertion's message, in place; return what the others were.

    Dynamo puts any message into the graph, and torch takes strings only: an assertion with
    another one would raise a `TypeError` even where it holds (torch 2.13).
    """
    messages: dict[str, Any] = {}
    for node in graph.graph.nodes:
        if "_assert_async" in _name(node) and len(node.args) > 1:
            asserted, message, *more = node.args
            if not isinstance(message, str):
                words = repr(message)
                # One that speaks of other values in the graph has none yet.
                messages[words] = message if len(node.all_input_nodes) == 1 else words
                node.args = (asserted, words, *more)
    if messages:
        graph.recompile()
    return messages


def guarded(
    compiled: Callable[..., Any],
    graph: Any,
    breaks: Breaks,
    messages: Mapping[str, Any],
    *,
    of_entry: bool,
) -> Callable[..., Any]:
    """Return a compiled graph whose checks raise what the function raises.

    Parameters
    ----------
    compiled : callable
        What the graph was compiled to.
    graph : torch.fx.GraphModule
        The graph as dynamo has captured it.
    breaks : Breaks
        The breaks of its function that are known when it runs.
    messages : mapping of str to object
        What `put_in_words` has returned.
    of_entry : bool
        Whether it was captured from the function's own entry frame.
    """
    if not any(_checks(node) for node in graph.graph.nodes):
        return compiled
    said = {told for node in graph.graph.nodes if (told := _assertion(node)) is not None}
    only = of_entry and not _ends_at_a_break(graph) and not _changes_inputs(graph)

    def run(*args: Any) -> Any:
        try:
            return compiled(*args)
        except (RuntimeError, IndexError) as error:
            raised = error
        if only and not breaks.found:
            failure = RaisedInGraphError(f"{type(raised).__name__}: {raised}")
            failure.__cause__ = raised
            raise RunOriginal(failure)
        if type(raised) is RuntimeError and str(raised) in said:
            told = str(raised)
            words = () if told == _WORDLESS else (messages.get(told, told),)
            raise AssertionError(*words) from raised
        raise raised

    return run


def _name(node: Any) -> str:
    return str(getattr(node.target, "__name__", node.target))


def _checks(node: Any) -> bool:
    return node.op in ("call_function", "call_method") and any(
        part in _name(node) for part in _CHECKING
    )


def _assertion(node: Any) -> str | None:
    """Return the words of an ``assert`` on a tensor."""
    if "_assert_async" not in _name(node):
        return None
    return next((each for each in node.args if isinstance(each, str)), _WORDLESS)


def _ends_at_a_break(graph: Any) -> bool:
    return bool(getattr(getattr(graph, "compile_subgraph_reason", None), "graph_break", False))


def _changes_inputs(graph: Any) -> bool:
    """Return whether a graph may change a tensor that it is given.

    Dynamo has traced it with stand-ins, whose version grows as a tensor's does when it, or
    a view of it, is changed. Only ``.data`` has a version of its own.
    """
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            traced = node.meta.get("example_value")
            if getattr(traced, "_version", 1 if traced is None else 0):
                return True
        elif "_data" in _name(node):
            return True
    return False
