"""``apply = [...]`` in policy files, and ``xpolicy.install()``."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import xpolicy

LIBRARY = "from lazylib._impl import f\nfrom lazylib.more import g\nclass C:\n    def m(self, x): return x\n"


@pytest.fixture
def run(tmp_path):
    """Run a program in a project of its own; return what it prints as JSON."""
    package = tmp_path / "lazylib"
    package.mkdir()
    (package / "__init__.py").write_text(LIBRARY)
    (package / "_impl.py").write_text("def f(x): return x\n")
    (package / "more.py").write_text("from lazylib._impl import f\ndef g(x): return f(x)\n")
    (package / "extra.py").write_text("from lazylib import f\ndef h(x): return f(x)\n")

    def run(policy, program, *, file="xpolicy.toml", environ=None, ok=True):
        (tmp_path / file).write_text(policy, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-c", f"import json, sys, xpolicy\n{program}"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path), **(environ or {})},
            capture_output=True,
            text=True,
            check=False,
        )
        if not ok:
            assert done.returncode
            return done.stderr
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


TOLD = (
    "print(json.dumps({'keys': i.keys, 'waiting': i.waiting, 'loaded': 'lazylib' in sys.modules}))"
)


def test_nothing_is_named():
    found = xpolicy.install()
    assert (found.keys, found.waiting) == ((), ())


def test_nothing_is_imported(run):
    found = run('apply = ["lazylib"]', f"i = xpolicy.install()\n{TOLD}")
    assert found == {"keys": [], "waiting": ["lazylib"], "loaded": False}


@pytest.mark.parametrize(
    "order", ["import lazylib\ni = xpolicy.install()", "i = xpolicy.install()\nimport lazylib"]
)
@pytest.mark.parametrize("file", ["xpolicy.toml", "pyproject.toml"])
def test_before_and_after_the_import(run, order, file):
    prefix = "[tool.xpolicy]\n" if file == "pyproject.toml" else ""
    found = run(f'{prefix}apply = ["lazylib"]', f"{order}\n{TOLD}", file=file)
    assert found == {"keys": ["lazylib.f", "lazylib.g"], "waiting": [], "loaded": True}


def test_every_path_leads_to_the_function_under_policy(run):
    program = """
i = xpolicy.install()
import lazylib, lazylib.extra, inspect
same = lazylib.f is lazylib._impl.f is lazylib.more.f is lazylib.extra.f
assert inspect.getsource(lazylib._impl)
print(json.dumps([same, hasattr(lazylib.f, '__xpolicy__'), type(lazylib.__loader__).__name__,
                  type(lazylib.__spec__.loader).__name__]))
"""
    assert run('apply = ["lazylib"]', program) == [
        True,
        True,
        "SourceFileLoader",
        "SourceFileLoader",
    ]


@pytest.mark.parametrize(
    ("name", "imported", "keys"),
    [
        ("lazylib._impl.f", "lazylib", ["lazylib._impl.f"]),
        ("lazylib.C", "lazylib", ["lazylib.C.m"]),
        ("lazylib.extra", "lazylib", []),
        ("lazylib.extra", "lazylib.extra", ["lazylib.extra.f", "lazylib.extra.h"]),
        ("lazylib.extra.h", "lazylib.extra", ["lazylib.extra.h"]),
    ],
)
def test_what_can_be_named(run, name, imported, keys):
    found = run(f'apply = ["{name}"]', f"i = xpolicy.install()\nimport {imported}\n{TOLD}")
    assert found["keys"] == keys
    assert found["waiting"] == ([] if keys else [name])


def test_the_lists_of_all_layers_add_up(run):
    found = run(
        'apply = ["lazylib.C"]',
        f"i = xpolicy.install()\nimport lazylib\n{TOLD}",
        environ={"XPOLICY_TOML": 'apply = ["lazylib.f"]'},
    )
    assert found["keys"] == ["lazylib.C.m", "lazylib.f"]


def test_undo_puts_everything_back_and_waits_for_nothing(run):
    program = """
i = xpolicy.install()
before = len(sys.meta_path)
import lazylib
i.undo()
import lazylib.extra
print(json.dumps([hasattr(lazylib.f, '__xpolicy__'), hasattr(lazylib.extra.h, '__xpolicy__'),
                  i.keys, i.waiting, len(sys.meta_path) - before]))
"""
    found = run('apply = ["lazylib", "lazylib.extra"]', program)
    assert found == [False, False, [], [], -1]


def test_nothing_happens_without_install(run):
    program = "import lazylib\nprint(json.dumps(hasattr(lazylib.f, '__xpolicy__')))"
    assert run('apply = ["lazylib"]', program) is False


def test_an_error_names_the_file(run):
    message = run('mode = "eagre"', "xpolicy.install()", ok=False)
    assert "xpolicy.toml:1:1" in message


def test_what_cannot_be_replaced_names_the_place(run):
    message = run(
        'mode = "eager"\napply = ["lazylib", "lazylib.coroutine"]',
        """
import lazylib
async def coroutine(x): ...
lazylib.coroutine = coroutine
xpolicy.install()
""",
        ok=False,
    )
    assert "coroutine" in message
    assert "xpolicy.toml:2" in message


def test_a_name_that_what_is_imported_does_not_have_is_told(run):
    message = run(
        '\napply = ["lazylib.g_not", "lazylib"]', "import lazylib\nxpolicy.install()", ok=False
    )
    assert "PolicyFileError" in message
    assert "lazylib is imported, and has no 'g_not'" in message
    assert "xpolicy.toml:2:" in message


def test_a_submodule_that_is_still_to_be_imported_is_waited_for(run):
    program = "import lazylib\ni = xpolicy.install()\nprint(json.dumps([i.waiting, repr(i)]))"
    waiting, told = run('apply = ["lazylib.extra", "lazylib.f"]', program)
    assert waiting == ["lazylib.extra"]
    assert told == "<xpolicy.install: lazylib.f, waiting for lazylib.extra>"
