"""The last word of a process that could not say why it ended: one for ``rocketray start``.

A process that the kernel kills, or that Ray's C++ ends, runs no line of Python any more. So a shell
waits beside it, in a session of its own, at the end of a pipe. If the pipe ends before the process
has said that all is well, the shell says on its terminal and in its log that it has ended, with the
line in which Ray announced it, if it did. It needs little memory, and no processor meanwhile.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_SCRIPT = r"""
ray=
while read -r line; do
    [ "$line" ] || exit 0
    ray=$line
done
told=$([ -z "$ray" ] || tail -n 20 "$ray" 2>/dev/null | grep -a 'will terminate' | tail -n 1)
said="$1${told:+; Ray said: $told}"
printf '%s\n' "$said" >&2
[ ! -f "$2" ] ||
    printf '%s ERROR rocketray: %s\n' "$(date '+%Y-%m-%d %H:%M:%S,000')" "$said" >>"$2"
"""


class LastWord:
    """The pipe to the shell."""

    def __init__(self, process: subprocess.Popen[bytes] | None) -> None:
        """Take the shell's process; None where no shell runs."""
        self._process = process

    def comes_from(self, ray_log: Path) -> None:
        """Say in which file Ray writes why it ends this process."""
        self._write(f"{ray_log}\n".encode(errors="surrogateescape"))

    def is_said(self) -> None:
        """Say that this process has told itself why it ends, or ends without a reason."""
        self._write(b"\n")

    def _write(self, line: bytes) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError, ValueError):  # the shell was killed, or has ended
                self._process.stdin.write(line)
                self._process.stdin.flush()


@contextmanager
def last_word(said: str, log: Path) -> Iterator[LastWord]:
    """Have *said* on stderr, and in the file *log* if it exists, if this process is killed.

    A block that is left says nothing, in whatever way: Python says what is wrong.
    """
    command = ["/bin/sh", "-c", _SCRIPT, "sh", said, os.fspath(log)]
    try:
        process = subprocess.Popen(  # noqa: S603 - our own command
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=sys.stderr,
            start_new_session=True,
        )
    except OSError:  # no shell, or no process more
        yield LastWord(None)
        return
    word = LastWord(process)
    try:
        yield word
    finally:
        word.is_said()
        process.communicate()
