"""Samples of the last hour, in memory: the end of each topic, and the lag of each group.

A sample that could not be taken is None: unknown is not zero.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from rocketray.broker.filtering.filtered_lag import Exactness
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.errors import StreamError
from rocketray.messaging.api.node_client import NodeClient, lag_of, of_disks_there

EVERY_S = 10.0  # each asks for the ends of all topics and the lags of all groups
_KEPT = 360  # an hour
# Of topics, and of groups: 360 samples of some 100 bytes each, so 72 MB of either at most.
_NAMES_MAX = 2000


@dataclass(frozen=True, slots=True)
class TopicSample:
    """The sum of a topic's queue ends at a time."""

    time_ms: int
    end: int | None


@dataclass(frozen=True, slots=True)
class LagSample:
    """The lag of a group on a topic; ``unknown`` says why it and its exactness are None."""

    time_ms: int
    lag: int | None
    exactness: str | None
    unknown: str | None = None


@dataclass(slots=True)
class Samples:
    """The rings of samples, filled by :meth:`take` every ``EVERY_S`` seconds."""

    clock_ms: Callable[[], int]
    topics: dict[str, deque[TopicSample]] = field(default_factory=dict)
    lags: dict[tuple[str, str], deque[LagSample]] = field(default_factory=dict)

    def take(self, node: NodeClient) -> None:
        """Ask the node; parts that do not answer are unknown.

        Raises:
            StreamError: the node does not answer at all.
        """
        node = of_disks_there(node)
        now_ms = self.clock_ms()
        topics = node.topics.all()
        names = sorted(topics)[:_NAMES_MAX]
        for name in names:
            ring = self.topics.setdefault(name, deque(maxlen=_KEPT))
            ring.append(TopicSample(now_ms, _end(node, topics[name])))
        seen = set()
        for group in node.groups.all()[:_NAMES_MAX]:
            if not group.is_broadcast:
                key = group.group, group.topic
                seen.add(key)
                ring_of_lag = self.lags.setdefault(key, deque(maxlen=_KEPT))
                try:
                    found = lag_of(node, group).values()
                except StreamError as error:
                    ring_of_lag.append(LagSample(now_ms, None, None, str(error)))
                else:
                    worst = {one.exactness for one in found} - {Exactness.EXACT}
                    exactness = min((one.value for one in worst), default=Exactness.EXACT.value)
                    ring_of_lag.append(
                        LagSample(now_ms, sum(one.count for one in found), exactness)
                    )
        for gone in self.topics.keys() - names:
            del self.topics[gone]
        for lost in self.lags.keys() - seen:
            del self.lags[lost]

    def rate(self, topic: str) -> float | None:
        """Return the messages a second of the last minute; None if that is not known.

        As before there are two samples, and while a disk of the topic does not answer.
        """
        # Seven samples have six intervals of 10 s between them.
        known = [one for one in self.topics.get(topic, ()) if one.end is not None][-7:]
        if len(known) < 2 or self.topics[topic][-1].end is None:
            return None
        first, last = known[0], known[-1]
        assert first.end is not None
        assert last.end is not None
        seconds = (last.time_ms - first.time_ms) / 1000
        return max(last.end - first.end, 0) / seconds if seconds > 0 else None

    def series(self, group: str, topic: str) -> list[tuple[int, int | None]]:
        """Return the times and lags of a group on a topic, oldest first."""
        return [(one.time_ms, one.lag) for one in self.lags.get((group, topic), ())]


def _end(node: NodeClient, topic: TopicConfig) -> int | None:
    """Return the sum of the ends of all queues; None if one is unknown."""
    try:
        shards = node.shard_statistics(topic.name)
    except StreamError:
        return None
    is_known = len(shards) >= topic.queues
    return sum(shard.max_queue_offset for shard in shards) if is_known else None
