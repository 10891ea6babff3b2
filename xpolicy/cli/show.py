"""``xpolicy show``: what a process started here reads, and what it comes to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

import xpolicy
from xpolicy.backends.registry import option_table
from xpolicy.cli.explain import unseen
from xpolicy.cli.imports import import_for, importable_from_here
from xpolicy.cli.output import write
from xpolicy.cli.usage import UsageError, check_keys, namespaces_given
from xpolicy.errors import BackendOptionError, Problem
from xpolicy.policy.emit import effective as effective_file
from xpolicy.policy.mistakes import show as shown
from xpolicy.runtime.explain import columns, where
from xpolicy.runtime.session import builtin_layer_of, find, session, surroundings
from xpolicy.sources.author import FILE_NAME
from xpolicy.sources.environment import injected

if TYPE_CHECKING:
    from xpolicy.policy.resolve import ResolvedPolicy

_NAMESPACES = ("torch", "jax")


def show(
    *names: Annotated[str, Parameter(show=False)],
    effective: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    namespace: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    import_: Annotated[bool, Parameter(name="--import", negative="")] = False,
) -> None:
    """Show layers, files and variables; or a policy file that says what they come to.

    Parameters
    ----------
    names
        None are taken: they belong behind --effective.
    effective
        Names of functions: print a TOML file that, named in XPOLICY_FILE and with no
        other, gives them the policies that they have now.
    namespace
        The namespaces that --effective is for; torch and jax by default.
    import_
        Import the functions' code, so that what their decorators say is seen.
    """
    if names:
        told = " ".join(names)
        raise UsageError(
            Problem(
                "xpolicy show takes no names: it shows what a process reads",
                value=told,
                fix=f"xpolicy show --effective {told}, for a file that says what they come to; "
                f"or xpolicy explain {names[0]}, for who said so",
            )
        )
    option_table(plugins=True)
    namespaces = namespaces_given(namespace or _NAMESPACES)
    if effective is not None:
        with importable_from_here():
            write(_effective(effective, namespaces, imports=import_))
    elif namespace is not None or import_:
        given = "--import" if namespace is None else "--namespace"
        raise UsageError(
            Problem(
                f"{given} says for what --effective is, which isn't there",
                fix=f"xpolicy show --effective NAME {given}, or without {given}",
            )
        )
    else:
        write("\n".join([*_layers(), "", *_files(), "", *_variables()]))


def _effective(names: list[str], namespaces: list[str], *, imports: bool) -> str:
    names = list(dict.fromkeys(names))
    check_keys(names)
    for name in names:
        if imports:
            import_for(name)
    policies = [_on_devices(name, namespace) for name in names for namespace in namespaces]
    head = [
        f"What xpolicy {xpolicy.__version__} resolves here, to be named in XPOLICY_FILE:",
        f"{', '.join(names)} for {', '.join(namespaces)}",
        *(f"{name}: {note}" for name in names for note in unseen(name)),
    ]
    try:
        text = effective_file(policies, option_table())
    except ValueError as error:
        raise BackendOptionError([Problem(str(error))]) from error
    return "\n".join([*(f"# {line}" for line in head), "", text])


def _on_devices(key: str, namespace: str) -> tuple[ResolvedPolicy, dict[str, ResolvedPolicy]]:
    """Resolve a function without a device, and on each that some rule waits for."""
    entry = find(key)[1]
    devices = {
        rule.device: None
        for layer in session.layers_for(key, entry)
        for rule in layer.reaching(key, namespace)
        if rule.device is not None
    }
    return (
        session.resolve(key, namespace, entry),
        {device: session.resolve(key, namespace, entry, device) for device in devices},
    )


def _layers() -> list[str]:
    loaded = session.loaded()
    built_in = builtin_layer_of(option_table())
    rows = [
        (built_in.name, built_in.label, _rules(len(built_in.rules))),
        ("author", f"decorators, and {FILE_NAME} in each package", "read at first use"),
        *((layer.name, layer.label, _rules(len(layer.rules))) for layer in loaded.layers),
    ]
    if session.disabled:
        del rows[1]
    lines = ["layers, low to high:"]
    lines += columns([(f"  {place}", *row) for place, row in enumerate(rows, 1)])
    unmet = [block for layer in loaded.layers for block in layer.unmet]
    if unmet:
        lines += ["", "conditions that do not hold:"]
        lines += columns([(f"  {where(u.origin)}", u.condition, u.reason) for u in unmet])
    errors = len(loaded.errors)
    if errors:
        these = "error: policies can't be used before it is mended"
        if errors > 1:
            these = "errors: policies can't be used before they are mended"
        lines += ["", f"{errors} {these} (xpolicy check tells all)"]
    return lines


def _rules(number: int) -> str:
    return f"{number} rule" if number == 1 else f"{number} rules"


def _files() -> list[str]:
    loaded = session.loaded()
    if session.disabled:
        return ["files: none is looked for, XPOLICY_DISABLE is on"]
    broken = {p.origin.label for p in loaded.errors if p.origin is not None}
    rows = []
    for candidate in loaded.candidates:
        status = {"found": "read", "absent": "not there", "skipped": "skipped"}[candidate.status]
        if candidate.status == "found" and str(candidate.path) in broken:
            status = "broken"
        reason = "" if candidate.status == "absent" else candidate.reason
        rows.append((f"  {candidate.layer}", str(candidate.path), status, reason))
    return ["files looked for:", *columns(rows)] if rows else ["files looked for: none"]


def _variables() -> list[str]:
    environ = surroundings().environ
    ignored = {
        p.origin.label: p.message
        for p in session.loaded().problems
        if p.origin is not None and p.origin.kind == "variable"
    }
    rows = [
        (f"  {name}", shown(value), ignored.get(name, ""))
        for name, value in sorted(environ.items())
        if name.startswith("XPOLICY_") and value.strip() and not injected(name, value)
    ]
    if not rows:
        lines = ["variables: none is set"]
    else:
        lines = ["variables:", *columns(rows)]
    switch = "on: everything runs eager" if session.disabled else "off"
    return [*lines, "", f"kill switch (XPOLICY_DISABLE): {switch}"]
