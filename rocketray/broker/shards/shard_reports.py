"""What a shard process tells of its open shards, however many they are: an answer for all."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache

from rocketray.errors import StoreClosedError
from rocketray.runtime.processes import program_of

from .day_counts import DayCounts, midnights
from .owned_shard import OwnedShard
from .shard_api import QueueProducer, ScrubState, ShardStatistics


class ShardReports:
    """The object behind ``ShardProcessApi``; any thread may call."""

    def __init__(
        self,
        shards: Callable[[], Mapping[tuple[str, int], OwnedShard]],
        clock_ms: Callable[[], int],
    ) -> None:
        """Take a function that returns the shards that are open now, by topic and queue."""
        self._shards, self._clock_ms = shards, clock_ms

    def statistics(self) -> list[ShardStatistics]:
        """See ``ShardProcessApi``."""
        return [shard.statistics() for shard in self._shards().values()]

    def producers(self) -> list[QueueProducer]:
        """See ``ShardProcessApi``."""
        program, machine = cache(_program), socket.gethostname()
        return [
            QueueProducer(
                *(*place, machine, pid, program(pid)),
                *(facts.release, facts.opened_ms, facts.batches, facts.stored_ms),
            )
            for place, shard in self._shards().items()
            for pid, facts in shard.writer.rings.producers()
        ]

    def midnights(self) -> tuple[int, int]:
        """See ``ShardProcessApi``."""
        return midnights(self._clock_ms())

    def stored_by_day(self, yesterday_ms: int, today_ms: int, topic: str | None) -> list[DayCounts]:
        """See ``ShardProcessApi``; a shard that closes meanwhile is left out."""
        found = []
        for (name, _), shard in self._shards().items():
            if topic in (None, name):
                with suppress(StoreClosedError):
                    found.append(shard.lookups.stored_by_day(yesterday_ms, today_ms))
        return found

    def unflushed(self) -> dict[str, int]:
        """Return the age in ms of the oldest message that is not on disk, by ``topic/queue``."""
        return {
            f"{topic}/{queue_id}": shard.unflushed_ms()
            for (topic, queue_id), shard in self._shards().items()
        }

    def scrubs(self) -> dict[str, ScrubState]:
        """Return how far each shard was read again, and the damage found, by ``topic/queue``."""
        return {
            f"{topic}/{queue_id}": shard.scrub.state()
            for (topic, queue_id), shard in self._shards().items()
        }


def _program(pid: int) -> str:
    try:
        return program_of(pid)
    except OSError:  # it has ended, or its name is not known
        return ""
