"""Conditions of ``[[when]]`` blocks: each answers yes or no, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from xpolicy.policy.options import DEVICES, nearest


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


def _specifier(path: tuple[str, ...], value: Any) -> BadCondition | None:
    allowed = 'a PEP 440 version specifier, such as ">=2.13,<3"'
    if not isinstance(value, str):
        return BadCondition(path, "a version condition must be a string", value, allowed)
    if not value.strip():
        return BadCondition(path, "an empty version condition matches everything", value, allowed)
    try:
        SpecifierSet(value)
    except InvalidSpecifier:
        return BadCondition(path, "not a version specifier", value, allowed)
    return None


def read_conditions(block: Mapping[str, Any]) -> tuple[list[Condition], list[BadCondition]]:
    """Read the condition keys of a ``when`` block; other keys are not looked at."""
    found: list[Condition] = []
    bad: list[BadCondition] = []
    if "device" in block:
        device = block["device"]
        if isinstance(device, str) and device in DEVICES:
            found.append(Condition("device", device))
        else:
            meant = nearest(device, DEVICES) if isinstance(device, str) else None
            allowed = ", ".join(f'"{name}"' for name in DEVICES)
            bad.append(BadCondition(("device",), "not a device", device, allowed, meant))
    if "python" in block:
        problem = _specifier(("python",), block["python"])
        if problem:
            bad.append(problem)
        else:
            found.append(Condition("python", block["python"]))
    versions = block.get("versions", {})
    if not isinstance(versions, Mapping):
        allowed = 'a table of distribution names, such as { torch = ">=2.13" }'
        bad.append(BadCondition(("versions",), "not a table", versions, allowed))
        return found, bad
    for name, wanted in versions.items():
        problem = _specifier(("versions", name), wanted)
        if problem:
            bad.append(problem)
        else:
            found.append(Condition("versions", wanted, name))
    return found, bad
