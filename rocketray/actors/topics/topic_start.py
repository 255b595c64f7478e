"""The start of a topic's queues by a program: a few processes at a time, until all of them answer.

A busy machine starts few processes in a minute. So the coordinator first records the whole topic,
and starts queues on request: each call names those of a few processes, waits for a while, and
returns those that do not answer yet. Queues that run are left alone, so every call may be repeated,
and a request for a topic with missing queues has them started.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from rocketray.errors import ShardUnavailableError, StreamError

from .catalog import TopicConfig

__all__ = ["PROCESSES_A_STEP", "STEP_S", "QueueStarter", "Started", "TopicProgress"]

PROCESSES_A_STEP = 8
STEP_S = 20.0
"""How long the coordinator waits for the queues of one step."""
_PATIENCE_S = 120.0
_RETRY_AFTER_MS = 1000


class Started(NamedTuple):
    """The outcome of a call that starts shards, by ``topic/queue``.

    ``closed`` has the errors of those that stay closed, ``waiting`` those that do not answer yet.
    ``began`` are those that were not open before.
    """

    closed: dict[str, StreamError]
    waiting: tuple[str, ...] = ()
    began: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicProgress:
    """The number of a topic's queues that answer, and of those that were missing so far."""

    topic: str
    queues: int
    running: int
    started: int


@dataclass(slots=True)
class QueueStarter:
    """The start of the queues of one topic, step by step; ``start`` asks for some of them once."""

    topic: TopicConfig
    start: Callable[[range], Started]
    on_progress: Callable[[TopicProgress], None] | None = None
    clock_s: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep
    _began: set[str] = field(default_factory=set, init=False)
    _closed: dict[str, StreamError] = field(default_factory=dict, init=False)

    def run(self) -> dict[str, StreamError]:
        """Return when all queues answer, with the errors of those that stay closed.

        Raises:
            ShardUnavailableError: no further queue has answered for two minutes. The same call
                resumes where this one stopped.
        """
        queues = self.topic.queues
        step = max(1, PROCESSES_A_STEP * queues // len(self.topic.by_process()))
        self._report(0)
        for first in range(0, queues, step):
            self._run_step(range(first, min(first + step, queues)))
        return self._closed

    def _run_step(self, wanted: range) -> None:
        fewest, heard_s = len(wanted), self.clock_s()
        while True:
            reason = "it does not answer yet"
            try:
                report = self.start(wanted)
            except ShardUnavailableError as error:  # the coordinator's answer is late, or it died
                reason, waiting = error.reason, fewest
                self.pause(error.retry_after_ms / 1000)
            else:
                self._began.update(report.began)
                self._closed |= report.closed
                waiting = len(report.waiting)
                self._report(wanted.stop - waiting)
                if not waiting:
                    return
            if waiting < fewest:
                fewest, heard_s = waiting, self.clock_s()
            elif self.clock_s() - heard_s >= _PATIENCE_S:
                running = wanted.stop - fewest
                raise ShardUnavailableError(
                    f"{self.topic.name}/{running}",
                    _RETRY_AFTER_MS,
                    f"{reason}; {running} of the topic's {self.topic.queues} queues run, and no "
                    f"other has started for {_PATIENCE_S:.0f} s; to start the rest, create the "
                    "topic again",
                )

    def _report(self, running: int) -> None:
        if self.on_progress is not None:
            topic = self.topic
            self.on_progress(TopicProgress(topic.name, topic.queues, running, len(self._began)))
