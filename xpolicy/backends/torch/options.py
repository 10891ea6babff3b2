"""The options of the ``torch`` namespace and the spelling rules for them. No torch here."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Literal

from xpolicy.policy.options import (
    AtLeastZero,
    LimitAction,
    NamespaceSpec,
    RecompileLimits,
    Unset,
    option,
)
from xpolicy.policy.writing import show

CompileMode = Literal[
    "default", "lite", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune"
]
#: What may stand in ``options``; a table is a group (``triton = { cudagraphs = true }``).
OptionValue = bool | int | float | str | list[Any] | dict[str, Any] | None

#: What only inductor takes: torch logs and ignores it with any other backend.
ONLY_INDUCTOR = ("compile_mode", "options", "cudagraphs")
CUDAGRAPHS = "triton.cudagraphs"
INDUCTOR = "inductor"


class TorchOptions(RecompileLimits):
    """How ``torch.compile`` is called."""

    fullgraph: bool | Unset | None = option(
        """Whether the function must become one whole graph; a graph break is an error then.
        Sets strictness alone: whether to compile at all is ``mode``'s to say.""",
        example="true",
    )
    dynamic: bool | Unset | None = option(
        """Whether sizes are symbols in the compiled code from the start (true), never
        (false), or once they are seen to vary (unset).""",
        example="false",
    )
    backend: str | Unset | None = option(
        """The compiler, by the name that it is registered under in
        ``torch.compiler.list_backends()``. Unset means inductor. A decorator may give a
        function instead, which is called with each graph and its example inputs.""",
        takes_callable=True,
        example='"aot_eager"',
    )
    compile_mode: CompileMode | Unset | None = option(
        """A preset of inductor options: what torch calls ``mode``. Weaker than any entry of
        ``options`` and than ``cudagraphs``, whatever layer they stand in.""",
        example='"max-autotune"',
    )
    options: dict[str, OptionValue] | Unset | None = option(
        """Options of the inductor compiler, by the names of
        ``torch._inductor.list_options()``. Merged key by key.""",
        allow_listed=True,
        example="{ epilogue_fusion = true, max_autotune = true }",
    )
    cudagraphs: bool | Unset | None = option(
        """Whether kernels are recorded and replayed as CUDA graphs. Does nothing where
        there is no CUDA device.""",
        example="true",
    )
    graph_break_limit: AtLeastZero | Unset | None = option(
        """How many distinct graph breaks, by file and line, the function may have. 0 asks
        for one whole graph, as ``fullgraph`` does. Not looked at in mode ``fullgraph``.""",
        example="2",
    )
    on_graph_break_limit: LimitAction | Unset | None = option(
        """What happens when there are more: raise ``GraphBreakLimitError``, warn once, or
        run the original function silently.""",
        default="warn",
        example='"error"',
    )


def _flatten(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Return a table's entries with dotted names, in torch's spelling.

    Examples
    --------
    >>> _flatten({"triton": {"cudagraphs": True}, "max-autotune": False})
    [('triton.cudagraphs', True), ('max_autotune', False)]
    """
    entries: list[tuple[str, Any]] = []
    for name, value in table.items():
        dotted = prefix + name.replace("-", "_")
        if isinstance(value, Mapping):
            entries += _flatten(value, dotted + ".")
        else:
            entries.append((dotted, value))
    return entries


def normalise(values: dict[str, Any]) -> list[tuple[str, str]]:
    """Bring the spellings inside one rule to one form, in place.

    Nested tables in ``options`` become dotted names, ``triton.cudagraphs`` becomes
    ``cudagraphs``, and ``-`` becomes ``_`` as torch itself does.

    Returns
    -------
    list of (str, str)
        Options that the rule sets twice and differently, or that the backend it sets
        doesn't take, each with a sentence.
    """
    contradictions: list[tuple[str, str]] = []
    table = values.get("options")
    if isinstance(table, Mapping):
        flat: dict[str, Any] = {}
        for name, value in _flatten(table):
            if name in flat and not _same(flat[name], value):
                contradictions.append(
                    (
                        f"options.{name}",
                        f"the same rule sets {name} twice: {flat[name]!r} and {value!r}",
                    )
                )
            flat[name] = value
        if CUDAGRAPHS in flat:
            inside = flat.pop(CUDAGRAPHS)
            if "cudagraphs" in values and not _same(values["cudagraphs"], inside):
                contradictions.append(
                    (
                        "cudagraphs",
                        (
                            f"cudagraphs is {values['cudagraphs']!r} and options.{CUDAGRAPHS}, "
                            f"another spelling of it, is {inside!r} in the same rule"
                        ),
                    )
                )
            values["cudagraphs"] = inside
        if flat or not table:
            values["options"] = flat
        else:
            del values["options"]
    told = values.get("backend")
    told = show(told) if callable(told) else repr(told)
    contradictions += [
        (name, f"the same rule sets backend = {told}, which doesn't take it")
        for name in dropped(values)
        if "." not in name and values[name] != "unset"
    ]
    return contradictions


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def dropped(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the set options that the chosen backend doesn't take, each with the reason.

    Examples
    --------
    >>> dropped({"backend": "eager", "compile_mode": "max-autotune"})
    {'compile_mode': "only the inductor backend takes it, and backend = 'eager'"}
    """
    backend = values.get("backend")
    if backend in (None, "unset", INDUCTOR):
        return {}
    told = show(backend) if callable(backend) else repr(backend)
    reason = f"only the inductor backend takes it, and backend = {told}"
    return {name: reason for name in ONLY_INDUCTOR if values.get(name) is not None}


@cache
def reviewed() -> tuple[frozenset[str], tuple[tuple[str, str], ...]]:
    """Return the allow-list of inductor options, and why each other group is left out."""
    text = resources.files(__package__).joinpath("allowed_options.toml").read_text("utf-8")
    document = tomllib.loads(text)
    allowed = frozenset(name for group in document["allowed"] for name in group["names"])
    refusals = tuple(
        (pattern, group["reason"]) for group in document["refused"] for pattern in group["names"]
    )
    return allowed, refusals


def refused(option: str, key: str) -> str | None:
    """Return why an entry of ``options`` may not be set in an author or project file.

    Examples
    --------
    >>> refused("options", "max_autotune") is None
    True
    >>> refused("options", "cpp.cxx")
    'it names the compiler program and how it is called'
    """
    if option != "options":
        return None
    allowed, refusals = reviewed()
    name = key.replace("-", "_")
    if name in allowed or name == CUDAGRAPHS:
        return None
    for pattern, reason in refusals:
        if name == pattern or (pattern.endswith(".*") and name.startswith(pattern[:-1])):
            return reason
    return "it has not been reviewed as harmless"


SPEC = NamespaceSpec(
    "torch",
    TorchOptions,
    strict_option="fullgraph",
    normalise=normalise,
    dropped=dropped,
    refused=refused,
)
