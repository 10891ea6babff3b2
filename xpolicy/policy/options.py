"""The option table: each option declared once, everything else generated from it.

An option is a field of a pydantic model. `GeneralOptions` holds those that every
namespace understands; each backend brings a model of its own. `OptionTable` puts them
together, and validation, environment parsing, the JSON Schema, suggestions, ``explain``
and the reference page all read that table.
"""

from __future__ import annotations

import difflib
import types
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

MODES = ("eager", "compile", "fullgraph")
Mode = Literal["eager", "compile", "fullgraph"]
Unset = Literal["unset"]
AtLeastOne = Annotated[int, Field(ge=1)]
AtLeastZero = Annotated[int, Field(ge=0)]
LimitAction = Literal["error", "warn", "eager"]

#: Top-level keys that are no option and no namespace.
RESERVED = ("functions", "when", "cache", "testing", "requires", "apply", "warmup")
#: Array namespaces known by name, whether or not anything can compile for them.
KNOWN_NAMESPACES = (
    "numpy",
    "torch",
    "jax",
    "cupy",
    "dask",
    "sparse",
    "ndonnx",
    "array_api_strict",
)
#: Device kinds, one vocabulary over all compilers.
DEVICES = ("cpu", "cuda", "rocm", "xpu", "tpu", "mps")


def kebab(name: str) -> str:
    """Return the TOML spelling of a Python option name."""
    return name.replace("_", "-")


def option(
    doc: str,
    *,
    capability: bool = False,
    allow_listed: bool = False,
    takes_callable: bool = False,
    default: Any = None,
    example: str | None = None,
    form: str | None = None,
) -> Any:
    """Declare an option as a field of an `OptionModel`.

    Parameters
    ----------
    doc : str
        What the option does. The first sentence stands in tables.
    capability : bool
        True for a fact that the author states; False for a preference.
    allow_listed : bool
        True for a table of compiler options that author and project files may set only
        from an allow-list.
    default : object
        What ``built-in`` sets. None means that nobody sets it.
    takes_callable : bool
        Whether a decorator may give a Python callable in place of a name.
    example : str, optional
        A TOML value for the reference page.
    form : str, optional
        What may be given, in words, where the type alone doesn't say it.
    """
    extra: dict[str, Any] = {
        "x-capability": capability,
        "x-takes-callable": takes_callable,
        "x-allow-listed": allow_listed,
        "x-builtin": default,
    }
    if example is not None:
        extra["x-example"] = example
    if form is not None:
        extra["x-form"] = form
    return Field(default=None, description=" ".join(doc.split()), json_schema_extra=extra)


class OptionModel(BaseModel):
    """Base of all option models: strict types, kebab-case keys, nothing unknown."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, alias_generator=kebab, protected_namespaces=()
    )


class GeneralOptions(OptionModel):
    """Options that every namespace understands."""

    mode: Mode | Unset | None = option(
        """Whether to compile, and how strictly. ``eager`` runs the original function,
        ``compile`` compiles what can be compiled, ``fullgraph`` demands one whole graph.""",
        default="compile",
        example='"fullgraph"',
    )
    supports: Mode | None = option(
        """The strictest mode that the function can be run in; caps ``mode``. A fact that the
        function's author states. Not declared means no cap.""",
        capability=True,
        example='"compile"',
    )
    reason: str | None = option(
        "Why ``supports`` is what it is; shown wherever a mode was capped.",
        capability=True,
        example='"the number of iterations depends on the data"',
    )
    static_argnames: list[str] | None = option(
        """Names of arguments that are constants to the compiler: each value gets a compiled
        variant of its own.""",
        capability=True,
        example='["n", "axis"]',
    )
    on_failure: Literal["error", "eager"] | Unset | None = option(
        """What happens when the compiler cannot trace the function. ``eager`` runs the
        original function instead, remembers that, and warns once; Python side effects that
        came before the failure happen twice. Never applied in mode ``fullgraph``.""",
        default="error",
        example='"eager"',
    )


class RecompileLimits(OptionModel):
    """Options about recompilation, the same for every compiler."""

    recompile_limit: AtLeastOne | Unset | None = option(
        "How many compiled variants one function may have; 1 allows one.", example="4"
    )
    on_recompile_limit: LimitAction | Unset | None = option(
        """What happens to a call that would need one variant more: raise
        ``RecompileLimitError``, warn once and run the original function, or run the original
        function silently. Variants that exist stay compiled.""",
        default="warn",
        example='"error"',
    )


@dataclass(frozen=True)
class OptionSpec:
    """One row of the option table."""

    name: str  # as Python spells it
    doc: str
    kind: Literal["boolean", "integer", "number", "string", "choice", "list", "table"]
    capability: bool = False
    allow_listed: bool = False
    takes_callable: bool = False
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    builtin: Any = None
    example: str | None = None
    namespace: str | None = None
    form: str | None = None

    @property
    def key(self) -> str:
        """The option's name in TOML, without its namespace."""
        return kebab(self.name)

    @property
    def full_key(self) -> str:
        """The option's name in TOML, with its namespace."""
        return f"{self.namespace}.{self.key}" if self.namespace else self.key

    @property
    def allowed(self) -> str:
        """What may be given, in words."""
        words = ", ".join(f'"{choice}"' for choice in self.choices)
        text = {
            "boolean": "true or false",
            "integer": f"a whole number of at least {self.minimum}"
            if self.minimum is not None
            else "a whole number",
            "number": "a number",
            "string": "a string",
            "choice": words,
            "list": f"a list of {words or 'strings'}",
            "table": "a table",
        }[self.kind]
        text = self.form or text
        return text if self.capability else f'{text}, or "unset"'


def _branches(annotation: Any) -> Iterable[Any]:
    if get_origin(annotation) in (Union, types.UnionType):
        for branch in get_args(annotation):
            yield from _branches(branch)
    else:
        yield annotation


def _minimum(metadata: Iterable[Any]) -> int | None:
    for item in metadata:
        if isinstance(item, FieldInfo):
            return _minimum(item.metadata)
        if isinstance(item, annotated_types.Ge) and isinstance(item.ge, int):
            return item.ge
    return None


def _spec(name: str, info: FieldInfo, namespace: str | None) -> OptionSpec:
    extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    kind: Any = None
    choices: tuple[str, ...] = ()
    minimum = _minimum(info.metadata)
    for branch in _branches(info.annotation):
        if get_origin(branch) is Annotated:
            branch, *metadata = get_args(branch)  # noqa: PLW2901  # unwrapping the loop's own item
            minimum = _minimum(metadata)
        origin = get_origin(branch)
        if origin is Literal:
            choices += tuple(str(c) for c in get_args(branch) if c != "unset")
        elif branch in (bool, int, float, str):
            kind = {bool: "boolean", int: "integer", float: "number", str: "string"}[branch]
        elif origin is list:
            kind = "list"
            (item,) = get_args(branch)
            choices += get_args(item) if get_origin(item) is Literal else ()
        elif origin is dict:
            kind = "table"
    return OptionSpec(
        name=name,
        doc=info.description or "",
        kind=kind or "choice",
        capability=bool(extra.get("x-capability")),
        allow_listed=bool(extra.get("x-allow-listed")),
        takes_callable=bool(extra.get("x-takes-callable")),
        choices=choices,
        minimum=minimum,
        builtin=extra.get("x-builtin"),
        example=extra.get("x-example"),  # type: ignore[arg-type]  # ours are strings
        namespace=namespace,
        form=extra.get("x-form"),  # type: ignore[arg-type]  # as above
    )


def specs(model: type[BaseModel], namespace: str | None = None) -> dict[str, OptionSpec]:
    """Return the rows that a model declares, by Python name."""
    return {name: _spec(name, info, namespace) for name, info in model.model_fields.items()}


def _no_change(values: dict[str, Any]) -> list[tuple[str, str]]:
    return []


def _nothing_dropped(values: Mapping[str, Any]) -> dict[str, str]:
    return {}


def _all_allowed(option: str, key: str) -> str | None:
    return None


@dataclass(frozen=True)
class NamespaceSpec:
    """What the policy language knows about one namespace.

    Parameters
    ----------
    name : str
        The namespace, by array-api-compat's name.
    model : type of OptionModel
        Its options.
    aliases : tuple of str
        Other accepted spellings of the table's name.
    strict_option : str or None
        The boolean option that sets strictness alone (``fullgraph`` for torch).
    normalise : callable
        Brings spellings inside one rule to one form, in place. Returns
        ``(option, message)`` for what contradicts itself.
    dropped : callable
        From the merged options, those that the chosen compiler backend doesn't take,
        each with the reason.
    refused : callable
        ``(option, key) -> reason or None``: why a compiler option may not be set in an
        author or project file.
    """

    name: str
    model: type[OptionModel]
    aliases: tuple[str, ...] = ()
    strict_option: str | None = None
    normalise: Callable[[dict[str, Any]], list[tuple[str, str]]] = _no_change
    dropped: Callable[[Mapping[str, Any]], dict[str, str]] = _nothing_dropped
    refused: Callable[[str, str], str | None] = _all_allowed
    options: dict[str, OptionSpec] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", specs(self.model, self.name))


class NoOptions(OptionModel):
    """The options of a namespace that no backend compiles for: none of its own."""


class OptionTable:
    """All options of all namespaces that are known in this process.

    Parameters
    ----------
    namespaces : iterable of NamespaceSpec
        One for each backend. Namespaces that are known by name but have no backend are
        added with no options of their own.
    """

    def __init__(self, namespaces: Iterable[NamespaceSpec] = ()) -> None:
        self.general = specs(GeneralOptions)
        self.namespaces: dict[str, NamespaceSpec] = {
            name: NamespaceSpec(name, NoOptions) for name in KNOWN_NAMESPACES
        }
        for spec in namespaces:
            self.namespaces[spec.name] = spec
        self.aliases: dict[str, str] = {"jax.numpy": "jax", "dask.array": "dask"}
        for spec in self.namespaces.values():
            self.aliases.update(dict.fromkeys(spec.aliases, spec.name))
        self._by_key: dict[str | None, dict[str, OptionSpec]] = {}

    def canonical(self, namespace: str) -> str:
        """Return a namespace's own name for any accepted spelling."""
        return self.aliases.get(namespace, namespace)

    def of(self, namespace: str | None) -> dict[str, OptionSpec]:
        """Return the options that may stand in a table of this namespace, by TOML key."""
        found = self._by_key.get(namespace)
        if found is None:
            rows = list(self.general.values())
            if namespace is not None and namespace in self.namespaces:
                rows += self.namespaces[namespace].options.values()
            found = self._by_key[namespace] = {row.key: row for row in rows}
        return found

    def every(self) -> list[OptionSpec]:
        """Return all rows, general ones first, then by namespace."""
        rows = list(self.general.values())
        for spec in self.namespaces.values():
            rows += spec.options.values()
        return rows


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that a misspelt name most likely means, or None."""
    pool = list(candidates)
    folded = name.replace("_", "-").lower()
    for candidate in pool:
        if candidate.replace("_", "-").lower() == folded:
            return candidate
    found = difflib.get_close_matches(name, pool, n=1, cutoff=0.6)
    return found[0] if found else None
