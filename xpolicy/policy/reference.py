"""The reference page of all options, written from the option table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xpolicy.policy.applying import SPEC as APPLYING
from xpolicy.policy.cache import CACHE, cache_rows
from xpolicy.policy.conditions import KINDS, REQUIRES
from xpolicy.policy.emit import toml_value
from xpolicy.policy.specs import ALLOWED as SPECS_ALLOWED
from xpolicy.policy.specs import DTYPES
from xpolicy.policy.testing import testing_tables
from xpolicy.policy.warmup import ALLOWED as WARMUP_ALLOWED
from xpolicy.policy.warmup import DOC as WARMUP_DOC
from xpolicy.policy.warmup import WARMUP

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from xpolicy.policy.options import OptionSpec, OptionTable

_HEAD = """\
# Options

<!-- Written by `python -m xpolicy.cli.reference` from the option table: edit the models
     (`xpolicy/policy/options.py`, `xpolicy/backends/*/options.py`), not this page. -->

Every option of a policy. In TOML an option is spelt with hyphens, in Python with
underscores. One that nobody sets stays unset, and is never sent to a compiler: the
compiler's own default holds. A *preference* may be set in every layer, and `"unset"`
means: as if nothing below had set it. A *capability* is a fact that the function's author
states: outside the author layer only a rule for one function (`functions."mylib.f"`) may
set it, except that a broad rule may lower `supports`.
"""


def reference(table: OptionTable) -> str:
    """Return the reference page of an option table, as Markdown.

    Parameters
    ----------
    table : OptionTable
        The options to describe.

    Examples
    --------
    >>> from xpolicy.policy.options import OptionTable
    >>> page = reference(OptionTable())
    >>> "XPOLICY_MODE" in page
    True
    """
    parts = [_HEAD]
    parts += _section(
        "Options of every namespace",
        "They stand at the top of a file, in a table of functions, or in the table of a "
        "namespace, where they hold for its arrays only.",
        table.general.values(),
    )
    for name, spec in table.namespaces.items():
        if spec.options:
            spellings = [
                name,
                *(alias for alias, target in table.aliases.items() if target == name),
            ]
            written = " or ".join(f"`[{s}]`" if "." not in s else f'`["{s}"]`' for s in spellings)
            parts += _section(
                f"Options of `{name}`", f"They stand in {written}.", spec.options.values()
            )
    parts += _section(
        "The `cache` table",
        "It stands at the top of a file, in `[cache]`, and no policy depends on it. "
        "See [Keep what was compiled](../how-to/caches.md).",
        cache_rows().values(),
    )
    parts += _plain_namespaces(table)
    parts += _file_sections()
    return "\n".join(parts)


def _section(title: str, text: str, rows: Iterable[OptionSpec]) -> Iterator[str]:
    rows = list(rows)
    yield f"## {title}\n\n{text}\n"
    yield "| option | default | what it does |\n| --- | --- | --- |"
    for row in rows:
        first = _markdown(row.doc).split(". ")[0].rstrip(".").replace("|", "\\|")
        yield f"| [`{row.full_key}`](#{_anchor(row)}) | {_default(row)} | {first}. |"
    yield ""
    for row in rows:
        yield _entry(row)


def _entry(row: OptionSpec) -> str:
    lines = [
        f"({_anchor(row)})=",
        f"### `{row.full_key}`",
        "",
        _markdown(row.doc),
        "",
        f"- takes: {_takes(row)}",
        f"- default: {_default(row)}",
        f"- kind: {_kind(row)}",
        f"- namespaces: {_namespaces(row)}",
        f"- variable: {_variable(row)}",
    ]
    if row.example is not None:
        lines += ["", "```toml", f"{row.full_key} = {row.example}", "```"]
    return "\n".join([*lines, ""])


def _anchor(row: OptionSpec) -> str:
    return f"option-{row.full_key.replace('.', '-').replace('_', '-')}"


def _markdown(doc: str) -> str:
    return doc.replace("``", "`")


def _takes(row: OptionSpec) -> str:
    choices = row.choices if row.capability else (*row.choices, "unset")
    if row.kind == "choice":
        return ", ".join(f'`"{choice}"`' for choice in choices)
    words = row.allowed.replace('"unset"', '`"unset"`')
    return words.replace("true or false", "`true` or `false`")


def _default(row: OptionSpec) -> str:
    if row.builtin is None:
        return "not declared" if row.capability else "unset"
    return f"`{toml_value(row.builtin)}`"


def _kind(row: OptionSpec) -> str:
    if row.capability:
        return "capability"
    if row.namespace == CACHE:
        return "preference; the files of authors and projects may not set it"
    if row.allow_listed:
        return (
            "preference; the files of authors and projects may set reviewed entries only, "
            "a user's file, `XPOLICY_FILE`, variables and `xpolicy.override` any"
        )
    return "preference"


def _namespaces(row: OptionSpec) -> str:
    if row.namespace == CACHE:
        return "those of the compilers, all at once"
    return f"`{row.namespace}`" if row.namespace else "every one"


def _variable(row: OptionSpec) -> str:
    if row.capability:
        return "none: it is a fact about one function"
    name = row.name.upper()
    if row.namespace is not None:
        return f"`XPOLICY_{row.namespace.upper()}__{name}`"
    return f"`XPOLICY_{name}`, or `XPOLICY_TORCH__{name}` for one namespace"


def _plain_namespaces(table: OptionTable) -> Iterator[str]:
    plain = [f"`{name}`" for name, spec in table.namespaces.items() if not spec.options]
    if plain:
        yield "## Namespaces without options of their own\n"
        yield (
            f"{', '.join(plain)}: their tables take the options of every namespace. Nothing "
            "compiles for them unless a backend is installed that does: the original "
            "function runs.\n"
        )


def _file_sections() -> Iterator[str]:
    """Describe what a file may hold besides options."""
    yield "## Keys of a whole file\n"
    yield "They stand at the top of a file. No variable sets them.\n"
    yield _key("requires", *REQUIRES)
    yield _key(APPLYING.key, _markdown(APPLYING.doc), APPLYING.allowed, APPLYING.example)
    yield "## Conditions: `[[when]]`\n"
    yield (
        "A `[[when]]` block holds conditions, and options as the file itself does: general ones, "
        "tables of namespaces and of functions. All its conditions must hold, and there must be "
        "one. Where other things are equal, a rule under more conditions beats one under fewer; "
        "each key counts as one, and each distribution under `versions` as one. All but `device` "
        "are settled when the file is read.\n"
    )
    for name, (doc, allowed, example) in KINDS.items():
        text = f'[[when]]\n{name} = {example}\nmode = "eager"'
        yield _key(name, doc, allowed, example, anchor=f"when-{name}", text=text)
    yield "## Calls to warm up for\n"
    yield (
        f"{_markdown(WARMUP_DOC)} It stands in the table of one function, or of a namespace in it, "
        "and holds as any list does: the highest layer that sets it decides, in it the list for "
        "the namespace. No policy depends on it, and no variable sets it but `XPOLICY_TOML`. "
        "A string that begins as a dtype and a bracket do is the spec of an array: "
        f"{SPECS_ALLOWED}; a `~` in front says that the type is weak. The dtypes are "
        f"{', '.join(f'`{name}`' for name in DTYPES)}. Any other string, number or boolean "
        "is itself, and so is a string in single quotes inside its own. Lists and tables are "
        "lists and dictionaries; a list for an argument in `static-argnames` is a tuple. "
        "See [Compile ahead of time](../how-to/ahead-of-time.md#warm-up).\n"
    )
    text = (
        '[functions."mylib.f"]\n'
        'warmup = [{ x = "float32[128, 64]", n = 3 }, { x = "float32[1, 64]", n = 3 }]\n'
        'jax.warmup = [{ x = "bfloat16[128, 64]", n = 3 }]'
    )
    yield _key(WARMUP, _markdown(WARMUP_DOC), WARMUP_ALLOWED, None, text=text)
    yield "## What tests are told: `[testing]`\n"
    yield (
        "The table `testing` is for the pytest plugin; no policy depends on it. `graph-breaks`, "
        "`compilations` and `compute-limit` may also stand below it in a namespace's table "
        '(`testing.torch`), in a table of functions (`testing.functions."mylib.*"`) and in a '
        "namespace's table there; the order between them is that of options. No variable sets "
        "them but `XPOLICY_TOML`.\n"
    )
    for table, rows in testing_tables():
        for row in rows:
            yield _key(f"{table}.{row.key}", _markdown(row.doc), _takes(row), row.example)


def _key(
    name: str,
    doc: str,
    allowed: str,
    example: str | None,
    *,
    anchor: str | None = None,
    text: str | None = None,
) -> str:
    lines = [f"({anchor or 'key-' + name.replace('.', '-')})=", f"### `{name}`", "", doc, ""]
    lines += [f"- takes: {allowed}", "", "```toml", text or f"{name} = {example}", "```", ""]
    return "\n".join(lines)
