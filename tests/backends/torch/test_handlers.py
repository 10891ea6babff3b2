"""Who is told something may wait for another thread: no lock of torch's is held meanwhile."""

from __future__ import annotations

import logging
import threading
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch

import xpolicy
from xpolicy.errors import XPolicyWarning

if TYPE_CHECKING:
    from collections.abc import Callable

modes = pytest.mark.parametrize("mode", ["compile", "fullgraph"])


def decorated(name: str, mode: str, **options: Any) -> Any:
    return xpolicy.compile(
        lambda x: x + 1,
        name=name,
        mode=mode,  # type: ignore[arg-type]
        torch={"backend": "eager", **options},
    )


class Elsewhere:
    """Has another thread compile something, and waits for it; not for what that tells."""

    def __init__(self, mode: str) -> None:
        self.call = decorated("mylib.other", mode, dynamic=False)
        self.finished: list[bool] = []
        self.size = 1
        self.main = threading.current_thread()

    def __call__(self) -> None:
        if threading.current_thread() is not self.main:
            return
        self.size += 1
        thread = threading.Thread(target=self.call, args=(torch.ones(self.size),), daemon=True)
        thread.start()
        thread.join(20)
        self.finished.append(not thread.is_alive())


class Handler(logging.Handler):
    def __init__(self, told: Callable[[], None]) -> None:
        super().__init__()
        self.told = told

    def createLock(self) -> None:  # logging holds it while a handler runs
        self.lock = None

    def emit(self, record: logging.LogRecord) -> None:
        self.told()


@modes
def test_a_handler_of_logs_and_a_subscriber_may_wait(mode: str) -> None:
    torch._dynamo.reset()
    elsewhere = Elsewhere(mode)
    handler = Handler(elsewhere)
    logger = logging.getLogger("xpolicy")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    stop = xpolicy.subscribe(lambda event: elsewhere())
    try:
        f = decorated("mylib.f", mode)
        for rank in (1, 2):
            f(torch.ones((2,) * rank))
    finally:
        stop()
        logger.removeHandler(handler)
        logger.setLevel(before)
    assert len(elsewhere.finished) == 8  # announced, (recompiled,) compiled: logged, and told
    assert all(elsewhere.finished)


@modes
def test_who_shows_warnings_may_wait(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    elsewhere = Elsewhere(mode)
    f = decorated("mylib.f", mode, recompile_limit=1, on_recompile_limit="warn")
    f(torch.ones(1))
    with warnings.catch_warnings():
        warnings.simplefilter("always", XPolicyWarning)
        monkeypatch.setattr(warnings, "showwarning", lambda *told: elsewhere())
        f(torch.ones(1, 1))
    assert elsewhere.finished == [True]
