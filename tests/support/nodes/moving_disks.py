"""Two disks between which queues move, as their agents have them, with steps that fail as told."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rocketray.broker.disks.copy_rounds import FileSums, Known, RoundProgress
from rocketray.broker.disks.disk_agent import DiskAgent
from rocketray.broker.disks.disks_api import CopiedQueue
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.errors import ConfigError

FAR = "00000000-0000-0000-0000-000000000002"
STEPS = ("copy", "start_process", "hand_over", "last copy", "after last copy", "start")
"""The steps of a move, in order; a failure leaves the queue where it was, or on its new disk."""
_GO_ON_S = 30.0


class MovingAgents:
    """The agents of both disks, in this process: the ``MovingDisks`` of a move."""

    def __init__(self, data: Mapping[str, Path]) -> None:
        """Take the directories by disk, which exist."""
        self.goes_on = threading.Event()
        """Copies stop after the first blocks unless it is set."""
        self.goes_on.set()
        self.fails: dict[str, Exception] = {}
        """The steps that fail, each once, and how."""
        self.agents = {disk: DiskAgent(place, "", self._source) for disk, place in data.items()}

    def may_fail(self, step: str) -> None:
        """Raise what the test asked for at this step."""
        if step in self.fails:
            raise self.fails.pop(step)

    def copy_queue(
        self, topic: TopicConfig, queue_id: int, target: str, *, is_closed: bool
    ) -> CopiedQueue:
        self.may_fail("last copy" if is_closed else "copy")
        source = topic.disk_of(queue_id)
        done = self.agents[target].copy_queue(topic, queue_id, source, is_closed=is_closed)
        if is_closed:
            self.may_fail("after last copy")
        return done

    def copy_progress(self, disk: str, topic: str, queue_id: int) -> RoundProgress:
        self.may_fail("progress")
        return self.agents[disk].copy_progress(topic, queue_id)

    def remove_queue(
        self, disk: str, topic: str, queue_id: int, store_host: tuple[str, int]
    ) -> None:
        self.may_fail("remove")
        self.agents[disk].remove_queue(topic, queue_id, store_host)

    def check_target(self, disk: str) -> None:
        if disk not in self.agents:
            raise ConfigError("no such disk")

    def _source(self, disk: str, topic: str, queue_id: int) -> _Source:
        return _Source(self.agents[disk], topic, queue_id, self.goes_on)


class _Source:
    """A queue of an agent; see ``QueueSource``."""

    def __init__(
        self, agent: DiskAgent, topic: str, queue_id: int, goes_on: threading.Event
    ) -> None:
        self._agent = agent
        self._place = topic, queue_id
        self._goes_on = goes_on

    def sums(self, known: Known) -> dict[str, FileSums]:
        return self._agent.sums_of(*self._place, known)

    def blocks(self, wanted: Sequence[tuple[str, list[int]]]) -> Iterator[bytes]:
        for name, numbers in wanted:
            yield self._agent.read_blocks(*self._place, name, numbers)
            assert self._goes_on.wait(_GO_ON_S)
