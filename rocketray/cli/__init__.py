"""The command line: the only package that reads arguments and the environment, and that prints.

Exit codes
  0    success
  1    failure: the message on stderr says what failed, where, and what to do; no traceback. Also
       when query, store query, store get or explain finds no such message, and tables get no value
  2    usage error: an invalid option, name or expression
  130  ended by Ctrl-C before completion
  141  the reader of its output closed the pipe, as after "| head"

Results go to stdout, everything else to stderr. Commands import slow modules only when they
need them, so ``--version``, ``filter eval`` and ``store scan`` start without Ray, Faust and Spark.
"""

from __future__ import annotations

import atexit
import gc
import signal
import sys
import threading
from collections.abc import Sequence
from typing import NoReturn

from rocketray import __version__

__all__ = ["main"]

_OBJECTS_BEFORE_GC = 50_000
"""Loading makes no garbage; looking for it at each 700 objects is a tenth of a command's start."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit with its code; *arguments* default to those of the process.

    While the commands are being imported, Ctrl-C ends the process at once: no work is lost, and a
    traceback through an import would not help. In a thread, which cannot set signal handlers, the
    handler is not changed.
    """
    try:
        before = signal.getsignal(signal.SIGINT)
        is_ours = threading.current_thread() is threading.main_thread()
        ends_at_once = is_ours and before is signal.default_int_handler
        if ends_at_once:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        gc.set_threshold(_OBJECTS_BEFORE_GC)
        if [*(sys.argv[1:] if arguments is None else arguments)] == ["--version"]:
            _print_version()
        from .application import main as run  # see the docstring

        atexit.register(gc.freeze)  # else Python looks for garbage in all modules at its end: 0.2 s
        if ends_at_once:
            signal.signal(signal.SIGINT, before)
        run(arguments)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def _print_version() -> NoReturn:
    """Print the version without the commands, which take 0.2 s to build."""
    if sys.stdout is not None:  # it is, where the caller closed it
        try:
            sys.stdout.write(f"rocketray {__version__}\n")
            sys.stdout.flush()
        except OSError as error:
            sys.exit(f"rocketray: standard output: {error.strerror}")
    sys.exit(0)
