"""Policy text: what is read, and how each refusal is told."""

from __future__ import annotations

import datetime as dt
import os
import socket
import sys
import threading
import time
import tomllib
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from xpolicy.errors import PolicyFileError, Problem
from xpolicy.sources.toml import MAX_BYTES, MAX_DEPTH, parse, read_bytes


def refused(data: bytes | str, **kwargs) -> Problem:
    with pytest.raises(PolicyFileError) as caught:
        parse(data, "p.toml", "project", **kwargs)
    (problem,) = caught.value.problems
    assert problem.origin is not None
    assert problem.origin.label == "p.toml"
    assert problem.layer == "project"
    return problem


# --- reading ----------------------------------------------------------------------


def unreadable(path: Path) -> Problem:
    with pytest.raises(PolicyFileError) as caught:
        read_bytes(path, "user")
    (problem,) = caught.value.problems
    assert (problem.layer, str(problem.origin)) == ("user", str(path))
    assert problem.fix
    return problem


def test_a_file_is_read_as_it_is(tmp_path):
    (tmp_path / "p.toml").write_bytes(b"\xef\xbb\xbfa = 1\r\n")
    assert read_bytes(tmp_path / "p.toml", "user") == b"\xef\xbb\xbfa = 1\r\n"


def test_a_missing_file_is_told(tmp_path):
    assert "no such file" in unreadable(tmp_path / "p.toml").message
    (tmp_path / "file").touch()
    assert "no such file" in unreadable(tmp_path / "file" / "p.toml").message


def test_a_tilde_is_told_not_to_be_expanded():
    assert "~" in unreadable(Path("~/no-such.toml")).fix


def test_a_link_to_a_file_that_is_gone_names_it(tmp_path):
    (tmp_path / "p.toml").symlink_to(tmp_path / "gone.toml")
    assert "gone.toml" in unreadable(tmp_path / "p.toml").fix


def test_a_link_to_itself_is_told(tmp_path):
    (tmp_path / "p.toml").symlink_to(tmp_path / "p.toml")
    assert "can't be read" in unreadable(tmp_path / "p.toml").message


def test_a_directory_is_told(tmp_path):
    problem = unreadable(tmp_path)
    assert "a directory" in problem.message
    assert str(tmp_path / "xpolicy.toml") in problem.fix


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a platform with named pipes")
def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path):
    os.mkfifo(tmp_path / "p.toml")
    problems: list[Problem] = []
    thread = threading.Thread(
        target=lambda: problems.append(unreadable(tmp_path / "p.toml")), daemon=True
    )
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert "a pipe" in problems[0].message


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a platform with named pipes")
def test_a_file_that_becomes_a_pipe_meanwhile_is_refused_too(tmp_path, monkeypatch):
    (tmp_path / "regular").touch()
    earlier = (tmp_path / "regular").stat()
    os.mkfifo(tmp_path / "p.toml")
    monkeypatch.setattr(Path, "stat", lambda self, **kwargs: earlier)
    problems: list[Problem] = []
    thread = threading.Thread(
        target=lambda: problems.append(unreadable(tmp_path / "p.toml")), daemon=True
    )
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert "a pipe" in problems[0].message


def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "p.toml"
    path.touch()
    earlier = path.stat()
    path.write_bytes(b"#" * ((1 << 20) + 1))
    monkeypatch.setattr(os, "fstat", lambda number: earlier)
    assert "too large" in unreadable(path).message


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs a platform with /dev/zero")
def test_a_device_is_refused():
    assert "a device" in unreadable(Path("/dev/zero")).message


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="needs a platform with Unix sockets")
def test_a_socket_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a socket's path may have some 100 characters only
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("p.toml")
        assert "socket" in unreadable(Path("p.toml")).message


def test_a_file_that_may_not_be_read_is_told(tmp_path, unprivileged):
    path = unprivileged / "p.toml"
    path.touch(mode=0o000)
    with unprivileged.rights():
        problem = unreadable(path)
    assert "permission denied" in problem.message
    assert f"chmod a+r {path}" in problem.fix


def test_a_path_that_no_system_takes_is_told():
    assert "can't be read" in unreadable(Path("a\0b")).message
    assert "can't be read" in unreadable(Path("a" * 5000)).message


def test_a_file_of_one_mebibyte_is_read_and_a_larger_one_refused(tmp_path):
    path = tmp_path / "p.toml"
    path.write_bytes(b"#" * (1 << 20))
    assert len(read_bytes(path, "user")) == 1 << 20
    path.write_bytes(b"#" * (MAX_BYTES + 1))
    problem = unreadable(path)
    assert problem.value == f"{MAX_BYTES + 1} bytes"
    assert "1 MiB" in problem.allowed


def test_a_huge_file_is_refused_by_its_size(tmp_path):
    path = tmp_path / "p.toml"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # sparse: reading it all would take minutes
    started = time.monotonic()
    assert unreadable(path).value == f"{1 << 40} bytes"
    assert time.monotonic() - started < 5


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's /proc")
def test_a_file_whose_size_is_told_as_zero_is_read():
    assert Path("/proc/self/maps").stat().st_size == 0
    assert read_bytes(Path("/proc/self/maps"), "user")


# --- parsing ----------------------------------------------------------------------


def test_values_are_those_of_the_standard_library():
    text = 'a = 1979-05-27T07:32:00Z\nb = nan\nc = 0xFFFFFFFFFFFFFFFFFF\nd = [{ e = "é" }]\n'
    document = parse(text.encode(), "p.toml", "project")
    assert document.data["a"] == dt.datetime(1979, 5, 27, 7, 32, tzinfo=dt.UTC)
    assert document.data["b"] != document.data["b"]
    assert document.data["c"] == 0xFFFFFFFFFFFFFFFFFF
    assert document.data["d"] == [{"e": "é"}]
    assert (document.origin.kind, document.origin.label) == ("file", "p.toml")
    assert document.origin.key == ()
    assert document.text == document.origin.text == text


def test_a_variable_is_called_one():
    assert parse("a = 1", "XPOLICY_TOML", "environment", kind="variable").origin.kind == "variable"


def test_a_byte_order_mark_is_no_part_of_the_text():
    assert parse(b"\xef\xbb\xbfa = 1", "p", "user").data == {"a": 1}
    assert parse("\ufeffa = 1", "p", "user").text == "a = 1"
    problem = refused(b"\xef\xbb\xbfa = ?")
    assert (problem.origin.line, problem.origin.column) == (1, 5)


def test_crlf_is_a_line_end_and_a_lone_cr_is_not():
    document = parse('a = """x\r\ny"""\r\nb = 1\r\n', "p", "user")
    assert document.data == {"a": "x\ny", "b": 1}
    problem = refused("a = 1\rb = 2")
    assert (problem.origin.line, problem.origin.column) == (1, 6)
    assert "line ends" in problem.fix


@pytest.mark.parametrize(
    ("text", "place", "value", "fix"),
    [
        ("a = 1\nb = yes\n", (2, 5), "b = yes", "true and false"),
        ("b = True", (1, 5), "b = True", "true"),
        ("b = None", (1, 5), "b = None", '"unset"'),
        ("mode = eager # é", (1, 8), "mode = eager # é", '"eager"'),
        ("\n\na =\n", (3, 4), "a =", "a value after the ="),
        ("a =", (1, 4), "a =", "a value after the ="),
        ('a = "é" b', (1, 9), 'a = "é" b', "a line"),
        ('"😀" : 1', (1, 5), '"😀" : 1', "= in place of :"),
        ("[functions.mylib.*.jax]", (1, 18), "[functions.mylib.*.jax]", '"mylib.*"'),
        ("é = 1", (1, 1), "é = 1", "quotes"),
        ("[a\nb = 1", (1, 3), "[a", "]"),
        ("a = 1\na = 2\n", (2, 6), "a = 2", "two places"),
        ("[a]\n[b]\n[a]\n", (3, 3), "[a]", "two places"),
        ('a = "C:\\dir"', (1, 8), 'a = "C:\\dir"', "\\\\"),
        ('a = "x\nb = 1', (1, 7), 'a = "x', "same line"),
        ("a = “x”", (1, 5), "a = “x”", "plain quotes"),
        ("a = 2030-02-30", (1, 5), "a = 2030-02-30", "no such day"),
        ('a = "\x1b[2J"', (1, 6), 'a = "\\x1b[2J"', "escape"),  # shown, not sent to a terminal
        # What is open at the end of the text is told where it was opened.
        ("a = 1\nb = [1,\n2,\n\n\n", (2, 5), "b = [1,", "close it"),
        ("b = {x = [", (1, 10), "b = {x = [", "close it"),
        ('a = """x\ny\n', (1, 5), 'a = """x', "close the string"),
        ("a = 'x", (1, 5), "a = 'x", "close the string"),
        # What goes on after it is told there, with the bracket's place.
        ("a = [\n1\n[b]\n", (3, 1), "[b]", "opened in line 1, column 5"),
    ],
)
def test_a_syntax_error_is_told_with_its_place_line_and_edit(text, place, value, fix):
    problem = refused(text)
    assert fix in problem.fix
    assert problem.value == value
    assert (problem.origin.line, problem.origin.column) == place
    assert "not TOML" in problem.message


def test_a_long_line_is_cut_around_the_place():
    problem = refused("a = [" + "1, " * 1000 + "?, " + "2, " * 1000 + "]")
    assert "?" in problem.value
    assert problem.value.startswith("…")
    assert problem.value.endswith("…")
    assert len(problem.value) < 120


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a = {\n  b = 1\n}\n", "inline table"),
        ("a = { b = 1, }\n", "inline table"),
        ('a = "\\e[0m"\n', "escape"),
        ("a = 07:32\n", "time without seconds"),
    ],
)
def test_toml_1_1_is_called_by_its_name(text, what):
    tomli = pytest.importorskip("tomli", minversion=None)
    try:
        tomli.loads(text)
    except tomli.TOMLDecodeError:
        pytest.skip("this tomli reads TOML 1.0 only; 2.4 and later tell the difference")
    problem = refused(text)
    assert "TOML 1.1" in problem.message
    assert "policy files are TOML 1.0" in problem.message
    assert what in problem.message


@pytest.mark.parametrize(
    ("data", "place", "value", "fix"),
    [
        (b"a = 1\n# \xc3\xa9 \xff\n", (2, 5), "byte 0xff", "UTF-8"),
        (b"\xef\xbb\xbfab\xc3", (1, 3), "byte 0xc3", "UTF-8"),
        ("a = 1".encode("utf-16"), (1, 1), "byte 0xff", "UTF-16"),
        ("é = 1\ná = \udcff", (2, 5), "byte 0xff", "UTF-8"),
    ],
)
def test_bytes_that_are_no_utf8_are_told_with_their_place(data, place, value, fix):
    problem = refused(data)
    assert "not UTF-8" in problem.message
    assert (problem.origin.line, problem.origin.column) == place
    assert problem.value == value
    assert fix in problem.fix


def test_utf16_without_a_mark_is_guessed():
    assert "UTF-16" in refused("a = 1".encode("utf-16-le")).fix


# --- bounds -----------------------------------------------------------------------


def nested(depth: int, spelling: str) -> str:
    return {
        "arrays": "x = " + "[" * depth + "]" * depth,
        "inline tables": "x = " + "{a = " * (depth - 1) + "{}" + "}" * (depth - 1),
        "dotted key": "a." * depth + "b = 1",
        "header": "[" + ".".join("a" * depth) + "]",
        "headers": "".join(f"[{'.'.join('a' * n)}]\n" for n in range(1, depth + 1)),
        "arrays of tables": "".join(f"[[{'.'.join('a' * n)}]]\n" for n in range(1, depth // 2 + 1))
        + ("x = []" if depth % 2 else ""),
        "mixed": f"[{'.'.join('a' * (depth - 7))}]\nb.c = {{ d.e = [ {{ f.g = [] }} ] }}",
    }[spelling]


@pytest.mark.parametrize(
    "spelling",
    ["arrays", "inline tables", "dotted key", "header", "headers", "arrays of tables", "mixed"],
)
def test_thirty_two_levels_are_taken_and_one_more_is_refused(spelling):
    parse(nested(MAX_DEPTH, spelling), "p.toml", "project")
    problem = refused(nested(MAX_DEPTH + 1, spelling))
    assert "nested deeper than 32" in problem.message
    assert problem.origin.line is not None
    assert problem.fix


def test_brackets_in_strings_and_comments_are_not_nesting():
    text = "a = '" + "[{" * 50 + "' # " + "[" * 50 + '\nb = """\n' + "[\n" * 50 + '\\""" ""\n"""\n'
    text += '"' + "." * 50 + '" = ' + "1" + "\n" + "c = [" + "1.5, " * 50 + "]\n"
    text += "".join(f"[t{n}]\n[[u.v{n}]]\n" for n in range(50))
    assert parse(text, "p.toml", "project").data == tomllib.loads(text)


def test_an_error_in_front_of_a_deep_nesting_is_told_first():
    problem = refused("a = ?\n" + nested(50, "arrays"))
    assert (problem.origin.line, problem.origin.column) == (1, 5)
    assert "not TOML" in problem.message


HOSTILE = {
    "open brackets": b"[" * 100_000,
    "open arrays": b"x=" + b"[" * 1_000_000,
    "open inline tables": b"x=" + b"{a=" * 300_000,
    "dotted key": b"a." * 100_000 + b"b=1",  # over 30 GB and minutes, if it gets to tomllib
    "spaced key": b"a . " * 100_000 + b"b=1",
    "header": b"[" + b"a." * 100_000 + b"b]",
    "inline dotted": b"x={" + b"a." * 100_000 + b"b=1}",
    "dotted in inline": (b"x={" + b"a." * 30 + b"b=") * 1000,
    "decimal": b"x=" + b"9" * 1_000_000,
    "hexadecimal": b"x=[0x" + b"f" * 1_000_000 + b"]",
    "quotes": b'"' * 1_000_000,
    "open string": b'x="""' + b'""a' * 300_000,
    "backslashes": b'x="' + b"\\" * 1_000_000,
    "zeros": b"\0" * 1_000_000,
    "lines": b"x=[\n" * 250_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_refused_in_bounded_time(name):
    started = time.process_time()
    problem = refused(HOSTILE[name])
    # Each was measured under 1 s but "backslashes" (1.1 s).
    assert time.process_time() - started < 15
    assert len(str(problem)) < 1000


def test_what_would_end_the_stack_is_found_behind_a_header_too():
    problem = refused(b"[a]\n[[b.c]]\nx=" + b"[" * 100_000)
    assert "nested deeper than 32" in problem.message
    assert problem.origin.line == 3


def test_text_over_one_mebibyte_is_refused():
    assert "too large" in refused("#" * (MAX_BYTES + 1)).message
    assert "too large" in refused(b"#" * (MAX_BYTES + 1)).message


@pytest.mark.parametrize("number", ["9" * 700, "9" * 5000, "0x" + "f" * 600])
def test_an_integer_that_python_might_not_print_is_refused(number):
    problem = refused(f"a = 1\n[b]\nc = {number}\n")
    assert "too many digits" in problem.message
    assert (problem.origin.line, problem.origin.column) == (3, 5)


def test_being_called_near_the_end_of_the_stack_is_told():
    def deeper(n: int) -> object:
        if n == 0:
            return parse("x = [[[[[[[[[[[[1]]]]]]]]]]]]", "p.toml", "project")
        return deeper(n - 1)

    def frames() -> int:
        frame, count = sys._getframe(), 0
        while frame is not None:
            frame, count = frame.f_back, count + 1
        return count

    # What is left is enough to get to the parser, not to the array's inside.
    with pytest.raises(PolicyFileError, match="stack"):
        deeper(sys.getrecursionlimit() - frames() - 20)


@given(st.text(alphabet="ab=.[]{}\"'\\\n\r,# 1-:Tue\x00é😀\ud800", max_size=60) | st.binary())
@example('a."\\ud800"=1')
@example("a=1e999999\nb=-0x1")
@example("a=0000-00-00")
def test_nothing_but_a_policy_error_comes_out(data):
    try:
        document = parse(data, "p.toml", "project")
    except PolicyFileError as error:
        (problem,) = error.problems
        assert problem.origin.line is not None
        assert str(problem)
    else:
        assert document.data == tomllib.loads(document.text) or "nan" in document.text
