"""Whether the reader of stdout has read the printed lines.

Where stdout is a pipe, a written line stays in the pipe until its reader asks for it, and is lost
when the reader ends before. So the pipe is made as small as possible, and a caller that must know
waits after each line until the pipe is empty. Terminals, files and sockets have what was written.

The limit: a line counts once its reader has read it, whatever the reader then does with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import select
import stat
import sys
import termios
import threading
import time

from .output import OutputClosedError

__all__ = ["OutputReader"]

_PIPE_BYTES = 4096  # one page, the least: such a pipe can be written to when it is empty
_LOOK_MS = 250  # how long a signal may go unseen
_PAUSE_S = 0.001


class OutputReader:
    """The process that reads stdout; to be created before the first line is printed."""

    def __init__(self) -> None:
        self._pipe = _pipe_of_stdout()
        if self._pipe is not None:
            with contextlib.suppress(OSError):  # it holds more already: then it is looked at
                fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def has_read(self, ended: threading.Event) -> bool:
        """Wait until the reader has read everything; return False if *ended* is set before.

        Raises:
            OutputClosedError: the reader closed stdout, and did not read all of it.
        """
        if self._pipe is None:
            return True
        poller = select.poll()
        poller.register(self._pipe, select.POLLOUT)
        while _unread(self._pipe):
            if ended.is_set():
                return False
            events = poller.poll(_LOOK_MS)
            if events and _unread(self._pipe):
                if events[0][1] & select.POLLERR:
                    raise OutputClosedError
                time.sleep(_PAUSE_S)  # a larger pipe has room before it is empty
        return True


def _pipe_of_stdout() -> int | None:
    try:
        number = sys.stdout.fileno()
    except (io.UnsupportedOperation, ValueError):
        return None  # no file, or a closed one
    return number if stat.S_ISFIFO(os.fstat(number).st_mode) else None


def _unread(pipe: int) -> int:
    """Return the number of bytes in the pipe."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)
