"""What the installed compilers say to the options that policies set for them."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from typing import TYPE_CHECKING

from xpolicy.backends.registry import backend_for, option_table
from xpolicy.cli.imports import installed
from xpolicy.errors import BackendOptionError, Problem
from xpolicy.policy.options import kebab
from xpolicy.policy.resolve import resolve
from xpolicy.runtime.session import builtin_layer_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xpolicy.backends.base import Backend
    from xpolicy.policy.layers import Layer, Rule
    from xpolicy.policy.resolve import ResolvedPolicy

#: A name below a pattern, for what a pattern says of functions that no other rule names.
_ANY = "__any__"


def compiler_problems(layers: list[Layer]) -> Iterator[Problem]:
    """Yield what compilers would refuse, of each policy that the rules come to.

    A compiler is imported only if a rule sets options in its namespace: torch takes two
    seconds.

    Parameters
    ----------
    layers : list of Layer
        Layers that work together, low to high.
    """
    for namespace in option_table().namespaces:
        rules = [r for layer in layers for r in layer.rules if r.namespace == namespace]
        backend = backend_for(namespace) if rules else None
        if backend is None or not installed(backend.module):
            continue
        failure = _imported(backend)
        if failure is not None:
            yield failure
        else:
            yield from _refused(backend, layers, rules, namespace)


def _imported(backend: Backend) -> Problem | None:
    try:
        importlib.import_module(backend.module)
    except Exception as error:  # noqa: BLE001  # whatever a broken installation raises
        return Problem(
            f"{backend.module} is installed and can't be imported, so its options were not "
            f"checked: {type(error).__name__}: {error}",
            severity="warning",
        )
    return None


def _refused(
    backend: Backend, layers: list[Layer], rules: list[Rule], namespace: str
) -> Iterator[Problem]:
    table = option_table()
    every = [builtin_layer_of(table), *layers]
    seen: set[str] = set()
    for rule in rules:
        key = (rule.pattern or "*").replace("*", _ANY)
        policy = resolve(every, table, key, namespace, rule.device)
        if policy.fingerprint in seen:
            continue
        seen.add(policy.fingerprint)
        try:
            backend.lower(policy)
        except BackendOptionError as error:
            for problem in error.problems:
                yield _from(problem, policy)
        if namespace == "torch" and _wants_cpp(policy, rule):
            said = policy.provenance["mode"].winner
            yield Problem(
                f"there is no C++ compiler here ({_cpp_compiler()}), and inductor needs one for "
                "arrays on the CPU",
                origin=rule.origin,
                layer=said.layer,
                fix='install one, or set torch.backend = "aot_eager" or mode = "eager"',
                severity="warning",
            )


def _from(problem: Problem, policy: ResolvedPolicy) -> Problem:
    """Add the layer that the refused option comes from."""
    if problem.layer:
        return problem
    for name, history in policy.provenance.items():
        if history.winner.origin == problem.origin or kebab(name) == problem.key:
            return problem.replace(layer=history.winner.layer)
    return problem


def _wants_cpp(policy: ResolvedPolicy, rule: Rule) -> bool:
    return (
        policy.mode != "eager"
        and rule.device in (None, "cpu")
        and policy.backend in (None, "inductor")
        and shutil.which(_cpp_compiler()) is None
    )


def _cpp_compiler() -> str:
    """Return the program that inductor would call: CXX, or the platform's own."""
    default = {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")
    return os.environ.get("CXX") or default
