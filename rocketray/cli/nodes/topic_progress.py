"""The progress of ``rocketray topics`` on stderr while the queues of a topic start.

In a terminal it is a live line; elsewhere a line when it takes a while, and again every 15 seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rocketray.cli.terminal.output import progress
from rocketray.cli.terminal.waiting import AGAIN_S

if TYPE_CHECKING:
    from rocketray.actors.topics.topic_start import TopicProgress

__all__ = ["TopicWait"]

_SILENT_S = 5.0


class TopicWait:
    """Shows progress at each call; at the end ``started`` counts the queues that were missing."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.started = 0
        self._clock_s = clock_s
        self._latest: TopicProgress | None = None
        self._say_again_s = clock_s() + _SILENT_S
        self._live: Callable[[str], None] | None = None
        self._open = ExitStack()

    def __call__(self, report: TopicProgress) -> None:
        """Show the progress."""
        self._latest, self.started = report, report.started
        if self._live is not None:
            self._live(f"{_count(report)} run")
        elif report.running < report.queues and (now_s := self._clock_s()) > self._say_again_s:
            self._say_again_s = now_s + AGAIN_S
            progress(f"{_count(report)} run; the others are being started")

    def __enter__(self) -> Self:
        """Return this object, with a live line if stderr is a terminal."""
        if sys.stderr.isatty():
            from rocketray.cli.terminal.progress import ProgressDisplay  # noqa: PLC0415 - imports rich

            self._live = self._open.enter_context(ProgressDisplay(sys.stderr)).show
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the live line, and say how to continue after Ctrl-C."""
        self._open.close()
        latest = self._latest
        if isinstance(error, KeyboardInterrupt) and latest and latest.running < latest.queues:
            progress(f"interrupted: {_count(latest)} run; the same command starts the others")


def _count(report: TopicProgress) -> str:
    return f"topic {report.topic}: {report.running} of {report.queues} queues"
