"""The form of a document: the model that it is checked by, and what is wrong in its words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field, ValidationError, create_model

from xpolicy.errors import Problem
from xpolicy.policy.applying import APPLY
from xpolicy.policy.applying import SPEC as APPLYING
from xpolicy.policy.cache import CACHE, CacheOptions
from xpolicy.policy.mistakes import Path, explain_mistake, place
from xpolicy.policy.options import GeneralOptions, NoOptions, OptionTable
from xpolicy.policy.testing import TESTING, testing_model
from xpolicy.policy.warmup import DOC as WARMUP_DOC
from xpolicy.policy.warmup import WARMUP
from xpolicy.policy.writing import dotted

if TYPE_CHECKING:
    from xpolicy._origin import Origin


#: How many problems of one document are told.
MOST = 100


@dataclass(frozen=True)
class Models:
    """The pydantic models of a document, built from one option table."""

    document: type[BaseModel]
    namespaces: Mapping[str, type[BaseModel]]


@lru_cache(maxsize=8)
def models(table: OptionTable) -> Models:
    """Build the models of documents for an option table (once for each table)."""
    namespaces: dict[str, type[BaseModel]] = {}
    for name, spec in table.namespaces.items():
        namespaces[name] = create_model(
            f"{name.title().replace('_', '')}Table",
            __base__=(spec.model, GeneralOptions),
            __doc__=f"Options for {name} arrays.",
        )
    fields = _namespace_fields(namespaces, table)
    # What its lists hold is checked elsewhere (`xpolicy.policy.warmup`), as conditions are.
    warmup: Any = {WARMUP: (Any, Field(default=None, description=WARMUP_DOC))}
    of_functions = {
        name: create_model(
            f"Function{model.__name__}", __base__=model, __doc__=model.__doc__, **warmup
        )
        for name, model in namespaces.items()
    }
    function = create_model(
        "FunctionTable",
        __base__=GeneralOptions,
        __doc__="Options for the functions that the table's name matches.",
        **_namespace_fields(of_functions, table),
        **warmup,
    )
    # These types are made at run time: no checker can follow them.
    functions: Any = (
        dict[str, function] | None,
        Field(default=None, description='Function keys or patterns ("mylib.*") and their options.'),
    )
    when = create_model(
        "WhenTable",
        __base__=GeneralOptions,
        __doc__="Options that hold only under conditions.",
        device=(Any, Field(default=None, description="Kind of device.")),
        python=(Any, Field(default=None, description="PEP 440 specifier.")),
        versions=(Any, Field(default=None, description="PEP 440 specifiers by distribution.")),
        functions=functions,
        **fields,
    )
    when_blocks: Any = (
        list[when] | None,
        Field(default=None, description="Conditional blocks."),
    )
    testing: Any = (
        testing_model(table) | None,
        Field(default=None, description="What test runs are told."),
    )
    document = create_model(
        "PolicyDocument",
        __base__=GeneralOptions,
        __doc__="An xpolicy policy document.",
        requires=(Any, Field(default=None, description="PEP 440 specifier for xpolicy.")),
        functions=functions,
        when=when_blocks,
        **{
            TESTING: testing,
            CACHE: (CacheOptions | None, Field(default=None, description=CacheOptions.__doc__)),
            APPLY: (list[str] | None, Field(default=None, description=APPLYING.doc)),
        },
        **fields,
    )
    return Models(document, namespaces)


def _namespace_fields(tables: Mapping[str, type[BaseModel]], table: OptionTable) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, model in tables.items():
        for spelling in (name, *(a for a, target in table.aliases.items() if target == name)):
            fields[spelling.replace(".", "_")] = (
                model | None,
                Field(default=None, alias=spelling, description=f"Options for {name} arrays."),
            )
    return fields


def check_form(
    body: Mapping[str, Any], origin: Origin, table: OptionTable, *, layer: str, lenient: bool
) -> tuple[list[Problem], list[Path] | None]:
    """Check names and types by the model.

    Parameters
    ----------
    body : mapping
        The document.
    origin : Origin
        The place of its root.
    table : OptionTable
        All options.
    layer : str
        The layer's name.
    lenient : bool
        Whether a name that only some version or backend knows is a warning. It always is
        in the table of a namespace that no installed backend is for.

    Returns
    -------
    problems : list of Problem
        All that is wrong.
    paths : list of path or None
        The options, keys and tables that it is wrong with; None if there are more than
        `MOST`, of which the rest were not looked at.
    """
    try:
        models(table).document.model_validate(body)
    except ValidationError as error:
        found: dict[Path, Problem] = {}
        for item in error.errors(include_url=False, include_context=False):
            # Finding what was meant takes a tenth of a millisecond for each name: with
            # 100,000 of them, which a megabyte holds, nobody would wait for the answer.
            if len(found) > MOST:
                break
            problem, path = explain_mistake(item, body, table)
            found.setdefault(path, problem)
    else:
        return [], []
    problems: list[Problem] = []
    # A table with one wrong entry is also "not a table" to the model's other branch.
    above = {path[:end] for path in found for end in range(1, len(path))}
    for path, problem in found.items():
        if path in above and place(path, table)[0] == "value":
            continue
        severity = problem.severity
        if severity == "warning" and not (lenient or _foreign(path, table)):
            severity = "error"
        problems.append(
            problem.replace(
                origin=origin.child(*path),
                layer=layer,
                key=dotted(path),
                severity=severity,
                fix=_in_place(problem.fix, origin.key),
            )
        )
    paths = None if len(found) > MOST else [_cut(path, table) for path in found]
    return problems, paths


def bounded(problems: list[Problem], origin: Origin, layer: str) -> list[Problem]:
    """Return at most `MOST` problems of one document, and one that says so."""
    if len(problems) <= MOST:
        return problems
    rest = Problem(
        f"more than {MOST} things are wrong here; the rest is not told",
        origin=origin,
        layer=layer,
        fix="put the ones above right first",
    )
    return [*problems[:MOST], rest]


def _foreign(path: Path, table: OptionTable) -> bool:
    kind, namespace = place(path[:-1], table)
    return kind == "namespace" and table.namespaces[str(namespace)].model is NoOptions


def _in_place(fix: str | None, root: tuple[str | int, ...]) -> str | None:
    """Give a header in a fix the prefix that it has in ``pyproject.toml``."""
    if fix is None or not root:
        return fix
    return fix.replace("[functions.", f"[{dotted(root)}.functions.")


def _cut(path: Path, table: OptionTable) -> Path:
    """Return the path of the option that a wrong value stands in."""
    ends = (end for end in range(1, len(path)) if place(path[:end], table)[0] == "value")
    return path[: next(ends, len(path))]


def without(data: Mapping[str, Any], paths: Iterable[Path]) -> dict[str, Any]:
    """Return a document without the values at some paths; places in arrays stay."""
    cuts: dict[str | int, Any] = {}
    for path in paths:
        node: dict[str | int, Any] | None = cuts
        for part in path[:-1]:
            node = node.setdefault(part, {}) if node is not None else None
        if node is not None:
            node[path[-1]] = None
    kept: dict[str, Any] = _pruned(data, cuts)
    return kept


def _pruned(value: Any, cuts: Mapping[str | int, Any]) -> Any:
    if not cuts:
        return value
    if isinstance(value, Mapping):
        return {
            name: _pruned(inner, cuts.get(name, {}))
            for name, inner in value.items()
            if cuts.get(name, {}) is not None
        }
    return [
        None if cuts.get(number, {}) is None else _pruned(inner, cuts.get(number, {}))
        for number, inner in enumerate(value)
    ]
