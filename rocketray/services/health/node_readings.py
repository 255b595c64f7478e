"""What a node tells about itself at one time; a part that does not answer is unknown, and not 0.

A reading makes a call to each shard process, one to the coordinator, and one for the lags of every
256 groups on a disk, however many queues there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from rocketray.base.names import disk_words
from rocketray.base.system_topics import WAITING_QUEUES
from rocketray.broker.filtering.filtered_lag import FilteredLag, total_lag
from rocketray.broker.shards.shard_api import ShardStatistics
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.errors import ShardUnavailableError, StreamError
from rocketray.groups.group_descriptions import GroupDescription
from rocketray.messaging.api.node_client import NodeClient, lags_of, of_disks_there
from rocketray.messaging.api.node_messages import queues_there
from rocketray.messaging.api.system_api import TransactionOverview

_AWAY = "its machine does not answer"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class NodeReadings:
    """A node at one time.

    ``topics`` is the number of topics, and ``time_ms`` the node's clock. ``shards`` are those of
    each topic, ``lags`` those of each group and topic, by queue. ``delayed`` is the number of
    messages whose time has not come. ``unknown`` has a reason for each part that did not answer:
    its numbers are missing, or None.
    """

    cluster: str
    topics: int
    shards: Mapping[str, Sequence[ShardStatistics]]
    groups: Sequence[GroupDescription] | None = None
    lags: Mapping[tuple[str, str], Mapping[int, FilteredLag]] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    transactions: TransactionOverview | None = None
    delayed: int | None = None
    time_ms: int = 0

    def lag_of(self, group: str, topic: str) -> FilteredLag | str:
        """Return the lag of a group in all queues of a topic; or why it is not known."""
        queues = self.lags.get((group, topic))
        if queues is None:
            return self.unknown.get(_lag_part(group, topic), "its disk does not answer")
        return total_lag(queues.values())


def read_node(node: NodeClient) -> NodeReadings:
    """Ask a node; raises ``ShardUnavailableError`` if its coordinator does not answer."""
    node = of_disks_there(node)
    topics = node.topics.all()
    reader = _Reader(node)
    shards = reader.shards(topics)
    groups = reader.ask("groups", node.groups.all)
    return NodeReadings(
        node.cluster,
        len(topics),
        shards,
        groups,
        reader.lags([group for group in groups or () if not group.is_broadcast], topics),
        reader.unknown,
        reader.ask("transactions", partial(_transactions, node)),
        reader.ask("delayed messages", partial(_delayed, node, topics)),
        node.clock_ms(),
    )


def _lag_part(group: str, topic: str) -> str:
    """Return the name of a lag among the parts that are unknown."""
    return f"lag of group {group} on topic {topic}"


class _Reader:
    """Questions to a node, and what is unknown because one was not answered."""

    def __init__(self, node: NodeClient) -> None:
        self._node = node
        self.unknown = {disk_words(disk): _AWAY for disk in sorted(node.away)}

    def ask(self, what: str, question: Callable[[], _T]) -> _T | None:
        try:
            return question()
        except (StreamError, OSError) as error:
            self.unknown[what] = str(error)
            return None

    def shards(self, topics: Mapping[str, TopicConfig]) -> dict[str, list[ShardStatistics]]:
        """Return the statistics of each topic by queue; a topic with a closed queue is unknown."""
        there = {name: queues_there(topic, self._node.away) for name, topic in topics.items()}
        answers, silent = self._answers(
            process for name, queues in there.items() for process in topics[name].by_process(queues)
        )
        found = {}
        for name in sorted(topics):
            answered = [answers.get((name, queue)) for queue in there[name]]
            known = [each for each in answered if each is not None]
            if len(known) == len(answered):
                found[name] = known
                continue
            closed = [queue for queue in there[name] if (name, queue) not in answers]
            why = {silent.get(topics[name].process_of(queue), "it is closed") for queue in closed}
            self.unknown[f"topic {name}"] = f"queue {closed[0]}: {'; '.join(sorted(why))}"
        return found

    def _answers(
        self, processes: Iterable[str]
    ) -> tuple[dict[tuple[str, int], ShardStatistics], dict[str, str]]:
        """Return the statistics of the shards of all processes, and why some do not answer."""
        answers, silent = {}, {}
        for process in dict.fromkeys(processes):
            try:
                for each in self._node.process_calls(process).statistics():
                    answers[each.topic, each.queue_id] = each
            except (StreamError, OSError) as error:
                silent[process] = str(error)
        return answers, silent

    def lags(
        self, groups: Sequence[GroupDescription], topics: Mapping[str, TopicConfig]
    ) -> dict[tuple[str, str], dict[int, FilteredLag]]:
        """Return the lags of those groups of which all queues are known."""
        found = {}
        for group, lag in zip(groups, lags_of(self._node, groups, topics), strict=True):
            if isinstance(lag, StreamError):
                self.unknown[_lag_part(group.group, group.topic)] = str(lag)
            else:
                found[group.group, group.topic] = lag
        return found


def _transactions(node: NodeClient) -> TransactionOverview:
    found = node.transactions.overview(0)
    if found.unknown:
        raise ShardUnavailableError(disk_words(found.unknown[0]), _AWAY)
    return found


def _delayed(node: NodeClient, topics: Mapping[str, TopicConfig]) -> int:
    waiting = [topics[name] for name in WAITING_QUEUES if name in topics]
    disks = {disk for topic in waiting for disk in topic.by_disk()}
    if away := sorted(disks & node.away):
        raise ShardUnavailableError(disk_words(away[0]), _AWAY)
    return sum(map(node.delays.waiting, sorted(disks)))
