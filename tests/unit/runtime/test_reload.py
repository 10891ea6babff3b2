"""Reloading drops what changed, and only that; clear gives everything back."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import xpolicy


@pytest.fixture
def traced(project):
    """Two decorated functions that count how often their bodies are traced."""
    counts = {"f": 0, "g": 0}

    @xpolicy.compile(name="mylib.f")
    def f(x):
        counts["f"] += 1
        return x + 1

    @xpolicy.compile(name="mylib.g")
    def g(x):
        counts["g"] += 1
        return x + 1

    def call():
        f(jnp.ones(2))
        g(jnp.ones(2))
        return dict(counts)

    return call


def test_an_unchanged_policy_keeps_its_variants(project, traced):
    file = project('[functions."mylib.f".jax]\nkeep-unused = true\n')
    assert traced() == {"f": 1, "g": 1}
    xpolicy.reload()
    assert traced() == {"f": 1, "g": 1}
    file.write_text('# moved\n[functions."mylib.f".jax]\nkeep-unused = true\n')
    xpolicy.reload()
    assert traced() == {"f": 1, "g": 1}


def test_a_changed_policy_is_never_ignored(project, traced):
    file = project('[functions."mylib.f".jax]\nkeep-unused = true\n')
    traced()
    file.write_text('[functions."mylib.f".jax]\nkeep-unused = false\n')
    xpolicy.reload()
    assert traced() == {"f": 2, "g": 1}


def test_a_file_that_has_gone_bad_is_told_at_reload_and_nothing_is_lost(project, traced):
    file = project('[functions."mylib.f".jax]\nkeep-unused = true\n')
    traced()
    file.write_text("[functions")
    with pytest.raises(xpolicy.PolicyFileError):
        xpolicy.reload()
    file.write_text('[functions."mylib.f".jax]\nkeep-unused = true\n')
    xpolicy.reload()
    assert traced() == {"f": 1, "g": 1}


def test_clear_drops_variants_and_statistics(traced):
    @xpolicy.compile(name="mylib.h")
    def h(x):
        return x * 2

    h(jnp.ones(2))
    assert h.stats()["jax"].compilations == 1
    h.clear()
    assert len(h.stats()) == 0
    h(jnp.ones(2))
    assert h.stats()["jax"].compilations == 1


def test_statistics_of_all_functions_and_plain_data(traced):
    traced()
    found = {(r.key, r.namespace): r.compilations for r in xpolicy.stats()}
    assert found["mylib.f", "jax"] == 1
    assert {row["function"] for row in xpolicy.stats().as_dict()} >= {"mylib.f", "mylib.g"}
    assert "mylib.f [jax]: 1 compile" in str(xpolicy.stats("mylib.f"))
