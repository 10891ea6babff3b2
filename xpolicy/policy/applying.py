"""The key ``apply``: libraries whose functions nobody decorated, to be put under policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xpolicy.errors import Problem
from xpolicy.policy.options import OptionSpec
from xpolicy.policy.patterns import is_key
from xpolicy.policy.writing import dotted, show

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from xpolicy._origin import Origin

APPLY = "apply"
SPEC = OptionSpec(
    name=APPLY,
    doc="Packages, modules, classes and functions that `xpolicy.install()` puts under policy.",
    kind="list",
    capability=True,  # "unset" means nothing here: the lists of all layers add up
    example='["array_api_extra", "scipy.special.expit"]',
)


def read_applied(
    body: Mapping[str, Any], origin: Origin, layer: str
) -> tuple[list[tuple[str, Origin]], list[Problem]]:
    """Return what a document names, each with its place, and what is wrong in it.

    Parameters
    ----------
    body : mapping
        A document whose form has been checked.
    origin : Origin
        The place of its root.
    layer : str
        The layer's name.
    """
    found: list[tuple[str, Origin]] = []
    problems: list[Problem] = []
    names: Iterable[str] = body.get(APPLY, ())
    for number, name in enumerate(names):
        where = origin.child(APPLY, number)
        told: dict[str, Any] = {"origin": where, "key": dotted((APPLY, number)), "layer": layer}
        if layer == "author":
            problems.append(
                Problem(
                    "a library's own file applies nothing: its functions are decorated",
                    allowed="it may stand in user and project files, XPOLICY_FILE and XPOLICY_TOML",
                    fix=f"remove {APPLY}, and decorate with @xpolicy.compile",
                    value=show(name),
                    **told,
                )
            )
            break
        if is_key(name):
            found.append((name, where))
            continue
        meant = name.strip().removesuffix(".*").replace("-", "_")
        problems.append(
            Problem(
                f"{show(name)} is not the dotted name of a package, class or function",
                value=show(name),
                allowed='import names, such as "array_api_extra" or "scipy.special.expit"',
                fix=f"write {show(meant)}" if is_key(meant) else None,
                **told,
            )
        )
    return found, problems
