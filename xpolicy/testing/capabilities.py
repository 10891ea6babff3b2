"""From a table of ``xp_capabilities`` (SciPy's, or another library's) to a policy.

The table says per function what its tests may do on each array library. What of it is a
fact about compiling becomes a policy; the rest selects tests and is handed back.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xpolicy.policy.emit import toml_string
from xpolicy.policy.patterns import is_key
from xpolicy.runtime.entry import Entry
from xpolicy.runtime.members import public_methods, unwrapped

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["Capabilities", "from_xp_capabilities"]

_METHODS = "method_capabilities"
#: What the policy says.
_COMPILE_FACTS = ("jax_jit", "allow_dask_compute", _METHODS)
_REASON = "jax_jit=False in the library's table of capabilities"


@dataclass(frozen=True)
class Capabilities:
    """A library's capabilities, as a policy and what is left.

    Attributes
    ----------
    policy : str
        A policy document (TOML), for ``xpolicy-library.toml`` or any other policy file.
    selection : dict
        By function key: what is no fact about compiling (``np_only``, ``skip_backends``,
        ``cpu_only``, …) and says anything.
    unnamed : tuple of object
        What is in the table and stands in no public module; the policy can't name it.
    """

    policy: str
    selection: dict[str, dict[str, Any]]
    unnamed: tuple[Any, ...]

    def __str__(self) -> str:
        return self.policy

    def write(self, file: str | os.PathLike[str]) -> None:
        """Write the policy into a file."""
        Path(file).write_text(self.policy, encoding="utf-8")


def from_xp_capabilities(
    table: Mapping[Any, Mapping[str, Any]], *, package: str | None = None
) -> Capabilities:
    """Write the policy that says what a table of ``xp_capabilities`` says.

    ``jax_jit=False`` becomes ``.jax supports = "eager"`` with the reason, and
    ``allow_dask_compute`` the testing option ``.dask compute-limit`` (False is 0, True is
    unset). ``method_capabilities`` of a class become those of ``Class.method``; methods
    that it doesn't name have the class's own.

    Parameters
    ----------
    table : mapping
        Functions and classes, each with the keyword arguments of its
        ``@xp_capabilities``; what is left out has that decorator's default. SciPy's is
        ``scipy._lib._array_api.xp_capabilities_table``, and holds what has been imported.
    package : str, optional
        The library's top-level package. Default: the one that most of the table is of.

    Returns
    -------
    Capabilities
        Functions are named by the public module that they are in.

    Examples
    --------
    >>> import json
    >>> from xpolicy.testing import from_xp_capabilities
    >>> found = from_xp_capabilities({json.loads: {"jax_jit": False, "np_only": True}})
    >>> print(found)
    [functions."json.loads".jax]
    supports = "eager"
    reason = "jax_jit=False in the library's table of capabilities"
    <BLANKLINE>
    [testing.functions."json.loads".dask]
    compute-limit = 0
    <BLANKLINE>
    >>> found.selection
    {'json.loads': {'np_only': True}}
    """
    originals: dict[int, tuple[Any, Mapping[str, Any]]] = {}
    for member, said in table.items():
        found = _original(member)
        originals.setdefault(id(found), (found, said))
    paths = _public_paths([member for member, _ in originals.values()], package)
    #: what is said of a class, for its methods; and what is said of a function itself
    general: dict[str, Mapping[str, Any]] = {}
    named: dict[str, Mapping[str, Any]] = {}
    unnamed: list[Any] = []
    for number, (member, said) in originals.items():
        path = paths.get(number)
        if path is None:
            unnamed.append(member)
        elif isinstance(member, type):
            rest = {name: value for name, value in said.items() if name != _METHODS}
            general |= {f"{path}.{name}": rest for name in public_methods(member)}
            methods = said.get(_METHODS) or {}
            named |= {f"{path}.{name}": own for name, own in methods.items()}
        else:
            named[path] = said
    named = {**general, **named}
    selection = {key: _selection(said) for key, said in sorted(named.items())}
    policy = "\n".join(_tables(sorted(named.items())))
    return Capabilities(policy, {k: told for k, told in selection.items() if told}, tuple(unnamed))


def _tables(named: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[str]:
    for key, said in named:
        name = toml_string(key)
        if not said.get("jax_jit", True):
            why = f"{_REASON}: {said['reason']}" if said.get("reason") else _REASON
            yield f'[functions.{name}.jax]\nsupports = "eager"\nreason = {toml_string(why)}\n'
        allowed = said.get("allow_dask_compute", False)
        if allowed is not True:
            yield f"[testing.functions.{name}.dask]\ncompute-limit = {int(allowed)}\n"


def _selection(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return what selects tests; every default of the decorator is falsy."""
    return {name: value for name, value in said.items() if name not in _COMPILE_FACTS and value}


def _original(member: Any) -> Any:
    """Return the function itself, of one that `xpolicy.apply` has put into the table."""
    entry = getattr(member, "__xpolicy__", None)
    return entry.fn if isinstance(entry, Entry) else member


# --- names ------------------------------------------------------------------------------


def _public_paths(members: list[Any], package: str | None) -> dict[int, str]:
    """Return the public path of each member, by identity.

    Of several the one in the library's own package, then one that the module's
    ``__all__`` confirms, then the shortest.
    """
    homes = Counter(
        module.partition(".")[0]
        for member in members
        if isinstance(module := getattr(member, "__module__", None), str)
    )
    if package is None and homes:
        package = homes.most_common(1)[0][0]
    wanted = {id(member) for member in members}
    best: dict[int, tuple[bool, bool, int, str]] = {}
    for path, module in sorted(sys.modules.items()):
        home = path.partition(".")[0]
        if home != package and home not in homes:
            continue
        if any(part.startswith("_") for part in path.split(".")):
            continue
        listed = frozenset(getattr(module, "__all__", None) or ())
        for found, top, member in _members(path, module):
            number = id(_original(member))
            rank = (home != package, top not in listed, found.count("."), found)
            if number in wanted and is_key(found) and (number not in best or rank < best[number]):
                best[number] = rank
    return {number: rank[-1] for number, rank in best.items()}


def _members(path: str, module: object) -> Iterator[tuple[str, str, Any]]:
    """Yield the public callables of a module, and of the classes in it."""
    # Programs put all sorts of objects into sys.modules.
    for name, value in list(getattr(module, "__dict__", {}).items()):
        if name.startswith("_") or not callable(value):
            continue
        yield f"{path}.{name}", name, value
        if isinstance(value, type):
            # A method that stands in the table by itself was decorated in its class,
            # operators among them.
            for method, member in list(vars(value).items()):
                if not method.startswith("_") or method.endswith("__"):
                    yield f"{path}.{name}.{method}", name, unwrapped(member)
