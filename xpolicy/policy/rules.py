"""One rule's options, their spellings brought to one form, each with its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from xpolicy.errors import Problem
from xpolicy.policy.layers import Rule
from xpolicy.policy.writing import dotted, show

if TYPE_CHECKING:
    from xpolicy._origin import Origin
    from xpolicy.policy.conditions import Condition
    from xpolicy.policy.options import OptionSpec, OptionTable


def make_rule(
    values: dict[str, Any],
    origin: Origin,
    pattern: str | None,
    namespace: str | None,
    conditions: tuple[Condition, ...],
    table: OptionTable,
) -> Rule | Problem:
    """Bring one rule's spellings to one form; a rule that contradicts itself is a problem."""
    origins: dict[str, Origin] = {}
    spec = table.namespaces.get(namespace) if namespace else None
    if spec is not None:
        before = dict(values)
        for option, message in spec.normalise(values):
            name, _, entry = option.partition(".")
            row = spec.options.get(name)
            path = (row.key if row else name, *([entry] if entry else []))
            return Problem(
                message,
                origin=origin.child(*path) if origin.text is not None else origin,
                key=dotted((*origin.key, *path)),
                value=show(_given(before.get(name), entry)),
                fix="keep one of the two",
            )
        moved = dict(_moved(before, values, origin, table.of(namespace)))
        for name in values.keys() - before.keys():
            problem = _wrong_type(spec.options[name], values[name])
            if problem is not None:
                where = moved[name] if origin.text is not None and name in moved else origin
                return problem.replace(origin=where, key=dotted(where.key))
        if origin.text is not None:
            origins = moved
    return Rule(
        values, origin, pattern=pattern, namespace=namespace, conditions=conditions, origins=origins
    )


def _wrong_type(row: OptionSpec, value: Any) -> Problem | None:
    """Check a switch that was written as a compiler option, whose type nobody has checked."""
    if row.kind != "boolean" or isinstance(value, bool) or value == "unset":
        return None
    return Problem(f"{row.full_key} can't be {show(value)}", value=show(value), allowed=row.allowed)


def _given(value: Any, entry: str) -> Any:
    if not entry or not isinstance(value, Mapping):
        return value
    return {key: inner for key, inner in value.items() if key.replace("-", "_") == entry} or value


def _moved(
    before: Mapping[str, Any], after: Mapping[str, Any], origin: Origin, rows: Mapping[str, Any]
) -> Iterator[tuple[str, Origin]]:
    """Find where values that were respelt stand: under the option that has gone or changed."""
    sources = {name: _leaves(value) for name, value in before.items() if isinstance(value, Mapping)}
    if not sources:
        return
    keys = {row.name: row.key for row in rows.values()}
    for name, value in after.items():
        if isinstance(value, Mapping):
            for entry in value:
                path = sources.get(name, {}).get(entry.replace("-", "_"))
                if path is not None:
                    yield f"{name}.{entry}", origin.child(keys[name], *path)
        elif name not in before:
            for table_name, leaves in sources.items():
                for flat, path in leaves.items():
                    if flat == name or flat.endswith(f".{name}"):
                        yield name, origin.child(keys[table_name], *path)


def _leaves(value: Mapping[str, Any], path: tuple[str, ...] = ()) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            found.update(_leaves(inner, (*path, key)))
        else:
            found[".".join((*path, key)).replace("-", "_")] = (*path, key)
    return found
