"""Why a function's policy is as it is: every option, who set it, and whom that beat."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xpolicy._origin import Origin
from xpolicy.backends.registry import backend_for, imported, option_table
from xpolicy.errors import BackendOptionError
from xpolicy.policy.mistakes import show
from xpolicy.policy.warmup import calls
from xpolicy.runtime.entry import Entry
from xpolicy.runtime.session import find, place, session, surroundings
from xpolicy.sources.positions import POSITIONS_HINT, located, positions_available

if TYPE_CHECKING:
    from xpolicy.policy.layers import Layer
    from xpolicy.policy.provenance import Contribution
    from xpolicy.policy.resolve import ResolvedPolicy


@dataclass(frozen=True)
class Said:
    """One layer's say about an option, its place worked out."""

    value: str
    origin: str
    layer: str
    rule: str
    condition: str

    @classmethod
    def of(cls, said: Contribution) -> Said:
        """Work out where a contribution stands."""
        return cls(show(said.value), where(said.origin), said.layer, said.rule, said.condition)

    def as_dict(self) -> dict[str, str]:
        """Return it as plain data."""
        return {
            "value": self.value,
            "origin": self.origin,
            "layer": self.layer,
            "rule": self.rule,
            "condition": self.condition,
        }


@dataclass(frozen=True)
class Row:
    """One option: its final value, who said so, and what that beat."""

    option: str
    value: Any
    said: Said
    beat: tuple[Said, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The value as text; of an option that came to nothing, why."""
        if self.value is not None:
            return show(self.value)
        return "unset" if self.said.value == '"unset"' else "dropped, see notes"


@dataclass(frozen=True)
class Explanation:
    """Everything that decided about one function in one namespace; ``str()`` is a table.

    Attributes
    ----------
    policy : ResolvedPolicy
        The outcome.
    rows : tuple of Row
        Options that somebody set.
    unset : tuple of str
        Options that nobody set: the compiler's own defaults apply.
    conditions : tuple of (str, str, str)
        ``when`` blocks that do not hold: place, condition, reason.
    met : tuple of (str, str, str)
        ``when`` blocks that hold and reach the function: place, condition, reason.
    compiler : tuple of (str, str, str)
        What the compiler is given: keyword, value, remark.
    notes : tuple of str
        Remarks.
    """

    policy: ResolvedPolicy
    rows: tuple[Row, ...]
    unset: tuple[str, ...] = ()
    conditions: tuple[tuple[str, str, str], ...] = ()
    met: tuple[tuple[str, str, str], ...] = ()
    compiler: tuple[tuple[str, str, str], ...] = ()
    notes: tuple[str, ...] = field(default=())

    def as_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data; the form of ``xpolicy explain --json``."""
        policy = self.policy
        return {
            "function": policy.key,
            "namespace": policy.namespace,
            "mode": policy.mode,
            "requested-mode": policy.requested_mode,
            "fingerprint": policy.fingerprint,
            "options": [
                {
                    "option": row.option,
                    "value": _plain(row.value),
                    "set-by": row.said.as_dict(),
                    "beat": [said.as_dict() for said in row.beat],
                    "notes": list(row.notes),
                }
                for row in self.rows
            ],
            "unset": list(self.unset),
            "conditions-not-met": [_condition(told) for told in self.conditions],
            "conditions-met": [_condition(told) for told in self.met],
            "compiler": [
                {"keyword": name, "value": value, "from": source}
                for name, value, source in self.compiler
            ],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        policy = self.policy
        head = f"{policy.key} for {policy.namespace}: {policy.mode}"
        if policy.requested_mode != policy.mode:
            head += f" (asked for {policy.requested_mode})"
        lines = [head, ""]
        table = [("option", "value", "set by", "rule", "beat")]
        for row in self.rows:
            rule = row.said.rule + (f" when {row.said.condition}" if row.said.condition else "")
            beat = [f"{said.value} ({said.origin})" for said in row.beat]
            source = f"{row.said.origin} ({row.said.layer})"
            if row.said.layer in ("built-in", "kill switch"):
                source = row.said.origin
            if row.value is not None and row.said.value != row.shown:
                # A mode that was capped, or made strict by another option.
                source += f", which says {row.said.value}"
            table.append((row.option, row.shown, source, rule, beat[0] if beat else ""))
            table += [("", "", "", "", other) for other in beat[1:]]
        lines += columns(table)
        if self.unset:
            lines += ["", "unset (the compiler's own defaults): " + ", ".join(self.unset)]
        if self.conditions:
            lines += ["", "conditions that do not hold:"]
            lines += columns([(f"  {o}", c, r) for o, c, r in self.conditions])
        if self.met:
            lines += ["", "conditions that hold:"]
            lines += columns([(f"  {o}", c, r) for o, c, r in self.met])
        if self.compiler:
            lines += ["", "given to the compiler:"]
            lines += columns([(f"  {n}", v, s) for n, v, s in self.compiler])
        if self.notes:
            lines += ["", "notes:"] + [f"  - {note}" for note in self.notes]
        return "\n".join(line.rstrip() for line in lines)

    __repr__ = __str__


def _condition(told: tuple[str, str, str]) -> dict[str, str]:
    return dict(zip(("origin", "condition", "reason"), told, strict=True))


def columns(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Align rows of text."""
    rows = list(rows)
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else show(value)


def where(origin: Origin) -> str:
    """Return an origin with its position, its path as short as it can be understood."""
    found = located(origin) if origin.kind in ("file", "variable") else origin
    if found.kind in ("builtin", "variable"):
        return str(found)
    try:
        short = os.path.relpath(found.label, Path.cwd())
    except (ValueError, OSError):
        # Another drive, or a working directory that is gone.
        return str(found)
    if short.count("..") > 2 or len(short) >= len(found.label):
        return str(found)
    text = str(found)
    return short + text[len(found.label) :]


def explain(
    function: Callable[..., Any] | Entry | str,
    namespace: str,
    *,
    device: str | None = None,
) -> Explanation:
    """Say where each option of a function comes from, and what it beat.

    Parameters
    ----------
    function : callable or str
        A decorated function, or a function key; the key need not be importable.
    namespace : str
        The array namespace, by array-api-compat's name: ``"torch"``, ``"jax"``, …
    device : str, optional
        The kind of device, for ``when`` blocks that ask for one.

    Returns
    -------
    Explanation
        ``str()`` of it is a table; ``as_dict()`` plain data.

    Raises
    ------
    PolicyFileError, EnvironmentPolicyError
        If a policy can't be used.

    Examples
    --------
    >>> import xpolicy
    >>> print(xpolicy.explain("mylib.nowhere", "numpy"))
    mylib.nowhere for numpy: compile
    <BLANKLINE>
    option      value      set by    rule           beat
    mode        "compile"  built-in  all functions
    on-failure  "error"    built-in  all functions
    <BLANKLINE>
    unset (the compiler's own defaults): supports, reason, static-argnames
    <BLANKLINE>
    notes:
      - nothing compiles for numpy: the original function runs, whatever the mode
      - supports is not declared: there is no cap on the mode
    """
    if isinstance(function, Entry):
        key, entry = function.key, function
    else:
        key, found = find(function)
        entry = found  # type: ignore[assignment]  # None: known by name only
    namespace = checked_namespace(namespace)
    layers = session.layers_for(key, entry)
    policy = session.resolve(key, namespace, entry, device)
    rows: list[Row] = []
    unset: list[str] = []
    names = list(policy.values)
    for name in names:
        full = _full_key(name, namespace)
        entries = [n for n in policy.provenance if n == name or n.startswith(f"{name}.")]
        if not entries:
            unset.append(full)
        for item in entries:
            history = policy.provenance[item]
            option, _, inner = item.partition(".")
            value = policy.values[option]
            if inner:
                value = (value or {}).get(inner)
                full = f'{_full_key(option, namespace)}."{inner}"'
            beat = tuple(Said.of(said) for said in history.beaten)
            rows.append(Row(full, value, Said.of(history.winner), beat, history.notes))
    conditions = tuple(
        (where(unmet.origin), unmet.condition, unmet.reason)
        for layer in layers
        for unmet in layer.unmet
    )
    compiler, remarks = _lowered(policy, namespace)
    warmed = _warmed(policy, layers, device)
    notes = [*policy.notes, *remarks, *_remarks(policy, rows), *warmed]
    not_met, met = _conditional(layers, key, namespace, device)
    return Explanation(
        policy, tuple(rows), tuple(unset), (*conditions, *not_met), met, compiler, tuple(notes)
    )


def _conditional(
    layers: list[Layer], key: str, namespace: str, device: str | None
) -> tuple[tuple[tuple[str, str, str], ...], tuple[tuple[str, str, str], ...]]:
    """Judge the conditional blocks that reach a function: those not met, and those met."""
    facts = surroundings().facts
    told: dict[tuple[str, str], tuple[bool, tuple[str, str, str]]] = {}
    for layer in layers:
        for rule in layer.reaching(key, namespace):
            if not rule.conditions:
                continue
            path = rule.origin.key
            end = path.index("when") + 2 if "when" in path else len(path)
            block = Origin(
                rule.origin.kind, rule.origin.label, key=path[:end], text=rule.origin.text
            )
            holds = rule.device is None or rule.device == device
            if holds:
                reason = "; ".join(c.holds(facts)[1] for c in rule.conditions if c.kind != "device")
                if rule.device is not None:
                    reason = "; ".join(filter(None, (f"the device is {device}", reason)))
            elif device is None:
                reason = "no device was said: pass device="
            else:
                reason = f"the device is {device}"
            place = where(block)
            told[place, rule.condition_text] = (holds, (place, rule.condition_text, reason))
    return (
        tuple(row for holds, row in told.values() if not holds),
        tuple(row for holds, row in told.values() if holds),
    )


def _full_key(name: str, namespace: str) -> str:
    table = option_table()
    spec = table.namespaces.get(namespace)
    if spec is not None and name in spec.options:
        return spec.options[name].full_key
    return table.general[name].key


def checked_namespace(namespace: str) -> str:
    """Return a namespace's canonical name; an unknown one is an error."""
    from xpolicy.errors import Problem
    from xpolicy.policy.options import nearest

    table = option_table()
    if table.canonical(namespace) not in table.namespaces:
        table = option_table(plugins=True)
    canonical = table.canonical(namespace)
    if canonical not in table.namespaces:
        raise BackendOptionError(
            [
                Problem(
                    f"unknown namespace {namespace!r}",
                    allowed=", ".join(table.namespaces),
                    nearest=nearest(namespace, table.namespaces),
                )
            ]
        )
    return canonical


def _lowered(
    policy: ResolvedPolicy, namespace: str
) -> tuple[tuple[tuple[str, str, str], ...], list[str]]:
    """Say what the compiler is given, as far as that can be known without importing it."""
    backend = backend_for(namespace)
    if backend is None:
        return (), [
            f"nothing compiles for {namespace}: the original function runs, whatever the mode"
        ]
    if not imported(backend):
        return (), [f"not expanded: {backend.module} not imported"]
    notes: list[str] = []
    switch = backend.disabled_by()
    if switch is not None:
        notes.append(f"compiling is switched off by {switch}")
    if policy.mode == "eager":
        return (), notes
    try:
        lowered = backend.lower(policy)
    except BackendOptionError as error:
        return (), [*notes, *(str(place(problem)) for problem in error.problems)]
    rows = tuple((name, show(value), source) for name, value, source in lowered.rows)
    return rows, [*notes, *lowered.notes]


def _warmed(policy: ResolvedPolicy, layers: list[Layer], device: str | None) -> list[str]:
    """Say what `xpolicy.warmup` compiles the function for."""
    if backend_for(policy.namespace) is None or policy.mode == "eager":
        return []
    found = calls(layers, policy.key, policy.namespace, device) or ()
    return [
        f"{where(call.origin)} ({call.layer}): xpolicy.warmup() compiles it for {call}"
        for call in found
    ]


def _remarks(policy: ResolvedPolicy, rows: list[Row]) -> list[str]:
    notes: list[str] = []
    if policy.supports is None and not session.disabled:
        notes.append("supports is not declared: there is no cap on the mode")
    notes += [
        f'{where(origin)}: apply names "{name}": xpolicy.install() puts it under policy'
        for layer in session.loaded().layers
        for name, origin in layer.apply
        if policy.key == name or policy.key.startswith(f"{name}.")
    ]
    if session.disabled:
        notes.append("XPOLICY_DISABLE is on: no file and no other variable was read")
    if not positions_available() and any(row.said.layer in ("project", "user") for row in rows):
        notes.append(POSITIONS_HINT)
    return notes
