"""The allow-list against the installed inductor: every option was looked at."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="reads inductor's own list: pip install torch")


@pytest.mark.skipif(
    not torch.__version__.startswith("2.13."),
    reason="the list was reviewed against torch 2.13; another torch has other options",
)
def test_every_inductor_option_is_allowed_or_refused_for_a_reason() -> None:
    import torch._inductor

    from xpolicy.backends.torch.options import refused, reviewed

    names = set(torch._inductor.list_options())
    unreviewed = [
        n for n in names if refused("options", n) == "it has not been reviewed as harmless"
    ]
    assert unreviewed == []
    allowed, _ = reviewed()
    assert allowed <= names
