"""``xpolicy.apply``: put functions of a library that never heard of us under policy.

What is replaced, and where, is written down once for the process: applications may
overlap, and a function gets its own place back when the last one that holds it ends.
"""

from __future__ import annotations

import importlib
import threading
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

from xpolicy.errors import DecorationError, Problem
from xpolicy.policy.options import nearest
from xpolicy.policy.patterns import is_key
from xpolicy.runtime.decorate import decorated
from xpolicy.runtime.entry import Entry
from xpolicy.runtime.members import ABSENT, is_function, public_methods, put, raw, unwrapped
from xpolicy.runtime.places import Registered, Scope

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Self

__all__ = ["Application", "apply", "resolve_target"]

# One lock for all: what is replaced in one application may be a re-export in another.
_lock = threading.RLock()


@dataclass(eq=False)
class _Held:
    """One function under policy, and everything that was changed for it."""

    key: str
    original: Any
    replacement: Any
    #: True for a function of a module, which is replaced wherever it stands; False for a
    #: method, which is replaced in one class
    whole: bool
    #: (owner, name, what stood in the owner's own dictionary, or ABSENT), oldest first
    places: list[tuple[Any, str, Any]] = field(default_factory=list)
    registries: list[Registered] = field(default_factory=list)
    scope: Scope = field(default_factory=lambda: Scope(()))
    holders: int = 0


#: What is under policy now.
_held: list[_Held] = []


class Application:
    """Functions under policy by one `apply`; a context manager that ends it.

    Attributes
    ----------
    keys : tuple of str
        The function keys, sorted. A function that was under policy before keeps its key.
    skipped : dict
        Names that were not asked for one by one and can't be put under policy, each with
        the reason.
    """

    def __init__(self, held: list[_Held], skipped: Mapping[str, str]) -> None:
        self._held = held
        self.skipped = dict(skipped)
        self.keys = tuple(sorted({record.key for record in held}))

    def __repr__(self) -> str:
        return f"<xpolicy.apply: {len(self.keys)} functions under policy>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()

    def undo(self) -> None:
        """Put back exactly what was there. A second time does nothing."""
        with _lock:
            held, self._held = self._held, []
            _release(held)


def apply(
    target: str | ModuleType | type,
    /,
    names: str | Iterable[str] | None = None,
    *,
    also_in: Iterable[str] = (),
) -> Application:
    """Put functions that nobody decorated under policy, from now on.

    Used as a context manager, what it returns ends it; otherwise it lasts until
    ``.undo()``, or for ever. Policies decide about the functions as about decorated ones;
    the function key is the public path that they were applied by.

    Parameters
    ----------
    target : str, module or class
        A module (imported if need be), a class, or the dotted name of either or of one
        function.
    names : str or iterable of str, optional
        Functions of the module, or methods of the class, inherited ones too. In a module
        ``"Class.method"`` names a method. Default: what is public. In a module these are
        the functions in ``__all__``, without it the functions that its package defines
        and whose name has no leading underscore; in a class the methods it defines itself.
    also_in : iterable of str
        More packages in which the functions are replaced where they have been imported
        by name already. In the target's own package they always are.

    Returns
    -------
    Application
        With ``keys``, ``skipped``, and ``undo()``.

    Raises
    ------
    DecorationError
        If a name that was asked for is not there, or can't be put under policy. Nothing
        is changed then.

    Notes
    -----
    It holds for the whole process and all its threads, at once for each function but not
    for all of them together: call it before threads start, or where none of them calls
    the functions. Applications may overlap in any order, in several threads too; the last
    one to end puts things back. What somebody else has put in a function's place meanwhile
    stays. A name that other packages took with ``from … import`` before keeps the
    original (see `also_in`), and one taken meanwhile keeps the function under policy.

    Dictionaries, sets and weak-keyed dictionaries at the top of the package's modules
    that are keyed by a function find it under policy, too: they get it as another key.

    Examples
    --------
    >>> import colorsys, xpolicy
    >>> with xpolicy.apply(colorsys, "rgb_to_yiq") as applied:
    ...     applied.keys, colorsys.rgb_to_yiq.__wrapped__.__name__
    (('colorsys.rgb_to_yiq',), 'rgb_to_yiq')
    >>> hasattr(colorsys.rgb_to_yiq, "__wrapped__")
    False
    """
    owner, path, asked = resolve_target(target)
    chosen = [names] if isinstance(names, str) else None if names is None else list(names)
    if asked is not None:
        if chosen is not None:
            raise _wrong(f"{path}.{asked} is a function: it has no functions to name", path)
        chosen = [asked]
    skipped: dict[str, str] = {}
    found = _asked(owner, path, chosen) if chosen is not None else _public(owner, path, skipped)
    scope = Scope({path.partition(".")[0], *also_in})
    if isinstance(owner, type):
        scope.packages.add(owner.__module__.partition(".")[0])
    else:
        scope.more.append(owner)
    held: list[_Held] = []
    with _lock:
        try:
            for place, name, key in found:
                try:
                    record = _record(place, name, key)
                except DecorationError as error:
                    if chosen is not None:
                        raise
                    skipped[name] = error.problems[0].message
                    continue
                if record is not None:
                    _hold(record, scope)
                    held.append(record)
        except BaseException:
            _release(held)
            raise
    return Application(held, skipped)


# --- what is meant ------------------------------------------------------------------


def resolve_target(target: Any) -> tuple[Any, str, str | None]:
    """Return a target's module or class, its public path, and the one function it names."""
    if isinstance(target, ModuleType):
        return target, target.__name__, None
    if isinstance(target, type):
        return target, f"{target.__module__}.{target.__qualname__}", None
    if not isinstance(target, str) or not is_key(target):
        raise _wrong(
            f"{target!r} is neither a module, a class nor a dotted name of one", str(target)
        )
    module, rest = _imported(target)
    owner: Any = module
    for number, part in enumerate(rest):
        found = getattr(owner, part, ABSENT)
        path = ".".join([module.__name__, *rest[:number]])
        if found is ABSENT:
            raise _missing(part, owner, path)
        if isinstance(found, (ModuleType, type)):
            owner = found
        elif number == len(rest) - 1:
            return owner, path, part
        else:
            raise _wrong(f"{path}.{part} is neither a module nor a class", target)
    return owner, target, None


def _imported(name: str) -> tuple[ModuleType, list[str]]:
    """Import the longest prefix of a dotted name that is a module; return the rest, too."""
    parts = name.split(".")
    module: ModuleType | None = None
    for end, part in enumerate(parts, start=1):
        if module is not None and not isinstance(vars(module).get(part, module), ModuleType):
            return module, parts[end - 1 :]
        path = ".".join(parts[:end])
        try:
            module = importlib.import_module(path)
        except ModuleNotFoundError as error:
            if error.name != path:
                raise  # the module is there; something that it needs is not
            if module is None:
                raise _wrong(f"there is no module {path!r}", name) from error
            return module, parts[end - 1 :]
    assert module is not None
    return module, []


def _asked(owner: Any, path: str, names: list[str]) -> list[tuple[Any, str, str]]:
    found = []
    for name in names:
        place, where = owner, path
        *above, last = name.split(".")
        for part in above:
            inner = getattr(place, part, ABSENT)
            if not isinstance(inner, (type, ModuleType)):
                raise _missing(part, place, where)
            place, where = inner, f"{where}.{part}"
        if getattr(place, last, ABSENT) is ABSENT:
            raise _missing(last, place, where)
        found.append((place, last, f"{where}.{last}"))
    return found


def _public(owner: Any, path: str, skipped: dict[str, str]) -> list[tuple[Any, str, str]]:
    found = []
    for name in _public_names(owner):
        value = unwrapped(raw(owner, name))
        if isinstance(value, (type, ModuleType)) or not callable(value):
            continue
        if is_function(value):
            found.append((owner, name, f"{path}.{name}"))
        else:
            skipped[name] = f"a callable object of type {type(value).__qualname__}; name it"
    return found


def _public_names(owner: Any) -> Iterator[str]:
    if isinstance(owner, type):
        yield from public_methods(owner)
        return
    listed = getattr(owner, "__all__", None)
    if listed is not None:
        # A name that is listed and can't be had is the library's mistake, not the caller's.
        yield from (name for name in dict.fromkeys(listed) if hasattr(owner, name))
        return
    package = owner.__name__.partition(".")[0]
    for name, value in tuple(vars(owner).items()):
        home = (getattr(value, "__module__", None) or package).partition(".")[0]
        if not name.startswith("_") and home == package:
            yield name


# --- putting it there, and back -----------------------------------------------------


def _record(owner: Any, name: str, key: str) -> _Held | None:
    """Return what is known of a function, or put a new one under policy in its place.

    None for one that its library has decorated itself: it has its policy.
    """
    found = raw(owner, name)
    inner = unwrapped(found)
    if isinstance(getattr(inner, "__xpolicy__", None), Entry):
        return next((record for record in _held if record.replacement is inner), None)
    own = vars(owner).get(name, ABSENT)
    if not isinstance(owner, type):
        for record in _held:
            if record.original is inner and record.whole:
                return record
    record = _Held(key, inner, decorated(inner, key), whole=not isinstance(owner, type))
    # In a descriptor like its own. What a class inherits is replaced there and only there.
    around = type(found) if isinstance(found, (staticmethod, classmethod)) else None
    put(owner, name, record.replacement if around is None else around(record.replacement))
    record.places.append((owner, name, own))
    return record


def _hold(record: _Held, scope: Scope) -> None:
    """Count one more application of a function, and replace it wherever that one looks."""
    if not record.holders:
        _held.append(record)
    record.holders += 1
    record.scope.join(scope)
    if record.whole:
        # `pkg.f is pkg._impl.f`: whoever calls it, by whatever path, meets the same one.
        for module, name in scope.places(record.original):
            put(module, name, record.replacement)
            record.places.append((module, name, record.original))
    record.registries += scope.register(record.original, record.replacement)


def _release(held: list[_Held]) -> None:
    for record in reversed(held):
        record.holders -= 1
        if record.holders:
            continue
        _held.remove(record)
        for registry in reversed(record.registries):
            registry.undo()
        for owner, name, before in reversed(record.places):
            if unwrapped(vars(owner).get(name, ABSENT)) is record.replacement:
                put(owner, name, before)
        # Modules that were imported meanwhile may have taken it by name.
        for module, name in record.scope.places(record.replacement):
            put(module, name, record.original)


# --- errors --------------------------------------------------------------------------


def _missing(name: str, owner: Any, path: str) -> DecorationError:
    names = [other for other in dir(owner) if not other.startswith("_")]
    near = nearest(name, names)
    told = {"nearest": near, "fix": f"write {near}"} if near else {}
    return _wrong(f"{path} has no {name!r}", f"{path}.{name}", **told)


def _wrong(message: str, key: str, **told: Any) -> DecorationError:
    return DecorationError([Problem(message, key=key, **told)])
