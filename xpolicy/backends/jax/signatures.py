"""What jax compiled a variant for, in words, and how two variants differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax

from xpolicy.backends.jax.statics import value_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Settings of jax that are part of its key besides the arguments.
CONTEXT = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_default_device",
    "jax_threefry_partitionable",
    "jax_default_prng_impl",
)


def context() -> tuple[tuple[str, str], ...]:
    """Return jax's settings that a compiled variant depends on."""
    return tuple((name, str(getattr(jax.config, name, None))) for name in CONTEXT)


@dataclass(frozen=True, slots=True)
class Leaf:
    """One array, number or constant of a call, with its path from the argument."""

    path: str
    kind: str  # "array", "static", "omitted"
    dtype: str = ""
    shape: tuple[Any, ...] = ()
    weak: bool = False
    text: str = ""

    def __str__(self) -> str:
        if self.kind != "array":
            return f"{self.path}={self.text} ({self.kind})"
        weak = "~" if self.weak else ""
        return f"{self.path}: {weak}{self.dtype}{_shape(self.shape)}"


def _shape(shape: tuple[Any, ...]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"


@dataclass(frozen=True, slots=True)
class Signature:
    """Everything that a variant was compiled for, as far as it can be told."""

    leaves: tuple[Leaf, ...]
    settings: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return ", ".join(map(str, self.leaves)) or "no arguments"

    def changes_from(self, other: Signature) -> list[str]:
        """Return how this signature differs from another, one line a difference."""
        mine = {leaf.path: leaf for leaf in self.leaves}
        theirs = {leaf.path: leaf for leaf in other.leaves}
        lines = []
        for path, leaf in mine.items():
            if path not in theirs:
                lines.append(f"{path}: not there before, now {_told(leaf)}")
            elif leaf != theirs[path]:
                lines += _leaf_changes(theirs[path], leaf)
        lines += [f"{path}: no longer there" for path in theirs if path not in mine]
        lines += [
            f"{name}: {was} -> {now}"
            for (name, was), (_, now) in zip(other.settings, self.settings, strict=True)
            if was != now
        ]
        return lines

    def nearest(self, others: Iterable[Signature]) -> tuple[Signature | None, list[str]]:
        """Return the most similar of other signatures, the latest first, and the differences."""
        best: tuple[Signature | None, list[str]] = (None, [])
        for other in reversed(list(others)):
            changes = self.changes_from(other)
            if best[0] is None or len(changes) < len(best[1]):
                best = (other, changes)
        return best


def _told(leaf: Leaf) -> str:
    return str(leaf).removeprefix(leaf.path).lstrip(":= ")


def _leaf_changes(old: Leaf, new: Leaf) -> list[str]:
    if old.kind == "static" and new.kind == "static":
        return [f"{new.path}: static value {old.text} -> {new.text}"]
    if old.kind != "array" or new.kind != "array":
        return [f"{new.path}: {_told(old)} -> {_told(new)}"]
    lines = []
    if old.shape != new.shape:
        lines.append(f"{new.path}: shape {_shape(old.shape)} -> {_shape(new.shape)}")
    if old.dtype != new.dtype:
        lines.append(f"{new.path}: dtype {old.dtype} -> {new.dtype}")
    if old.weak != new.weak:
        said = {True: "a Python number (weak type)", False: "an array's type (not weak)"}
        lines.append(f"{new.path}: {said[old.weak]} -> {said[new.weak]}")
    return lines or [f"{new.path}: {_told(old)} -> {_told(new)}"]


def describe(
    traced: Mapping[str, Any], static: Mapping[str, Any], omitted: Mapping[str, Any]
) -> Signature:
    """Return the signature of a call that is being traced.

    Parameters
    ----------
    traced : mapping
        Arguments by name, as the traced body sees them.
    static : mapping
        Keys of constants, by name.
    omitted : mapping
        Defaults of arguments that the caller left out, by name.
    """
    leaves: list[Leaf] = []
    for name, value in traced.items():
        leaves += _arrays(name, value)
    leaves += [Leaf(name, "static", text=_static_text(key)) for name, key in static.items()]
    leaves += [Leaf(name, "omitted", text=text_of(value)) for name, value in omitted.items()]
    return Signature(tuple(leaves), context())


def text_of(value: Any) -> str:
    """Return a value's text, cut to a line; of one that can't say it, its type's name.

    Parameters
    ----------
    value : object
        Anything: what its class does to say its text is no reason for a call to fail.
    """
    try:
        text = str.__str__(repr(value))  # a plain string, whatever class of one it gave
    except Exception:  # noqa: BLE001  # the user's code, which we run for a message only
        return f"<{type(value).__name__}>"
    return text if len(text) <= 80 else f"{text[:77]}..."


def attribute(value: Any, name: str, default: Any) -> Any:
    """Return an attribute if the value has it and gives it without an error."""
    try:
        return getattr(value, name, default)
    except Exception:  # noqa: BLE001  # as in `text_of`
        return default


def _static_text(key: Any) -> str:
    return text_of(value_of(key))


def _arrays(name: str, value: Any) -> list[Leaf]:
    try:  # runs what a user registered for a pytree's class
        found = jax.tree_util.tree_leaves_with_path(value)
        return [_array(name + jax.tree_util.keystr(path), leaf) for path, leaf in found]
    except Exception:  # noqa: BLE001  # as in `text_of`
        return [_array(name, value)]


def _array(path: str, value: Any) -> Leaf:
    aval = attribute(value, "aval", value)
    shape = attribute(aval, "shape", ())
    return Leaf(
        path,
        "array",
        dtype=str(attribute(aval, "dtype", type(value).__name__)),
        shape=tuple(shape) if isinstance(shape, tuple | list) else (),
        weak=attribute(aval, "weak_type", False) is True,
    )
