"""Lowering: from a resolved policy to keywords of the installed ``jax.jit``."""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
from typing import TYPE_CHECKING, Any

import jax

from xpolicy.backends.base import Lowered
from xpolicy.backends.jax.options import allowed
from xpolicy.errors import BackendOptionError, Problem
from xpolicy.policy.options import kebab, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from xpolicy.backends.base import Request
    from xpolicy.policy.resolve import ResolvedPolicy

#: Options of ours that are keywords of ``jax.jit`` under the same name.
JIT_OPTIONS = (
    "static_argnames",
    "donate_argnames",
    "inline",
    "keep_unused",
    "compiler_options",
)


@functools.cache
def jit_keywords() -> tuple[str, ...]:
    """Return the keywords that the installed ``jax.jit`` takes."""
    return tuple(
        name
        for name, parameter in inspect.signature(jax.jit).parameters.items()
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        and name != "fun"
    )


def problem(policy: ResolvedPolicy, option: str, message: str, **told: Any) -> Problem:
    """Return a problem with an option of a policy, with its origin and layer.

    Parameters
    ----------
    policy : ResolvedPolicy
        Whose option it is.
    option : str
        Python name; an entry of a table is ``"compiler_options.xla_…"``.
    message : str
        What is wrong.
    **told
        Further fields of `Problem`.
    """
    name, _, entry = option.partition(".")
    key = kebab(name) if name == "static_argnames" else f"jax.{kebab(name)}"
    if entry:
        key = f"{key}.{entry}"
    found = policy.provenance.get(option)
    if found is None:  # a keyword that only the decorator can give, or an option left out
        layer = "author" if name in policy.extra else ""
        return Problem(message, key=key, layer=layer, **told)
    return Problem(message, key=key, layer=found.winner.layer, origin=found.winner.origin, **told)


def located_problem(request: Request, option: str, message: str, **told: Any) -> Problem:
    """Return a `problem` found during a call, with line and column of its origin."""
    found = problem(request.policy, option, message, **told)
    return found if found.origin is None else found.replace(origin=request.locate(found.origin))


def lower(policy: ResolvedPolicy) -> Lowered:
    """Say a policy in the keywords of ``jax.jit``; what nobody set is not sent.

    Parameters
    ----------
    policy : ResolvedPolicy
        A policy for ``jax``.

    Raises
    ------
    BackendOptionError
        For what the installed jax doesn't take, all of it at once.
    """
    keywords: dict[str, Any] = {}
    rows: list[tuple[str, Any, str]] = []
    problems: list[Problem] = []
    takes = jit_keywords()
    for name in JIT_OPTIONS:
        value = policy.values.get(name)
        if value is None:
            continue
        if name not in takes:
            problems.append(
                problem(
                    policy,
                    name,
                    f"jax {jax.__version__} has no {name} in jax.jit",
                    value=repr(value),
                    allowed=", ".join(takes),
                    fix=f"remove {kebab(name)}, or install a jax that has it",
                )
            )
            continue
        if name == "compiler_options":
            value = dict(value)
            problems += _refused_by_xla(policy, value)
        elif isinstance(value, list | tuple):
            value = tuple(value)
        keywords[name] = value
        rows.append((f"jax.jit({name})", value, kebab(name)))
    for name, value in policy.extra.items():
        if name in takes:
            keywords[name] = value
            rows.append((f"jax.jit({name})", value, "the decorator's jax table"))
        else:
            problems.append(
                problem(
                    policy,
                    name,
                    f"jax {jax.__version__} has no {name!r} in jax.jit",
                    value=repr(value),
                    allowed=", ".join((*takes, *(n for n in policy.values if n not in takes))),
                    nearest=nearest(name, (*takes, *policy.values)),
                )
            )
    if problems:
        raise BackendOptionError(problems)
    if policy.values.get("static") == "auto":
        rows.append(("static", "auto", "strings, callables, modules, dtypes, … are constants"))
    return Lowered(keywords, tuple(rows), _notes(policy, keywords), jax.__version__)


def _notes(policy: ResolvedPolicy, keywords: Mapping[str, Any]) -> tuple[str, ...]:
    """Return remarks for ``explain``: what can do nothing here, or not everywhere."""
    notes = []
    if policy.values.get("on_failure") == "eager" and policy.mode == "fullgraph":
        notes.append('on-failure = "eager" does nothing in mode fullgraph')
    outermost = [n for n in ("compiler_options", "donate_argnames") if keywords.get(n)]
    if outermost:
        told = " and ".join(f"jax.{kebab(name)}" for name in outermost)
        notes.append(f"{told}: not applied to calls inside another jax trace (jit, grad, vmap)")
    platform = jax.default_backend() if keywords.get("compiler_options") else ""
    for name in keywords.get("compiler_options") or ():
        wanted = next((kind for kind in ("cpu", "gpu", "tpu") if f"xla_{kind}_" in name), platform)
        if wanted != platform:
            notes.append(f"{name} does nothing on {platform}, jax's platform in this process")
    return tuple(notes)


def _refused_by_xla(policy: ResolvedPolicy, options: Mapping[str, Any]) -> Iterable[Problem]:
    """Yield a problem for each option that XLA doesn't take, by asking it."""
    if _xla_says(tuple(sorted(options.items(), key=lambda item: item[0]))) is None:
        return
    for name, value in options.items():
        said = _xla_says(((name, value),))
        if said is not None:
            known = "No such" not in said
            said = said.removeprefix("INVALID_ARGUMENT: ")
            yield problem(
                policy,
                f"compiler_options.{name}",
                f"XLA of jaxlib {_jaxlib_version()} on {jax.default_backend()} "
                + (f"refuses the value of {name}" if known else f"has no option {name}"),
                value=repr(value),
                allowed=said.rpartition(f"{name}, ")[2] if known else None,
                nearest=None if known else nearest(name, allowed()),
            )


def _jaxlib_version() -> str:
    return importlib.metadata.version("jaxlib")


def _xla_says(options: tuple[tuple[str, Any], ...]) -> str | None:
    # A bool and an int compare equal but XLA tells them apart.
    return _compile_nothing(options, tuple(type(value) for _, value in options))


@functools.cache
def _compile_nothing(options: tuple[tuple[str, Any], ...], types: tuple[type, ...]) -> str | None:
    """Return XLA's complaint about options, by compiling a program that does nothing.

    XLA checks names and values nowhere else than on the way to compiling: 15 ms, once a
    process for each set of options.
    """

    def check_of_compiler_options() -> int:
        return 0

    try:
        jax.jit(check_of_compiler_options).lower().compile(compiler_options=dict(options))
    except (jax.errors.JaxRuntimeError, TypeError, ValueError) as error:
        return str(error).strip().splitlines()[0]
    return None
