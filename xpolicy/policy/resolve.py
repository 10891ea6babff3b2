"""Order the rules that reach a function, merge them, and say who won and why.

Data in, data out: layers and a function key go in, a `ResolvedPolicy` comes out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from xpolicy.policy.canonical import canonical
from xpolicy.policy.options import MODES, OptionTable, kebab
from xpolicy.policy.provenance import Contribution, Provenance

if TYPE_CHECKING:
    from xpolicy.policy.layers import Layer, Rule

UNSET = "unset"
BUILTIN_LAYER = "built-in"


class NamespaceOptions:
    """The options of one namespace in a resolved policy, as attributes; None is unset."""

    __slots__ = ("_name", "_values")

    def __init__(self, name: str, values: Mapping[str, Any]) -> None:
        self._name = name
        self._values = values

    def __reduce__(self) -> tuple[Any, ...]:
        return (NamespaceOptions, (self._name, self._values))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what copy and pickle look for is no option
            raise AttributeError(name)
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(
                f"{self._name!r} has no option {name!r}; it has: {', '.join(self._values)}"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __repr__(self) -> str:
        told = ", ".join(f"{k}={v!r}" for k, v in self._values.items() if v is not None)
        return f"<{self._name}: {told or 'nothing set'}>"


@dataclass(frozen=True)
class ResolvedPolicy:
    """The final options of one function in one namespace, each with its provenance.

    Provenance takes no part in equality: moving a line in a file changes no policy. The
    fingerprint does: ``1`` and ``true`` are equal in Python, and not in a policy.

    Parameters
    ----------
    key, namespace : str
        Which function, for which namespace.
    mode : {"eager", "compile", "fullgraph"}
        What will be done, after ``supports`` had its say.
    values : mapping
        Every option of the namespace by Python name; None is unset.
    extra : mapping
        Keywords for the compiler that only the decorator can give.
    requested_mode : str
        The mode that was asked for, before the cap.
    provenance : mapping
        By option name; an entry of a table is ``"options.max_autotune"``.
    notes : tuple of str
        What was decided on the way.

    Examples
    --------
    >>> from xpolicy.policy.layers import builtin_layer
    >>> from xpolicy.policy.options import OptionTable
    >>> table = OptionTable()
    >>> resolve([builtin_layer(table)], table, "mylib.f", "numpy").mode
    'compile'
    """

    key: str = field(compare=False)
    namespace: str
    mode: str
    values: Mapping[str, Any]
    extra: Mapping[str, Any] = field(default_factory=dict)
    requested_mode: str = field(default="compile", compare=False)
    provenance: Mapping[str, Provenance] = field(default_factory=dict, compare=False, repr=False)
    notes: tuple[str, ...] = field(default=(), compare=False, repr=False)
    fingerprint: str = ""

    def __getattr__(self, name: str) -> Any:
        # Only reached for what is no field: options, and the namespace itself.
        if name.startswith("__") or "values" not in self.__dict__:
            raise AttributeError(name)
        if name == self.namespace.replace(".", "_"):
            return NamespaceOptions(self.namespace, self.values)
        if name in self.values:
            return self.values[name]
        raise AttributeError(
            f"a policy for {self.namespace!r} has no option {name!r}; "
            f"it has: {', '.join(self.values)}"
        )

    def __hash__(self) -> int:
        return hash((self.namespace, self.fingerprint))


def contest(
    layers: Iterable[Layer], key: str, namespace: str, device: str | None = None
) -> list[tuple[Layer, Rule]]:
    """Return the rules that reach a function on a device, lowest precedence first."""
    return [
        (layer, rule)
        for layer in layers
        for rule in layer.reaching(key, namespace)
        if rule.device is None or rule.device == device
    ]


def device_matters(layers: Iterable[Layer], key: str, namespace: str) -> bool:
    """Return whether any rule that reaches a function waits for the device."""
    return any(
        rule.device is not None
        for layer in layers
        if layer.devices
        for rule in layer.reaching(key, namespace)
    )


class _Contest:
    """The rules that reach one function, and the history of each option among them."""

    def __init__(self, rules: list[tuple[Layer, Rule]]) -> None:
        #: option (or ``option.entry``) -> (place in the order, contribution), lowest first
        self.history: dict[str, list[tuple[int, Contribution]]] = {}
        self.extra: dict[str, Any] = {}
        place, before = -1, None
        for layer, rule in rules:
            # Rules of equal rank stand at one place: between two options that bear on
            # each other (mode and fullgraph) their order in the file must not decide.
            if before is None or before[0] is not layer or before[1].rank != rule.rank:
                place += 1
            before = (layer, rule)
            for option, value in rule.values.items():
                if isinstance(value, Mapping):
                    for entry, item in value.items():
                        self._add(place, layer, rule, option, item, entry)
                else:
                    self._add(place, layer, rule, option, value)
            self.extra.update(rule.extra)

    def _add(
        self,
        place: int,
        layer: Layer,
        rule: Rule,
        option: str,
        value: Any,
        entry: str | None = None,
    ) -> None:
        said = Contribution(
            value, rule.origin_of(option, entry), layer.name, rule.text, rule.condition_text
        )
        name = option if entry is None else f"{option}.{entry}"
        self.history.setdefault(name, []).append((place, said))
        if entry is None and _withdraws(said):
            # A whole table withdrawn: the same word reaches each of its entries.
            for other in [n for n in self.history if n.startswith(f"{option}.")]:
                self.history[other].append((place, said))

    def standing(self, option: str) -> tuple[int, Contribution] | None:
        """Return the last say that is not withdrawn, with its place in the order.

        What is built in can't be withdrawn: a policy always has a mode.
        """
        said = self.history.get(option)
        if not said:
            return None
        if not _withdraws(said[-1][1]):
            return said[-1]
        return said[0] if said[0][1].layer == BUILTIN_LAYER else None

    def provenance(self, option: str, notes: tuple[str, ...] = ()) -> Provenance | None:
        said = self.history.get(option)
        if not said:
            return None
        told = [contribution for _, contribution in reversed(said)]
        if len(told) > 1 and _withdraws(told[0]) and told[-1].layer == BUILTIN_LAYER:
            notes = (*notes, 'withdrawn by "unset": the built-in value holds')
        return Provenance(told[0], tuple(told[1:]), notes)


def _withdraws(said: Contribution) -> bool:
    return isinstance(said.value, str) and said.value == UNSET


def _supports(
    rules: list[tuple[Layer, Rule]], notes: list[str]
) -> tuple[str | None, Contribution | None]:
    """Return the cap: exact and author's rules set it, broad rules elsewhere only lower it."""
    cap: str | None = None
    who: Contribution | None = None
    for layer, rule in rules:
        value = rule.values.get("supports")
        if value is None:
            continue
        said = Contribution(
            value, rule.origin_of("supports"), layer.name, rule.text, rule.condition_text
        )
        free = rule.exact or layer.name == "author"
        if not free and cap is not None and MODES.index(value) >= MODES.index(cap):
            if value != cap:
                notes.append(
                    f"supports = {value!r} of {rule.text} ({layer.name} layer) was not "
                    f"applied: a broad rule may lower supports = {cap!r}, never raise it"
                )
            continue
        cap, who = value, said
    return cap, who


def _requested(found: _Contest, strict_option: str | None, notes: list[str]) -> str:
    """Return the mode that was asked for: compile or not, and how strictly."""
    mode = found.standing("mode")
    place, asked = (mode[0], mode[1].value) if mode else (-1, "compile")
    if asked == "eager":
        return "eager"
    strict = asked == "fullgraph"
    if strict_option is not None:
        # Three spellings ask how strictly: the last rule that uses one of them decides,
        # and in one rule the more special spelling does.
        alone = found.standing(strict_option)
        if alone is not None and alone[0] >= place:
            place, strict = alone[0], bool(alone[1].value)
            if strict != (asked == "fullgraph"):
                key = kebab(strict_option)
                notes.append(
                    f"{key} = {str(strict).lower()} of {alone[1].rule} ({alone[1].layer} layer) "
                    f"decides how strictly, over mode = {asked!r}"
                )
        limit = found.standing("graph_break_limit")
        if limit is not None and limit[0] >= place and limit[1].value == 0:
            if not strict:
                notes.append("graph-break-limit = 0 asks for fullgraph")
            strict = True
    return "fullgraph" if strict else "compile"


def _cap(asked: str, cap: str | None, reason: str | None, notes: list[str]) -> str:
    if cap is None or MODES.index(asked) <= MODES.index(cap):
        return asked
    because = f" ({reason})" if reason else ""
    notes.append(f"asked for {asked}, capped by supports = {cap!r}{because}: {cap}")
    return cap


def resolve(
    layers: Iterable[Layer],
    table: OptionTable,
    key: str,
    namespace: str,
    device: str | None = None,
) -> ResolvedPolicy:
    """Merge layers into the policy of one function in one namespace.

    Parameters
    ----------
    layers : iterable of Layer
        Lowest precedence first.
    table : OptionTable
        All options.
    key, namespace : str
        Which function, for which namespace.
    device : str, optional
        The device that the arrays are on. Without it no ``device`` rule applies.
    """
    namespace = table.canonical(namespace)
    spec = table.namespaces.get(namespace)
    rules = contest(layers, key, namespace, device)
    found = _Contest(rules)
    notes: list[str] = []
    rows = list(table.general.values()) + (list(spec.options.values()) if spec else [])

    values: dict[str, Any] = {}
    for row in rows:
        if row.kind == "table":
            prefix = f"{row.name}."
            entries = {
                name[len(prefix) :]: standing[1].value
                for name in found.history
                if name.startswith(prefix) and (standing := found.standing(name))
            }
            values[row.name] = entries or None
        else:
            standing = found.standing(row.name)
            values[row.name] = standing[1].value if standing else None

    values["supports"], capper = _supports(rules, notes)
    strict_option = spec.strict_option if spec else None
    asked = _requested(found, strict_option, notes)
    mode = _cap(asked, values["supports"], values["reason"], notes)
    values["mode"] = mode
    if strict_option is not None:
        said = values[strict_option]
        if said and asked == "eager":
            notes.append(f"{kebab(strict_option)} = true does nothing: the mode is eager")
        values[strict_option] = True if mode == "fullgraph" else None if said is None else False

    provenance: dict[str, Provenance] = {}
    mode_notes = tuple(notes)
    for name in found.history:
        told = found.provenance(name, mode_notes if name == "mode" else ())
        if told is not None:
            provenance[name] = told
    if capper is not None and "supports" in provenance:
        others = (provenance["supports"].winner, *provenance["supports"].beaten)
        provenance["supports"] = Provenance(capper, tuple(c for c in others if c != capper))

    if spec is not None:
        for name, why in spec.dropped(values).items():
            option, _, entry = name.partition(".")
            shown = f"{option.replace('_', '-')}.{entry}" if entry else option.replace("_", "-")
            note = f"{spec.name}.{shown} dropped: {why}"
            notes.append(note)
            for told_name in [n for n in provenance if n == name or n.startswith(f"{name}.")]:
                history = provenance[told_name]
                provenance[told_name] = replace(history, notes=(*history.notes, note))
            if entry:
                values[option] = {k: v for k, v in values[option].items() if k != entry} or None
            else:
                values[option] = None

    return ResolvedPolicy(
        key=key,
        namespace=namespace,
        mode=mode,
        values=values,
        extra=found.extra,
        requested_mode=asked,
        provenance=provenance,
        notes=tuple(notes),
        fingerprint=fingerprint(namespace, values, found.extra),
    )


def fingerprint(namespace: str, values: Mapping[str, Any], extra: Mapping[str, Any]) -> str:
    """Return a short hash of resolved options, except ``reason``; the same everywhere."""
    told = {name: value for name, value in values.items() if name != "reason" and value is not None}
    text = canonical([namespace, told, extra])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
