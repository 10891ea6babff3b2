"""Compilers' persistent caches: set up before something is first compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xpolicy.backends.registry import backend_for, imported, option_table
from xpolicy.errors import Problem
from xpolicy.policy.cache import CachePolicy, cache_policy, cache_rows
from xpolicy.policy.testing import Setting
from xpolicy.runtime import events
from xpolicy.runtime.session import session, warn_problems
from xpolicy.sources.positions import located

if TYPE_CHECKING:
    from xpolicy.backends.base import Backend
    from xpolicy.backends.caches import CacheUse

#: Namespaces whose compilers were told something: they are told when it no longer holds.
_told: set[str] = set()


def use(backend: Backend) -> CacheUse | None:
    """Let a compiler keep what it compiles as the policies say; asked once for each of them.

    Parameters
    ----------
    backend : Backend
        Its library has been imported.

    Returns
    -------
    CacheUse or None
        None if no policy speaks of caches, or the compiler has none.
    """
    name = backend.spec.name
    # Without the lock: a dictionary's lookup is atomic, and entries are complete.
    if name in session.caches:
        return session.caches[name]
    with session.lock:
        if name in session.caches:
            return session.caches[name]
        said = policy()
        found = None
        if said.settings or name in _told:
            _told.add(name)
            found = backend.use_cache(said)
        session.caches[name] = found
    if found is not None and found.warning is not None:
        row = next(row for row in cache_rows().values() if row.name == found.about)
        message = f"{row.full_key} is not used for {name}: {found.warning}"
        origin = said.origin_of(found.about)
        warn_problems([Problem(message, origin=origin, key=row.full_key, severity="warning")])
    for note in found.notes if found is not None else ():
        events.logger.info("[cache] for %s: %s", name, note)
    return found


def policy() -> CachePolicy:
    """Return what the policies of this process say of caches, each setting with its line."""
    found = cache_policy(session.loaded().layers).settings
    return CachePolicy({n: Setting(s.value, located(s.origin)) for n, s in found.items()})


def planned() -> tuple[CacheUse, ...]:
    """Say what a process started here would do about caches; imports no compiler."""
    from xpolicy.backends.jax.caches import planned as of_jax
    from xpolicy.backends.torch.caches import planned as of_torch

    said = policy()
    return of_torch(said), of_jax(said)


def caches() -> tuple[CacheUse, ...]:
    """Apply the ``cache`` table now, and say what each compiler does about its cache.

    By itself it is applied when a decorated function is first compiled. What a program
    compiles before that, with plain ``torch.compile`` or ``jax.jit``, is kept only if this
    is called first.

    Returns
    -------
    tuple of CacheUse
        One for each compiler that has been imported, if policies speak of caches:
        ``state`` (``"on"``, ``"off"``, ``"own"``), ``folder``, ``reason``, ``notes``.

    Examples
    --------
    >>> import xpolicy
    >>> xpolicy.caches()  # no policy speaks of caches here
    ()
    """
    found = []
    for name in option_table().namespaces:
        backend = backend_for(name)
        if backend is not None and imported(backend):
            told = use(backend)
            if told is not None:
                found.append(told)
    return tuple(found)
