"""Layers and rules: validated policy, ready to be ordered and merged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xpolicy._origin import BUILTIN, Origin
from xpolicy.policy.options import OptionTable, kebab
from xpolicy.policy.patterns import EXACT, prefixes, specificity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from xpolicy.policy.conditions import Condition
    from xpolicy.policy.testing import Setting

#: Names of layers, low to high.
LAYERS = ("built-in", "author", "user", "project", "file", "environment", "runtime")


@dataclass(slots=True)
class Rule:
    """Some options for the functions, namespace and conditions that a rule names.

    Parameters
    ----------
    values : mapping of str to object
        Options by Python name. Tables are dicts, lists are tuples.
    origin : Origin
        The table that the options stand in.
    pattern : str or None
        A function key, a pattern such as ``"mylib.*"``, or None for all functions.
    namespace : str or None
        The namespace that it is for, or None for any.
    conditions : tuple of Condition
        The conditions of its ``when`` block, each known to hold, or left to the device.
    origins : mapping of str to Origin
        Where single options stand, if that can't be told from `origin`. The key of a
        table's entry is ``"options.max_autotune"``.
    extra : mapping of str to object
        Keywords for the compiler that only code can give (``guard_filter_fn``).
    declared : bool
        True for what a decorator says.
    """

    values: Mapping[str, Any]
    origin: Origin
    pattern: str | None = None
    namespace: str | None = None
    conditions: tuple[Condition, ...] = ()
    origins: Mapping[str, Origin] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    declared: bool = False

    @property
    def device(self) -> str | None:
        """The device that the rule is for, or None for any."""
        return next((c.wanted for c in self.conditions if c.kind == "device"), None)

    @property
    def rank(self) -> tuple[int, int, bool, int]:
        """Place in the total order inside one layer; a later rule wins.

        An exact rule of the author's file beats the decorator, its broader rules don't.
        """
        pattern = specificity(self.pattern)
        return (
            pattern,
            0 if self.declared else 1,
            self.namespace is not None,
            len(self.conditions),
        )

    @property
    def exact(self) -> bool:
        """Whether the rule names one function."""
        return specificity(self.pattern) == EXACT

    @property
    def text(self) -> str:
        """The rule in words."""
        if self.pattern is None:
            return self.namespace or "all functions"
        name = f'functions."{self.pattern}"'
        return f"{name}.{self.namespace}" if self.namespace else name

    @property
    def condition_text(self) -> str:
        """Its conditions in words."""
        return ", ".join(str(condition) for condition in self.conditions)

    def origin_of(self, option: str, entry: str | None = None) -> Origin:
        """Return where an option, or one entry of a table option, stands."""
        name = option if entry is None else f"{option}.{entry}"
        found = self.origins.get(name)
        if found is None and entry is not None:
            found = self.origins.get(option)
            if found is None and self.origin.text is not None:
                return self.origin.child(kebab(option), entry)
        if found is not None:
            return found
        return self.origin if self.origin.text is None else self.origin.child(kebab(option))


@dataclass(slots=True)
class Unmet:
    """A conditional block that doesn't hold here, with the reason."""

    origin: Origin
    condition: str
    reason: str
    layer: str


class Layer:
    """All rules from one place, indexed so that resolving looks at few of them.

    Parameters
    ----------
    name : str
        One of `LAYERS`.
    label : str
        The file, variable or code location.
    rules : iterable of Rule
        In any order: the order never decides.
    unmet : iterable of Unmet
        Conditional blocks that don't hold.
    testing : iterable of Rule
        What the ``testing`` table says (`xpolicy.policy.testing`); no policy depends on it.
    apply : iterable of (str, Origin)
        What `xpolicy.install` is to put under policy, and where it stands.
    warmup : iterable of Rule
        The calls to compile for (`xpolicy.policy.warmup`); no policy depends on them.
    cache : mapping of str to Setting
        What the ``cache`` table says (`xpolicy.policy.cache`); no policy depends on it.
    """

    __slots__ = (
        "_broad",
        "_by_pattern",
        "apply",
        "cache",
        "devices",
        "label",
        "name",
        "rules",
        "testing",
        "unmet",
        "warmup",
    )

    def __init__(
        self,
        name: str,
        label: str,
        rules: Iterable[Rule] = (),
        unmet: Iterable[Unmet] = (),
        testing: Iterable[Rule] = (),
        apply: Iterable[tuple[str, Origin]] = (),
        warmup: Iterable[Rule] = (),
        cache: Mapping[str, Setting] | None = None,
    ) -> None:
        self.name = name
        self.label = label
        self.rules = tuple(rules)
        self.unmet = tuple(unmet)
        self.testing = tuple(testing)
        self.apply = tuple(apply)
        self.warmup = tuple(warmup)
        self.cache = dict(cache or {})
        self._broad: list[Rule] = []
        self._by_pattern: dict[str, list[Rule]] = {}
        self.devices = False
        for rule in self.rules:
            self.devices = self.devices or rule.device is not None
            if rule.pattern is None:
                self._broad.append(rule)
            else:
                self._by_pattern.setdefault(rule.pattern, []).append(rule)

    def __repr__(self) -> str:
        return f"Layer({self.name!r}, {self.label!r}, {len(self.rules)} rules)"

    def __reduce__(self) -> tuple[Any, ...]:
        return (
            Layer,
            (
                self.name,
                self.label,
                self.rules,
                self.unmet,
                self.testing,
                self.apply,
                self.warmup,
                self.cache,
            ),
        )

    def reaching(self, key: str, namespace: str) -> list[Rule]:
        """Return the rules that reach a function in a namespace, on any device, in order."""
        found = [r for r in self._broad if r.namespace in (None, namespace)]
        if self._by_pattern:
            for pattern in prefixes(key):
                found += [
                    r for r in self._by_pattern.get(pattern, ()) if r.namespace in (None, namespace)
                ]
        found.sort(key=lambda rule: rule.rank)
        return found

    def patterns(self) -> Iterator[str]:
        """Yield the patterns that rules are given for."""
        yield from self._by_pattern


def builtin_layer(table: OptionTable) -> Layer:
    """Return the lowest layer: what holds when nobody says anything."""
    general = {row.name: row.builtin for row in table.general.values() if row.builtin is not None}
    rules = [Rule(general, BUILTIN)]
    for name, spec in table.namespaces.items():
        values = {r.name: r.builtin for r in spec.options.values() if r.builtin is not None}
        if values:
            rules.append(Rule(values, BUILTIN, namespace=name))
    return Layer("built-in", "built-in", rules)
