"""Compiled calls in files, loaded in a process that has never seen the function called."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

import xpolicy
from xpolicy.aot.archive import MAGIC, CompiledFileError, code_hash

if TYPE_CHECKING:
    from pathlib import Path

jax = pytest.importorskip("jax", reason="these tests run jax: pip install jax")
torch = pytest.importorskip("torch", reason="these tests run torch: pip install torch")
import jax.numpy as jnp  # noqa: E402  # only where the library is there

MODULE = """
import xpolicy

@xpolicy.compile(name="shipped.wave", static_argnames=("n",))
def wave(params, x, n=2):
    return {"out": params["w"] * x * n}
"""


def run(folder: Path, code: str, **variables: str) -> str:
    """Run code in a fresh process that can import ``shipped``."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shipped.py").write_text(MODULE)
    return tmp_path


SAVE = """
    import {imports}, shipped
    x = {array}
    shipped.wave.lower({{"w": x}}, x + 0, n=3).compile().save("wave.compiled")
"""
LOAD = """
    import {imports}, xpolicy, sys
    {prepare}
    x = {array}
    loaded = xpolicy.load("wave.compiled")
    assert "shipped" in sys.modules
    print(loaded({{"w": x}}, x + 1, n=3)["out"].tolist(), loaded({{"w": x}}, x + 0)["out"].tolist())
    for wrong in (lambda: loaded({{"w": x}}, x, 4), lambda: loaded({{"w": x}}, x[:2])):
        try:
            wrong()
        except xpolicy.StructureMismatchError as error:
            print(error.path, "|", error.expected, "|", error.got)
    {more}
    print({compilations}, loaded.policy.namespace)
"""
COUNT_JAX = """compiled = []
    jax.monitoring.register_event_duration_secs_listener(lambda event, *a, **told: compiled.append(told)
        if event == "/jax/core/compile/backend_compile_duration" else None)"""
COUNT_TORCH = "from torch._dynamo.utils import counters"
LIBRARIES = {
    "jax": {
        "imports": "jax, jax.numpy as jnp",
        "array": "jnp.ones(4)",
        "prepare": COUNT_JAX,
        "more": "",
        "compilations": "[told for told in compiled if 'wave' in str(told)]",
    },
    "torch": {
        "imports": "torch",
        "array": "torch.ones(4)",
        "prepare": COUNT_TORCH,
        "more": """try:
        loaded({"w": x}, x)
    except xpolicy.StructureMismatchError as error:
        assert "Duplicate tensor" in str(error)
    else:
        raise AssertionError""",
        "compilations": "[] if not counters['stats'] else counters",
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_save_and_load_in_a_fresh_process(folder: Path, library: str) -> None:
    told = LIBRARIES[library]
    run(folder, SAVE.format(**told))
    lines = run(folder, LOAD.format(**told)).splitlines()
    assert lines == [
        "[6.0, 6.0, 6.0, 6.0] [3.0, 3.0, 3.0, 3.0]",
        "args[2] | static 3 | static 4",
        "args[1] | float32[4] | float32[2]",
        f"[] {library}",
    ]
    assert (folder / "wave.compiled").stat().st_mode & 0o022 == 0


def twice(x: Any) -> Any:
    return 2 * x


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Any]:
    function = xpolicy.compile(name="mylib.twice")(twice)
    path = tmp_path / "twice.compiled"
    function.lower(jnp.ones(3)).compile().save(path)
    return path, function


def header(path: Path) -> tuple[dict[str, Any], bytes]:
    data = path.read_bytes()
    assert data.startswith(MAGIC)
    line, _, payload = data[len(MAGIC) :].partition(b"\n")
    return json.loads(line), payload


def rewrite(path: Path, **changes: Any) -> None:
    found, payload = header(path)
    path.write_bytes(MAGIC + json.dumps({**found, **changes}).encode() + b"\n" + payload)


def test_the_header_says_what_it_is_for(saved: tuple[Path, Any]) -> None:
    path, function = saved
    found, _ = header(path)
    assert found["function"] == "mylib.twice"
    assert found["policy"] == xpolicy.resolve(function, "jax").fingerprint
    assert found["xpolicy"] == xpolicy.__version__
    assert found["backend"] == jax.__version__
    assert found["code"] == code_hash(twice)
    assert found["signature"] == ["args[0]: float32[3]"]
    assert found["device"] == "cpu"
    assert xpolicy.load(path)(jnp.ones(3)).tolist() == [2.0] * 3


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ("policy", "policy fingerprint"),
        ("xpolicy", "version of xpolicy"),
        ("backend", "version of the compiler"),
        ("python", "Python"),
        ("hardware", "hardware"),
        ("code", "the function's bytecode"),
    ],
)
def test_each_difference_is_an_error(saved: tuple[Path, Any], field: str, told: str) -> None:
    path, _ = saved
    rewrite(path, **{field: "another"})
    with pytest.raises(CompiledFileError, match=f"{told}: another in the file"):
        xpolicy.load(path)


def test_all_differences_are_told_at_once(saved: tuple[Path, Any]) -> None:
    path, _ = saved
    rewrite(path, policy="a", python="b")
    with pytest.raises(CompiledFileError, match=r"(?s)policy fingerprint.*Python: b"):
        xpolicy.load(path)


def test_another_policy_is_an_error(saved: tuple[Path, Any]) -> None:
    path, _ = saved
    with (
        xpolicy.override(jax={"keep_unused": True}),
        pytest.raises(CompiledFileError, match="policy fingerprint"),
    ):
        xpolicy.load(path)


def test_another_body_is_an_error_and_another_line_is_not(saved: tuple[Path, Any]) -> None:
    path, _ = saved
    scope: dict[str, Any] = {}
    exec(compile("\n\n\n\ndef twice(x):\n    return 2 * x\n", "moved.py", "exec"), scope)
    moved = xpolicy.compile(name="mylib.twice")(scope["twice"])
    assert xpolicy.load(path, moved)(jnp.ones(3)).tolist() == [2.0] * 3
    changed = xpolicy.compile(name="mylib.twice")(lambda x: 3 * x)
    with pytest.raises(CompiledFileError, match="the function's bytecode"):
        xpolicy.load(path, changed)
    other = xpolicy.compile(name="mylib.other")(twice)
    with pytest.raises(CompiledFileError, match=r"function key: mylib\.twice in the file"):
        xpolicy.load(path, other)


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX's")
def test_what_everybody_may_write_is_refused_before_anything_is_read(
    saved: tuple[Path, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path, _ = saved
    path.chmod(0o646)
    with pytest.raises(CompiledFileError, match=r"writable for everybody(?s:.*)chmod o-w"):
        xpolicy.load(path)
    path.chmod(0o644)
    path.parent.chmod(0o777)
    with pytest.raises(CompiledFileError, match=r"may be replaced by others(?s:.*)chmod o-w"):
        xpolicy.load(path)
    inner = path.parent / "inner"
    inner.mkdir()
    shutil.copy(path, inner / "copy")
    with pytest.raises(CompiledFileError, match="may be replaced by others"):
        xpolicy.load(inner / "copy")
    link = path.parent / "leads-away"
    link.symlink_to(shutil.copy(path, tmp_path_factory.mktemp("own")))
    with pytest.raises(CompiledFileError, match="may be replaced by others"):
        xpolicy.load(link)
    path.parent.chmod(0o1777)  # as /tmp: only the owner may replace it
    assert xpolicy.load(path)(jnp.ones(3)).tolist() == [2.0] * 3
    link = path.parent / "link"
    link.symlink_to(path)
    path.chmod(0o666)
    with pytest.raises(CompiledFileError, match="writable for everybody"):
        xpolicy.load(link)


def resigned(data: bytes, payload: bytes) -> bytes:
    """Put something else into a file, with the hash that belongs to it."""
    header = json.loads(data[len(MAGIC) :].split(b"\n", 1)[0])
    header["sha256"] = hashlib.sha256(payload).hexdigest()
    return MAGIC + json.dumps(header).encode() + b"\n" + payload


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda data: b"", "no file of a compiled call"),
        (lambda data: b"\x80\x04K\x01.", "no file of a compiled call"),
        (lambda data: data.replace(b"compiled 1", b"compiled 9"), "another format"),
        (lambda data: data[:-1], "not what its header says"),
        (lambda data: data + b"x", "not what its header says"),
        (lambda data: MAGIC + b"{}\n", "header can't be read"),
        (lambda data: MAGIC + b"[1]\nx", "header can't be read"),
        (lambda data: MAGIC + b"\xff", "header can't be read"),
        (lambda data: MAGIC + b"[" * 100_000, "header can't be read"),
        (lambda data: data.replace(b'"module":', b'"moodle":'), "header can't be read"),
        (lambda data: resigned(data, b"no pickle"), "is damaged: UnpicklingError"),
    ],
)
def test_damaged_files(saved: tuple[Path, Any], damage: Any, told: str) -> None:
    path, _ = saved
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CompiledFileError, match=re.escape(told)):
        xpolicy.load(path)


def test_a_function_that_is_not_here(saved: tuple[Path, Any]) -> None:
    path, _ = saved
    rewrite(path, function="nowhere.f", module="nowhere_at_all")
    with pytest.raises(CompiledFileError, match="can't be imported"):
        xpolicy.load(path)
    rewrite(path, function="nowhere.f", module="__main__")
    with pytest.raises(CompiledFileError, match="no function with that key"):
        xpolicy.load(path)
    with pytest.raises(CompiledFileError, match="not decorated"):
        xpolicy.load(path, twice)


def test_what_can_not_be_saved(tmp_path: Path) -> None:
    f = xpolicy.compile(name="mylib.f", torch={"backend": "aot_eager"})(twice)
    for given, told in [
        (torch.ones(3), "backend 'aot_eager'"),
        (__import__("numpy").ones(3), "nothing is compiled"),
    ]:
        with pytest.raises(xpolicy.XPolicyError, match=told):
            f.lower(given).compile().save(tmp_path / "f")
    g = xpolicy.compile(name="mylib.g", static_argnames=("h",))(lambda x, h: h(x))
    with pytest.raises(xpolicy.XPolicyError, match="can't be saved"):
        g.lower(jnp.ones(3), lambda x: x).compile().save(tmp_path / "g")
    assert list(tmp_path.iterdir()) == []
