"""Say ``supports = …`` for functions, from what tests observed: a policy document."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xpolicy.policy.emit import toml_key, toml_string
from xpolicy.policy.options import MODES
from xpolicy.testing.ratchet import BREAK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xpolicy.testing.ratchet import Name, Row

HEAD = """\
# Proposed by a test run: what each function supports, as far as the tests show.
# For the xpolicy-library.toml of the package, or any policy file.
"""


def proposal(rows: Mapping[Name, Row], declared: Mapping[Name, str] | None = None) -> str:
    r"""Return a policy document that states what was observed.

    A function that was not run in a stricter mode than it reached, and did not fail in
    one, is left out: nothing shows that it supports no more.

    Parameters
    ----------
    rows : mapping
        What was observed, by function and namespace.
    declared : mapping of str, optional
        What is declared now, for comments where that differs.

    Examples
    --------
    >>> from xpolicy.testing.ratchet import Row
    >>> row = Row("eager", because=("compile: it branches on a value",), failed="compile")
    >>> print(proposal({("mylib.f", "jax"): row}).split("\n\n")[1])
    [functions."mylib.f".jax]
    supports = "eager"
    reason = "it branches on a value"
    <BLANKLINE>
    """
    parts = [HEAD]
    for (key, namespace), row in sorted(rows.items()):
        if row.failed is None and row.mode != MODES[-1]:
            continue
        lines = [f"[functions.{toml_string(key)}.{toml_key(namespace)}]"]
        before = (declared or {}).get((key, namespace))
        if before is not None and before != row.mode:
            lines[:0] = [f"# declared now: {toml_string(before)}"]
        lines.append(f"supports = {toml_string(row.mode)}")
        if row.failed is not None:
            lines.append(f"reason = {toml_string(_reason(row))}")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _reason(row: Row) -> str:
    """Return why the next mode fails: graph breaks say it best, as they name the place."""
    breaks = [why.removeprefix("compile: ") for why in row.because if why.startswith(BREAK)]
    if breaks and row.mode == "compile":
        return "; ".join(breaks)
    prefix = f"{row.failed}: "
    failures = [why for why in row.because if not why.startswith(BREAK)]
    return "; ".join(why.removeprefix(prefix) for why in failures if why.startswith(prefix))
