"""Say what a validation error means in the words of policy files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xpolicy.errors import Problem
from xpolicy.policy.options import KNOWN_NAMESPACES, RESERVED, OptionSpec, OptionTable, nearest

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


def show(value: Any) -> str:
    """Return a value as TOML would show it, cut to a readable length."""
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, str):
        text = '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    elif isinstance(value, Mapping):
        text = "{ " + ", ".join(f"{k} = {show(v)}" for k, v in list(value.items())[:5]) + " }"
    elif isinstance(value, (list, tuple)):
        text = "[" + ", ".join(show(v) for v in value[:10]) + "]"
    elif isinstance(value, int):
        # Python refuses to print an integer of more than 4,300 digits.
        text = str(value) if value.bit_length() < 1000 else f"a {value.bit_length()}-bit integer"
    else:
        text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."


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
    ``"namespace"``, or ``"value"`` below an option.
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
        elif kind in ("document", "when") and part == "functions":
            kind = "functions"
        elif kind == "functions":
            kind = "function"
        elif kind in ("document", "when", "function") and isinstance(part, str):
            canonical = table.canonical(part)
            if canonical not in table.namespaces:
                return "value", namespace
            kind, namespace = "namespace", canonical
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
        if kind in ("document", "when", "function", "namespace") and isinstance(name, str):
            row = table.of(namespace).get(name)
            if row is not None:
                return _wrong_value(row, path, value, end)
    if item["type"] == "extra_forbidden":
        return _unknown_key(path, value, data, table)
    kind, _ = place(path, table)
    wanted = "an array of tables, [[when]]" if path[-1:] == ("when",) else "a table"
    message = f"{wanted} must stand here, not {_type_name(value)}"
    return Problem(message, value=show(value), allowed=wanted), path


def _wrong_value(row: OptionSpec, path: Path, value: Any, end: int) -> tuple[Problem, Path]:
    told: dict[str, Any] = {"value": show(value), "allowed": row.allowed}
    message = f"{row.full_key} can't be {_type_name(value)}"
    if isinstance(value, str) and row.kind == "choice":
        message = f"{row.full_key} can't be {show(value)}"
        told["nearest"] = nearest(value, row.choices)
        if row.name == "mode" and value in COMPILE_MODES:
            told["nearest"] = "torch.compile-mode"
            told["fix"] = f'write torch.compile-mode = "{value}"'
    elif row.kind == "integer" and isinstance(value, int) and not isinstance(value, bool):
        message = f"{row.full_key} can't be {show(value)}"
    elif row.kind == "list" and isinstance(value, str):
        told["fix"] = f"write {row.key} = [{show(value)}]"
    elif row.kind == "boolean" and isinstance(value, str):
        word = value.strip().lower()
        if word in ("true", "false", "yes", "no", "on", "off"):
            right = "true" if word in ("true", "yes", "on") else "false"
            told["fix"] = f"write {row.key} = {right}, without quotes"
    elif row.kind == "integer" and isinstance(value, str) and value.strip().isdecimal():
        told["fix"] = f"write {row.key} = {int(value)}, without quotes"
    elif len(path) > end:
        message = f"{row.full_key} can't hold {_type_name(value)}"
    return Problem(message, **told), path


def _unknown_key(
    path: Path, value: Any, data: Mapping[str, Any], table: OptionTable
) -> tuple[Problem, Path]:
    name = str(path[-1])
    kind, namespace = place(path[:-1], table)
    rows = table.of(namespace)
    names = list(rows)
    if kind != "namespace":
        names += [n for n in table.namespaces if table.namespaces[n].options] + ["functions"]
        names += {"document": ["when", "requires"], "when": list(CONDITION_KEYS)}.get(kind, [])
        names += KNOWN_NAMESPACES
    if kind == "function":
        names.remove("functions")
    told: dict[str, Any] = {"value": show(value), "nearest": nearest(name, names)}
    where = f"[{namespace}]" if namespace else {"document": "a policy file"}.get(kind, f"a {kind}")
    message = f"unknown key {name!r} in {where}"
    if kind == "function" and isinstance(value, Mapping):
        return _unquoted(path, value, message, told)
    if name in RESERVED:
        message = f"{name!r} may not stand here"
        if kind == "document":
            message = f"{name!r} is reserved, and this version of xpolicy does nothing with it"
        told["nearest"] = None
    elif name.replace("_", "-") in rows:
        right = name.replace("_", "-")
        message = f"options are spelt with hyphens: {right!r}, not {name!r}"
        told["fix"] = f"write {right}"
    elif kind != "namespace":
        homes = [s.name for s in table.namespaces.values() if any(
            row.key == name.replace("_", "-") for row in s.options.values())]
        if homes:
            right = name.replace("_", "-")
            told["nearest"] = f"{homes[0]}.{right}"
            told["fix"] = f"{name!r} is an option of {' and '.join(homes)}: write {homes[0]}.{right}"
    if "fix" not in told and told["nearest"]:
        told["fix"] = f"write {told['nearest']}"
    told["allowed"] = ", ".join(dict.fromkeys(names))
    return Problem(message, **told), path


def _unquoted(
    path: Path, value: Mapping[str, Any], message: str, told: dict[str, Any]
) -> tuple[Problem, Path]:
    """``[functions.scipy.linalg.norm]`` is read by TOML as four nested tables."""
    start = path.index("functions") + 1
    parts = [str(part) for part in path[start:]]
    inner: Any = value
    while isinstance(inner, Mapping) and len(inner) == 1:
        (key, below), = inner.items()
        if not isinstance(below, Mapping):
            break
        parts.append(key)
        inner = below
    tail = ""
    if parts[-1] in KNOWN_NAMESPACES:
        tail = f".{parts.pop()}"
    name = ".".join(parts)
    told["nearest"] = None
    told["allowed"] = "function keys in quotes"
    told["fix"] = f'write [functions."{name}"{tail}]'
    return Problem(f"a function key with dots must be quoted ({message})", **told), path
