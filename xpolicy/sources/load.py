"""Read every layer that does not belong to one function: files and the environment."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from xpolicy.errors import PolicyFileError, Problem
from xpolicy.policy.conditions import Facts
from xpolicy.policy.document import read_document
from xpolicy.policy.layers import Layer
from xpolicy.sources.discovery import Candidate, discover
from xpolicy.sources.environment import read_environment
from xpolicy.sources.toml import parse, read_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from xpolicy.policy.options import OptionTable


@dataclass(frozen=True)
class Loaded:
    """What loading found: layers low to high, files looked for, and all that is wrong."""

    layers: tuple[Layer, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def errors(self) -> list[Problem]:
        """The problems that stop policies from being used."""
        return [p for p in self.problems if p.severity == "error"]

    @property
    def warnings(self) -> list[Problem]:
        """The problems that stop nothing."""
        return [p for p in self.problems if p.severity != "error"]


@lru_cache(maxsize=512)
def _version_of(distribution: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except (PackageNotFoundError, ValueError):
        return None


def this_machine() -> Facts:
    """Return the facts that conditions are judged by."""
    return Facts(platform.python_version(), _version_of)


@dataclass(frozen=True)
class Surroundings:
    """What loading depends on, gathered in one place so that tests can put theirs there.

    Parameters
    ----------
    environ : mapping of str to str
        The environment.
    cwd : Path or None
        The working directory that the process had when xpolicy was imported.
    home : Path or None
        The home directory.
    user_config_dir : Path
        Where the user's own policy file is.
    """

    environ: Mapping[str, str]
    cwd: Path | None
    home: Path | None
    user_config_dir: Path
    facts: Facts = field(default_factory=this_machine)


def read_file(
    path: Path,
    layer: str,
    table: OptionTable,
    facts: Facts,
    *,
    version: str,
    prefix: tuple[str, ...] = (),
    package: str | None = None,
) -> tuple[Layer, list[Problem]]:
    """Read one policy file as a layer, with everything that is wrong in it."""
    try:
        document = parse(read_bytes(path, layer), str(path), layer)
    except PolicyFileError as error:
        return Layer(layer, str(path)), list(error.problems)
    data: Any = document.data
    for part in prefix:
        data = data.get(part, {}) if isinstance(data, Mapping) else {}
    origin = document.origin.child(*prefix)
    if not isinstance(data, Mapping):
        problem = Problem("[tool.xpolicy] must be a table", origin=origin, layer=layer)
        return Layer(layer, str(path)), [problem]
    return read_document(data, origin, layer, table, facts, version=version, package=package)


def load(
    surroundings: Surroundings,
    table: Callable[[], OptionTable],
    *,
    version: str,
) -> Loaded:
    """Find and read the user's, the project's and the named files, and the environment."""
    found = discover(
        surroundings.environ,
        surroundings.cwd,
        surroundings.home,
        surroundings.user_config_dir,
    )
    layers: list[Layer] = []
    problems: list[Problem] = list(found.problems)
    facts = surroundings.facts
    for candidate in found.candidates:
        if candidate.status != "found":
            continue
        layer, wrong = read_file(
            candidate.path,
            candidate.layer,
            table(),
            facts,
            version=version,
            prefix=candidate.prefix,
        )
        layers.append(layer)
        problems += wrong
    if any(name.startswith("XPOLICY_") for name in surroundings.environ):
        environment, wrong = read_environment(surroundings.environ, table(), facts, version=version)
        layers += environment
        problems += wrong
    return Loaded(tuple(layers), tuple(found.candidates), tuple(problems))
