"""Find rules of one layer that say different things with the same precedence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from xpolicy.errors import Problem
from xpolicy.policy.layers import Rule


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
        groups.setdefault((rule.pattern, rule.namespace, len(rule.conditions)), []).append(rule)
    return [problem for group in groups.values() if len(group) > 1 for problem in _in(group, layer)]


def _in(group: list[Rule], layer: str) -> Iterator[Problem]:
    # By option and device, the first rule that sets it: one pass, not every pair.
    first: dict[tuple[str, str | None], dict[str | None, tuple[Rule, Any]]] = {}
    for rule in group:
        for option, entry, value in _said(rule):
            seen = first.setdefault((option, entry), {})
            rivals = seen.values() if rule.device is None else (
                seen[device] for device in (None, rule.device) if device in seen
            )
            for rival, other in rivals:
                # True == 1 in Python; in a policy they are different things to say.
                if (type(other), other) != (type(value), value):
                    yield _tie(rule, rival, option, entry, layer)
                    break
            seen.setdefault(rule.device, (rule, value))


def _tie(rule: Rule, rival: Rule, option: str, entry: str | None, layer: str) -> Problem:
    name = option.replace("_", "-") + (f".{entry}" if entry else "")
    return Problem(
        f"two rules of the same rank set {name} differently, and both can apply",
        origin=rule.origin_of(option, entry),
        other=rival.origin_of(option, entry),
        key=name,
        layer=layer,
        fix="remove one of them, or make one more specific",
    )
