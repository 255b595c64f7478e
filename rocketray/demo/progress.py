"""Telling who waits what is going on: a line a step, and in a terminal a live one below."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console

__all__ = ["Progress"]

_EVERY_S = 5.0  # between two reports of one step where there is no terminal


class Progress:
    """Steps with the seconds since the start."""

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream, highlight=False, markup=False)
        self._status = self._console.status("")
        self._begun = time.monotonic()
        self._shown = 0.0

    def say(self, text: str) -> None:
        """A step was done; it stays on the screen."""
        self._console.print(f"{time.monotonic() - self._begun:6.1f} s  {text}", soft_wrap=True)

    def show(self, text: str) -> None:
        """What goes on now; replaced by what comes next."""
        if self._console.is_terminal:
            self._status.update(text)
        elif time.monotonic() - self._shown > _EVERY_S:
            self._shown = time.monotonic()
            self.say(text)

    def __enter__(self) -> Self:
        self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._status.stop()
