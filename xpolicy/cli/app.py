"""The command line's commands, and what becomes of the errors that they meet."""

from __future__ import annotations

import os
import sys
import warnings
from typing import TYPE_CHECKING

from cyclopts import App, CycloptsError

import xpolicy
from xpolicy.cli import USAGE
from xpolicy.cli.cache import cache
from xpolicy.cli.check import check
from xpolicy.cli.explain import explain
from xpolicy.cli.output import errors_to, house_warnings
from xpolicy.cli.reference import reference
from xpolicy.cli.schema import schema
from xpolicy.cli.show import show
from xpolicy.cli.usage import UsageError
from xpolicy.cli.warmup import warmup
from xpolicy.errors import XPolicyError

if TYPE_CHECKING:
    from collections.abc import Sequence

#: What a shell reports for a program that a closed pipe or Ctrl-C has ended.
CLOSED_PIPE, INTERRUPTED = 128 + 13, 128 + 2

app = App(
    name="xpolicy",
    help="Policies for compiling array-API functions: who set what, where, and is it right?",
    version=xpolicy.__version__,
    # Descriptions are the docstrings, of which only the first lines are for the command.
    help_format="plaintext",
    exit_on_error=False,
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)
app.command(explain)
app.command(check)
app.command(cache)
app.command(show)
app.command(schema)
app.command(warmup)
app.command(reference, show=False)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; every way that it can end has its exit status.

    Parameters
    ----------
    arguments : sequence of str, optional
        The command line; that of the process by default.
    """
    try:
        with warnings.catch_warnings():
            house_warnings()
            status = app(None if arguments is None else list(arguments))
        sys.stdout.flush()
    except CycloptsError:
        return USAGE  # told by cyclopts, on the error stream
    except UsageError as error:
        errors_to(sys.stderr, error.problem)
        return USAGE
    except XPolicyError as error:
        errors_to(sys.stderr, error)
        return 1
    except BrokenPipeError:
        # `xpolicy show | head`: the reader has had enough. Python would complain once
        # more when it flushes at exit, if the pipe were still there to flush into.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    return status if isinstance(status, int) else 0
