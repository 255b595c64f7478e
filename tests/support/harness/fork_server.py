"""Runs the phases of a driver, each in a process that is forked: an import takes a second.

The server reads a line for each phase, a list of its arguments in JSON, and answers with a line: the
exit code, and what the phase printed.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn


def serve(main: Callable[..., object]) -> None:
    """Run *main* with the arguments of each line, until there are no more lines."""
    for line in sys.stdin:
        reads, writes = os.pipe()
        child = os.fork()
        if not child:
            os.dup2(writes, 1)
            _end_with(main, json.loads(line))
        os.close(writes)
        with os.fdopen(reads) as printed:
            found = printed.read()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.stdout.write(json.dumps([code, found]) + "\n")
        sys.stdout.flush()


def _end_with(main: Callable[..., object], arguments: list[str]) -> NoReturn:
    code = 1
    try:
        main(*arguments)
        atexit._run_exitfuncs()
        sys.stdout.flush()
        code = 0
    except BaseException:  # noqa: BLE001 - the forked process has no caller
        traceback.print_exc()
    finally:
        os._exit(code)
