"""What a retention policy would remove of a topic now: a dry run of the shards' next round.

It reads the names and sizes of the files of queues on this machine, and asks their shards for the
messages at the files' ends. The decision is that of store/retention.py. Nothing is changed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocketray.broker.shards.shard_api import ShardStatistics
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.errors import NodeElsewhereError, ShardUnavailableError
from rocketray.groups.group_descriptions import GroupDescription
from rocketray.message import StoredMessage
from rocketray.messaging.api.node_client import NodeClient, of_disks_there
from rocketray.runtime.files.paths import shard_directory
from rocketray.store.formats.message_id import encode_offset_id
from rocketray.store.retention import DiskUse, LogFile, RetentionPolicy, expired_files


@dataclass(frozen=True, slots=True)
class QueueRemoval:
    """What would be removed of a queue: whole files of its log, the oldest ones.

    ``reasons`` are those of the policy; ``held`` messages are in files that a group has not
    finished.
    """

    queue_id: int
    messages: int
    size: int
    files: int
    reasons: tuple[str, ...]
    is_held: bool


@dataclass(frozen=True, slots=True)
class Removals:
    """What would be removed of the queues here, and the queues that were not looked at."""

    queues: Sequence[QueueRemoval]
    unknown: Sequence[int]


def plan_removals(node: NodeClient, topic: TopicConfig, policy: RetentionPolicy) -> Removals:
    """Return what the next round would remove of *topic* with *policy*.

    Raises:
        StreamError: the coordinator does not answer.
    """
    there = of_disks_there(node)
    shards = {shard.queue_id: shard for shard in there.shard_statistics(topic.name)}
    groups = [one for one in node.groups.all() if one.topic == topic.name and not one.is_broadcast]
    found, unknown = [], []
    for disk, queues in topic.by_disk().items():
        try:
            data = node.at(disk).files("reading queues")
        except (NodeElsewhereError, ShardUnavailableError):
            unknown += queues
            continue
        use = shutil.disk_usage(data)
        for queue_id in queues:
            if queue_id not in shards:
                unknown.append(queue_id)
                continue
            log = _Log(there, topic, shards[queue_id], data)
            removal = log.removal(policy, groups, DiskUse(use.used, use.free))
            if removal is not None:
                found.append(removal)
    return Removals(sorted(found, key=lambda one: one.queue_id), sorted(unknown))


class _Log:
    """The log of one queue, from outside of its shard's process."""

    def __init__(
        self, node: NodeClient, topic: TopicConfig, shard: ShardStatistics, data: Path
    ) -> None:
        self._node = node
        self._topic = topic
        self._shard = shard
        self._directory = shard_directory(data, topic.name, shard.queue_id) / "commitlog"

    def removal(
        self, policy: RetentionPolicy, groups: Sequence[GroupDescription], disk: DiskUse
    ) -> QueueRemoval | None:
        gone = expired_files(
            self._files(),
            policy,
            log_end=self._shard.max_physical_offset,
            needed_from=self._needed_from(groups),
            disk=disk,
        )
        after = self._first_in(gone[-1].file.end) if gone else None
        if after is None:
            return None
        return QueueRemoval(
            self._shard.queue_id,
            max(after.queue_offset - self._shard.min_queue_offset, 0),
            sum(each.file.size for each in gone),
            len(gone),
            tuple(dict.fromkeys(each.reason.value for each in gone)),
            any(each.was_held for each in gone),
        )

    def _files(self) -> Iterator[LogFile]:
        """Yield the files that a later one follows, the oldest first; each asks its shard."""
        now_ms = self._node.clock_ms()
        # A queue that had no message yet has no directory for them.
        paths = self._directory.iterdir() if self._directory.is_dir() else ()
        for path in sorted(paths):
            if not path.name.isdecimal():
                continue
            file = LogFile(int(path.name), path.stat().st_size, None)
            if file.end >= self._shard.max_physical_offset:
                return
            last = self._last_before(file.end)
            if last is not None:
                yield LogFile(file.start, file.size, max(now_ms - last.store_timestamp_ms, 0))
            else:
                yield file

    def _first_in(self, start: int) -> StoredMessage | None:
        """Return the first message of the file that begins at *start*."""
        host = self._topic.store_hosts[self._shard.queue_id]
        return self._node.messages.view(encode_offset_id(host, start))

    def _last_before(self, end: int) -> StoredMessage | None:
        after = self._first_in(end)
        if after is None or after.queue_offset == 0:
            return None
        return self._at(after.queue_offset - 1) or after

    def _needed_from(self, groups: Sequence[GroupDescription]) -> int | None:
        """Return the first place in the log that a group has not finished; None if none has."""
        shard = self._shard
        offsets = [max(one.offsets.get(shard.queue_id, -1), 0) for one in groups]
        first = max(min(offsets, default=shard.max_queue_offset), shard.min_queue_offset)
        if first >= shard.max_queue_offset:
            return None
        needed = self._at(first)
        return shard.min_physical_offset if needed is None else needed.physical_offset

    def _at(self, queue_offset: int) -> StoredMessage | None:
        return self._node.messages.at(self._topic.name, self._shard.queue_id, queue_offset)
