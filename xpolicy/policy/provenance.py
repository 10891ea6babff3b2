"""Where each value of a resolved policy came from, and what it beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xpolicy._origin import Origin


@dataclass(frozen=True, slots=True)
class Contribution:
    """One rule's say about one option.

    Parameters
    ----------
    value : object
        What the rule sets; the string ``"unset"`` withdraws everything below it.
    origin : Origin
        Where it says so.
    layer : str
        The layer's name.
    rule : str
        The rule in words: pattern and namespace (``functions."mylib.*".torch``), or
        ``"all functions"``.
    condition : str
        The ``when`` conditions that the rule stands under, or the empty string.
    """

    value: Any
    origin: Origin
    layer: str
    rule: str
    condition: str = ""


@dataclass(frozen=True, slots=True)
class Provenance:
    """The history of one option: who won, whom it beat (nearest first), and remarks."""

    winner: Contribution
    beaten: tuple[Contribution, ...] = ()
    notes: tuple[str, ...] = ()
