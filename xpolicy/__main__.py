"""``python -m xpolicy``: the command, with this very interpreter."""

from __future__ import annotations

import sys

from xpolicy.cli import main

if __name__ == "__main__":
    sys.exit(main())
