"""The first join of a disk that was restored from a backup: does it fit the coordinator's catalog?

The disks of a cluster are backed up one after the other. What happened in between is in one backup
and not in the other: each disk has the catalog of its own queues, of the time of its backup. The
coordinator's catalog decides where a queue is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.errors import ConfigError
from rocketray.runtime.files.home import Home


def check_places(catalog: TopicCatalog, kept: TopicCatalog, home: Home) -> None:
    """Check that *catalog* and the one that a disk *kept* agree on the queues that are there.

    Raises:
        ConfigError: they do not: a queue was moved, or its topic deleted, in between.
    """
    in_catalog = {*_queues(catalog, home.disk)}
    on_disk = {*_queues(kept, home.disk)}
    lacking = [
        queue.name
        for queue in in_catalog - on_disk
        if queue.queue_id in catalog.topics[queue.topic].made
    ]
    further = [queue.name for queue in on_disk - in_catalog if _has(catalog, queue)]
    reasons = [
        f"{text}: {', '.join(sorted(queues)[:5])}{' …' if len(queues) > 5 else ''}"
        for text, queues in (
            ("on this disk by the backup of the first disk, and not by its own", lacking),
            ("on this disk by its own backup, and not by that of the first disk", further),
        )
        if queues
    ]
    if reasons:
        raise ConfigError(
            f"{home.data} and the first disk of cluster {home.cluster!r} were restored from backups "
            f"that disagree on where queues are: {'; '.join(reasons)}. Restore backups between "
            "which no queue was moved and no topic deleted. To use the rest of these, delete the "
            "topics in the restored cluster, and start this disk again"
        )


def unknown_queues(catalog: TopicCatalog, kept: TopicCatalog, disk: str) -> list[str]:
    """Return the queues that a disk *kept* and *catalog* does not have, not even elsewhere."""
    return sorted(each.name for each in _queues(kept, disk) if not _has(catalog, each))


class _Queue(NamedTuple):
    """A queue of one topic: a topic that is created again is another one."""

    topic_id: str
    topic: str
    queue_id: int

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.queue_id}"


def _queues(catalog: TopicCatalog, disk: str) -> Iterator[_Queue]:
    for name, topic in catalog.topics.items():
        for queue_id in topic.by_disk().get(disk, ()):
            yield _Queue(topic.topic_id, name, queue_id)


def _has(catalog: TopicCatalog, queue: _Queue) -> bool:
    topic = catalog.topics.get(queue.topic)
    return topic is not None and topic.topic_id == queue.topic_id and queue.queue_id < topic.queues
