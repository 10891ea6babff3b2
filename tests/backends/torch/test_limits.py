"""The recompile limit: how many variants there are, and what happens beyond."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from xpolicy.errors import RecompileLimitError, XPolicyWarning

LENGTHS = (2, 3, 4, 5, 2, 3, 6)
OVER = {4, 5, 6}


def double(x: Any, n: int = 2) -> Any:
    return x.sin() * n


@pytest.mark.parametrize("fullgraph", [None, True])
@pytest.mark.parametrize("action", ["error", "warn", "eager"])
def test_the_limit_holds_and_variants_stay_compiled(
    compiled: Any, counter: Any, fullgraph: bool | None, action: str
) -> None:
    call = compiled(
        double,
        extra={"backend": counter},
        dynamic=False,
        recompile_limit=2,
        on_recompile_limit=action,
        fullgraph=fullgraph,
    )
    raised = set()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for length in LENGTHS:
            x = torch.ones(length)
            try:
                torch.testing.assert_close(call(x), double(x))
            except RecompileLimitError:
                raised.add(length)
    assert counter.graphs == 2
    assert call.count("compile") == 2
    assert raised == (OVER if action == "error" else set())
    ours = [w for w in caught if issubclass(w.category, XPolicyWarning)]
    assert len(ours) == (1 if action == "warn" else 0)
    assert call.count("limit") == (3 if action == "error" else 1)
    call.clear()
    call(torch.ones(7))
    assert counter.graphs == 3
