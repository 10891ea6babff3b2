"""The errors that xpolicy raises, and the one form in which problems are told."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Literal

    from xpolicy._origin import Origin

__all__ = [
    "BackendOptionError",
    "DecorationError",
    "EnvironmentPolicyError",
    "GraphBreakLimitError",
    "PolicyFileError",
    "Problem",
    "RecompileLimitError",
    "SealedError",
    "StructureMismatchError",
    "XPolicyError",
    "XPolicyWarning",
]


class Problem:
    """One thing that is wrong, and what would put it right.

    Parameters
    ----------
    message : str
        What is wrong, in one line.
    origin : Origin or None
        Where.
    key : str
        The option or table, as the user spells it.
    layer : str
        The layer's name (``"project"``, ``"environment"``, …).
    value : str or None
        The value that was given, as text.
    allowed : str or None
        What may stand there.
    nearest : str or None
        The nearest valid name.
    fix : str or None
        The edit that mends it.
    other : Origin or None
        The other place, for problems that lie between two.
    severity : {"error", "warning"}
        A warning does not stop anything from working.
    """

    __slots__ = (
        "allowed",
        "fix",
        "key",
        "layer",
        "message",
        "nearest",
        "origin",
        "other",
        "severity",
        "value",
    )

    def __init__(
        self,
        message: str,
        *,
        origin: Origin | None = None,
        key: str = "",
        layer: str = "",
        value: str | None = None,
        allowed: str | None = None,
        nearest: str | None = None,
        fix: str | None = None,
        other: Origin | None = None,
        severity: Literal["error", "warning"] = "error",
    ) -> None:
        self.message = message
        self.origin = origin
        self.key = key
        self.layer = layer
        self.value = value
        self.allowed = allowed
        self.nearest = nearest
        self.fix = fix
        self.other = other
        self.severity = severity

    def replace(self, **changes: Any) -> Problem:
        """Return a copy with some fields changed."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        fields.update(changes)
        message = fields.pop("message")
        return Problem(message, **fields)

    def as_dict(self) -> dict[str, Any]:
        """Return the problem as plain data, for ``--json``."""
        data: dict[str, Any] = {
            name: getattr(self, name) for name in self.__slots__ if name not in ("origin", "other")
        }
        data["other"] = str(self.other) if self.other else None
        data["file"] = self.origin.label if self.origin else None
        data["line"] = self.origin.line if self.origin else None
        data["column"] = self.origin.column if self.origin else None
        return data

    def __str__(self) -> str:
        lines = [f"{self.severity}: {self.message}"]
        where = str(self.origin) if self.origin else ""
        if self.layer:
            where = f"{where} ({self.layer} layer)" if where else f"{self.layer} layer"
        if where:
            lines.append(f"  --> {where}")
        if self.other is not None:
            lines.append(f"  and at {self.other}")
        if self.key:
            lines.append(f"  key: {self.key}")
        if self.value is not None:
            lines.append(f"  got: {self.value}")
        if self.allowed is not None:
            lines.append(f"  allowed: {self.allowed}")
        if self.nearest is not None:
            lines.append(f"  did you mean: {self.nearest}")
        if self.fix is not None:
            lines.append(f"  fix: {self.fix}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Problem({self.message!r}, origin={self.origin!r})"


class XPolicyWarning(UserWarning):
    """Something in a policy was ignored or could not be done; the call goes on."""


class XPolicyError(Exception):
    """Base class of every error that xpolicy itself raises."""


class _ProblemsError(XPolicyError):
    """An error that carries all the problems that were found, not just the first."""

    def __init__(self, problems: Iterable[Problem] | str) -> None:
        if isinstance(problems, str):
            problems = [Problem(problems)]
        self.problems = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n\n".join(str(problem) for problem in self.problems)

    @property
    def _first(self) -> Origin | None:
        return self.problems[0].origin if self.problems else None

    @property
    def file(self) -> str | None:
        """The file (or variable) of the first problem."""
        return self._first.label if self._first else None

    @property
    def line(self) -> int | None:
        """One-based line of the first problem, if known."""
        return self._first.line if self._first else None

    @property
    def column(self) -> int | None:
        """One-based column of the first problem, if known."""
        return self._first.column if self._first else None

    @property
    def key(self) -> str:
        """The key of the first problem."""
        return self.problems[0].key if self.problems else ""


class PolicyFileError(_ProblemsError):
    """A policy file can't be read, or says something that it may not say."""


class EnvironmentPolicyError(_ProblemsError):
    """An ``XPOLICY_*`` variable has a value that can't be used."""


class BackendOptionError(_ProblemsError):
    """The installed compiler does not take an option, or a decorator's option is wrong."""


class DecorationError(_ProblemsError, TypeError):
    """An object was decorated that can't be, or the decorator's arguments are wrong."""


class RecompileLimitError(XPolicyError):
    """A function needed one more compiled variant than ``recompile-limit`` allows."""


class SealedError(RecompileLimitError):
    """A function would have to be compiled, after `xpolicy.seal` said that nothing more is."""

    #: What differs from what is compiled.
    reasons: tuple[str, ...] = ()


class GraphBreakLimitError(XPolicyError):
    """A function has more graph breaks than ``graph-break-limit`` allows."""


class StructureMismatchError(XPolicyError, TypeError):
    """An ahead-of-time compiled function was called with other arguments than it is for.

    Attributes
    ----------
    path, expected, got, kind : str
        Where the first difference is, what was expected and given there, and what kind of
        difference it is (``"missing"``, ``"shape"``, …); empty if it has no place.
    """

    path = ""
    expected = ""
    got = ""
    kind = ""
