"""The progress of a run: a line for each step, and in a terminal a live one below.

Where there is no terminal, the current step is repeated after a silence.
"""

from __future__ import annotations

import threading
import time
from typing import Self, TextIO

from rich.console import Console

_EVERY_S = 5.0  # between two reports of one step where there is no terminal
_AGAIN_S = 15.0  # of silence


class ProgressDisplay:
    """Prints steps with the seconds since the start."""

    def __init__(self, stream: TextIO, again_s: float = _AGAIN_S) -> None:
        self._console = Console(file=stream, highlight=False, markup=False)
        self._status = self._console.status("")
        self._begun = time.monotonic()
        self._shown = 0.0
        self._again_s = again_s
        self._said = self._begun
        self._step = ""
        self._is_over = threading.Event()
        self._teller = threading.Thread(target=self._tell_again, name="progress", daemon=True)

    def say(self, text: str) -> None:
        """Print a finished step; it stays on the screen."""
        self._said = time.monotonic()
        self._console.print(f"{time.monotonic() - self._begun:6.1f} s  {text}", soft_wrap=True)

    def show(self, text: str) -> None:
        """Show the current step; the next one replaces it."""
        self._step = text
        if self._console.is_terminal:
            self._status.update(text)
        elif time.monotonic() - self._shown > _EVERY_S:
            self._shown = time.monotonic()
            self.say(text)

    def __enter__(self) -> Self:
        self._status.start()
        if not self._console.is_terminal:
            self._teller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()
        self._is_over.set()
        if self._teller.is_alive():
            self._teller.join()

    def _tell_again(self) -> None:
        while not self._is_over.wait(self._said + self._again_s - time.monotonic()):
            if time.monotonic() - self._said >= self._again_s:
                self.say(f"still {self._step}" if self._step else "still working")
