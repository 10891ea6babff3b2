"""Tag functions to be run lazily in tests: jitted on jax, compiled on torch, uncomputed on dask.

The call forms are those of ``array_api_extra.testing``, and so are the tags: a function
that was tagged by either module is run by both.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from contextlib import AbstractContextManager, ExitStack
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Literal

from xpolicy.policy.options import MODES
from xpolicy.testing import lazily

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pytest

__all__ = ["lazy_xp_function", "patch_lazy_xp_functions"]

#: Where a function keeps its tags; array-api-extra's own word, so that tags are shared.
_TAG = "_lazy_xp_function"
#: Tags of callables that take no attributes (ufuncs), by identity.
_tags_elsewhere: dict[int, tuple[Any, Mapping[str, Any]]] = {}
_IGNORED: Any = type("Ignored", (), {"__repr__": lambda self: "<ignored>"})()

TorchCompile = bool | Literal["compile", "fullgraph"]


def lazy_xp_function(
    func: Callable[..., Any] | tuple[type, str],
    *,
    allow_dask_compute: bool | int = False,
    jax_jit: bool = True,
    torch_compile: TorchCompile = False,
    graph_breaks: int | None = None,
    compilations: int | None = None,
    static_argnums: Any = _IGNORED,
    static_argnames: Any = _IGNORED,
) -> None:
    """Have a function run lazily in tests that use `patch_lazy_xp_functions`.

    Parameters
    ----------
    func : callable or (type, str)
        The function, or a class and the name of one of its methods, inherited ones too
        (they are tagged in this class only).
    allow_dask_compute : bool or int
        How often one call may compute a lazy dask array, by ``bool()``, ``float()`` or
        ``np.asarray()``: True for any number of times, False for never.
    jax_jit : bool
        Whether it is run inside ``jax.jit``. Other than by jax itself, everything that is
        no jax array is a constant, in arguments and results alike, and arrays may be
        inside any object that pickle can walk.
    torch_compile : bool, "compile" or "fullgraph"
        Whether it is run under ``torch.compile``, and whether in one graph. True is
        ``"compile"``. What is no tensor is a constant.
    graph_breaks, compilations : int, optional
        How many distinct graph breaks (torch) and compilations (torch, jax) one test may
        need. None: any number.
    static_argnums, static_argnames
        Ignored, with a warning: everything that is no array is static.

    See Also
    --------
    patch_lazy_xp_functions : What a fixture or test calls.

    Examples
    --------
    >>> from xpolicy.testing import lazy_xp_function
    >>> def double(x):
    ...     return 2 * x
    >>> lazy_xp_function(double, torch_compile="fullgraph", compilations=2)

    A test that calls ``double`` through the globals of its own module, or through a module
    in the list ``lazy_xp_modules`` there, then runs it compiled.
    """
    if static_argnums is not _IGNORED or static_argnames is not _IGNORED:
        warnings.warn(
            "static_argnums and static_argnames do nothing: whatever is no array is static",
            DeprecationWarning,
            stacklevel=2,
        )
    if torch_compile not in (False, True, *MODES[1:]):
        allowed = "False, True, 'compile' or 'fullgraph'"
        raise ValueError(f"torch_compile is {torch_compile!r}; it takes {allowed}")
    tags: dict[str, Any] = {
        "allow_dask_compute": allow_dask_compute,
        "jax_jit": jax_jit,
        "torch_compile": "compile" if torch_compile is True else torch_compile,
        "graph_breaks": graph_breaks,
        "compilations": compilations,
    }
    if isinstance(func, tuple):
        cls, name = func
        tags["owner"] = cls
        func = _own_method(cls, name)
    try:
        setattr(func, _TAG, tags)
    except (AttributeError, TypeError):
        _tags_elsewhere[id(func)] = (func, tags)


def _own_method(cls: type, name: str) -> Any:
    """Give a class a copy of a method, so that a tag on it is on no other class's."""
    found = inspect.getattr_static(cls, name)
    around = type(found) if isinstance(found, (staticmethod, classmethod)) else None
    inner = found if around is None else found.__func__
    copy: Any = _copied(inner)
    functools.update_wrapper(copy, inner)
    del copy.__wrapped__  # it is the same function, not one around it
    setattr(cls, name, copy if around is None else around(copy))
    return copy


def _copied(function: Any) -> Any:
    if not isinstance(function, FunctionType):
        if not hasattr(type(function), "__get__"):  # a class's attribute gets no `self`
            return functools.partial(function)

        def copied(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return copied
    copy = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def patch_lazy_xp_functions(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch | None = None,
    *,
    xp: Any,
) -> AbstractContextManager[None]:
    """Run tagged functions lazily, from this call until the context that it returns ends.

    They are looked for in the globals of the test's module, in the modules that its list
    ``lazy_xp_modules`` names, and in the classes that stand in either.

    Parameters
    ----------
    request : pytest.FixtureRequest
        The test's, or a fixture's.
    monkeypatch : pytest.MonkeyPatch, optional
        Deprecated: what puts the functions back, instead of the context.
    xp : module
        The array namespace: jax.numpy, torch or dask.array. With any other nothing is
        done.

    Returns
    -------
    context manager
        Puts the functions back when it ends.

    Notes
    -----
    Modules are changed: other threads that run tests of the same module at the same time
    see the same functions.

    Examples
    --------
    >>> import pytest
    >>> from xpolicy.testing import patch_lazy_xp_functions
    >>> @pytest.fixture(params=["numpy", "torch", "jax.numpy"])
    ... def xp(request):
    ...     xp = pytest.importorskip(request.param)
    ...     with patch_lazy_xp_functions(request, xp=xp):
    ...         yield xp
    """
    if monkeypatch is not None:
        warnings.warn(
            "the `monkeypatch` parameter is deprecated: use what patch_lazy_xp_functions "
            "returns as a context manager",
            DeprecationWarning,
            stacklevel=2,
        )
    patched = _Patched()
    for target, name, found, function, tags in list(_tagged(request.module)):
        run = _lazily(function, target, name, tags, xp)
        if run is None:
            continue
        if isinstance(found, (staticmethod, classmethod)):
            run = type(found)(run)
        if monkeypatch is not None:
            monkeypatch.setattr(target, name, run)
        else:
            patched.callback(setattr, target, name, found)
            setattr(target, name, run)
    return patched


class _Patched(ExitStack, AbstractContextManager[None]):  # type: ignore[misc]  # of nothing
    """Puts functions back when it ends."""


def _tagged(
    module: Any,
) -> Iterator[tuple[Any, str, Any, Any, Mapping[str, Any]]]:
    """Yield where tagged functions stand: owner, name, member, function, tags."""
    modules: list[Any] = [module, *getattr(module, "lazy_xp_modules", ())]
    classes = {id(v): v for owner in modules for v in vars(owner).values() if isinstance(v, type)}

    for owner in (*modules, *classes.values()):
        for name, found in list(vars(owner).items()):
            inner = found.__func__ if isinstance(found, (staticmethod, classmethod)) else found
            tags = _tags_of(inner)
            # A class that only holds a tagged function (`class bare: f = mylib.f`) is how
            # tests reach it as it is.
            if tags is not None and (isinstance(owner, ModuleType) or tags.get("owner") is owner):
                yield owner, name, found, inner, tags


def _tags_of(value: Any) -> Mapping[str, Any] | None:
    elsewhere = _tags_elsewhere.get(id(value))
    if elsewhere is not None:
        return elsewhere[1]
    # Objects that answer to every name (mocks) hold no tags of ours.
    tags = getattr(value, _TAG, None) if callable(value) else None
    return tags if isinstance(tags, dict) else None


def _lazily(
    function: Any, owner: ModuleType | type, name: str, tags: Mapping[str, Any], xp: Any
) -> Any:
    """Return what runs a function lazily with a namespace; None if nothing is to be done."""
    namespace = _namespace(xp)
    told = getattr(function, "__name__", name)
    if namespace == "dask":
        allowed = tags["allow_dask_compute"]
        limit = None if allowed is True else int(allowed)
        return lazily.counted_on_dask(function, limit, told)
    if namespace is None:
        return None
    home = getattr(function, "__module__", None) or getattr(owner, "__module__", owner.__name__)
    key = f"{home}.{getattr(function, '__qualname__', None) or told}"
    if isinstance(owner, type):
        key = f"{owner.__module__}.{owner.__qualname__}.{name}"
        told = f'({owner.__name__}, "{name}")'
    spending = lazily.Spending(key.replace(".<locals>", ""), namespace, told, tags)
    if namespace == "jax":
        return lazily.jitted(function, spending) if tags["jax_jit"] else None
    mode = tags.get("torch_compile", False)  # array-api-extra's tags have none
    return lazily.torch_compiled(function, mode, spending) if mode else None


def _namespace(xp: Any) -> str | None:
    name = getattr(xp, "__name__", "")
    if name in ("jax.numpy", "jax.experimental.array_api"):
        return "jax"
    for namespace, module in (("dask", "dask.array"), ("torch", "torch")):
        # array-api-compat may be vendored anywhere.
        if name == module or name.endswith(f"array_api_compat.{module}"):
            return namespace
    return None
