"""The demo: one answer everywhere, figures that mean what they say, a display for each terminal."""

from __future__ import annotations

import dataclasses
import io
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.demo import __main__ as demo
from benchmarks.demo import digits, measure, neighbours, report
from benchmarks.demo.progress import Progress

ROOT = Path(demo.__file__).parents[2]
classify = neighbours.classify.__wrapped__


def reference(queries, samples, one_hot, k):
    """The same classifier in whole numbers and plain loops, sorting in place of masking."""
    classes = one_hot.argmax(axis=1).tolist()
    found = []
    for query in queries.astype(int):
        distances = np.abs(samples.astype(int) - query).sum(axis=1).tolist()
        order = sorted(range(len(samples)), key=lambda i: (distances[i], i))[:k]
        votes = [classes[i] for i in order]
        # Most votes first, then whoever has the nearest.
        found.append(min(set(votes), key=lambda c: (-votes.count(c), votes.index(c))))
    return found


def small(data, n=40):
    return data.queries[:n], data.samples[:300], data.one_hot[:300]


@pytest.fixture(scope="module")
def data():
    return digits.load()


@pytest.mark.parametrize("k", [1, 2, 3, 4, 7])
def test_classifies_as_a_plain_loop_does(data, k):
    queries, samples, one_hot = small(data)
    expected = reference(queries, samples, one_hot, k)
    assert classify(queries, samples, one_hot, k=k).tolist() == expected


def test_equal_distances_go_to_the_earlier_sample_and_equal_votes_to_the_nearer():
    samples = np.array([[5], [3], [3], [9]], dtype=np.float32)
    one_hot = np.eye(4, dtype=np.float32)
    queries = np.array([[4], [3], [7]], dtype=np.float32)
    # 4 is as far from 5 as from 3: the earlier wins. 7 is as far from 5 as from 9.
    assert classify(queries, samples, one_hot, k=1).tolist() == [0, 1, 0]
    assert classify(queries, samples, one_hot, k=4).tolist() == [0, 1, 0]


def test_a_second_vote_beats_the_nearest():
    samples = np.array([[1], [2], [3]], dtype=np.float32)
    one_hot = np.array([[1, 0], [0, 1], [0, 1]], dtype=np.float32)
    assert classify(np.zeros((1, 1), np.float32), samples, one_hot, k=3).tolist() == [1]


def test_every_number_is_whole_and_exact_in_float32(data):
    for array in data[:3]:
        assert array.dtype == np.float32
        assert (array == np.round(array)).all()
    largest_distance = data.samples.shape[1] * max(data.queries.max(), data.samples.max())
    n_samples = len(data.samples)
    assert largest_distance * n_samples + n_samples - 1 < 2**24


@pytest.mark.parametrize("namespace", ["jax", "torch"])
def test_arrays_of_every_library_get_the_same_classes(data, namespace):
    arrays = digits.to_namespace(data, namespace)
    expected = classify(*small(data), k=3)
    assert np.asarray(classify(*small(arrays), k=3)).tolist() == expected.tolist()
    assert str(arrays.queries.dtype).endswith("float32")


def test_the_classifier_uses_nothing_beyond_the_standard_and_its_precision_does_not_matter(data):
    import array_api_strict

    expected = classify(*small(data), k=3)
    strict = [array_api_strict.asarray(array) for array in small(data)]
    double = [array.astype(np.float64) for array in small(data)]
    assert np.asarray(classify(*strict, k=3)).tolist() == expected.tolist()
    assert classify(*double, k=3).tolist() == expected.tolist()


def row(**changes):
    figures = {
        "namespace": "torch",
        "mode": "fullgraph",
        "compiler": "torch.compile",
        "compilations": 1,
        "reported": 1,
        "accuracy": 0.9394,
        "predictions": "a",
        "eager": 0.110,
        "decorated": 0.010,
        "first_call": 12.010,
        "memory_before": 300_000_000,
        "memory_after": 420_000_000,
        "calls": 9,
    }
    return measure.Measurement(**{**figures, **changes})


def test_break_even_is_compile_time_over_time_saved_a_call():
    assert row().compile_time == pytest.approx(12.0)
    assert row().break_even == pytest.approx(120.0)
    assert "120 calls" in report.table([row()])


def test_break_even_is_never_if_compiling_saves_nothing():
    assert row(eager=0.010).break_even == float("inf")
    assert report.table([row(eager=0.009)]).endswith("never")


def test_without_a_compiler_there_is_no_break_even():
    bare = row(compiler=None)
    assert bare.compile_time is None
    assert bare.break_even is None
    assert report.table([bare]).splitlines()[-1].split()[2] == "none"
    assert report.table([bare]).endswith("-")


def test_a_table_gives_each_figure_with_its_unit():
    line = report.table([row()]).splitlines()[-1]
    for text in ("0.9394", "110.0 ms", "10.0 ms", "12.01 s", "420 MB (+120)"):
        assert text in line


def test_memory_that_the_platform_does_not_tell_is_said_so():
    assert "not measured" in report.table([row(memory_before=None, memory_after=None)])


def test_timed_calls_take_turns():
    calls = []
    first, second, count = measure.interleaved_medians(
        lambda: (calls.append("a"), time.sleep(0.002)), lambda: calls.append("b"), at_most=5
    )
    assert calls == ["a", "b"] * 5
    assert count == 5
    assert first > 0.002 > second


def test_peak_memory_sees_what_a_library_allocates_by_itself():
    pytest.importorskip("resource", reason="a platform with the resource module")
    code = (
        "import torch\n"
        "from benchmarks.demo.measure import peak_memory\n"
        "before = peak_memory()\n"
        "torch.ones(50_000_000)\n"
        "print(peak_memory() - before)\n"
    )
    # A worker's peak is its own, however large the process that started it.
    ballast = np.ones(80_000_000)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    del ballast
    # 200 million bytes, of which the import may have left some room.
    assert 150_000_000 < int(done.stdout) < 300_000_000


def test_other_predictions_fail_the_demo_even_with_the_same_accuracy():
    eager = row(mode="eager", compiler=None, compilations=0, reported=0)
    assert demo.failures([row(), row(namespace="jax")], [eager]) == []
    (line,) = demo.failures([row(), row(namespace="jax", predictions="b")], [eager])
    assert "jax" in line
    assert "torch" in line


def test_a_compiler_that_ran_in_spite_of_mode_eager_fails_the_demo():
    (line,) = demo.failures([row()], [row(mode="eager")])
    assert "torch.compile" in line
    assert "XPOLICY_MODE=eager" in line


def test_a_compilation_that_xpolicy_does_not_tell_of_fails_the_demo():
    (line,) = demo.failures([row(reported=0)], [])
    assert "1 graphs" in line
    assert "xpolicy.stats tells of 0" in line


COUNTING = """
import sys
from benchmarks.demo import counting, digits
from benchmarks.demo.neighbours import classify
import {library}
function = classify.__wrapped__
arrays = [a[:50] for a in digits.to_namespace(digits.load(), "{namespace}")[:3]]
count = counting.watch(function, "{namespace}")
function(*arrays, k=1)
print(count())
compiled = {compiled}
compiled(*arrays, k=1)
print(count())
compiled(*arrays, k=1)
print(count())
compiled(*arrays, k=2)
print(count())
"""


@pytest.mark.parametrize(
    ("namespace", "library", "compiled"),
    [
        ("jax", "jax", 'jax.jit(function, static_argnames="k")'),
        ("torch", "torch", 'torch.compile(function, backend="eager", dynamic=False)'),
    ],
)
def test_compilations_are_counted_by_the_compilers_themselves(namespace, library, compiled):
    code = COUNTING.format(namespace=namespace, library=library, compiled=compiled)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["0", "1", "1", "2"]


def test_workers_get_no_policy_but_the_demos(tmp_path):
    outside = {
        "PATH": "/bin",
        "XPOLICY_DISABLE": "1",
        "XPOLICY_TORCH__FULLGRAPH": "0",
        "JAX_COMPILATION_CACHE_DIR": "/somewhere",
    }
    inside = demo.worker_environment(outside, Path("p.toml"), tmp_path, XPOLICY_MODE="eager")
    assert inside == {
        "PATH": "/bin",
        "XPOLICY_FILE": "p.toml",
        "XPOLICY_PROJECT": "none",
        "XPOLICY_MODE": "eager",
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path),
        "JAX_PLATFORMS": "cpu",
    }


def executable(path):
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.mark.skipif(os.name == "nt", reason="makes a POSIX executable; needs a .exe on Windows")
def test_says_what_inductor_would_miss(tmp_path):
    empty, tools, headers = (tmp_path / name for name in ("empty", "tools", "include"))
    for folder in (empty, tools, headers):
        folder.mkdir()
    bare, usable = {"PATH": str(empty)}, {"PATH": str(tools)}
    executable(tools / "g++")

    assert "C++ compiler" in demo.missing_for_inductor(bare, str(headers))
    assert "Python.h" in demo.missing_for_inductor(usable, str(headers))
    (headers / "Python.h").touch()
    assert demo.missing_for_inductor(usable, str(headers)) is None
    named = {"PATH": str(empty), "CXX": str(executable(empty / "my-c++"))}
    assert demo.missing_for_inductor(named, str(headers)) is None


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_a_line_a_step_where_there_is_no_terminal():
    stream = io.StringIO()
    with Progress(2, stream) as progress:
        progress.step("one")
        progress.step("two")
    lines = stream.getvalue().splitlines()
    assert [line.rpartition("] ")[2] for line in lines[:2]] == ["one", "two"]
    assert lines[0].startswith("[ 1/2 ")
    assert lines[2].startswith("2 steps in ")
    assert "\r" not in stream.getvalue()


def test_progress_rewrites_one_line_on_a_terminal():
    stream = Terminal()
    with Progress(1, stream) as progress:
        progress.step("compiling")
        deadline = time.monotonic() + 10
        while "compiling" not in stream.getvalue() and time.monotonic() < deadline:
            time.sleep(0.02)
    text = stream.getvalue()
    assert "\r\x1b[K[ 1/1 " in text
    assert "compiling" in text
    assert text.count("\n") == 1  # the closing line


def test_a_worker_that_fails_shows_its_own_words(data, tmp_path):
    file = tmp_path / "digits.npz"
    digits.save(data, file)
    environment = demo.worker_environment(os.environ, tmp_path / "missing.toml", tmp_path)
    with (
        Progress(3, io.StringIO()) as progress,
        pytest.raises(demo.WorkerError, match=r"missing\.toml"),
    ):
        demo.run_worker("numpy", file, environment, progress, "policy file")


@pytest.fixture(scope="module")
def demo_run(tmp_path_factory):
    """One run of the demo; inductor stays out of it, `make demo` is for that."""
    policy = tmp_path_factory.mktemp("policy") / "policy.toml"
    policy.write_text('[torch]\nbackend = "eager"\n')
    command = [sys.executable, "-m", "benchmarks.demo", "--policy", str(policy)]
    return subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "XPOLICY_DISABLE": "1"},
    )


@pytest.fixture(scope="module")
def accuracy(data):
    expected = reference(data.queries, data.samples, data.one_hot, 3)
    return f"{(expected == data.truth).mean():.4f}"


def cells(output, heading):
    """The rows of the table below a heading, by namespace."""
    below = output.partition(heading)[2].splitlines()
    start = next(i for i, line in enumerate(below) if line.startswith("---"))
    lines = below[start + 1 : start + 4]
    return {line.split()[0]: line.split() for line in lines}


@pytest.mark.slow
def test_the_demo_compiles_and_agrees(demo_run, accuracy):
    assert demo_run.returncode == 0, demo_run.stderr
    rows = cells(demo_run.stdout, "policy.toml\n")
    assert {name: found[1:3] for name, found in rows.items()} == {
        "numpy": ["compile", "none"],
        "jax": ["compile", "jax.jit"],
        "torch": ["compile", "torch.compile"],
    }
    assert {found[3] for found in rows.values()} == {accuracy}


@pytest.mark.slow
def test_the_demo_under_mode_eager_compiles_nothing_and_explains_why(demo_run, accuracy):
    rows = cells(demo_run.stdout, "XPOLICY_MODE=eager\n")
    assert {found[2] for found in rows.values()} == {"none"}
    assert {found[3] for found in rows.values()} == {accuracy}
    explained = demo_run.stdout.rpartition("xpolicy.explain(")[2]
    mode_line = next(line for line in explained.splitlines() if line.strip().startswith("mode"))
    assert "eager" in mode_line
    assert "XPOLICY_MODE" in mode_line


@pytest.mark.slow
def test_the_demo_says_that_it_does_not_use_your_variables(demo_run):
    assert "not used here: XPOLICY_DISABLE" in demo_run.stderr


def test_measurements_survive_the_way_from_the_worker():
    assert measure.Measurement(**dataclasses.asdict(row())) == row()
