"""The options of ``jax``, as policies spell them. Nothing here needs jax."""

from __future__ import annotations

import functools
import tomllib
from fnmatch import fnmatchcase
from importlib import resources
from typing import Any, Literal

from pydantic import StrictBool, StrictFloat, StrictInt, StrictStr  # noqa: TC002  # read by pydantic

from xpolicy.policy.options import NamespaceSpec, RecompileLimits, Unset, option


class JaxOptions(RecompileLimits):
    """Options that ``jax.jit`` understands, and ours about it."""

    inline: bool | Unset | None = option(
        """Whether the function is inlined into the computations that call it, where it is
        called inside another compiled function.""",
        example="true",
    )
    donate_argnames: list[str] | Unset | None = option(
        """Names of arguments whose memory the result may use; such an array can't be used
        after the call. Ignored where the function is called inside another trace.""",
        example='["state"]',
    )
    keep_unused: bool | Unset | None = option(
        "Whether arguments that the function doesn't use are passed to the compiled program.",
        example="true",
    )
    compiler_options: dict[str, StrictBool | StrictInt | StrictFloat | StrictStr] | Unset | None = (
        option(
            """XLA's own options, by name. Ignored where the function is called inside another
        trace: there the outermost function's apply.""",
            allow_listed=True,
            example="{ xla_cpu_enable_fast_math = true }",
        )
    )
    static: Literal["auto"] | Unset | None = option(
        """``auto`` makes constants of arguments that jax can't trace anyway, without naming
        them: strings, bytes, booleans, callables, modules, dtypes and enumerations. Numbers
        stay traced unless they are named in ``static-argnames``.""",
        example='"auto"',
    )


@functools.cache
def _review() -> dict[str, Any]:
    """Return the reviewed list of XLA options, read when a file first sets one."""
    found = resources.files(__package__).joinpath("allowed_compiler_options.toml")
    return tomllib.loads(found.read_text(encoding="utf-8"))


@functools.cache
def allowed() -> frozenset[str]:
    """Return the XLA options that author and project files may set."""
    return frozenset(name for group in _review()["allowed"] for name in group["names"])


def refused(option: str, key: str) -> str | None:
    """Return why a compiler option may not stand in an author or project file.

    Parameters
    ----------
    option : str
        The table's name, ``"compiler_options"``.
    key : str
        The compiler option's name.

    Examples
    --------
    >>> refused("compiler_options", "xla_cpu_enable_fast_math") is None
    True
    >>> refused("compiler_options", "xla_dump_to")
    'it writes files'
    """
    if option != "compiler_options" or key in allowed():
        return None
    for group in _review()["left-out"]:
        if any(fnmatchcase(key, pattern) for pattern in group["patterns"]):
            return str(group["reason"])
    return "it is not on the reviewed list of options that only change the compiled code"


def normalise(values: dict[str, Any]) -> list[tuple[str, str]]:
    """Bring XLA option names to XLA's own spelling, with underscores.

    Parameters
    ----------
    values : dict
        The options of one rule; changed in place.

    Returns
    -------
    list of (str, str)
        Options that contradict themselves, each with what to say about it.
    """
    table = values.get("compiler_options")
    if not isinstance(table, dict):
        return []
    problems: list[tuple[str, str]] = []
    spelt: dict[str, Any] = {}
    for key, value in table.items():
        name = key.removeprefix("--").replace("-", "_")
        if name in spelt and (spelt[name] != value or type(spelt[name]) is not type(value)):
            problems.append(
                (
                    "compiler_options",
                    f"{name} is set twice, to {spelt[name]!r} and to {value!r}: keep one",
                )
            )
        spelt[name] = value
    values["compiler_options"] = spelt
    return problems


SPEC = NamespaceSpec(
    "jax", JaxOptions, aliases=("jax.numpy",), normalise=normalise, refused=refused
)
