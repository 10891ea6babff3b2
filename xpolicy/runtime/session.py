"""The only mutable state: which layers are loaded, which functions are decorated.

Everything that decides about a policy but belongs to no single function lives here, once
for the process, behind one lock. User code never runs under that lock.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xpolicy
from xpolicy._origin import Origin
from xpolicy.backends import registry
from xpolicy.backends.registry import option_table
from xpolicy.errors import (
    BackendOptionError,
    EnvironmentPolicyError,
    PolicyFileError,
    Problem,
    XPolicyWarning,
)
from xpolicy.policy.layers import Layer, Rule, builtin_layer
from xpolicy.policy.patterns import is_key
from xpolicy.policy.resolve import ResolvedPolicy, resolve
from xpolicy.runtime import events, overrides
from xpolicy.runtime.entry import Entry, entries
from xpolicy.sources.author import LibraryFile, keyword_rules, read_library
from xpolicy.sources.environment import kill_switch
from xpolicy.sources.load import Loaded, Surroundings, load
from xpolicy.sources.positions import located

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xpolicy.backends.caches import CacheUse
    from xpolicy.policy.options import OptionTable


def surroundings() -> Surroundings:
    """Return this process's surroundings. Tests replace this function."""
    import platformdirs

    try:
        home: Path | None = Path.home()
    except RuntimeError:
        home = None
    cwd = Path(xpolicy._cwd) if xpolicy._cwd is not None else None
    return Surroundings(os.environ, cwd, home, platformdirs.user_config_path("xpolicy"))


def place(problem: Problem) -> Problem:
    """Fill in line and column of a problem's places."""
    told: dict[str, Any] = {}
    if problem.origin is not None and problem.origin.line is None:
        told["origin"] = located(problem.origin, of="key")
    if problem.other is not None and problem.other.line is None:
        told["other"] = located(problem.other, of="key")
    return problem.replace(**told) if told else problem


def raise_problems(problems: list[Problem]) -> None:
    """Raise all errors at once, as the kind of the most telling one."""
    errors = [place(p) for p in problems if p.severity == "error"]
    if not errors:
        return
    kinds = {p.origin.kind for p in errors if p.origin is not None}
    if kinds <= {"code", "runtime"}:
        raise BackendOptionError(errors)
    if kinds <= {"variable"}:
        raise EnvironmentPolicyError(errors)
    raise PolicyFileError(errors)


def warn_problems(problems: list[Problem]) -> None:
    """Warn about what was ignored."""
    for problem in problems:
        if problem.severity != "error":
            warnings.warn(str(place(problem)), XPolicyWarning, stacklevel=_users_level())


def _users_level() -> int:
    """Return the stacklevel, for whoever calls this, of the nearest frame that isn't ours."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and _ours(frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back
    return level


_ROOM = os.path.dirname(os.path.abspath(xpolicy.__file__)) + os.sep  # noqa: PTH100, PTH120  # compared as text


def _ours(file: str) -> bool:
    return file.startswith((_ROOM, "<xpolicy"))


class Session:
    """Loaded layers and what was derived from them.

    Attributes
    ----------
    generation : int
        Grows whenever a policy may have changed; what was derived under an older one
        must not be kept.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.generation = 0
        self.everywhere: tuple[Layer, ...] = ()
        self._loaded: Loaded | None = None
        self._disabled = False
        self._libraries: dict[str, tuple[Layer, LibraryFile | None, list[Problem]]] = {}
        #: What each namespace's compiler does about its cache under these policies.
        self.caches: dict[str, CacheUse | None] = {}

    # -- loading ---------------------------------------------------------------------

    @property
    def disabled(self) -> bool:
        """Whether the kill switch is on."""
        self.loaded()
        return self._disabled

    def loaded(self) -> Loaded:
        """Return what files and environment say, read once."""
        found = self._loaded
        if found is not None:
            return found
        with self.lock:
            if self._loaded is None:
                # In this order: what is loaded is looked at without the lock.
                loaded, self._disabled = self._load()
                self._loaded = loaded
                warn_problems(list(self._loaded.problems))
            return self._loaded

    @staticmethod
    def _load() -> tuple[Loaded, bool]:
        here = surroundings()
        # Before everything else: it must work when all the rest is broken.
        off, problem = kill_switch(here.environ)
        if off:
            rule = Rule({"mode": "eager"}, Origin("variable", "XPOLICY_DISABLE"))
            layer = Layer("kill switch", "XPOLICY_DISABLE", [rule])
            return Loaded((layer,), (), (problem,) if problem else ()), True
        found = load(here, option_table, version=xpolicy.__version__)
        # An unknown name may be a plugin's: look again with every installed backend.
        before = option_table()
        if found.problems and option_table(plugins=True) is not before:
            found = load(here, option_table, version=xpolicy.__version__)
        return found, False

    def library(self, package: str) -> tuple[Layer, LibraryFile | None, list[Problem]]:
        """Return the policy that a package ships, read once."""
        with self.lock:
            found = self._libraries.get(package)
            if found is None:
                found = read_library(
                    package,
                    option_table(),
                    surroundings().facts,
                    version=xpolicy.__version__,
                )
                self._libraries[package] = found
                warn_problems(found[2])
            return found

    # -- layers of one function --------------------------------------------------------

    def layers_for(self, key: str, entry: Entry | None, *, context: bool = True) -> list[Layer]:
        """Return every layer that can reach a function, lowest first.

        Raises what is wrong in any of them.
        """
        table = option_table()
        loaded = self.loaded()
        base = builtin_layer_of(table)
        if self._disabled:
            return [base, *loaded.layers]
        package = entry.package if entry is not None else key.partition(".")[0]
        library, _, library_problems = self.library(package)
        declared, declared_problems = self.declared_rules(entry, table)
        raise_problems([*loaded.problems, *library_problems, *declared_problems])
        author = library
        if declared:
            author = Layer(
                "author",
                library.label,
                [*library.rules, *declared],
                library.unmet,
                library.testing,
                warmup=library.warmup,
            )
        stack = overrides.current() if context else None
        layers = [base, author, *loaded.layers, *self.everywhere]
        return layers if stack is None else [*layers, *stack.layers]

    @staticmethod
    def declared_rules(entry: Entry | None, table: OptionTable) -> tuple[list[Rule], list[Problem]]:
        """Return what the decorator says, as rules."""
        if entry is None or not entry.options:
            return [], []
        origin = Origin("code", entry.file, line=entry.line)
        return keyword_rules(entry.options, origin, table, pattern=entry.key, declared=True)

    def resolve(
        self,
        key: str,
        namespace: str,
        entry: Entry | None = None,
        device: str | None = None,
    ) -> ResolvedPolicy:
        """Resolve the policy of one function in one namespace, overrides included."""
        return resolve(self.layers_for(key, entry), option_table(), key, namespace, device)

    # -- change ------------------------------------------------------------------------

    def changed(self) -> None:
        """Make every function ask again for its policy."""
        with self.lock:
            self.generation += 1
            for entry in entries():
                entry.table.clear()

    def forget(self) -> None:
        """Drop everything that was read."""
        with self.lock:
            self._loaded = None
            self._disabled = False
            self._libraries.clear()
            self.caches.clear()
            self.changed()

    def put(self, loaded: Loaded, disabled: bool, everywhere: tuple[Layer, ...]) -> None:
        """Use layers that were read elsewhere (by another process, for a snapshot)."""
        with self.lock:
            self._loaded, self._disabled, self.everywhere = loaded, disabled, everywhere
            self.caches.clear()
            self.changed()


_builtin: tuple[OptionTable, Layer] | None = None


def builtin_layer_of(table: OptionTable) -> Layer:
    """Return the built-in layer of a table, made once."""
    global _builtin
    known = _builtin  # looked at once: another thread may put another in its place
    if known is None or known[0] is not table:
        known = _builtin = (table, builtin_layer(table))
    return known[1]


session = Session()


def _fresh_locks() -> None:
    """Replace every lock in a forked child: whoever held one is not there any more."""
    session.lock = threading.RLock()
    for entry in entries():
        entry.lock = threading.RLock()
    events._lock = threading.Lock()
    overrides._lock = threading.RLock()
    registry._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fresh_locks)


def find(function: Callable[..., Any] | str) -> tuple[str, Entry | None]:
    """Return the key and, if it is decorated, the entry of a function or a name."""
    if isinstance(function, str):
        if not is_key(function):
            raise BackendOptionError(
                [
                    Problem(
                        f"{function!r} is not a function key",
                        allowed='dotted Python names, such as "mylib.linalg.norm"',
                    )
                ]
            )
        named = [entry for entry in entries() if entry.key == function]
        return function, named[-1] if named else None
    inner: Any = function
    while inner is not None:
        found = getattr(inner, "__xpolicy__", None)
        if isinstance(found, Entry):
            return found.key, found
        inner = getattr(inner, "__wrapped__", None) or getattr(inner, "func", None)
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    if module is None or name is None:
        raise TypeError(f"{function!r} is no function and no function key")
    return f"{module}.{name}", None


def override_layer(
    function: Callable[..., Any] | str | None,
    namespace: str | None,
    options: Mapping[str, Any],
    depth: int,
) -> Layer:
    """Turn an override's arguments into a layer of its own."""
    frame = sys._getframe(depth)
    origin = Origin("runtime", frame.f_code.co_filename, line=frame.f_lineno)
    if function is None or isinstance(function, str):
        pattern = function
    else:
        pattern = find(function)[0]
    table = option_table()
    if namespace is not None and table.canonical(namespace) not in table.namespaces:
        table = option_table(plugins=True)
        if table.canonical(namespace) not in table.namespaces:
            raise_problems(
                [
                    Problem(
                        f"unknown namespace {namespace!r}",
                        origin=origin,
                        layer="runtime",
                        allowed=", ".join(table.namespaces),
                    )
                ]
            )
    rules, problems = keyword_rules(
        options, origin, table, pattern=pattern, namespace=namespace, layer="runtime"
    )
    raise_problems(problems)
    return Layer("runtime", f"xpolicy.override at {origin}", rules)


def push_everywhere(layer: Layer) -> None:
    """Add an override for the whole process."""
    with session.lock:
        session.everywhere = (*session.everywhere, layer)
        session.changed()


def pop_everywhere(layer: Layer) -> None:
    """Remove an override of the whole process, whatever came on top of it."""
    with session.lock:
        kept = list(session.everywhere)
        # The last one: the same override may have been entered twice.
        for at in reversed(range(len(kept))):
            if kept[at] is layer:
                del kept[at]
                break
        session.everywhere = tuple(kept)
        session.changed()
