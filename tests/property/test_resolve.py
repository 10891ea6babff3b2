"""Resolving equals a brute-force reading of the rules, and order in a file changes nothing."""

from __future__ import annotations

import copy
import itertools
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.policy.building import FACTS, TABLE
from xpolicy._origin import Origin
from xpolicy.policy.document import read_document
from xpolicy.policy.layers import Layer, builtin_layer
from xpolicy.policy.resolve import resolve

KEY = "lib.part.f"
# From weak to strong; the last two never match.
PATTERNS = [None, "*", "lib.*", "lib.part.*", KEY, "lib.part", "lib.partial.*"]
NAMESPACES = [None, "torch", "jax"]
CAPS = ["eager", "compile", "fullgraph"]
BUILTIN = {
    "mode": "compile",
    "on-failure": "error",
    "on-recompile-limit": "warn",
    "on-graph-break-limit": "warn",
}


# -- the oracle --------------------------------------------------------------------------


def matches(pattern, key):
    return pattern in (None, "*", key) or (pattern.endswith(".*") and key.startswith(pattern[:-1]))


def ranked(rules):
    """Yield (rank, rule) for each rule that can apply here; a rank is a place in the order."""
    for pattern, namespace, conditions, options in rules:
        if all(holds for holds, _ in conditions):
            rank = (PATTERNS.index(pattern), namespace is not None, len(conditions))
            yield rank, (pattern, namespace, conditions, options)


def tied(rules):
    """Say whether two rules of one layer have the same rank and contradict each other."""
    for (rank, one), (other_rank, other) in itertools.combinations(ranked(rules), 2):
        devices = {device for rule in (one, other) for _, device in rule[2] if device}
        if rank != other_rank or one[:2] != other[:2] or len(devices) > 1:
            continue
        for option in one[3].keys() & other[3].keys():
            a, b = one[3][option], other[3][option]
            if isinstance(a, dict) and isinstance(b, dict):
                if any(repr(a[key]) != repr(b[key]) for key in a.keys() & b.keys()):
                    return True
            elif isinstance(a, dict) or isinstance(b, dict):
                table = a if isinstance(a, dict) else b
                if any(value != "unset" for value in table.values()):
                    return True
            elif repr(a) != repr(b):
                return True
    return False


def oracle(layers, namespace, device):
    """Read all rules from the weakest to the strongest and keep the last say."""
    said, cap = {}, None
    for number, (layer, rules) in enumerate(layers):
        for rank, (pattern, own, conditions, options) in sorted(ranked(rules), key=lambda r: r[0]):
            on = [wanted for _, wanted in conditions if wanted]
            if (
                not matches(pattern, KEY)
                or own not in (None, namespace)
                or on not in ([], [device])
            ):
                continue
            for option, value in options.items():
                if option == "supports":
                    free = layer == "author" or pattern == KEY
                    if free or cap is None or CAPS.index(value) < CAPS.index(cap):
                        cap = value
                elif option == "options" and isinstance(value, dict):
                    before = said.get(option, (None, {}))[1]
                    said[option] = ((number, rank), {**before, **value})
                elif value == "unset":
                    said.pop(option, None)
                else:
                    said[option] = ((number, rank), value)
    values = {**BUILTIN, **{option: value for option, (_, value) in said.items()}}
    place, strict = said.get("mode", (((-1, ()), None)))[0], values["mode"] == "fullgraph"
    if namespace == "torch":
        for option, wanted in (("fullgraph", True), ("graph-break-limit", 0)):
            at, value = said.get(option, ((-2, ()), None))
            if at >= place and (option == "fullgraph" or value == wanted):
                place, strict = at, value is True or option != "fullgraph"
    mode = "eager" if values["mode"] == "eager" else "fullgraph" if strict else "compile"
    values["mode"] = min(mode, cap or "fullgraph", key=CAPS.index)
    entries = {k: v for k, v in values.get("options", {}).items() if v != "unset"}
    return {**values, "supports": cap, "options": entries or None}


# -- random layers ---------------------------------------------------------------------------

UNSET = st.just("unset")
GENERAL = {
    "mode": st.sampled_from([*CAPS, "unset"]),
    "on-failure": st.sampled_from(["error", "eager", "unset"]),
}
LIMIT = st.integers(1, 3) | UNSET
OPTIONS = {
    None: GENERAL,
    "torch": {
        **GENERAL,
        "fullgraph": st.booleans() | UNSET,
        "graph-break-limit": st.integers(0, 1) | UNSET,
        "recompile-limit": LIMIT,
        "options": UNSET
        | st.dictionaries(
            st.sampled_from(["max_autotune", "epilogue_fusion"]),
            st.sampled_from([True, False, 1, 0, "unset"]),
            max_size=2,
        ),
    },
    "jax": {
        **GENERAL,
        "recompile-limit": LIMIT,
        "donate-argnames": st.lists(st.sampled_from(["a", "b"]), max_size=2) | UNSET,
    },
}
FACT = {"supports": st.sampled_from(CAPS)}
# What is written, and what it says here: does it hold, and is it left to the device.
CONDITIONS = {
    ("python", ">=3"): (True, None),
    ("python", ">=4"): (False, None),
    ("torch", ">=2"): (True, None),
    ("absent", ">=0"): (False, None),
    ("jax", "<1"): (True, None),
    ("device", "cpu"): (True, "cpu"),
    ("device", "cuda"): (True, "cuda"),
}


@st.composite
def rules(draw):
    """Draw one table: for which pattern and namespace, and what it says."""
    namespace = draw(st.sampled_from(NAMESPACES))
    options = draw(st.fixed_dictionaries({}, optional={**OPTIONS[namespace], **FACT}))
    return draw(st.sampled_from(PATTERNS)), namespace, options


@st.composite
def blocks(draw):
    """Draw the conditions of a block (none: the document itself) and its tables."""
    written = draw(
        st.lists(st.sampled_from(sorted(CONDITIONS)), max_size=3, unique_by=lambda c: c[0])
    )
    tables = draw(st.lists(rules(), max_size=4, unique_by=lambda rule: rule[:2]))
    return written, tables


@st.composite
def layers(draw):
    found = []
    for name in draw(st.lists(st.sampled_from(["author", "project", "file"]), max_size=4)):
        several = draw(st.lists(blocks(), max_size=4))
        # One body is the document's own.
        plain = next((tables for written, tables in several if not written), [])
        found.append((name, [([], plain), *(block for block in several if block[0])]))
    return found


def document(several):
    """Write blocks as TOML would be read."""
    data = {}
    for written, tables in several:
        body = data
        if written:
            body = {}
            data.setdefault("when", []).append(body)
            for name, wanted in written:
                home = body if name in ("device", "python") else body.setdefault("versions", {})
                home[name] = wanted
        for pattern, namespace, options in tables:
            home = body
            if pattern is not None:
                home = home.setdefault("functions", {}).setdefault(pattern, {})
            if namespace is not None:
                home = home.setdefault(namespace, {})
            home.update(copy.deepcopy(options))
    return data


def flat(several):
    return [
        (pattern, namespace, [CONDITIONS[condition] for condition in written], options)
        for written, tables in several
        for pattern, namespace, options in tables
    ]


def read(name, data):
    return read_document(data, Origin("file", "policy.toml"), name, TABLE, FACTS, version="0.1")


@settings(max_examples=200, deadline=None)
@given(layers(), st.sampled_from(["torch", "jax", "numpy"]), st.sampled_from([None, "cpu", "cuda"]))
def test_resolving_equals_the_oracle(drawn, namespace, device):
    stack = [builtin_layer(TABLE)]
    for name, several in drawn:
        layer, problems = read(name, document(several))
        assert bool(problems) == tied(flat(several)), "\n".join(map(str, problems))
        if problems:
            return
        stack.append(layer)
    policy = resolve(stack, TABLE, KEY, namespace, device)
    expected = oracle([(name, flat(several)) for name, several in drawn], namespace, device)
    for option, value in policy.values.items():
        if option == "fullgraph":
            assert (value is True) == (policy.mode == "fullgraph")
        else:
            wanted = expected.get(option.replace("_", "-"))
            wanted = tuple(wanted) if isinstance(wanted, list) else wanted
            assert repr(value) == repr(wanted) or value == wanted == {}, option
    assert policy.mode == expected["mode"]


def shuffled(value, order):
    """Return a document with every table's keys, and every array of tables, in another order."""
    if isinstance(value, dict):
        items = [(name, shuffled(inner, order)) for name, inner in value.items()]
        order.shuffle(items)
        return dict(items)
    if isinstance(value, list) and value and isinstance(value[0], dict):
        again = [shuffled(inner, order) for inner in value]
        order.shuffle(again)
        return again
    return value


@settings(max_examples=100, deadline=None)
@given(layers(), st.integers(0, 2**32))
def test_order_in_a_file_changes_nothing(drawn, seed):
    order = random.Random(seed)
    one, two = [builtin_layer(TABLE)], [builtin_layer(TABLE)]
    for name, several in drawn:
        data = document(several)
        layer, problems = read(name, data)
        again, same = read(name, shuffled(data, order))
        assert bool(problems) == bool(same)
        one.append(layer)
        two.append(again)
    for namespace, device in itertools.product(("torch", "jax", "numpy"), (None, "cpu", "cuda")):
        policy = resolve(one, TABLE, KEY, namespace, device)
        other = resolve(two, TABLE, KEY, namespace, device)
        assert policy == other
        assert policy.fingerprint == other.fingerprint
        assert policy.requested_mode == other.requested_mode


@settings(max_examples=100, deadline=None)
@given(layers())
def test_order_in_the_index_changes_nothing(drawn):
    stack = [read(name, document(several))[0] for name, several in drawn]
    backwards = [Layer(la.name, la.label, la.rules[::-1], la.unmet) for la in stack]
    for namespace in ("torch", "jax"):
        one = resolve([builtin_layer(TABLE), *stack], TABLE, KEY, namespace)
        two = resolve([builtin_layer(TABLE), *backwards], TABLE, KEY, namespace)
        assert one.fingerprint == two.fingerprint
