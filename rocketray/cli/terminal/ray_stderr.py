"""Redirection of Ray's C++ output in a command's process to a file of the node's logs.

Ray prints its errors on file 2, whatever Python has as ``sys.stderr``, and has no switch for it:
twenty lines where a token is wrong, one a second where a node was lost. The command reports itself
what failed and what to do. ``start`` redirects from the moment that its node is ready. In a user's
program, file 2 is not changed.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from pathlib import Path

from rocketray.data_directory import data_directory

__all__ = ["ray_stderr_in_file"]

_STDERR = 2
_NAME = "commands.err"


def ray_stderr_in_file(data: Path) -> bool:
    """Redirect file 2 to the node's log on *data*; ``sys.stderr`` keeps the old one.

    Returns whether it did: it has no effect if ``sys.stderr`` is not file 2, as in a program that
    runs the command.
    """
    before = sys.__stderr__
    if before is None or sys.stderr is not before or before.fileno() != _STDERR:
        return False
    before.flush()
    terminal = os.fdopen(
        os.dup(_STDERR), "w", buffering=1, encoding=before.encoding, errors=before.errors
    )
    file = _open(data)
    os.dup2(file, _STDERR)
    os.close(file)
    # faulthandler writes to the latter
    sys.stderr = sys.__stderr__ = terminal  # type: ignore[misc]
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is before:
            handler.setStream(terminal)
    return True


def _open(data: Path) -> int:
    """Open the end of the file in the node's logs, or the null device if there is no node."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        logs = json.loads((data_directory(data) / "node.json").read_text())["logs"]
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(Path(logs) / _NAME, flags, 0o600)
    return os.open(os.devnull, os.O_WRONLY)
