"""Array namespaces of a test: which one it runs with, and where to get one from."""

from __future__ import annotations

import enum
import importlib
import types
from typing import TYPE_CHECKING, Any

from xpolicy.backends.registry import option_table

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Where a namespace that follows the standard is, for libraries whose own does not.
_MODULES = {
    "numpy": "array_api_compat.numpy",
    "torch": "array_api_compat.torch",
    "cupy": "array_api_compat.cupy",
    "dask": "array_api_compat.dask.array",
    "jax": "jax.numpy",
}


def load(namespace: str) -> Any:
    """Import an array namespace; `ImportError` if its library is not installed."""
    return importlib.import_module(_MODULES.get(namespace, namespace))


def of_test(parameters: Mapping[str, Any], fixtures: Mapping[str, Any]) -> str | None:
    """Say which array namespace a test runs with.

    Parameters
    ----------
    parameters : mapping
        The test's parameters. ``xpolicy_xp`` and ``xp`` are asked first, then any other
        whose value is an array namespace, or the name of one.
    fixtures : mapping
        The values of fixtures, as far as they are set up: a project's own ``xp``.

    Returns
    -------
    str or None
        By array-api-compat's name; None if nothing tells.
    """
    for name in ("xpolicy_xp", "xp"):
        for known in (parameters, fixtures):
            found = named_by(known.get(name))
            if found is not None:
                return found
    found_all = {named_by(value) for value in parameters.values()} - {None}
    return found_all.pop() if len(found_all) == 1 else None


def named_by(value: Any) -> str | None:
    """Return the namespace that a module, a name or an enumeration's member stands for.

    Examples
    --------
    >>> named_by("jax.numpy"), named_by("torch:cuda"), named_by("float32")
    ('jax', 'torch', None)
    """
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, types.ModuleType):
        value = value.__name__.removeprefix("array_api_compat.")
    if not isinstance(value, str):
        return None
    table = option_table()
    name = table.canonical(value.partition(":")[0])
    return name if name in table.namespaces else None
