"""``xpolicy.install``: put under policy what the user's and the project's files name.

A policy file is data: naming a package in it imports nothing. What the program has
imported is put under policy at once, everything else when the program imports it.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from importlib.abc import Loader, MetaPathFinder
from typing import TYPE_CHECKING, Any

from xpolicy.errors import Problem
from xpolicy.policy.options import nearest
from xpolicy.policy.writing import show
from xpolicy.runtime.apply import Application, apply
from xpolicy.runtime.session import place, raise_problems, session

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from xpolicy._origin import Origin

__all__ = ["install"]

_lock = threading.RLock()


class Installation:
    """What `install` found in policy files: names, and what has come of each.

    Attributes
    ----------
    waiting : tuple of str
        Names of what the program has not imported yet.
    """

    def __init__(self) -> None:
        self._places: dict[str, Origin] = {}
        self._applied: dict[str, Application] = {}

    def __repr__(self) -> str:
        told = [name for name in self._places if name in self._applied]
        if self.waiting:
            told.append(f"waiting for {', '.join(self.waiting)}")
        return f"<xpolicy.install: {', '.join(told) or 'nothing is named'}>"

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of the functions that are under policy by it now, sorted."""
        return tuple(sorted({k for applied in self._applied.values() for k in applied.keys}))

    @property
    def waiting(self) -> tuple[str, ...]:
        """Names of what the program has not imported yet."""
        return tuple(name for name in self._places if name not in self._applied)

    def name(self, name: str, origin: Origin) -> None:
        """Add a name that a policy file gives."""
        self._places.setdefault(name, origin)

    def catch_up(self) -> None:
        """Put under policy what has been imported by now."""
        for name in self.waiting:
            if _whole(name):
                try:
                    self._applied[name] = apply(name)
                except Exception as error:
                    where = place(Problem("", origin=self._places[name])).origin
                    error.add_note(f"xpolicy: {name!r} is put under policy by {where}")
                    raise

    def undo(self) -> None:
        """Put back everything, and wait for nothing more."""
        with _lock:
            for applied in reversed(self._applied.values()):
                applied.undo()
            self._applied.clear()
            self._places.clear()
            if _finder in sys.meta_path:
                sys.meta_path.remove(_finder)


_installation = Installation()


def install() -> Installation:
    """Put under policy what ``apply = [...]`` names in the user's and the project's files.

    Nothing is imported. What has been imported is put under policy now, as `xpolicy.apply`
    does it; the rest when the program imports it. Calling it again (after
    `xpolicy.reload`) adds what files name by then.

    Returns
    -------
    Installation
        With ``keys``, ``waiting`` and ``undo()``; the same one each time.

    Raises
    ------
    PolicyFileError
        If a policy can't be used, or there is no such name in what is imported.

    Examples
    --------
    >>> import xpolicy
    >>> xpolicy.install()
    <xpolicy.install: nothing is named>
    """
    loaded = session.loaded()
    raise_problems(list(loaded.problems))
    with _lock:
        for layer in loaded.layers:
            for name, origin in layer.apply:
                _installation.name(name, origin)
        missing = [_missing(name, _installation._places[name]) for name in _installation.waiting]
        raise_problems([problem for problem in missing if problem is not None])
        _installation.catch_up()
        if _installation.waiting and _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)
    return _installation


def _whole(name: str) -> bool:
    """Return whether what a name means can be looked up without importing anything."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        module = sys.modules.get(".".join(parts[:end]))
        if module is None:
            continue
        if getattr(getattr(module, "__spec__", None), "_initializing", False):
            return False  # its own import is not over: a re-export may still come
        found: Any = module
        for part in parts[end:]:
            found = vars(found).get(part) if hasattr(found, "__dict__") else None
        return found is not None
    return False


def _missing(name: str, origin: Origin) -> Problem | None:
    """Return a problem if what has been imported has no such name, and will not get it."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        module = sys.modules.get(".".join(parts[:end]))
        if module is None:
            continue
        if getattr(getattr(module, "__spec__", None), "_initializing", False):
            return None
        found: Any = module
        for at in range(end, len(parts)):
            names = vars(found) if hasattr(found, "__dict__") else {}
            if parts[at] in names:
                found = names[parts[at]]
                continue
            here = ".".join(parts[:at])
            if at == end and _submodule(module, ".".join(parts[: at + 1])):
                return None  # to be imported yet
            meant = nearest(parts[at], names)
            return Problem(
                f"{here} is imported, and has no {parts[at]!r}",
                origin=origin,
                key="apply",
                value=show(name),
                nearest=f"{here}.{meant}" if meant else None,
                fix=f'write "{here}.{meant}"' if meant else f'remove "{name}"',
            )
        return None
    return None


def _submodule(module: ModuleType, name: str) -> bool:
    if not hasattr(module, "__path__"):
        return False
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


class _Finder(MetaPathFinder):
    """Watches the imports of what `install` waits for; it finds nothing by itself."""

    def __init__(self) -> None:
        self._local = threading.local()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Let the others find a module, and follow its execution."""
        waited = any(f"{w}.".startswith(f"{name}.") for w in _installation.waiting)
        if not waited or getattr(self._local, "looking", False):
            return None
        self._local.looking = True
        try:
            spec = next(
                (
                    found
                    for finder in sys.meta_path
                    if finder is not self and (found := finder.find_spec(name, path, target))
                ),
                None,
            )
        finally:
            self._local.looking = False
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Follower(spec.loader, spec)
        return spec


class _Follower(Loader):
    """Runs a module as its own loader does, then puts under policy what was waited for."""

    def __init__(self, loader: Any, spec: ModuleSpec) -> None:
        self._loader = loader
        self._spec = spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Do as the module's own loader."""
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Do as the module's own loader, and go on."""
        # The module keeps its own loader: others ask it for sources and resources.
        self._spec.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        with _lock:
            initializing = getattr(self._spec, "_initializing", False)
            self._spec._initializing = False  # type: ignore[attr-defined]  # it is executed
            try:
                _installation.catch_up()
            finally:
                self._spec._initializing = initializing  # type: ignore[attr-defined]


_finder = _Finder()
