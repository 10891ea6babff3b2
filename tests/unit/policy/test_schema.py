"""The JSON Schema takes what the check of documents takes, and refuses what it refuses."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from xpolicy._origin import Origin
from xpolicy.backends.registry import option_table
from xpolicy.policy.conditions import Facts
from xpolicy.policy.document import read_document
from xpolicy.policy.options import NamespaceSpec, OptionModel, OptionTable, option
from xpolicy.policy.patterns import is_pattern
from xpolicy.policy.schema import PATTERN, schema

ROOT = Path(__file__).parents[3]
CONFIGS = sorted(p for p in (ROOT / "configs").rglob("*.toml") if "ratchets" not in p.parts)
DRAFT_7 = "http://json-schema.org/draft-07/schema#"

GOOD = [
    "",
    'requires = ">=0.1"',
    'mode = "unset"',
    'functions."*".mode = "eager"',
    'functions.f.mode = "eager"',
    'functions."a.b.<locals>.f".jax.mode = "eager"',
    'functions."größe.f".static-argnames = ["n"]',
    'torch.options = { max_autotune = true, cpp = { threads = 1 }, x = [1, 2.5, "a"] }',
    'jax.compiler-options = { a = 1, b = 1.5, c = "d", e = true }',
    '["jax.numpy"]\nkeep-unused = true',
    'when = [{ device = "cuda", torch.cudagraphs = true }]',
    '[[when]]\npython = ">=3.12, <4"\nversions = { torch = "~=2.13" }\nmode = "eager"',
    '[[when]]\ndevice = "cpu"\n[when.functions."m.f"]\nsupports = "eager"',
    "torch.graph-break-limit = 0",
    'testing = { modes = ["eager"], functions = { "m.f" = { graph-breaks = 1 } } }',
    'functions.f.warmup = [{ x = "~float32[128, 64,]", n = 3, s = "linear", t = "float32" }]',
    'functions.f.jax.warmup = [{ x = { a = ["int8[]", true, 1.5] }, s = "\'int8[4\'" }]',
    'cache = { dir = "~/.cache/x", enabled = true, min-seconds = 0, max-size = "1.5 GiB" }',
    '[cache]\ndir = "C:\\\\caches"\nenabled = "unset"\nmin-seconds = 0.5\nmax-size = "500 kB"',
    'functions.f.warmup = []\n[[when]]\ndevice = "cuda"\nfunctions.f.warmup = [{ x = "int8[]" }]',
]
BAD = [
    'cache.dir = "caches"',
    'cache.dir = "~other/caches"',
    "cache.dir = 1",
    'cache.enabled = "no"',
    "cache.min-seconds = -0.5",
    "cache.min-seconds = true",
    "cache.max-size = 1000",
    'cache.max-size = "2 gigs"',
    'cache.folder = "/tmp"',
    'torch.cache.dir = "/tmp"',
    'functions.f.cache.dir = "/tmp"',
    '[[when]]\ndevice = "cpu"\ncache.dir = "/tmp"',
    'testing.modes = ["fast"]',
    'testing.functions."m f".graph-breaks = 1',
    'mode = "eagre"',
    "mode = 1",
    'moed = "eager"',
    'on_failure = "eager"',
    "requires = 3",
    'requires = "new"',
    'supports = "unset"',
    'functions."a.*.b".mode = "eager"',
    'functions."my*".mode = "eager"',
    'functions."a b".mode = "eager"',
    'functions.f.functions.g.mode = "eager"',
    'functions.f.requires = ">=1"',
    '[functions.scipy.linalg.norm]\nmode = "eager"',
    "torch.recompile-limit = 0",
    "torch.recompile-limit = true",
    'torch.fullgraph = "yes"',
    "torch.options = 1",
    "torch.inline = true",
    "jax.compiler-options.a = [1]",
    'static-argnames = "n"',
    "torch = true",
    'when = { device = "cpu" }',
    '[[when]]\nmode = "eager"',
    '[[when]]\nversions = {}\nmode = "eager"',
    '[[when]]\ndevice = "gpu"\nmode = "eager"',
    '[[when]]\npython = 3.12\nmode = "eager"',
    '[[when]]\nversions = { torch = "" }\nmode = "eager"',
    '[[when]]\ndevice = "cpu"\n[[when.when]]\ndevice = "cuda"',
    'warmup = [{ x = "int8[4]" }]',
    'torch.warmup = [{ x = "int8[4]" }]',
    'functions.f.warmup = { x = "int8[4]" }',
    'functions.f.warmup = ["int8[4]"]',
    "functions.f.warmup = [{}]",
    'functions.f.warmup = [{ x = "int9[4]" }]',
    'functions.f.warmup = [{ x = "int8[4" }]',
    'functions.f.warmup = [{ x = { y = ["int8[4] on gpu"] } }]',
    'functions.f.warmup = [{ x = "int8[4]", "a b" = 1 }]',
]


@pytest.fixture(scope="module", params=["2020-12", "draft 7"])
def validator(request: pytest.FixtureRequest) -> Any:
    if request.param == "2020-12":
        return jsonschema.Draft202012Validator(schema(option_table()))
    return jsonschema.Draft7Validator(schema(option_table(), dialect=DRAFT_7))


def reader_finds(data: dict[str, Any]) -> list[str]:
    facts = Facts("3.12.0", lambda name: None)
    origin = Origin("file", "a", text="")
    _, problems = read_document(data, origin, "file", option_table(), facts, version="0.1.0")
    return [str(problem) for problem in problems]


def test_the_schema_is_a_valid_one_in_both_dialects() -> None:
    jsonschema.Draft202012Validator.check_schema(schema(option_table()))
    jsonschema.Draft7Validator.check_schema(schema(option_table(), dialect=DRAFT_7))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_policy_files_that_we_ship_are_valid(path: Path, validator: Any) -> None:
    data = tomllib.loads(path.read_text("utf-8"))
    data = data["tool"]["xpolicy"] if path.name == "pyproject.toml" else data
    assert data
    assert not list(validator.iter_errors(data))


@pytest.mark.parametrize("text", GOOD)
def test_what_the_reader_takes_is_valid(text: str, validator: Any) -> None:
    data = tomllib.loads(text)
    assert reader_finds(data) == []
    assert [e.message for e in validator.iter_errors(data)] == []


@pytest.mark.parametrize("text", BAD)
def test_what_the_reader_refuses_is_invalid(text: str, validator: Any) -> None:
    data = tomllib.loads(text)
    assert reader_finds(data)
    assert list(validator.iter_errors(data))


def test_nothing_in_it_is_null() -> None:
    assert "null" not in json.dumps(schema(option_table()))


def test_every_option_is_described_and_defaults_are_the_built_in_ones() -> None:
    made = schema(option_table())
    for name, spec in option_table().namespaces.items():
        properties = made["properties"][name]["$ref"].removeprefix("#/$defs/")
        for key, row in {r.key: r for r in spec.options.values()}.items():
            found = made["$defs"][properties]["properties"][key]
            assert found["description"]
            assert found.get("default") == row.builtin
    assert made["properties"]["mode"]["default"] == "compile"


def test_only_standard_words_are_used() -> None:
    # Validators in strict mode refuse a schema with a word that they don't know.
    assert not re.search(r'"x-', json.dumps(schema(option_table())))


def test_a_plugins_options_are_in_it() -> None:
    class Options(OptionModel):
        level: int | None = option("How hard to try.")

    table = OptionTable([NamespaceSpec("thirdparty", Options)])
    validator = jsonschema.Draft202012Validator(schema(table))
    assert not list(validator.iter_errors({"thirdparty": {"level": 3}}))
    assert list(validator.iter_errors({"thirdparty": {"level": "3"}}))


@pytest.mark.parametrize(
    "key",
    [
        "f",
        "_a.B9",
        "a.b.*",
        "*",
        "größe.f",
        "数.f",
        "a.<locals>.g",
        "a.<lambda>",
        "",
        ".",
        "a.",
        ".a",
        "a..b",
        "a.*.b",
        "a*",
        "**",
        "9a",
        "a-b",
        "a b",
        "<x>",
        "a.9",
    ],
)
def test_function_keys_are_judged_as_the_reader_judges_them(key: str) -> None:
    assert (re.search(PATTERN, key) is not None) is is_pattern(key)
