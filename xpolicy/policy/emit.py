"""Write resolved policies as a TOML document that resolves to them again.

The document is meant for ``XPOLICY_FILE``: a layer above everything that files of the
author, the user and the project say. It states whatever any of them stated, so that it
means the same with them and without them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time
from typing import Any

from xpolicy.policy.options import OptionTable, kebab
from xpolicy.policy.resolve import UNSET, ResolvedPolicy

_LIMIT = "graph-break-limit"
#: A condition that holds wherever xpolicy runs. It lifts a rule above one without it.
_ALWAYS = 'python = ">=3"'

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def toml_string(text: str) -> str:
    r"""Return a text as a TOML string.

    Raises
    ------
    ValueError
        If it holds half of a surrogate pair, which TOML has no way to write.

    Examples
    --------
    >>> print(toml_string('a "b"'))
    "a \"b\""
    """
    made = []
    for char in text:
        if "\ud800" <= char <= "\udfff":
            raise ValueError(f"{text!r} can't be written as TOML: it is not Unicode text")
        if char in _ESCAPES:
            made.append(_ESCAPES[char])
        elif char < " " or char == "\x7f":
            made.append(f"\\u{ord(char):04x}")
        else:
            made.append(char)
    return f'"{"".join(made)}"'


def toml_key(name: str) -> str:
    """Return one part of a key, in quotes if it needs them.

    Examples
    --------
    >>> toml_key("compile-mode"), toml_key("triton.cudagraphs")
    ('compile-mode', '"triton.cudagraphs"')
    """
    bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if bare else toml_string(name)


def toml_value(value: Any) -> str:
    """Return a value as TOML writes it; a table is written inline.

    Raises
    ------
    ValueError
        If TOML has no such value.

    Examples
    --------
    >>> toml_value({"max_autotune": True, "n": (1, 2.0)})
    '{ max_autotune = true, n = [1, 2.0] }'
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return toml_string(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        # repr() gives inf and nan as TOML spells them, and 1e16 without a fraction,
        # which TOML takes.
        return "nan" if math.isnan(value) else repr(value)
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    if isinstance(value, Mapping):
        inner = ", ".join(f"{toml_key(k)} = {toml_value(v)}" for k, v in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    raise ValueError(f"TOML has no value like {value!r}")


def statements(policy: ResolvedPolicy, table: OptionTable) -> dict[str, Any]:
    """Return what a rule must say so that a function resolves to a policy again.

    Parameters
    ----------
    policy : ResolvedPolicy
        The outcome to reproduce.
    table : OptionTable
        All options.

    Returns
    -------
    dict
        Options by TOML key. What somebody set and somebody else withdrew is ``"unset"``;
        what nobody ever set is left out.
    """
    spec = table.namespaces.get(policy.namespace)
    strict = spec.strict_option if spec is not None else None
    said: dict[str, Any] = {}
    for name, value in policy.values.items():
        prefix = f"{name}."
        entries = [n[len(prefix) :] for n in policy.provenance if n.startswith(prefix)]
        if value is None:
            # For a table this withdraws each of its entries, too.
            if entries or name in policy.provenance:
                said[kebab(name)] = UNSET
        elif isinstance(value, Mapping):
            withdrawn = dict.fromkeys((e for e in entries if e not in value), UNSET)
            said[kebab(name)] = {**value, **withdrawn}
        else:
            said[kebab(name)] = value
    # Before the cap: `supports` is stated as well, and caps it again.
    said["mode"] = policy.requested_mode
    if strict is not None:
        # Its value in the policy is what the mode came to, whether or not anybody said so.
        said.pop(kebab(strict), None)
        if strict in policy.provenance:
            withdrawn_last = policy.provenance[strict].winner.value == UNSET
            # In one rule strictness wins over the mode, so it must say what the mode says.
            said[kebab(strict)] = UNSET if withdrawn_last else policy.requested_mode == "fullgraph"
    return said


def _in_two(said: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split what a rule says into what has to stand below the rest, and the rest.

    A limit of 0 asks for fullgraph, unless a rule above it asks for compile. In one rule
    with that, it would win.
    """
    if said.get(_LIMIT) == 0 and said["mode"] == "compile":
        return {_LIMIT: 0}, {name: value for name, value in said.items() if name != _LIMIT}
    return {}, dict(said)


def effective(
    policies: Iterable[tuple[ResolvedPolicy, Mapping[str, ResolvedPolicy]]], table: OptionTable
) -> str:
    """Return a policy document that resolves functions to given policies.

    Parameters
    ----------
    policies : iterable of (ResolvedPolicy, mapping of str to ResolvedPolicy)
        For each function and namespace, its policy without a device, and by device
        those that differ for some.
    table : OptionTable
        All options.

    Returns
    -------
    str
        TOML. Keywords that only a decorator can give can't be written: a comment names
        them.

    Raises
    ------
    ValueError
        If a value can't be written as TOML.

    Examples
    --------
    >>> from xpolicy.policy.layers import builtin_layer
    >>> from xpolicy.policy.resolve import resolve
    >>> table = OptionTable()
    >>> print(effective([(resolve([builtin_layer(table)], table, "mylib.f", "numpy"), {})], table))
    [functions."mylib.f".numpy]
    mode = "compile"
    on-failure = "error"
    <BLANKLINE>
    """
    # By the conditions of a `when` block; without any, what holds everywhere.
    blocks: dict[tuple[str, ...], list[str]] = {(): []}

    def add(conditions: tuple[str, ...], policy: ResolvedPolicy, said: Mapping[str, Any]) -> None:
        if said:
            prefix = "when.functions" if conditions else "functions"
            blocks.setdefault(conditions, []).append(_table(prefix, policy, said))

    for policy, others in policies:
        said = statements(policy, table)
        below, rest = _in_two(said)
        add((), policy, below)
        add((_ALWAYS,) if below else (), policy, rest)
        for device, other in others.items():
            there = statements(other, table)
            # Compared as text: true and 1 are equal to Python.
            if toml_value(there) == toml_value(said):
                continue
            on_device = f"device = {toml_string(device)}"
            below_there, rest_there = _in_two(there)
            add((on_device,), other, below_there)
            higher = (_ALWAYS,) if below or below_there else ()
            add((on_device, *higher), other, rest_there)

    everywhere = blocks.pop(())
    when = [
        "\n".join(["[[when]]", *conditions, "", *tables])
        for conditions, tables in sorted(blocks.items())
    ]
    return "\n".join([*everywhere, *when])


def _table(prefix: str, policy: ResolvedPolicy, said: Mapping[str, Any]) -> str:
    lines = [f"[{prefix}.{toml_string(policy.key)}.{toml_key(policy.namespace)}]"]
    lines += [f"{toml_key(name)} = {toml_value(value)}" for name, value in said.items()]
    if policy.extra:
        lines.append(f"# only the decorator can say: {', '.join(sorted(policy.extra))}")
    return "\n".join(lines) + "\n"
