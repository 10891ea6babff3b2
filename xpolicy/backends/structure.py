"""The structure of a call's arguments, and where two structures differ first.

Backends say what a leaf is to their compiler; how containers are compared and how a
difference is told is the same for all of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: No deeper than this: a container that holds itself must end somewhere.
_DEPTH = 64


@dataclass(frozen=True, slots=True)
class Leaf:
    """One argument, or one item in a container, as the compiler tells it from others.

    Parameters
    ----------
    text : str
        In one line: ``"float32[128, 64]"``.
    facts : tuple of (str, object)
        What must be equal, each with its name: ``(("shape", (128, 64)), …)``. The first
        that differs says what kind of difference it is.
    device : str
        Where it is; empty if that doesn't matter.
    movable : bool
        Whether the compiler may move it to another device.
    """

    text: str
    facts: tuple[tuple[str, Any], ...]
    device: str = ""
    movable: bool = False

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Branch:
    """A container: its type, and what is in it by its path from the container.

    Parameters
    ----------
    name : str
        The type, as shown.
    items : mapping
        Path (``"['w']"``, ``"[0]"``, ``".mean"``) to what is there.
    token : object
        What else must be equal: the order of keys, a pytree's own data.
    """

    name: str
    items: Mapping[str, Leaf | Branch]
    token: Any = field(default=None)

    def __str__(self) -> str:
        return f"{self.name} of {len(self.items)}"


class Difference(NamedTuple):
    """Where two structures differ first.

    Parameters
    ----------
    path : str
        From the argument on: ``"args[0]['w']"``.
    expected, got : str
        What it was compiled for, and what was given.
    kind : str
        ``"missing"``, ``"extra"``, ``"container"``, ``"shape"``, ``"dtype"``, …
    hint : str
        What may help; empty if nothing is known.
    """

    path: str
    expected: str
    got: str
    kind: str
    hint: str = ""


def children(value: Any) -> tuple[str, dict[str, Any], Any] | None:
    """Open a built-in container, a named tuple or a dataclass; None for anything else.

    Returns
    -------
    tuple or None
        The type's name, what is in it by path, and what else must be equal.

    Examples
    --------
    >>> children({"w": 1, "b": 2})
    ('dict', {"['w']": 1, "['b']": 2}, None)
    >>> children(3) is None
    True
    """
    kind = type(value)
    if isinstance(value, Mapping):
        return kind.__name__, {f"[{key!r}]": item for key, item in value.items()}, None
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        names = kind._fields
        return kind.__name__, {f".{n}": v for n, v in zip(names, value, strict=True)}, kind
    if isinstance(value, list | tuple):
        return kind.__name__, {f"[{place}]": item for place, item in enumerate(value)}, None
    if dataclasses.is_dataclass(kind):
        names = tuple(f.name for f in dataclasses.fields(kind))
        return kind.__name__, {f".{n}": getattr(value, n, None) for n in names}, kind
    return None


def outline(
    value: Any,
    leaf: Callable[[Any], Leaf],
    open_: Callable[[Any], tuple[str, dict[str, Any], Any] | None] = children,
    depth: int = _DEPTH,
) -> Leaf | Branch:
    """Return the structure of a value.

    Parameters
    ----------
    value : object
        An argument.
    leaf : callable
        Says what a leaf is to the compiler.
    open_ : callable
        Opens a container; see `children`.
    """
    opened = open_(value) if depth else None
    if opened is None:
        return leaf(value)
    name, items, token = opened
    return Branch(
        name, {path: outline(item, leaf, open_, depth - 1) for path, item in items.items()}, token
    )


def difference(expected: Leaf | Branch, got: Leaf | Branch, path: str) -> Difference | None:
    """Return where two structures differ first, in the order of the expected one."""
    if isinstance(expected, Branch) and isinstance(got, Branch):
        return _between_branches(expected, got, path)
    if isinstance(expected, Branch) or isinstance(got, Branch):
        return Difference(path, str(expected), str(got), "container")
    if expected.facts == got.facts:
        if got.movable or expected.device == got.device:
            return None
        mine, theirs = (f"{leaf.text} on {leaf.device or 'no device'}" for leaf in (expected, got))
        return Difference(path, mine, theirs, "device")
    wanted, given = dict(expected.facts), dict(got.facts)
    kind = next((n for n, v in expected.facts if n not in given or given[n] != v), "extra")
    hint = ""
    if expected.text == got.text:
        hint = f"the {kind} differs: {wanted.get(kind)!s} expected, {given.get(kind)!s} given"
    return Difference(path, expected.text, got.text, kind, hint)


def _between_branches(expected: Branch, got: Branch, path: str) -> Difference | None:
    if expected.name != got.name:
        return Difference(path, str(expected), str(got), "container")
    extra = [key for key in got.items if key not in expected.items]
    for key, item in expected.items.items():
        if key not in got.items:
            hint = f"there is {path}{extra[0]}, which is not expected" if extra else ""
            kind = "renamed" if extra else "missing"
            return Difference(path + key, str(item), "nothing", kind, hint)
        found = difference(item, got.items[key], path + key)
        if found is not None:
            return found
    if extra:
        return Difference(path + extra[0], "nothing", str(got.items[extra[0]]), "extra")
    if expected.token != got.token:
        hint = f"{expected.token} expected, {got.token} given"
        return Difference(path, expected.name, got.name, "container", hint)
    return None


def leaves(item: Leaf | Branch, path: str) -> Iterator[tuple[str, Leaf]]:
    """Yield every leaf with its path."""
    if isinstance(item, Leaf):
        yield path, item
        return
    for key, inner in item.items.items():
        yield from leaves(inner, path + key)
