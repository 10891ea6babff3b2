"""Say what a validation error means in the words of policy files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xpolicy.errors import Problem
from xpolicy.policy.applying import APPLY
from xpolicy.policy.applying import SPEC as APPLYING
from xpolicy.policy.cache import CACHE, cache_rows
from xpolicy.policy.options import (
    KNOWN_NAMESPACES,
    RESERVED,
    NoOptions,
    OptionSpec,
    OptionTable,
    kebab,
    nearest,
)
from xpolicy.policy.testing import TESTING, testing_rows
from xpolicy.policy.warmup import HOME, WARMUP
from xpolicy.policy.writing import LONGEST, dotted, show

__all__ = ["COMPILE_MODES", "Path", "dotted", "explain_mistake", "place", "show"]

Path = tuple[str | int, ...]
#: Values of torch.compile's own ``mode``, which people write for ours.
COMPILE_MODES = (
    "default",
    "reduce-overhead",
    "max-autotune",
    "max-autotune-no-cudagraphs",
    "lite",
)
CONDITION_KEYS = ("device", "python", "versions")
#: Kinds of tables that options stand in.
BODIES = ("document", "when", "function", "namespace")
#: The same below ``testing``.
TESTING_BODIES = (TESTING, "testing-function", "testing-namespace")


def _type_name(value: Any) -> str:
    for kind, name in (
        (bool, "a boolean"),
        (int, "an integer"),
        (float, "a float"),
        (str, "a string"),
        (list, "a list"),
        (Mapping, "a table"),
    ):
        if isinstance(value, kind):
            return name
    return f"a {type(value).__name__}"


def place(path: Path, table: OptionTable) -> tuple[str, str | None]:
    """Return which kind of table a path leads into: ``(kind, namespace)``.

    Kinds are ``"document"``, ``"when"``, ``"functions"``, ``"function"`` and
    ``"namespace"``, or ``"value"`` below an option; below ``testing`` they are
    ``"testing"``, ``"testing-functions"``, ``"testing-function"`` and
    ``"testing-namespace"``; the table ``cache`` is a kind of its own.
    """
    kind: str = "document"
    namespace: str | None = None
    rest = list(path)
    while rest:
        part = rest.pop(0)
        if kind == "document" and part == "when":
            if rest:
                rest.pop(0)
            kind = "when"
        elif kind == "document" and part in (TESTING, CACHE):
            kind = str(part)
        elif kind in ("document", "when", TESTING) and part == "functions":
            kind = "testing-functions" if kind == TESTING else "functions"
        elif kind.endswith("functions"):
            kind = kind.removesuffix("s")
        elif kind in ("document", "when", "function", *TESTING_BODIES[:2]) and isinstance(
            part, str
        ):
            canonical = table.canonical(part)
            if canonical not in table.namespaces:
                return "value", namespace
            kind = "testing-namespace" if kind in TESTING_BODIES else "namespace"
            namespace = canonical
        else:
            return "value", namespace
    return kind, namespace


def _walk(loc: tuple[str | int, ...], data: Any) -> tuple[Path, Any]:
    """Follow an error's location through the data; pydantic's own markers are passed over."""
    path: list[str | int] = []
    value = data
    for part in loc:
        inside_table = isinstance(value, Mapping) and part in value
        inside_list = isinstance(value, list) and isinstance(part, int) and part < len(value)
        if inside_table or inside_list:
            value = value[part]
            path.append(part)
    return tuple(path), value


def explain_mistake(
    item: Mapping[str, Any], data: Mapping[str, Any], table: OptionTable
) -> tuple[Problem, Path]:
    """Turn one pydantic error into a problem, with the path of the guilty key.

    A name that another version of xpolicy, or a backend that is not installed here, may
    know is a warning; its reader decides where that is not enough. What is wrong with
    every version is an error.

    Parameters
    ----------
    item : mapping
        One of ``ValidationError.errors()``.
    data : mapping
        The document that was validated.
    table : OptionTable
        All options.
    """
    path, value = _walk(item["loc"], data)
    for end in range(1, len(path) + 1):
        kind, namespace = place(path[: end - 1], table)
        name = path[end - 1]
        if kind in (*BODIES, *TESTING_BODIES, CACHE) and isinstance(name, str):
            row = _rows(kind, namespace, table).get(name)
            if row is not None:
                return _wrong_value(row, path, value, end, table), path
    if item["type"] == "extra_forbidden":
        return _unknown_key(path, value, table), path
    return _wrong_table(path, value, table), path


def _rows(kind: str, namespace: str | None, table: OptionTable) -> Mapping[str, OptionSpec]:
    if kind in TESTING_BODIES:
        return testing_rows(kind, namespace)
    if kind == CACHE:
        return cache_rows()
    rows = table.of(namespace)
    return {**rows, APPLY: APPLYING} if kind == "document" else rows


def _wrong_table(path: Path, value: Any, table: OptionTable) -> Problem:
    told: dict[str, Any] = {"value": show(value)}
    kind, namespace = place(path, table)
    if path[-1:] == ("when",):
        told["allowed"] = "an array of tables, [[when]]"
        if isinstance(value, Mapping):
            told["fix"] = "write [[when]], with two brackets, above each block"
    elif kind == "function":
        name = str(path[-1])
        told["allowed"] = "tables, each under a function key or pattern"
        told["fix"] = f"write [functions.{dotted((name,))}] and the options below it"
        if name in table.of(None):
            told["fix"] = (
                f'write functions."NAME".{name}, with the name of a function, or move '
                f"{name} out of [functions] for all of them"
            )
    elif kind == "namespace" and (isinstance(value, bool) or value in ("eager", "compile")):
        mode = "compile" if value in (True, "compile") else "eager"
        told["allowed"] = f"a table of options for {namespace} arrays"
        told["fix"] = f'write {path[-1]}.mode = "{mode}"'
    else:
        told["allowed"] = "a table"
    return Problem(f"{dotted(path)} can't be {_type_name(value)}", **told)


def _wrong_value(row: OptionSpec, path: Path, value: Any, end: int, table: OptionTable) -> Problem:
    told: dict[str, Any] = {"value": show(value), "allowed": row.allowed}
    message = f"{row.full_key} can't be {_type_name(value)}"
    if len(path) > end:
        return _wrong_item(row, value, told)
    if isinstance(value, str) and row.kind == "choice":
        message = f"{row.full_key} can't be {show(value)}"
        told.update(_meant_choice(row, value, place(path[: end - 1], table)[1]))
    elif row.form is not None and isinstance(value, (str, int, float)):
        message = f"{row.full_key} can't be {show(value)}"
    elif row.kind == "integer" and isinstance(value, int) and not isinstance(value, bool):
        message = f"{row.full_key} can't be {show(value)}"
        told["fix"] = f"write {row.minimum} or more, or remove {row.key}"
    elif row.kind == "integer" and isinstance(value, float) and value.is_integer():
        told["fix"] = f"write {row.key} = {int(value)}"
    elif row.kind == "list" and isinstance(value, str):
        told["fix"] = f"write {row.key} = [{show(value)}]"
    elif row.kind == "boolean" and isinstance(value, (str, int)):
        word = str(value).strip().lower() if not isinstance(value, int) else str(int(value))
        if word in ("true", "false", "yes", "no", "on", "off", "1", "0"):
            right = "true" if word in ("true", "yes", "on", "1") else "false"
            quotes = ", without quotes" if isinstance(value, str) else ""
            told["fix"] = f"write {row.key} = {right}{quotes}"
    elif row.kind == "integer" and isinstance(value, str) and value.strip().isdecimal():
        told["fix"] = f"write {row.key} = {value.strip()}, without quotes"
    elif row.name in ("mode", "supports") and isinstance(value, bool):
        told["fix"] = f'write {row.key} = "{"compile" if value else "eager"}"'
    return Problem(message, **told)


def _wrong_item(row: OptionSpec, value: Any, told: dict[str, Any]) -> Problem:
    """Say what is wrong with one item of a list, or one entry of a table."""
    message = f"{row.full_key} can't hold {_type_name(value)}"
    if row.kind == "table":
        told["allowed"] = 'booleans, numbers and strings, or "unset"'
    elif row.choices and isinstance(value, str):
        message = f"{row.full_key} can't hold {show(value)}"
        near = nearest(value, row.choices)
        told.update({"nearest": f'"{near}"', "fix": f'write "{near}"'} if near else {})
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        told["fix"] = f'write "{show(value)}", in quotes'
    return Problem(message, **told)


def _meant_choice(row: OptionSpec, value: str, namespace: str | None) -> dict[str, str]:
    if row.name == "mode" and value in COMPILE_MODES:
        key = "compile-mode" if namespace == "torch" else "torch.compile-mode"
        return {"nearest": "torch.compile-mode", "fix": f'write {key} = "{value}"'}
    if row.capability and value == "unset":
        return {"fix": f"remove {row.key}: a fact can be stated, not withdrawn"}
    words = (*row.choices, "unset") if not row.capability else row.choices
    near = nearest(value, words)
    if near is None:
        return {}
    return {"nearest": f'"{near}"', "fix": f'write {row.key} = "{near}"'}


def _names(kind: str, namespace: str | None, table: OptionTable) -> list[str]:
    """Return the keys that may stand in a table of a kind."""
    names = [name for name in _rows(kind, namespace, table) if name != APPLY]
    if kind == CACHE:
        return names
    if kind in TESTING_BODIES:
        deeper = [] if kind == "testing-namespace" else list(table.namespaces)
        return [*names, *(["functions"] if kind == TESTING else []), *deeper]
    if kind != "namespace":
        names += [n for n, spec in table.namespaces.items() if spec.options]
        names += [] if kind == "function" else ["functions"]
        names += {
            "document": ["when", "requires", TESTING, CACHE, APPLY],
            "when": CONDITION_KEYS,
        }.get(kind, [])
        names += KNOWN_NAMESPACES
    return list(dict.fromkeys(names))


def _where(path: Path) -> str:
    if not path:
        return "the top level of a policy"
    if path[0] == "when" and len(path) <= len(("when", 0)):
        return "[[when]]"
    return f"[{dotted(path)}]"


def _unknown_key(path: Path, value: Any, table: OptionTable) -> Problem:
    name = str(path[-1])
    kind, namespace = place(path[:-1], table)
    rows = _rows(kind, namespace, table)
    names = _names(kind, namespace, table)
    if kind == "function" or (kind == "namespace" and "functions" in path[:-2]):
        names.append(WARMUP)
    near = nearest(name, names)
    where = _where(path[:-1])
    told: dict[str, Any] = {"value": show(value), "allowed": ", ".join(names)}
    shown = repr(name if len(name) <= LONGEST else f"{name[:LONGEST]}...")
    if name == WARMUP:
        message = f"'warmup' may not stand {'at' if kind == 'document' else 'in'} {where}"
        return Problem(message, fix=f"move it to {HOME}", **told)
    if name in RESERVED:
        home = "the top level, or [[when]]" if name == "functions" else "the top level"
        message = f"{name!r} may not stand in {where}"
        return Problem(message, fix=f"move it to {home}", **told)
    if f"{namespace}.{name}" in table.aliases:
        return _alias(path, name, namespace, told)
    if isinstance(value, Mapping) and (fix := _quoted(path, value, near, table)):
        told["allowed"] = "function keys in quotes"
        message = f"a function key with dots must be quoted: unknown key {shown} in {where}"
        return Problem(message, fix=fix, **told)
    right = kebab(name)
    if right != name and right in rows:
        message = f"options are spelt with hyphens: {right!r}, not {name!r}"
        return Problem(message, nearest=right, fix=f"write {right}", **told)
    message = f"unknown key {shown} {'at' if kind == 'document' else 'in'} {where}"
    homes = [spec.name for spec in table.namespaces.values() if right in map(kebab, spec.options)]
    if homes and near != right and kind in BODIES:
        near = f"{homes[0]}.{right}"
        told["fix"] = f"{right} is an option of {' and of '.join(homes)}: write {near}"
        return Problem(message, nearest=near, **told)
    if kind == "namespace" and table.namespaces[str(namespace)].model is NoOptions:
        message = f"{message}, for which no backend is installed: ignored"
        near = nearest(name, rows)
    told["fix"] = f"write {near}" if near else f"remove {dotted(path[-1:])}"
    return Problem(message, severity="warning", nearest=near, **told)


def _alias(path: Path, name: str, namespace: str | None, told: dict[str, Any]) -> Problem:
    """``[jax.numpy]`` is read by TOML as a table in a table."""
    right = dotted((*path[:-2], f"{namespace}.{name}"))
    told["allowed"] = f'{namespace}, or "{namespace}.{name}" in quotes'
    message = f"a namespace with a dot must be quoted: unknown key {name!r} in {_where(path[:-1])}"
    return Problem(message, fix=f"write [{right}] or [{dotted(path[:-1])}]", **told)


def _quoted(path: Path, value: Mapping[str, Any], near: str | None, table: OptionTable) -> str:
    """Say how ``[functions.scipy.linalg.norm]``, which TOML reads as nested tables, is written.

    Returns the empty string where it is something else that is wrong.
    """
    start = 1 if path[0] == "functions" else 3
    if len(path) <= start + 1 or path[start - 1] != "functions" or "." in str(path[start]):
        return ""
    parts = [str(part) for part in path[start:]]
    inner: Any = value
    while True:
        if any(key in table.of(None) for key in inner):
            break
        deeper = [
            key
            for key, below in inner.items()
            if isinstance(below, Mapping) and table.canonical(key) not in table.namespaces
        ]
        if not deeper:
            break
        parts.append(deeper[0])
        inner = inner[deeper[0]]
    tail = ""
    if not any(key in table.of(None) for key in inner):
        tail = next((f".{key}" for key in inner if table.canonical(key) in table.namespaces), "")
    written = f'[functions."{".".join(parts)}"{tail}]'
    # [functions.f.torhc] may be a slip in a namespace's name, too.
    slip = near if near in table.namespaces and len(parts) == len(path) - start else None
    return f"write {slip}, or {written}" if slip else f"write {written}"
