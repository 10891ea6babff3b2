"""The cache table on the real compilers: what one process compiles, the next one finds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
#: Variables that decide about caches; a test says what it wants itself.
_SAID = ("XPOLICY_", "TORCHINDUCTOR", "TORCH_COMPILE", "JAX_")

JAX = """
import json, os
before = dict(os.environ)
import jax, jax.numpy as jnp
events = []
jax.monitoring.register_event_listener(lambda name, **_: events.append(name.rsplit("/", 1)[-1]))
imported = dict(os.environ)
import xpolicy

@xpolicy.compile(name="mylib.f")
def f(x):
    return jnp.sin(x) * 2 + 1

{before}
assert abs(float(f(jnp.zeros(5))[0]) - 1) < 1e-6
told = [use.as_dict() for use in xpolicy.caches()]
print(json.dumps({{
    "told": told,
    "hits": events.count("cache_hits"),
    "misses": events.count("cache_misses"),
    "folder": jax.config.jax_compilation_cache_dir,
    "changed": sorted(n for n in os.environ.keys() | imported if os.environ.get(n) != imported.get(n)),
}}))
"""

TORCH = """
import json, os
import torch
import torch._dynamo
imported = dict(os.environ)  # torch has written its own default by now
from torch._dynamo.utils import counters
import xpolicy

@xpolicy.compile(name="mylib.f")
def f(x):
    return torch.sin(x) * 2 + 1

{before}
assert f(torch.zeros(5))[0] == 1
told = [use.as_dict() for use in xpolicy.caches()]
print(json.dumps({{
    "told": told,
    "hits": counters["inductor"]["fxgraph_cache_hit"],
    "misses": counters["inductor"]["fxgraph_cache_miss"],
    "changed": sorted(n for n in os.environ.keys() | imported if os.environ.get(n) != imported.get(n)),
}}))
"""


#: torch compiles its headers for 15 s in an empty folder, unless it is told not to.
PLAIN_HEADERS = """
import torch._inductor.config
torch._inductor.config.cpp_cache_precompile_headers = False
"""


def run(program: str, folder: Path, before: str = "", **variables: str) -> dict[str, Any]:
    """Run a program in a process of its own; what it prints last is JSON."""
    environ = {n: v for n, v in os.environ.items() if not n.startswith(_SAID)}
    environ |= {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", program.format(before=before)],
        cwd=folder,
        env=environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found | {"stderr": done.stderr}


def kept(folder: Path) -> list[str]:
    """The names of the files of a cache, without what marks it as one."""
    return sorted(p.name for p in folder.rglob("*") if p.is_file() and p.name != "CACHEDIR.TAG")


# -- jax ----------------------------------------------------------------------------------


@pytest.fixture
def jax() -> None:
    pytest.importorskip("jax", reason="these tests run jax: pip install jax")


@pytest.mark.usefixtures("jax")
def test_jax_finds_what_another_process_compiled(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = run(JAX, tmp_path, XPOLICY_CACHE__DIR=str(cache))
    assert (first["hits"], first["misses"] > 0) == (0, True)
    assert any(name.startswith("jit_f-") for name in kept(cache / "jax"))
    second = run(JAX, tmp_path, XPOLICY_CACHE__DIR=str(cache))
    assert second["hits"] == first["misses"]
    assert second["misses"] == 0
    (told,) = second["told"]
    assert (told["state"], told["folder"]) == ("on", str(cache / "jax"))
    assert told["reason"] == "cache.dir, XPOLICY_CACHE__DIR"


@pytest.mark.usefixtures("jax")
def test_the_environment_stays_as_it_is(tmp_path: Path) -> None:
    found = run(JAX, tmp_path, XPOLICY_CACHE__DIR=str(tmp_path / "cache"))
    assert found["changed"] == []


@pytest.mark.usefixtures("jax")
def test_without_the_table_jax_is_left_alone(tmp_path: Path) -> None:
    found = run(JAX, tmp_path)
    assert (found["told"], found["folder"]) == ([], None)
    assert kept(tmp_path) == []


@pytest.mark.usefixtures("jax")
def test_a_user_file_sets_it_and_a_project_file_may_not(tmp_path: Path) -> None:
    home, cache = tmp_path / "home", tmp_path / "cache"
    (home / "xpolicy").mkdir(parents=True)
    text = f'[cache]\ndir = "{cache}"\n'
    (home / "xpolicy" / "xpolicy.toml").write_text(text, encoding="utf-8")
    (told,) = run(JAX, tmp_path, XDG_CONFIG_HOME=str(home), HOME=str(home))["told"]
    if sys.platform == "linux":
        assert "xpolicy.toml:2" in told["reason"]
    (tmp_path / "xpolicy.toml").write_text(text, encoding="utf-8")
    with pytest.raises(AssertionError) as caught:
        run(JAX, tmp_path)
    said = str(caught.value)
    assert "cache.dir may not be set in a project's file" in said
    assert "xpolicy.toml:2:1" in said
    assert "XPOLICY_CACHE__DIR" in said


@pytest.mark.usefixtures("jax")
def test_the_users_own_variable_stays_and_that_is_told(tmp_path: Path) -> None:
    theirs, cache = tmp_path / "theirs", tmp_path / "cache"
    found = run(
        JAX,
        tmp_path,
        XPOLICY_CACHE__DIR=str(cache),
        JAX_COMPILATION_CACHE_DIR=str(theirs),
        JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0",
    )
    (told,) = found["told"]
    assert found["folder"] == told["folder"] == str(theirs)
    assert (told["state"], told["reason"]) == ("own", "set by JAX_COMPILATION_CACHE_DIR")
    assert told["notes"] == ["cache.dir is not used (XPOLICY_CACHE__DIR)"]
    assert not cache.exists()
    assert kept(theirs)


@pytest.mark.usefixtures("jax")
def test_what_the_program_has_set_stays(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    before = f'jax.config.update("jax_compilation_cache_dir", {str(theirs)!r})'
    found = run(JAX, tmp_path, before, XPOLICY_CACHE__DIR=str(tmp_path / "cache"))
    (told,) = found["told"]
    assert (told["state"], told["folder"]) == ("own", str(theirs))
    assert told["reason"].startswith("set by the program")


@pytest.mark.usefixtures("jax")
def test_what_took_less_than_min_seconds_is_not_kept(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    run(JAX, tmp_path, XPOLICY_CACHE__DIR=str(cache), XPOLICY_CACHE__MIN_SECONDS="1000")
    assert kept(cache) == []


@pytest.mark.usefixtures("jax")
def test_no_cache_at_all(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    found = run(JAX, tmp_path, XPOLICY_CACHE__DIR=str(cache), XPOLICY_CACHE__ENABLED="false")
    assert not cache.exists()
    assert (found["hits"], found["misses"]) == (0, 0)
    assert [told["state"] for told in found["told"]] == ["off"]


@pytest.mark.usefixtures("jax")
def test_a_folder_that_everybody_may_write_to_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "jax"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    found = run(JAX, tmp_path, XPOLICY_CACHE__DIR=str(folder.parent))
    (told,) = found["told"]
    assert (told["state"], found["folder"]) == ("own", None)
    assert "writable for everybody" in told["warning"]
    assert "cache.dir is not used for jax" in found["stderr"]
    assert "XPOLICY_CACHE__DIR" in found["stderr"]
    assert kept(folder) == []


@pytest.mark.usefixtures("jax")
def test_what_was_used_longest_ago_makes_room(tmp_path: Path) -> None:
    pytest.importorskip("filelock", reason="jax's limit needs filelock: pip install filelock")
    cache = tmp_path / "cache"
    # Stored without a limit first: such entries have no time of use, which a limit needs.
    run(JAX, tmp_path, XPOLICY_CACHE__DIR=str(cache))
    before = "for n in range(6, 16): f(jnp.zeros(n))"
    found = run(
        JAX, tmp_path, before, XPOLICY_CACHE__DIR=str(cache), XPOLICY_CACHE__MAX_SIZE="9 kB"
    )
    (told,) = found["told"]
    assert (told["state"], told["notes"], told["warning"]) == ("on", [], None)
    size = sum(p.stat().st_size for p in cache.rglob("*-cache"))
    assert 0 < size <= 9000 < 2500 * found["misses"]


@pytest.mark.usefixtures("jax")
def test_a_limit_that_jax_can_not_keep_is_told(tmp_path: Path) -> None:
    before = "import importlib.util as u; find = u.find_spec; "
    before += "u.find_spec = lambda name, *a: None if name == 'filelock' else find(name, *a)"
    said = {"XPOLICY_CACHE__DIR": str(tmp_path / "cache"), "XPOLICY_CACHE__MAX_SIZE": "1 MB"}
    found = run(JAX, tmp_path, before, **said)
    (told,) = found["told"]
    assert told["state"] == "on"
    assert "cache.max-size is not used for jax: jax needs the package filelock" in found["stderr"]
    assert "XPOLICY_CACHE__MAX_SIZE" in found["stderr"]


@pytest.mark.usefixtures("jax")
def test_policies_that_are_read_again_take_it_back(tmp_path: Path) -> None:
    before = "f(jnp.zeros(3)); del os.environ['XPOLICY_CACHE__DIR']; xpolicy.reload()"
    cache = tmp_path / "cache"
    found = run(JAX, tmp_path, before, XPOLICY_CACHE__DIR=str(cache))
    assert found["folder"] is None
    assert [told["state"] for told in found["told"]] == ["own"]


# -- torch --------------------------------------------------------------------------------


@pytest.fixture
def torch() -> None:
    pytest.importorskip("torch", reason="these tests run torch's inductor: pip install torch")


@pytest.mark.slow
@pytest.mark.usefixtures("torch")
def test_inductor_finds_what_another_process_compiled(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    said = {"XPOLICY_CACHE__DIR": str(cache), "XPOLICY_CACHE__MAX_SIZE": "1 GB"}
    first = run(TORCH, tmp_path, **said)
    assert (first["hits"], first["misses"]) == (0, 1)
    assert kept(cache / "torch")
    # Precompiled headers too, which torch keeps in its own folder whatever the variable says.
    assert [found for found in tmp_path.glob("torchinductor_*/**/*") if found.is_file()] == []
    second = run(TORCH, tmp_path, **said)
    assert (second["hits"], second["misses"]) == (1, 0)
    (told,) = second["told"]
    assert (told["state"], told["folder"]) == ("on", str(cache / "torch"))
    # What does nothing for torch is told.
    assert told["notes"] == [
        "cache.max-size is for jax only: torch's cache has no limit (XPOLICY_CACHE__MAX_SIZE)"
    ]
    # torch itself writes the folder that it uses to this variable, with or without us.
    assert set(second["changed"]) <= {"TORCHINDUCTOR_CACHE_DIR"} | {
        name for name in second["changed"] if name.startswith("_TORCHINDUCTOR")
    }


@pytest.mark.slow
@pytest.mark.usefixtures("torch")
def test_inductors_own_variable_stays_and_that_is_told(tmp_path: Path) -> None:
    theirs, cache = tmp_path / "theirs", tmp_path / "cache"
    said = {"XPOLICY_CACHE__DIR": str(cache), "TORCHINDUCTOR_CACHE_DIR": str(theirs)}
    found = run(TORCH, tmp_path, PLAIN_HEADERS, **said)
    (told,) = found["told"]
    assert (told["state"], told["folder"]) == ("own", str(theirs))
    assert told["reason"] == "set by TORCHINDUCTOR_CACHE_DIR"
    assert told["notes"] == ["cache.dir is not used (XPOLICY_CACHE__DIR)"]
    assert not cache.exists()
    assert kept(theirs)


@pytest.mark.slow
@pytest.mark.usefixtures("torch")
def test_inductor_keeps_nothing_if_caches_are_off(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    said = {"XPOLICY_CACHE__DIR": str(cache), "XPOLICY_CACHE__ENABLED": "false"}
    found = run(TORCH, tmp_path, PLAIN_HEADERS, **said)
    # Neither is counted: the cache was not asked, so a second process won't find anything.
    assert (found["hits"], found["misses"]) == (0, 0)
    assert [told["state"] for told in found["told"]] == ["off"]
    assert not cache.exists()
