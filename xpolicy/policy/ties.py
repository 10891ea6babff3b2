"""Find rules of one layer that say different things with the same precedence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from xpolicy.errors import Problem
from xpolicy.policy.canonical import canonical
from xpolicy.policy.layers import Rule
from xpolicy.policy.writing import show

#: More than are ever told.
ENOUGH = 200

#: What one rule says of one option or entry: the entry's name, and its value's text.
_Said = tuple[Rule, str | None, str]


def _said(rule: Rule) -> Iterator[tuple[str, str | None, Any]]:
    for option, value in rule.values.items():
        if isinstance(value, Mapping):
            for entry, item in value.items():
                yield option, entry, item
        else:
            yield option, None, value


def ties(rules: Iterable[Rule], layer: str) -> list[Problem]:
    """Return a problem for each option that two equally ranked rules set differently.

    Rules for different devices never tie: no call is on both.
    """
    groups: dict[Any, list[Rule]] = {}
    for rule in rules:
        group = (rule.pattern, rule.namespace, len(rule.conditions), rule.declared)
        groups.setdefault(group, []).append(rule)
    found = (p for group in groups.values() if len(group) > 1 for p in _in(group, layer))
    return list(islice(found, ENOUGH))


def _in(group: list[Rule], layer: str) -> Iterator[Problem]:
    # By option (or entry) and device, the first rule that sets it: one pass, not every
    # pair. A table that is "unset" as a whole says so of each of its entries.
    first: dict[tuple[str, str | None], dict[str | None, _Said]] = {}
    whole: dict[str, dict[str | None, _Said]] = {}  # tables withdrawn
    parts: dict[str, dict[str | None, _Said]] = {}  # tables with an entry that is set
    for rule in group:
        for option, entry, value in _said(rule):
            text = canonical(value)
            said = (rule, entry, text)
            seen = first.setdefault((option, entry), {})
            rival = next((r for r in _rivals(seen, rule) if r[2] != text), None)
            if rival is None and entry is None:
                rival = next(_rivals(parts.get(option, {}), rule), None)
            elif rival is None and text != _UNSET:
                rival = next(_rivals(whole.get(option, {}), rule), None)
            if rival is not None:
                yield _tie(rule, option, entry, rival, layer)
            seen.setdefault(rule.device, said)
            if entry is None and text == _UNSET:
                whole.setdefault(option, {}).setdefault(rule.device, said)
            elif entry is not None and text != _UNSET:
                parts.setdefault(option, {}).setdefault(rule.device, said)


_UNSET = canonical("unset")


def _rivals(seen: Mapping[str | None, _Said], rule: Rule) -> Iterator[_Said]:
    """Yield what was said before by rules that can apply to a call together with this one."""
    if rule.device is None:
        yield from seen.values()
    else:
        for device in (None, rule.device):
            if device in seen:
                yield seen[device]


def _tie(rule: Rule, option: str, entry: str | None, rival: _Said, layer: str) -> Problem:
    other, other_entry, _ = rival
    name = option.replace("_", "-") + (f".{entry}" if entry else "")
    table = f"{rule.text}." if rule.pattern or rule.namespace else ""
    here, there = rule.values[option], other.values[option]
    here = here[entry] if entry is not None else here
    there = there[other_entry] if other_entry is not None else there
    return Problem(
        f"two rules of the same rank set {name} differently, and both can apply",
        origin=rule.origin_of(option, entry),
        other=other.origin_of(option, other_entry),
        key=f"{table}{name}",
        layer=layer,
        value=f"{show(here)} here, {show(there)} there",
        fix="remove one of them, or make one more specific",
    )
