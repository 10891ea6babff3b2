"""The ``xpolicy`` command."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

USAGE = 2
"""Exit status of a command that was not understood, or can't be run at all."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status.

    Parameters
    ----------
    arguments : sequence of str, optional
        The command line behind the program's name; that of the process by default.

    Returns
    -------
    int
        0 if all is well, 1 if policies are wrong, 2 if the command itself is.
    """
    try:
        import cyclopts
        import rich
    except ModuleNotFoundError as error:
        print(
            f"error: the xpolicy command needs the cli extra (there is no {error.name} here)\n"
            '  fix: pip install "xpolicy[cli]"',
            file=sys.stderr,
        )
        return USAGE
    del cyclopts, rich
    from xpolicy.cli.app import run

    return run(arguments)
