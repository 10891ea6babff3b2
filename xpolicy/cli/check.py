"""``xpolicy check``: everything that is wrong with policies, all at once."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from xpolicy._origin import Origin
from xpolicy.backends.registry import option_table
from xpolicy.cli.code import code_problems
from xpolicy.cli.compilers import compiler_problems
from xpolicy.cli.imports import importable_from_here
from xpolicy.cli.output import problems_to, write, write_json
from xpolicy.errors import Problem, XPolicyWarning
from xpolicy.runtime.questions import check as everything
from xpolicy.runtime.questions import check_file
from xpolicy.runtime.session import place, session
from xpolicy.sources.trust import world_writable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xpolicy.policy.layers import Layer


@dataclass
class _Checked:
    """What was read, and what is wrong with it."""

    paths: list[Path] = field(default_factory=list)
    #: Layers that work together: those of a process, or of one file alone.
    groups: list[list[Layer]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def check(
    *files: Path,
    json: Annotated[bool, Parameter(negative="")] = False,
    strict: Annotated[bool, Parameter(negative="")] = False,
    compilers: Annotated[bool, Parameter(name="--compilers", negative="--no-compilers")] = True,
) -> int:
    """Check policy files, or everything that a process started here would read.

    The exit status is 0 if nothing is wrong, 1 if there is an error, and 2 if the command
    itself was wrong.

    Parameters
    ----------
    files
        Policy files. A pyproject.toml is read for its [tool.xpolicy] table.
    json
        Print JSON (docs/reference/explain-json.md).
    strict
        Fail for warnings, too. Packages that rules name are imported: rules that reach no
        decorated function are told, and argument names that no function has.
    compilers
        Ask the installed torch and jax about the options that are set for them. Takes
        seconds where there are such options, and nothing where there are none.
    """
    option_table(plugins=True)
    with warnings.catch_warnings():
        # They are among the problems.
        warnings.simplefilter("ignore", XPolicyWarning)
        checked = _files(files) if files else _process()
        broken = any(problem.severity == "error" for problem in checked.problems)
        if not broken and compilers:
            for group in checked.groups:
                checked.problems += compiler_problems(group)
        if not broken and strict:
            with importable_from_here():
                for group in checked.groups:
                    checked.problems += code_problems(group)
    problems = _unique(place(problem) for problem in checked.problems)
    _tell(checked.paths, problems, json=json)
    return 1 if any(strict or problem.severity == "error" for problem in problems) else 0


def _files(files: Iterable[Path]) -> _Checked:
    checked = _Checked()
    for path in files:
        layer, problems = check_file(path)
        checked.paths.append(path)
        checked.groups.append([layer])
        checked.problems += [*problems, *_open_to_all(path)]
    return checked


def _process() -> _Checked:
    checked = _Checked(problems=list(everything()))
    loaded = session.loaded()
    checked.groups.append(list(loaded.layers))
    for candidate in loaded.candidates:
        if candidate.status == "found":
            checked.paths.append(candidate.path)
            checked.problems += _open_to_all(candidate.path)
    if not session.disabled:
        with importable_from_here():
            _libraries(checked)
    return checked


def _libraries(checked: _Checked) -> None:
    """Read the files of packages that rules name: a call of theirs would, too."""
    patterns = {pattern for layer in checked.groups[0] for pattern in layer.patterns()}
    packages = {pattern.partition(".")[0] for pattern in patterns} - {"*"}
    for package in sorted(packages):
        layer, file, problems = session.library(package)
        if file is not None and file.found:
            checked.paths.append(Path(file.path))
            checked.groups[0].insert(0, layer)
        checked.problems += problems


def _open_to_all(path: Path) -> list[Problem]:
    if not world_writable(path):
        return []
    return [
        Problem(
            "everybody on this machine may change this file, and so what is compiled how",
            origin=Origin("file", str(path)),
            fix=f"chmod o-w {path}",
            severity="warning",
        )
    ]


def _unique(problems: Iterable[Problem]) -> list[Problem]:
    """Tell each problem once: a library's file may be named and found."""
    return list({str(problem): problem for problem in problems}.values())


def _tell(paths: list[Path], problems: list[Problem], *, json: bool) -> None:
    errors = sum(problem.severity == "error" for problem in problems)
    warned = len(problems) - errors
    if json:
        write_json(
            {
                "files": [str(path) for path in paths],
                "errors": errors,
                "warnings": warned,
                "problems": [problem.as_dict() for problem in problems],
            }
        )
        return
    problems_to(sys.stdout, problems)
    found = "no problems"
    if problems:
        found = f"{_count(errors, 'error')}, {_count(warned, 'warning')}"
    write(f"{_count(len(paths), 'file')} checked: {found}")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
