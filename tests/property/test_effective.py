"""What ``xpolicy show --effective`` prints resolves to the policies that it was made from."""

from __future__ import annotations

import tomllib
from typing import Any

from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from xpolicy._origin import Origin
from xpolicy.backends.registry import option_table
from xpolicy.policy.conditions import Facts
from xpolicy.policy.document import read_document
from xpolicy.policy.emit import effective, toml_value
from xpolicy.policy.layers import Layer, builtin_layer
from xpolicy.policy.options import DEVICES, OptionSpec
from xpolicy.policy.resolve import resolve

KEY = "lib.part.f"
PATTERNS = ["*", "lib.*", "lib.part.*", KEY, "lib.other"]
NAMESPACES = ["torch", "jax", "numpy"]
TABLE = option_table()
FACTS = Facts("3.12.1", lambda name: None)

# Characters that a TOML file can hold: no half of a surrogate pair.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
ITEMS = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    TEXT,
    st.just("unset"),
)
# An author's file may set what is on the allow-list, any other file more.
LISTED = {"torch": ["max_autotune", "epilogue_fusion"], "jax": ["xla_cpu_enable_fast_math"]}
ANY = {"torch": [*LISTED["torch"], "cpp.cxx", "odd key"], "jax": [*LISTED["jax"], "xla_dump_to"]}


def value_of(row: OptionSpec, entries: dict[str, list[str]]) -> st.SearchStrategy[Any]:
    plain: dict[str, st.SearchStrategy[Any]] = {
        "boolean": st.booleans(),
        "integer": st.integers(row.minimum or 0, 5),
        "string": TEXT,
        "choice": st.sampled_from(row.choices or ("unset",)),
        "list": st.lists(st.sampled_from(["n", "axis", 'quoted "x"']), max_size=2),
    }
    if row.kind == "table":
        value = st.dictionaries(st.sampled_from(entries[row.namespace or ""]), ITEMS, max_size=3)
    elif row.name == "backend":
        value = st.sampled_from(["inductor", "eager"])
    else:
        value = plain[row.kind]
    # Withdrawing is where a round trip is easiest to lose: make it common.
    return value if row.capability else value | st.just("unset")


def options_of(
    namespace: str | None, entries: dict[str, list[str]], *, facts: bool
) -> st.SearchStrategy[dict[str, Any]]:
    rows = [r for r in TABLE.of(namespace).values() if facts or not r.capability]
    pairs = st.one_of([st.tuples(st.just(r.key), value_of(r, entries)) for r in rows])
    return st.lists(pairs, max_size=4).map(dict)


def body(entries: dict[str, list[str]], *, facts: bool) -> st.SearchStrategy[dict[str, Any]]:
    tables = {name: options_of(name, entries, facts=facts) for name in NAMESPACES}
    return st.builds(
        lambda general, namespaces: general | namespaces,
        options_of(None, entries, facts=facts),
        st.fixed_dictionaries({}, optional=tables),
    )


def documents(entries: dict[str, list[str]], *, author: bool) -> st.SearchStrategy[dict[str, Any]]:
    blocks = st.builds(
        lambda device, top, functions: top | {"device": device, "functions": functions},
        st.sampled_from(["cuda", "cpu"]),
        body(entries, facts=author),
        st.dictionaries(st.just(KEY), body(entries, facts=True), max_size=1),
    )
    return st.builds(
        lambda top, functions, exact, blocks: (
            top | {"functions": functions | exact, "when": blocks}
        ),
        body(entries, facts=author),
        st.dictionaries(st.sampled_from(PATTERNS), body(entries, facts=author), max_size=2),
        st.fixed_dictionaries({}, optional={KEY: body(entries, facts=True)}),
        st.lists(blocks, max_size=2),
    )


def layer(name: str, document: dict[str, Any]) -> Layer:
    found, problems = read_document(
        document, Origin("file", name, text=""), name, TABLE, FACTS, version="0.1.0"
    )
    assume(not problems)
    return found


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
# A limit of 0 asks for fullgraph, and a higher rule for compile: in one rule the limit wins.
@example(author={"torch": {"graph-break-limit": 0}}, file={"mode": "compile"})
@example(
    author={"torch": {"graph-break-limit": 0}},
    file={"mode": "compile", "when": [{"device": "cuda", "torch": {"fullgraph": True}}]},
)
@example(
    author={"when": [{"device": "cuda", "torch": {"graph-break-limit": 0}}]},
    file={"mode": "compile", "torch": {"fullgraph": False}},
)
# Strict by its mode alone on most devices, and not on one.
@example(author={}, file={"mode": "fullgraph", "when": [{"device": "cuda", "mode": "eager"}]})
@given(author=documents(LISTED, author=True), file=documents(ANY, author=False))
def test_the_effective_file_resolves_to_the_same_policies(
    author: dict[str, Any], file: dict[str, Any]
) -> None:
    base = builtin_layer(TABLE)
    author_layer = layer("author", author)
    layers = [base, author_layer, layer("file", file)]
    wanted = {
        (namespace, device): resolve(layers, TABLE, KEY, namespace, device)
        for namespace in NAMESPACES
        for device in (None, *DEVICES)
    }

    text = effective(
        [
            (wanted[namespace, None], {d: wanted[namespace, d] for d in DEVICES})
            for namespace in NAMESPACES
        ],
        TABLE,
    )

    read, problems = read_document(
        tomllib.loads(text), Origin("file", "e", text=text), "file", TABLE, FACTS, version="0.1.0"
    )
    assert not problems, text
    for below in ([base], [base, author_layer]):
        for (namespace, device), policy in wanted.items():
            again = resolve([*below, read], TABLE, KEY, namespace, device)
            # The fingerprint tells true from 1, and nan from nothing.
            assert again.fingerprint == policy.fingerprint, text
            assert again.mode == policy.mode
            assert again.requested_mode == policy.requested_mode
            assert again.reason == policy.reason


VALUES = st.recursive(
    ITEMS
    | st.dates()
    | st.datetimes().map(lambda t: t.replace(fold=0))
    | st.times().map(lambda t: t.replace(fold=0)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_any_value_that_toml_has_is_read_back_as_it_was(value: Any) -> None:
    read = tomllib.loads(f"value = {toml_value(value)}")["value"]
    assert repr(read) == repr(value)
