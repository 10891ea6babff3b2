"""Conditions of ``[[when]]`` blocks: each answers yes or no, with the reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from xpolicy.policy.options import DEVICES, nearest
from xpolicy.policy.writing import LONGEST


@dataclass(frozen=True)
class Facts:
    """What conditions are judged by, gathered by whoever loads policies.

    Parameters
    ----------
    python : str
        The interpreter's version.
    version_of : callable
        ``distribution name -> version or None`` (None: not installed).
    """

    python: str
    version_of: Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition: a kind, what it wants, and for ``versions`` of which distribution."""

    kind: Literal["device", "python", "versions"]
    wanted: str
    distribution: str = ""

    def __str__(self) -> str:
        name = f"versions.{self.distribution}" if self.distribution else self.kind
        return f'{name} = "{self.wanted}"'

    def holds(self, facts: Facts) -> tuple[bool, str]:
        """Return whether the condition holds, and why.

        A device is not known when policies are loaded: it is said to hold here, and
        rules are chosen by device when a function is resolved.
        """
        if self.kind == "device":
            return True, f'chosen for calls on "{self.wanted}"'
        name = self.distribution or "python"
        found = facts.version_of(self.distribution) if self.distribution else facts.python
        if found is None:
            return False, f"{name} is not installed"
        try:
            version = Version(found)
        except InvalidVersion:
            return False, f"{name} has version {found!r}, which is no PEP 440 version"
        # A nightly build of 2.14 is meant by ">=2.13" too.
        if SpecifierSet(self.wanted).contains(version, prereleases=True):
            return True, f"{name} is {found}"
        return False, f"{name} is {found}, not {self.wanted}"


@dataclass(frozen=True, slots=True)
class BadCondition:
    """A condition that can't be read: where below the block, why, and what may stand there."""

    path: tuple[str, ...]
    message: str
    value: Any
    allowed: str
    nearest: str | None = None
    fix: str | None = None


#: What people call devices that have another name here.
OTHER_NAMES = {
    "gpu": ("cuda", "rocm"),
    "nvidia": ("cuda",),
    "amd": ("rocm",),
    "hip": ("rocm",),
    "intel": ("xpu",),
    "metal": ("mps",),
    "apple": ("mps",),
    "host": ("cpu",),
}
VERSIONS = 'a table of distribution names, such as { torch = ">=2.13" }'
SPECIFIER = 'a PEP 440 version specifier, such as ">=2.13,<3"'
#: The kinds of conditions, each with its text for the schema and the reference page, what it
#: takes, and an example.
KINDS = {
    "device": (
        "The kind of device that the arrays are on.",
        ", ".join(f'"{name}"' for name in DEVICES),
        '"cuda"',
    ),
    "python": ("The versions of Python, as a PEP 440 specifier.", SPECIFIER, '">=3.12"'),
    "versions": (
        "Versions of installed distributions, as PEP 440 specifiers; a missing one doesn't hold.",
        VERSIONS,
        '{ torch = ">=2.13" }',
    ),
}
#: The same of the key ``requires``.
REQUIRES = (
    "The versions of xpolicy that the file is for, as a PEP 440 specifier: checked first of all.",
    SPECIFIER,
    '">=0.1"',
)
# The core metadata specification's own pattern for names.
_DISTRIBUTION = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_BARE_VERSION = re.compile(r"v?[0-9]+(?:\.[0-9]+)*")
_MAX_SPECIFIER = 1000  # characters


def wrong_specifier(value: Any) -> tuple[str, str | None] | None:
    """Return what is wrong with a version specifier, and what mends it; None if it is one."""
    if not isinstance(value, str):
        return "a version condition must be a string", 'write it in quotes, such as ">=2.13"'
    if len(value) > _MAX_SPECIFIER:
        return f"a version specifier of over {_MAX_SPECIFIER} characters", None
    try:
        specifiers = SpecifierSet(value)
        # A number of thousands of digits passes for a version and can't be compared.
        specifiers.contains("0")
    except ValueError:  # InvalidSpecifier is one
        bare = _BARE_VERSION.fullmatch(value.strip())
        number = value.strip().removeprefix("v")
        fix = f'write ">={number}" for that or later, "=={number}.*" for exactly that'
        return "not a version specifier", fix if bare else None
    if len(specifiers) == 0:
        return "an empty version condition matches everything", "name a version, or remove it"
    return None


def _specifier(path: tuple[str, ...], value: Any) -> BadCondition | None:
    wrong = wrong_specifier(value)
    if wrong is None:
        return None
    message, fix = wrong
    return BadCondition(path, message, value, SPECIFIER, fix=fix)


def _split(requirement: str) -> str | None:
    """Say how ``torch>=2``, as requirements are written, is written here."""
    found = re.fullmatch(r"([\w.-]*\w)\s*([<>=!~].*)", requirement[:LONGEST].strip())
    return f'write versions.{found[1]} = "{found[2]}"' if found else None


def _device(value: Any) -> BadCondition | None:
    if isinstance(value, str) and value in DEVICES:
        return None
    allowed = ", ".join(f'"{name}"' for name in DEVICES)
    if not isinstance(value, str):
        fix = "write one block for each device" if isinstance(value, list) else None
        return BadCondition(("device",), "a device must be one name", value, allowed, fix=fix)
    # "gpu" is nearer to "xpu" by its letters than to what is meant.
    meant = OTHER_NAMES.get(value.lower()) or tuple(filter(None, [nearest(value, DEVICES)]))
    fix = "write " + " or ".join(f'device = "{name}"' for name in meant) if meant else None
    return BadCondition(
        ("device",), "not a device", value, allowed, " or ".join(meant) or None, fix
    )


def read_conditions(block: Mapping[str, Any]) -> tuple[list[Condition], list[BadCondition]]:
    """Read the condition keys of a ``when`` block; other keys are not looked at."""
    found: list[Condition] = []
    bad: list[BadCondition] = []
    if "device" in block:
        problem = _device(block["device"])
        if problem:
            bad.append(problem)
        else:
            found.append(Condition("device", block["device"]))
    if "python" in block:
        problem = _specifier(("python",), block["python"])
        if problem:
            bad.append(problem)
        else:
            found.append(Condition("python", block["python"]))
    versions = block.get("versions", {})
    if not isinstance(versions, Mapping):
        bad.append(BadCondition(("versions",), "not a table", versions, VERSIONS))
        return found, bad
    for name, wanted in versions.items():
        if not _DISTRIBUTION.fullmatch(name):
            message = "not the name of a distribution"
            bad.append(BadCondition(("versions", name), message, name, VERSIONS, fix=_split(name)))
            continue
        problem = _specifier(("versions", name), wanted)
        if problem:
            bad.append(problem)
        else:
            found.append(Condition("versions", wanted, name))
    return found, bad
