"""Put everything in the process under one mode, for a test."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from xpolicy._origin import Origin
from xpolicy.policy.layers import Layer, Rule
from xpolicy.runtime.entry import entries
from xpolicy.runtime.session import pop_everywhere, push_everywhere

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Dynamo captures graphs and runs them as they are: what breaks them, and what makes it
#: compile again, are the same as under inductor, in a tenth of the time.
CHEAP = "eager"


@contextmanager
def forced(mode: str | None, *, real: bool, lift: bool = False) -> Iterator[None]:
    """Force a mode on every function and thread, above all files and variables.

    Parameters
    ----------
    mode : str or None
        The mode; None leaves it to policies.
    real : bool
        Whether torch compiles with the configured backend.
    lift : bool
        Whether what authors say of ``supports`` is put aside.
    """
    rules = []
    if mode is not None:
        rules.append(Rule({"mode": mode}, Origin("runtime", f"pytest's mode {mode}")))
    if not real:
        origin = Origin("runtime", "pytest without --xpolicy-real")
        rules.append(Rule({"backend": CHEAP}, origin, namespace="torch"))
    if lift:
        origin = Origin("runtime", "--xpolicy-infer-supports")
        values: dict[str, Any] = {"supports": "fullgraph"}
        # By their keys: a broad rule may lower what is supported, never raise it.
        keys = {entry.key for entry in entries()}
        rules += [Rule(values, origin, pattern=key) for key in sorted(keys)]
    layer = Layer("runtime", "pytest", rules)
    push_everywhere(layer)
    try:
        yield
    finally:
        pop_everywhere(layer)
