"""The start of topics' queues by a program: a part at a time, until all of them answer.

A busy machine starts few processes in a minute. So the coordinator first records the whole topic,
and starts queues on request: each call names those of a few processes, or of some dozen topics,
waits for a while, and returns those that do not answer yet. Queues that run are left alone, so
every call may be repeated, and a request for a topic with missing queues has them started.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from rocketray.base.quantity import agreed, counted
from rocketray.errors import ShardUnavailableError, StreamError

from .catalog import TopicConfig

PartT = TypeVar("PartT")
PROCESSES_A_STEP = 8  # a busy machine starts few processes in a minute
TOPICS_A_STEP = 64  # with one save of the catalog for all of them
STEP_S = 20.0
"""How long the coordinator waits for the queues of a step, for whose reply a caller has 60 s."""
_PATIENCE_S = 120.0  # six steps; a start of Ray's processes may take that long on a busy machine


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
    """The number of queues of topics that answer, and of those that were missing so far."""

    topic: str
    queues: int
    running: int
    started: int


@dataclass(slots=True)
class QueueStarter(Generic[PartT]):
    """The start of the queues of *topics*, part by part; ``start`` asks for those of one once.

    ``parts`` has each part with the number of its queues.
    """

    topics: str
    parts: Sequence[tuple[PartT, int]]
    start: Callable[[PartT], Started]
    on_progress: Callable[[TopicProgress], None] | None = None
    clock_s: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep
    _queues: int = field(default=0, init=False)
    _began: set[str] = field(default_factory=set, init=False)
    _closed: dict[str, StreamError] = field(default_factory=dict, init=False)

    def run(self) -> dict[str, StreamError]:
        """Return when all queues answer, with the errors of those that stay closed.

        Raises:
            ShardUnavailableError: no further queue has answered for two minutes. The same call
                resumes where this one stopped.
        """
        self._queues = sum(queues for _, queues in self.parts)
        running = 0
        self._report(running)
        for part, queues in self.parts:
            running += queues
            self._run_part(part, queues, running)
        return self._closed

    def _run_part(self, part: PartT, queues: int, end: int) -> None:
        fewest, heard_s = queues, self.clock_s()
        while True:
            reason = "it does not answer yet"
            try:
                report = self.start(part)
            except ShardUnavailableError as error:  # the coordinator's answer is late, or it died
                reason, waiting = error.reason, fewest  # no answer is no progress, and no loss
                self.pause(error.retry_after_ms / 1000)
            else:
                self._began.update(report.began)
                self._closed |= report.closed
                waiting = len(report.waiting)
                self._report(end - waiting)
                if not waiting:
                    return
            if waiting < fewest:
                fewest, heard_s = waiting, self.clock_s()
            elif self.clock_s() - heard_s >= _PATIENCE_S:
                running = end - fewest
                raise ShardUnavailableError(
                    f"shard {self.topics}/{running}",
                    f"{reason}; {running} of {counted(self._queues, 'queue')} "
                    f"{agreed(running, 'run')}, and no other has started for "
                    f"{_PATIENCE_S:.0f} s; to start the rest, repeat the creation",
                )

    def _report(self, running: int) -> None:
        if self.on_progress is not None:
            began = len(self._began)
            self.on_progress(TopicProgress(self.topics, self._queues, running, began))


def parts_of(topic: TopicConfig) -> list[tuple[range, int]]:
    """Return the queues of one topic in parts, each of the queues of a few processes."""
    queues = topic.queues
    size = max(1, PROCESSES_A_STEP * queues // len(topic.by_process()))
    parts = (range(first, min(first + size, queues)) for first in range(0, queues, size))
    return [(part, len(part)) for part in parts]
