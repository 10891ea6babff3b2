"""Say on standard error what is going on, for how long, and what is left."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Progress"]


class Progress:
    """Steps, numbered, with the time that each took.

    On a terminal one line is rewritten five times a second. Elsewhere (a log, a pipe) each step
    is a line when it begins, and one more every ten seconds while it lasts.

    Parameters
    ----------
    total : int
        How many steps there will be.
    stream : text file, optional
        Standard error if not given.
    """

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self._total = total
        self._stream = sys.stderr if stream is None else stream
        self._live = self._stream.isatty()
        self._lock = threading.Lock()
        self._start = self._step_start = time.monotonic()
        self._step = ""
        self._number = 0
        self._done = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Self:
        self._ticker.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._done.set()
        self._ticker.join()
        if self._live:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
        if kind is None:
            self._line(f"{self._number} steps in {time.monotonic() - self._start:.1f} s")

    def step(self, text: str) -> None:
        """Begin the next step."""
        with self._lock:
            self._number += 1
            self._step, self._step_start = text, time.monotonic()
        if not self._live:
            self._line(self._describe())

    def _describe(self) -> str:
        now = time.monotonic()
        lasted = now - self._step_start
        so_far = f" ({lasted:.0f} s)" if lasted >= 1 else ""
        return f"[{self._number:2}/{self._total}  {now - self._start:5.1f} s] {self._step}{so_far}"

    def _line(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()

    def _tick(self) -> None:
        while not self._done.wait(0.2 if self._live else 10.0):
            with self._lock:
                if not self._step:
                    continue
                text = self._describe()
            if self._live:
                self._stream.write(f"\r\x1b[K{text}")
                self._stream.flush()
            else:
                self._line(text)
