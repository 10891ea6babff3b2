"""A snapshot carries the layers of a process and context to threads and workers."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

import xpolicy

WORKER = """
import pickle, sys
import xpolicy
with open(sys.argv[1], "rb") as file:
    snapshot = pickle.load(file)
with snapshot.activate():
    policy = xpolicy.resolve("snapped.f", "torch")
    print(xpolicy.fingerprint(), policy.fingerprint, policy.mode)
policy = xpolicy.resolve("snapped.f", "torch")
print(policy.mode)
"""


def look() -> tuple[str, str, str]:
    policy = xpolicy.resolve("snapped.f", "torch")
    return xpolicy.fingerprint(), policy.fingerprint, policy.mode


def under(snapshot) -> tuple[str, str, str]:
    with snapshot.activate():
        return look()


@pytest.fixture
def policies(project, monkeypatch):
    project('[functions."snapped.*".torch]\nrecompile-limit = 3\n')
    monkeypatch.setenv("XPOLICY_TORCH__DYNAMIC", "1")
    with xpolicy.override("snapped.f", mode="fullgraph"):
        yield look()


def test_thread_pool(policies):
    snapshot = xpolicy.snapshot()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(under, snapshot).result() == policies
        assert pool.submit(look).result() != policies


def test_another_process(policies, tmp_path):
    file = tmp_path / "snapshot.pickle"
    file.write_bytes(pickle.dumps(xpolicy.snapshot()))
    done = subprocess.run(
        [sys.executable, "-c", WORKER, str(file)],
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if not k.startswith("XPOLICY_")}
        | {"PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=True,
    )
    inside, after = done.stdout.splitlines()
    assert inside.split() == list(policies)
    assert after == "compile"


def test_spawned_pool(policies, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import workers

    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        assert pool.submit(workers.seen, xpolicy.snapshot()).result() == policies
        assert pool.submit(workers.seen).result() != policies


def test_joblib_loky(policies, monkeypatch):
    joblib = pytest.importorskip("joblib", reason="needs joblib: pip install scikit-learn")
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import workers

    snapshot = xpolicy.snapshot()
    # A second task, since with one joblib runs it in this process.
    found = joblib.Parallel(n_jobs=2, backend="loky")(
        joblib.delayed(workers.seen)(snapshot) for _ in range(2)
    )
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor().shutdown(wait=True)
    assert found == [policies, policies]


def test_in_the_same_process_only_overrides_are_set(policies):
    snapshot = xpolicy.snapshot()
    result = []
    thread = threading.Thread(target=lambda: (snapshot.activate(), result.append(look())))
    thread.start()
    thread.join()
    assert result == [policies]


def test_leaving_restores_what_was_there(project):
    file = project('mode = "eager"')
    snapshot = xpolicy.snapshot()
    file.write_text('mode = "fullgraph"')
    xpolicy.reload()
    with snapshot.activate():
        assert look()[2] == "eager"
    assert look()[2] == "fullgraph"


def test_positions_survive(project):
    project('\n\nmode = "eager"')
    snapshot = pickle.loads(pickle.dumps(xpolicy.snapshot()))
    with snapshot.activate():
        assert "xpolicy.toml:3:8" in str(xpolicy.explain("snapped.f", "torch"))


def test_repr_names_the_layers(project):
    file = project('mode = "eager"')
    assert str(file) in repr(xpolicy.snapshot())
