"""The `cache` table: whoever runs the program has the word, and no policy depends on it."""

from __future__ import annotations

import pickle

import pytest

from tests.unit.policy.building import FACTS, KEY, TABLE, layer_of, policy, problems_of, read
from xpolicy.policy.cache import cache_policy, cache_rows, size_in_bytes
from xpolicy.sources.environment import read_environment

TEXT = """
[cache]
dir = "~/.cache/x"
enabled = true
min-seconds = 0.5
max-size = "2 GiB"
"""
TRUSTED = ("user", "file", "environment")


@pytest.mark.parametrize("layer", TRUSTED)
def test_whoever_runs_the_program_may_say_it(layer):
    found = cache_policy([layer_of(TEXT, layer)])
    assert (found.dir, found.enabled) == ("~/.cache/x", True)
    assert (found.min_seconds, found.max_bytes) == (0.5, 2 * 1024**3)
    assert found.origin_of("min_seconds").key == ("cache", "min-seconds")


@pytest.mark.parametrize(("layer", "whose"), [("project", "project's"), ("author", "library's")])
@pytest.mark.parametrize("key", [row.key for row in cache_rows().values()])
def test_files_that_come_with_code_may_say_none_of_it(layer, whose, key):
    value = next(line for line in TEXT.splitlines() if line.startswith(key))
    found, (problem,) = read(f"[cache]\n{value}", layer)
    assert problem.severity == "error"
    assert f"cache.{key} may not be set in a {whose} file" in problem.message
    assert problem.origin.key == ("cache", key)
    assert "XPOLICY_FILE" in problem.allowed
    assert f"XPOLICY_CACHE__{key.upper().replace('-', '_')}" in problem.fix
    assert found.cache == {}


def test_the_highest_layer_decides_each_setting_for_itself():
    low = layer_of(TEXT, "user")
    high = layer_of('[cache]\ndir = "/other"\nmax-size = "unset"', "file")
    found = cache_policy([low, high])
    assert (found.dir, found.min_seconds, found.max_bytes) == ("/other", 0.5, None)


def test_nobody_says_anything():
    found = cache_policy([layer_of("")])
    assert (found.dir, found.enabled, found.min_seconds, found.max_bytes) == (
        None,
        True,
        None,
        None,
    )


def test_no_policy_depends_on_it():
    layer = layer_of(TEXT, "user")
    assert layer.rules == ()
    assert policy(layer).fingerprint == policy(layer_of("", "user")).fingerprint
    assert policy(layer, key=KEY) == policy(layer_of("", "user"), key=KEY)


def test_workers_are_sent_it():
    layer = layer_of(TEXT, "file")
    assert cache_policy([pickle.loads(pickle.dumps(layer))]).dir == "~/.cache/x"


def test_variables():
    environ = {
        "XPOLICY_CACHE__DIR": "/var/cache/x",
        "XPOLICY_CACHE__ENABLED": "off",
        "XPOLICY_CACHE__MIN_SECONDS": " 1.5 ",
        "XPOLICY_CACHE__MAX_SIZE": "500 MB",
        "XPOLICY_TOML": "cache.min-seconds = 3",
    }
    layers, problems = read_environment(environ, TABLE, FACTS, version="0.1")
    assert problems == []
    found = cache_policy(layers)
    assert (found.dir, found.enabled, found.max_bytes) == ("/var/cache/x", False, 500_000_000)
    assert found.min_seconds == 3, "XPOLICY_TOML stands above the other variables"
    assert str(found.origin_of("dir")) == "XPOLICY_CACHE__DIR"
    assert all(layer.rules == () for layer in layers)


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "soon", "1e999"])
def test_a_number_of_seconds_that_is_none(value):
    environ = {"XPOLICY_CACHE__MIN_SECONDS": value}
    _, (problem,) = read_environment(environ, TABLE, FACTS, version="0.1")
    assert problem.origin.label == "XPOLICY_CACHE__MIN_SECONDS"


@pytest.mark.parametrize(
    "text",
    ["dir = 'cache'", "dir = './cache'", "dir = '~other'", "dir = ''", "dir = true",
     "enabled = 1", "min-seconds = '1'", "min-seconds = nan", "max-size = 5",
     "max-size = '5'", "max-size = '-5 MB'", "max-size = '5 mB'"],
)  # fmt: skip
def test_what_is_wrong_in_it(text):
    (problem,) = problems_of(f"[cache]\n{text}", "file")
    assert problem.key == f"cache.{text.partition(' ')[0]}"
    assert problem.severity == "error"


@pytest.mark.parametrize(
    ("text", "size"),
    [("0B", 0), ("1 kB", 1000), ("1KiB", 1024), ("1.5 MB", 1_500_000), ("1 TiB", 1024**4)],
)
def test_sizes(text, size):
    assert size_in_bytes(text) == size
    assert problems_of(f'cache.max-size = "{text}"', "file") == []
