"""Programs that begin as copies of a process that has imported what they will import.

To import Ray, Faust, Arrow and rocketray takes a second of processor time, and the pages of the
documentation alone start some thirty programs. What a copy does from then on is the same. Tests of
what happens at an import, and of the installed command, start an interpreter of their own.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["support.harness.preloaded"])


def can_fork(words: Sequence[str]) -> bool:
    """Whether these words of a command line start a program that can be forked."""
    is_script = words[0] == "python" and len(words) > 1 and words[1].endswith(".py")
    return is_script or words[0] == "rocketray"


class ForkedProgram:
    """A program in a process of its own, with those methods of ``subprocess.Popen`` that tests use."""

    def __init__(
        self,
        words: Sequence[str],
        directory: Path,
        environ: Mapping[str, str],
        output: Path,
        source: Path = Path(os.devnull),
    ) -> None:
        """Start ``python SCRIPT …`` or ``rocketray …``; *output* gets what it prints.

        It reads *source* as its standard input.
        """
        assert can_fork(words), words
        arguments = list(words), str(directory), dict(environ), str(output), str(source)
        self._words = list(words)
        self._process = _FORKS.Process(target=_run, args=arguments, daemon=True)
        self._process.start()

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""
        return self._process.exitcode

    def wait(self, timeout_s: float) -> int:
        """Return its exit code when it has ended."""
        self._process.join(timeout_s)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(self._words, timeout_s)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self._process.pid is not None and self.poll() is None:
            os.kill(self._process.pid, number)


def _run(
    words: list[str], directory: str, environ: dict[str, str], output: str, source: str
) -> None:
    """Be the program, in the copied process."""
    with Path(output).open("a") as file, Path(source).open() as read:
        os.dup2(read.fileno(), 0)
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environ)
    try:
        if words[0] == "python":
            sys.argv = words[1:]
            sys.path.insert(0, str(Path(directory, words[1]).parent))
            runpy.run_path(words[1], run_name="__main__")
        else:
            from rocketray.cli import main  # noqa: PLC0415 - the copied process has it

            main(words[1:])
    finally:
        atexit._run_exitfuncs()  # multiprocessing leaves them out
