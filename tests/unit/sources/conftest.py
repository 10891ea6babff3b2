"""Running as somebody whom file permissions bind."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = 65534


class Folder(type(Path())):  # type: ignore[misc]
    """A folder that everybody can reach, and the rights of an ordinary user."""

    @contextlib.contextmanager
    def rights(self) -> Iterator[None]:
        """Be an ordinary user for a while: permissions don't bind root."""
        if os.geteuid() != 0:
            yield
            return
        os.seteuid(NOBODY)
        try:
            yield
        finally:
            os.seteuid(0)


@pytest.fixture
def unprivileged() -> Iterator[Folder]:
    if not hasattr(os, "geteuid"):
        pytest.skip("needs a platform with POSIX permissions")
    # Not tmp_path: pytest keeps that to the user who runs it.
    made = tempfile.mkdtemp()
    Path(made).chmod(0o755)
    try:
        yield Folder(made)
    finally:
        for folder, _, _ in os.walk(made):
            Path(folder).chmod(0o700)
        shutil.rmtree(made)
