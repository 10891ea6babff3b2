"""What can be asked about policies: resolve, check, capabilities, fingerprint, reload."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xpolicy
from xpolicy.backends.registry import option_table
from xpolicy.errors import Problem
from xpolicy.runtime import events, overrides
from xpolicy.runtime.entry import Entry, entries
from xpolicy.runtime.explain import checked_namespace
from xpolicy.runtime.session import find, place, raise_problems, session, surroundings
from xpolicy.sources.author import FILE_NAME as LIBRARY_FILE
from xpolicy.sources.load import read_file

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from xpolicy.policy.layers import Layer
    from xpolicy.policy.resolve import ResolvedPolicy


def resolve(
    function: Callable[..., Any] | str, namespace: str, *, device: str | None = None
) -> ResolvedPolicy:
    """Return the policy of a function in a namespace, overrides of this context included.

    Parameters
    ----------
    function : callable or str
        A decorated function, or a function key; the key need not be importable.
    namespace : str
        The array namespace: ``"torch"``, ``"jax"``, ``"numpy"``, …
    device : str, optional
        The kind of device, for rules that ask for one.

    Returns
    -------
    ResolvedPolicy
        ``.mode``, ``.supports``, ``.static_argnames``, and the namespace's options under
        its name: ``.torch.fullgraph``. What nobody set is None.

    Raises
    ------
    PolicyFileError, EnvironmentPolicyError, BackendOptionError
        If a policy can't be used.

    Examples
    --------
    >>> import xpolicy
    >>> policy = xpolicy.resolve("mylib.f", "torch")
    >>> policy.mode, policy.torch.dynamic
    ('compile', None)
    """
    key, entry = find(function)
    return session.resolve(key, checked_namespace(namespace), entry, device)


def stats(function: Callable[..., Any] | str | None = None) -> events.Stats:
    """Return what was compiled, for one function or for all.

    Examples
    --------
    >>> import xpolicy
    >>> xpolicy.stats("mylib.never_called").compilations
    0
    """
    return events.stats(None if function is None else find(function)[0])


def capabilities(function: Callable[..., Any] | str) -> dict[str, dict[str, Any]]:
    """Return what the author states about a function, for each namespace with a compiler.

    Returns
    -------
    dict
        By namespace: ``supports`` (None: not declared), ``reason``, ``static_argnames``.

    Examples
    --------
    >>> import xpolicy
    >>> @xpolicy.compile(name="mylib.sort", jax={"supports": "eager", "reason": "sorts in C"})
    ... def sort(x): ...
    >>> xpolicy.capabilities(sort)["jax"]
    {'supports': 'eager', 'reason': 'sorts in C', 'static_argnames': ()}
    """
    key, entry = find(function)
    found: dict[str, dict[str, Any]] = {}
    for name, spec in option_table().namespaces.items():
        if spec.options:
            policy = session.resolve(key, name, entry)
            found[name] = {
                "supports": policy.supports,
                "reason": policy.reason,
                "static_argnames": policy.static_argnames or (),
            }
    return found


def reload() -> None:
    """Read every file and variable again; drop what was compiled under another policy.

    A function whose policy is the same as before keeps its compiled variants.

    Raises
    ------
    PolicyFileError, EnvironmentPolicyError
        If a policy can't be used. Nothing compiled is dropped then.
    """
    before = [(entry, tuple(entry.compiled)) for entry in entries()]
    session.forget()
    # Read now, so that what is wrong is told here and not at some later call.
    raise_problems(list(session.loaded().problems))
    for entry, keys in before:
        for key in keys:
            _drop_if_changed(entry, key)


def _drop_if_changed(entry: Entry, key: tuple[str, str, str]) -> None:
    namespace, fingerprint, _ = key
    if session.resolve(entry.key, namespace, entry).fingerprint == fingerprint:
        return
    with entry.lock:
        entry.compiled.pop(key, None)


def fingerprint() -> str:
    """Return a short hash of all layers of this process and context.

    It is the same wherever the same rules hold; where they stand takes no part in it.

    Examples
    --------
    >>> import xpolicy
    >>> before = xpolicy.fingerprint()
    >>> with xpolicy.override(mode="eager"):
    ...     xpolicy.fingerprint() == before
    False
    """
    stack = overrides.current()
    layers: list[Layer] = [*session.loaded().layers, *session.everywhere]
    layers += stack.layers if stack is not None else ()
    told = [
        [
            layer.name,
            sorted(
                repr(
                    (
                        rule.pattern,
                        rule.namespace,
                        [str(condition) for condition in rule.conditions],
                        sorted(
                            (name, sorted(value.items()) if isinstance(value, dict) else value)
                            for name, value in rule.values.items()
                            if name != "reason"
                        ),
                    )
                )
                for rule in layer.rules
            ),
        ]
        for layer in layers
        if layer.rules
    ]
    return hashlib.sha256(repr(told).encode()).hexdigest()[:16]


class Report(list[Problem]):
    """What `check` found: a list of problems, errors and warnings."""

    @property
    def errors(self) -> list[Problem]:
        """Those that stop policies from being used."""
        return [problem for problem in self if problem.severity == "error"]

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not self.errors

    def __str__(self) -> str:
        return "\n\n".join(str(problem) for problem in self) or "no problems"


def check(*files: str | os.PathLike[str]) -> Report:
    """Check policy files, or everything that this process would read.

    Parameters
    ----------
    *files : path
        Policy files. Without any: the user's, the project's and the named files, the
        environment, and the files of packages whose functions are decorated.

    Returns
    -------
    Report
        A list of all problems, with lines and columns if the ``cli`` extra is installed.

    Examples
    --------
    >>> import tempfile, pathlib, xpolicy
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "xpolicy.toml")
    ...     _ = file.write_text('mode = "eagre"')
    ...     problems = xpolicy.check(file)
    >>> [(p.origin.line, p.nearest) for p in problems]
    [(1, '"eager"')]
    """
    if not files:
        problems = list(session.loaded().problems)
        seen = set()
        for entry in entries():
            problems += session.declared_rules(entry, option_table())[1]
            if entry.package not in seen:
                seen.add(entry.package)
                problems += session.library(entry.package)[2]
        return Report(place(problem) for problem in problems)
    report = Report()
    for file in files:
        _, problems = check_file(Path(file))
        report += [place(problem) for problem in problems]
    return report


def check_file(path: Path) -> tuple[Layer, list[Problem]]:
    """Check one file as what its name says it is."""
    here = surroundings()
    layer, prefix, package = "file", (), None
    if path.name == "pyproject.toml":
        layer, prefix = "project", ("tool", "xpolicy")  # type: ignore[assignment]  # a longer tuple
    elif path.name == LIBRARY_FILE:
        layer, package = "author", path.resolve().parent.name
    elif path.name == "xpolicy.toml":
        own = path.resolve() == (here.user_config_dir / "xpolicy.toml").resolve()
        layer = "user" if own else "project"
    return read_file(
        path,
        layer,
        option_table(),
        here.facts,
        version=xpolicy.__version__,
        prefix=prefix,
        package=package,
    )
