"""``warmup`` lists: the calls that a function is compiled for ahead of time.

They stand in the table of one function, or of one of its namespaces, and take no part in
any policy. The order that decides about options decides whose list holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xpolicy.errors import Problem
from xpolicy.policy.patterns import EXACT, specificity
from xpolicy.policy.specs import Spec, is_spec, read_spec
from xpolicy.policy.writing import dotted, show

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from xpolicy._origin import Origin
    from xpolicy.policy.layers import Layer, Rule

WARMUP = "warmup"
DOC = (
    "The calls that `xpolicy.warmup` compiles the function for: a table for each, of "
    "arguments by name."
)
ALLOWED = 'a list of tables of arguments by name: [{ x = "float32[128, 64]", n = 3 }]'
HOME = '[functions."NAME"], or the table of a namespace in it'
#: Around a plain string that would else be read as a spec.
QUOTE = "'"

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class WarmupCall:
    """One call to compile a function for.

    Parameters
    ----------
    arguments : mapping
        By name; `Spec` in place of arrays, also inside lists and tables.
    origin : Origin
        Its place in the policy.
    layer : str
        The layer that it stands in.
    """

    arguments: Mapping[str, Any]
    origin: Origin
    layer: str

    def __str__(self) -> str:
        return ", ".join(f"{name}={_told(value)}" for name, value in self.arguments.items())


def _told(value: Any) -> str:
    if isinstance(value, Spec):
        return f"{value} on {value.device}" if value.device else str(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_told(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_told, value)) + "]"
    return show(value)


# --- the form ------------------------------------------------------------------------


def misplaced(pattern: str | None, where: Origin, value: Any) -> Problem | None:
    """Return a problem if a list stands in a rule for more than one function."""
    if specificity(pattern) == EXACT:
        return None
    return Problem(
        "warm-up calls name the arguments of one function; a broad rule may not",
        origin=where,
        value=show(value),
        allowed=HOME,
        fix='move warmup to [functions."NAME"], with the name of one function',
    )


def mistakes(value: Any) -> Iterator[tuple[Path, Problem]]:
    """Yield what is wrong with the form of a ``warmup`` list, each with its path in it.

    Examples
    --------
    >>> [(path, str(problem.message)) for path, problem in mistakes([{"x": "int8[4"}])]
    [((0, 'x'), "'int8[4' is no spec")]
    """
    if not isinstance(value, list):
        fix = "write [ and ] around the table" if isinstance(value, Mapping) else None
        if value == "unset":
            fix = "write warmup = []"
        yield (), Problem(f"warmup can't be {_kind(value)}", allowed=ALLOWED, fix=fix)
        return
    for number, call in enumerate(value):
        if not isinstance(call, Mapping):
            fix = f"write {{ NAME = {show(call)} }}, with the argument's name"
            yield (number,), Problem(f"warmup can't hold {_kind(call)}", allowed=ALLOWED, fix=fix)
            continue
        found = False
        for name, argument in call.items():
            if not name.isidentifier():
                yield (
                    (number, name),
                    Problem(f"{show(name)} is no name of an argument", allowed=ALLOWED),
                )
            for path, problem in _wrong(argument):
                found = True  # it will be a spec, or is no simple value
                yield (number, name, *path), problem
            found = found or _has_spec(argument)
        if not found:
            yield (
                (number,),
                Problem(
                    "nothing in this call is an array, so there is nothing to compile",
                    allowed='a spec for each array: { x = "float32[128, 64]" }',
                    fix="give the shape of each array in brackets behind its dtype",
                ),
            )


def _wrong(value: Any) -> Iterator[tuple[Path, Problem]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from (((name, *path), problem) for path, problem in _wrong(inner))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from (((number, *path), problem) for path, problem in _wrong(inner))
    elif isinstance(value, str):
        found = read_spec(value) if is_spec(value) else None
        if isinstance(found, Problem):
            plain = f"write {show(QUOTE + value + QUOTE)} if it is a plain string"
            fix = f"{found.fix}, or {plain}" if found.fix else f"write a spec, or {plain}"
            yield (), found.replace(fix=fix)
    elif not isinstance(value, (bool, int, float)):
        yield (
            (),
            Problem(
                f"an argument can't be {_kind(value)}",
                allowed="specs of arrays, numbers, booleans, strings, and lists and tables of them",
                fix="compile it from Python: f.lower(...).compile()",
            ),
        )


def _has_spec(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_spec, value.values()))
    if isinstance(value, list):
        return any(map(_has_spec, value))
    return isinstance(value, str) and is_spec(value)


def _kind(value: Any) -> str:
    for kind, name in (
        (bool, "a boolean"),
        ((int, float), "a number"),
        (str, show(value)),
        (list, "a list"),
        (Mapping, "a table"),
    ):
        if isinstance(value, kind):
            return name
    return f"a {type(value).__name__}"


# --- the meaning ---------------------------------------------------------------------


def meant(value: Any) -> Any:
    """Return what one value stands for: specs of arrays, and everything else as it is.

    Examples
    --------
    >>> meant(["int8[4]", "'int8[4]'", "linear"])
    [Spec(dtype='int8', shape=(4,), weak=False, namespace=None, device=None), 'int8[4]', 'linear']
    """
    if isinstance(value, Mapping):
        return {name: meant(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [meant(inner) for inner in value]
    if not isinstance(value, str):
        return value
    if is_spec(value):
        return read_spec(value)
    if len(value) > 1 and value[0] == value[-1] == QUOTE:
        return value[1:-1]
    return value


def calls(
    layers: Iterable[Layer], key: str, namespace: str, device: str | None = None
) -> tuple[WarmupCall, ...] | None:
    """Return the calls that a function is to be compiled for, or None if nobody says any.

    As of any list, the last rule that sets it says the whole: the one of the highest layer,
    in it the one for the namespace, then the one with most conditions.

    Parameters
    ----------
    layers : iterable of Layer
        Low to high.
    key, namespace : str
        The function, and the library of its arrays.
    device : str, optional
        The kind of device that they are on.
    """
    said: tuple[Rule, str] | None = None
    for layer in layers:
        for rule in sorted(layer.warmup, key=lambda rule: rule.rank):
            reaches = rule.pattern == key and rule.namespace in (None, namespace)
            if reaches and rule.device in (None, device):
                said = (rule, layer.name)
    if said is None:
        return None
    return calls_of(*said)


def calls_of(rule: Rule, layer: str) -> tuple[WarmupCall, ...]:
    """Return the calls of one list, which stands in a layer of some name."""
    return tuple(
        WarmupCall(meant(call), rule.origin_of(WARMUP).child(number), layer)
        for number, call in enumerate(rule.values[WARMUP])
    )


def written_key(call: WarmupCall, *below: str | int) -> str:
    """Return a call's key as TOML spells it, or that of one of its arguments."""
    path = call.origin.child(*below).key
    return dotted(path[path.index("functions") :])
