"""Write the reference page of options: ``python -m xpolicy.cli.reference``."""

from __future__ import annotations

import sys
from pathlib import Path

from xpolicy.backends.registry import option_table
from xpolicy.policy.reference import reference as page

PAGE = Path("docs/reference/options.md")


def reference(file: Path = PAGE, /) -> None:
    """Write the reference page of all options.

    Parameters
    ----------
    file
        Where to.
    """
    file.write_text(page(option_table()), encoding="utf-8")


if __name__ == "__main__":
    reference(*(Path(argument) for argument in sys.argv[1:]))
