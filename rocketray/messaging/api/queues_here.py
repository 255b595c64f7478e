"""Which queues of a topic have their files here, for readers of files; and which have not."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rocketray.base.quantity import agreed, counted
from rocketray.broker.disks.joined_cluster import read_joined
from rocketray.broker.topics.catalog import TopicCatalog, TopicConfig
from rocketray.errors import NodeElsewhereError, ShardUnavailableError
from rocketray.runtime.files.home import identity_of

from .node_client import NodeClient


@dataclass(frozen=True, slots=True)
class QueuesHere:
    """The data directories with ``queues`` of *topic*; those ``elsewhere`` are on other disks."""

    topic: str
    directories: tuple[Path, ...]
    queues: tuple[int, ...]
    elsewhere: tuple[int, ...]

    def note(self, queue_id: int | None = None) -> str:
        """Return what a reader of all queues, or of one, leaves out; "" for nothing.

        Raises:
            NodeElsewhereError: the one queue is elsewhere.
        """
        if queue_id is not None:
            if queue_id in self.elsewhere:
                raise NodeElsewhereError(
                    f"queue {queue_id} of topic {self.topic!r} is not in "
                    f"{', '.join(map(str, self.directories))}, but on another disk; see: rocketray "
                    "topology"
                )
            return ""
        if not self.elsewhere:
            return ""
        numbers = ", ".join(map(str, self.elsewhere))
        here, all_queues = len(self.queues), len(self.queues) + len(self.elsewhere)
        return (
            f"{here} of {counted(all_queues, 'queue')} of topic {self.topic} "
            f"{agreed(here, 'were')} read; on other disks: {numbers}; see: rocketray topology"
        )


def queues_in(data: Path, topic: str) -> QueuesHere:
    """Return which queues of *topic* are in *data*, by the catalog of the node there.

    A directory of no node, or without the topic, has all there is.

    Raises:
        NodeElsewhereError: all queues are on other disks.
        StoreError: the catalog is damaged.
    """
    is_of_node = (data / "shards").is_dir()  # a broker has a topics.json of another form
    config = TopicCatalog.load(data).topics.get(topic) if is_of_node else None
    if config is None:
        return QueuesHere(topic, (data,), (), ())
    # A catalog names the first disk "", and a disk that joined the cluster by its UUID.
    own = "" if read_joined(data) is None else identity_of(data)
    return _found(config, {own: data}, f"in {data}")


def queues_of(node: NodeClient, topic: TopicConfig) -> QueuesHere:
    """Return which queues of *topic* are on disks of this machine.

    Raises:
        NodeElsewhereError: none is.
    """
    places: dict[str, Path] = {}
    for disk in topic.by_disk():
        with suppress(NodeElsewhereError, ShardUnavailableError):  # there may be no such disk
            places[disk] = node.at(disk).files("reading queues")
    return _found(topic, places, "on this machine")


def _found(topic: TopicConfig, places: dict[str, Path], where: str) -> QueuesHere:
    by_disk = topic.by_disk()
    here: Sequence[int] = sorted(queue for disk in places for queue in by_disk.get(disk, ()))
    if not here:
        raise NodeElsewhereError(
            f"none of the {topic.queues} queues of topic {topic.name!r} is {where}; do this where "
            "they are; see: rocketray topology"
        )
    elsewhere = tuple(queue for queue in range(topic.queues) if queue not in here)
    return QueuesHere(topic.name, tuple(places.values()), tuple(here), elsewhere)
