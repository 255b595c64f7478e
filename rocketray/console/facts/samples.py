"""Samples of the last hour, in memory: the end of each topic, the lag and progress of each group.

A sample that could not be taken is None: unknown is not zero.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rocketray.services.health.node_readings import NodeReadings
from rocketray.services.health.troubles import growth_of

EVERY_S = 10.0  # each asks for the ends of all topics and the lags of all groups
_KEPT = 360  # an hour
# Of topics, and of groups: 360 samples of some 120 bytes each, so 86 MB of either at most.
_NAMES_MAX = 2000
_RATE_OF = 7  # samples, which have six intervals of 10 s between them
_GROWTH_OF = 31  # samples, five minutes: a lag that comes and goes with batches has not grown
Series = Sequence[tuple[int, float | None]]
"""Times in ms and numbers, oldest first; None where one is unknown."""


@dataclass(frozen=True, slots=True)
class TopicSample:
    """The sum of a topic's queue ends at a time."""

    time_ms: int
    end: int | None


@dataclass(frozen=True, slots=True)
class LagSample:
    """The lag of a group on a topic; ``unknown`` says why it and its exactness are None.

    ``finished`` is the sum of the group's offsets.
    """

    time_ms: int
    lag: int | None
    exactness: str | None
    unknown: str | None = None
    finished: int | None = None


@dataclass(slots=True)
class Samples:
    """The rings of samples, filled by :meth:`note` every ``EVERY_S`` seconds."""

    clock_ms: Callable[[], int]
    topics: dict[str, deque[TopicSample]] = field(default_factory=dict)
    lags: dict[tuple[str, str], deque[LagSample]] = field(default_factory=dict)

    def note(self, topics: Collection[str], readings: NodeReadings) -> None:
        """Take a sample from *readings* of a node that has those *topics*.

        What did not answer is unknown in it.
        """
        now_ms = self.clock_ms()
        for name in [*topics][:_NAMES_MAX]:
            shards = readings.shards.get(name)
            end = None if shards is None else sum(one.max_queue_offset for one in shards)
            ring = self.topics.setdefault(name, deque(maxlen=_KEPT))
            ring.append(TopicSample(now_ms, end))
        for gone in self.topics.keys() - {*topics}:
            del self.topics[gone]
        if readings.groups is None:
            return
        seen = set()
        for group in readings.groups[:_NAMES_MAX]:
            if not group.is_broadcast:
                key = group.group, group.topic
                seen.add(key)
                finished = sum(max(offset, 0) for offset in group.offsets.values())
                ring_of_lag = self.lags.setdefault(key, deque(maxlen=_KEPT))
                ring_of_lag.append(_lag_sample(readings, key, now_ms, finished))
        for lost in self.lags.keys() - seen:
            del self.lags[lost]

    def rate(self, topic: str) -> float | None:
        """Return the messages a second of the last minute; None if that is not known.

        As before there are two samples, and while a disk of the topic does not answer.
        """
        return _rate([(one.time_ms, one.end) for one in self.topics.get(topic, ())][-_RATE_OF:])

    def finish_rate(self, group: str, topic: str) -> float | None:
        """Return how many messages a second the group went past in the last minute, or None."""
        found = self.lags.get((group, topic), ())
        return _rate([(one.time_ms, one.finished) for one in found][-_RATE_OF:])

    def series(self, group: str, topic: str) -> list[tuple[int, int | None]]:
        """Return the times and lags of a group on a topic, oldest first."""
        return [(one.time_ms, one.lag) for one in self.lags.get((group, topic), ())]

    def stored_series(self, topic: str) -> Series:
        """Return the messages a second that were stored, by time."""
        return _rates([(one.time_ms, one.end) for one in self.topics.get(topic, ())])

    def finished_series(self, group: str, topic: str) -> Series:
        """Return the messages a second that the group went past, by time."""
        found = self.lags.get((group, topic), ())
        return _rates([(one.time_ms, one.finished) for one in found])

    def growth_of(self, group: str, topic: str) -> float | None:
        """Return by how many messages a second the lag has grown in the last five minutes."""
        return growth_of(self.series(group, topic)[-_GROWTH_OF:])

    def growth(self) -> dict[tuple[str, str], float]:
        """Return the growth of each lag of which it is known."""
        found = {key: self.growth_of(*key) for key in [*self.lags]}
        return {key: growth for key, growth in found.items() if growth is not None}


def _lag_sample(
    readings: NodeReadings, key: tuple[str, str], now_ms: int, finished: int
) -> LagSample:
    lag = readings.lag_of(*key)
    if isinstance(lag, str):
        return LagSample(now_ms, None, None, lag, finished)
    return LagSample(now_ms, lag.count, lag.exactness.value, finished=finished)


def _rate(samples: Sequence[tuple[int, int | None]]) -> float | None:
    """Return the growth of a number a second; 0 if it was set back, None if it is not known."""
    growth = growth_of(samples)
    return None if growth is None else max(growth, 0.0)


def _rates(samples: Sequence[tuple[int, int | None]]) -> Series:
    """Return the growth of a number a second between each sample and the one before."""
    return [(after[0], _rate([before, after])) for before, after in pairwise(samples)]
