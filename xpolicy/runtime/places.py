"""Where else a function is found: modules that re-export it, registries keyed by it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType

__all__ = ["Registered", "Scope"]

#: What is looked into for functions as keys. Subclasses too, `OrderedDict` for one.
_MAPPINGS = (dict, WeakKeyDictionary)
_SETS = (set, WeakSet)


@dataclass(frozen=True)
class Registered:
    """A function that was put beside another one as a key of a registry."""

    registry: Any
    function: Any

    def undo(self) -> None:
        """Take it out again."""
        if isinstance(self.registry, _MAPPINGS):
            self.registry.pop(self.function, None)
        else:
            self.registry.discard(self.function)


class Scope:
    """The packages that a function is looked for in.

    Parameters
    ----------
    packages : iterable of str
        Names of packages or modules; what is below them belongs to them.
    """

    def __init__(self, packages: Iterable[str]) -> None:
        self.packages = set(packages)
        #: Modules that can't be found by their names.
        self.more: list[ModuleType] = []

    def join(self, other: Scope) -> None:
        """Look wherever another one looks, too."""
        self.packages |= other.packages
        self.more += other.more

    def modules(self) -> list[ModuleType]:
        """Return the modules of the packages that are imported now, each once."""
        prefixes = tuple(f"{name}." for name in self.packages)
        found: dict[int, ModuleType] = {id(module): module for module in self.more}
        # A copy: other threads may import meanwhile.
        for name, module in list(sys.modules.items()):
            if name in self.packages or name.startswith(prefixes):
                found[id(module)] = module
        # Programs put all sorts of objects there.
        found = {key: module for key, module in found.items() if hasattr(module, "__dict__")}
        return list(found.values())

    def _members(self) -> Iterator[tuple[ModuleType, str, Any]]:
        for module in self.modules():
            # Not getattr: a module's own __getattr__ may import, or warn.
            for name, value in list(vars(module).items()):
                yield module, name, value

    def places(self, function: Any) -> list[tuple[ModuleType, str]]:
        """Return where a function stands in a module, under whatever name."""
        return [(module, name) for module, name, value in self._members() if value is function]

    def register(self, function: Any, other: Any) -> list[Registered]:
        """Put one function beside another in every registry at the top of a module.

        Parameters
        ----------
        function : callable
            The one that registries are keyed by.
        other : callable
            The one that they should find, too.
        """
        found: dict[int, Any] = {}
        for _, _, value in self._members():
            if isinstance(value, (*_MAPPINGS, *_SETS)) and _holds(value, function):
                found[id(value)] = value
        for registry in found.values():
            if isinstance(registry, _MAPPINGS):
                registry[other] = registry[function]
            else:
                registry.add(other)
        return [Registered(registry, other) for registry in found.values()]


def _holds(registry: Any, function: Any) -> bool:
    try:
        return function in registry
    except TypeError:  # it can't be hashed, or refused as a weak key
        return False
