"""Where a value came from: one small record, understood by every floor."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    Kind = Literal["builtin", "file", "variable", "code", "runtime"]


class Origin:
    """The place that set a value.

    Parameters
    ----------
    kind : {"builtin", "file", "variable", "code", "runtime"}
        What sort of place it is.
    label : str
        The file's path, the variable's name, or the code's file name.
    key : tuple of (str or int)
        Path of keys inside the document, as the parser returned it (an integer
        is an index into an array).
    text : str or None
        The document as it was when read, so that a position can be found later
        even if the file has changed since. Positions are worked out only when
        somebody asks (`xpolicy.sources.positions.located`).
    line, column : int or None
        One-based position, once known.
    """

    __slots__ = ("column", "key", "kind", "label", "line", "text")

    def __init__(
        self,
        kind: Kind,
        label: str,
        *,
        key: tuple[str | int, ...] = (),
        text: str | None = None,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        self.kind = kind
        self.label = label
        self.key = key
        self.text = text
        self.line = line
        self.column = column

    def at(self, line: int | None, column: int | None) -> Origin:
        """Return the same place with its position filled in."""
        return Origin(self.kind, self.label, key=self.key, text=self.text, line=line, column=column)

    def child(self, *key: str | int) -> Origin:
        """Return the place of a key below this one in the same document."""
        return Origin(self.kind, self.label, key=(*self.key, *key), text=self.text)

    def _identity(self) -> tuple[object, ...]:
        return (self.kind, self.label, self.key, self.line, self.column)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Origin) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        return f"Origin({self.kind!r}, {str(self)!r})"

    def __str__(self) -> str:
        if self.line is None:
            return self.label
        if self.column is None:
            return f"{self.label}:{self.line}"
        return f"{self.label}:{self.line}:{self.column}"


BUILTIN = Origin("builtin", "built-in")
