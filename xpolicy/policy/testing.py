"""The ``testing`` table: what test runs are told. Resolving a policy never looks at it.

Its budgets are given for functions and namespaces, in the words that options are given
in, and the same order decides: layer, then pattern, then namespace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field, create_model

from xpolicy.policy.options import (
    AtLeastOne,
    AtLeastZero,
    Mode,
    OptionModel,
    OptionTable,
    Unset,
    option,
    specs,
)
from xpolicy.policy.patterns import prefixes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from xpolicy._origin import Origin
    from xpolicy.policy.layers import Layer, Rule
    from xpolicy.policy.options import OptionSpec

TESTING = "testing"


class BudgetOptions(OptionModel):
    """What a function may need in one test."""

    graph_breaks: AtLeastZero | Unset | None = option(
        """How many distinct graph breaks a function may have in one test. Only torch's
        compiler breaks graphs.""",
        example="1",
    )
    compilations: AtLeastOne | Unset | None = option(
        "How many variants of a function may be compiled in one test; 1 allows none to be "
        "compiled again.",
        example="3",
    )


class DaskBudgetOptions(BudgetOptions):
    """What a function may need in one test with dask arrays."""

    compute_limit: AtLeastZero | Unset | None = option(
        "How often a function may compute a lazy dask array in one test.", example="0"
    )


class TestRunOptions(BudgetOptions):
    """How marked tests are run."""

    __test__ = False  # its name is for readers, not for pytest

    modes: list[Mode] | Unset | None = option(
        "The modes that marked tests are run in, once in each.",
        example='["eager", "compile", "fullgraph"]',
    )
    namespaces: list[str] | Unset | None = option(
        "The array namespaces that marked tests are run with.", example='["numpy", "torch", "jax"]'
    )
    ratchet: str | Unset | None = option(
        "The file that holds what was recorded, from pytest's root directory.",
        example='"tests/xpolicy-ratchet.toml"',
    )
    real: bool | Unset | None = option(
        """Whether torch compiles with the configured backend. Else its graphs are captured
        and run as they are, which is ten times quicker and finds the same breaks.""",
        example="true",
    )


def _rows(model: type[BaseModel]) -> dict[str, OptionSpec]:
    return {row.key: row for row in specs(model, TESTING).values()}


_RUN, _BUDGET, _DASK = _rows(TestRunOptions), _rows(BudgetOptions), _rows(DaskBudgetOptions)


def testing_rows(kind: str, namespace: str | None) -> Mapping[str, OptionSpec]:
    """Return what may stand in a table below ``testing``, by TOML key.

    Parameters
    ----------
    kind : {"testing", "testing-function", "testing-namespace"}
        The kind of table.
    namespace : str or None
        The namespace that it is for.
    """
    if kind == TESTING:
        return _RUN
    return _DASK if namespace == "dask" else _BUDGET


def testing_tables() -> Iterator[tuple[str, Iterable[OptionSpec]]]:
    """Yield each kind of table that may stand below ``testing``, and what is new in it."""
    yield TESTING, _RUN.values()
    yield f"{TESTING}.dask", [row for key, row in _DASK.items() if key not in _BUDGET]


def testing_model(table: OptionTable) -> type[BaseModel]:
    """Build the model of the ``testing`` table for an option table."""
    fields: dict[str, Any] = {}
    for name in table.namespaces:
        model = DaskBudgetOptions if name == "dask" else BudgetOptions
        for spelling in (name, *(a for a, target in table.aliases.items() if target == name)):
            fields[spelling.replace(".", "_")] = (
                model | None,
                Field(default=None, alias=spelling, description=f"Budgets for {name} arrays."),
            )
    function = create_model(
        "TestedFunctionTable",
        __base__=BudgetOptions,
        __doc__="Budgets for the functions that the table's name matches.",
        **fields,
    )
    functions: Any = (
        dict[str, function] | None,
        Field(default=None, description='Function keys or patterns ("mylib.*") and their budgets.'),
    )
    return create_model(
        "TestRunTable",
        __base__=TestRunOptions,
        __doc__="What test runs are told; it takes no part in any policy.",
        functions=functions,
        **fields,
    )


@dataclass(frozen=True, slots=True)
class Setting:
    """A value of the ``testing`` tables, and where it stands."""

    value: Any
    origin: Origin


def settings(
    layers: Iterable[Layer], key: str | None = None, namespace: str | None = None
) -> dict[str, Setting]:
    """Return what the ``testing`` tables say, by Python name.

    Parameters
    ----------
    layers : iterable of Layer
        Low to high.
    key : str or None
        The function to ask about; None for what is said of the run as a whole.
    namespace : str or None
        The namespace to ask about.

    Examples
    --------
    >>> from xpolicy._origin import Origin
    >>> from xpolicy.policy.layers import Layer, Rule
    >>> here = Origin("code", "example")
    >>> rules = [Rule({"compilations": 2}, here), Rule({"compilations": 3}, here, "mylib.*")]
    >>> settings([Layer("project", "example", testing=rules)], "mylib.f")["compilations"].value
    3
    """
    found: dict[str, Setting] = {}
    for layer in layers:
        for rule in sorted(_reaching(layer, key, namespace), key=lambda rule: rule.rank):
            for name, value in rule.values.items():
                if value == "unset":
                    found.pop(name, None)
                else:
                    found[name] = Setting(value, rule.origin_of(name))
    return found


def _reaching(layer: Layer, key: str | None, namespace: str | None) -> Iterator[Rule]:
    patterns = {None, *(prefixes(key) if key is not None else ())}
    for rule in layer.testing:
        if rule.pattern in patterns and rule.namespace in (None, namespace):
            yield rule
