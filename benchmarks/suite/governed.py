"""A pytest plugin: array-api-extra's functions under policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import xpolicy

if TYPE_CHECKING:
    import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Put the functions under policy before any test module imports them by name."""
    config.add_cleanup(xpolicy.apply("array_api_extra").undo)
