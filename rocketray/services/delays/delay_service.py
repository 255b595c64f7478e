"""The delay service of a disk: the schedule with its shards, links to all others, files and lock.

In DATA/config: ``delayOffset.json``, for each level the offset of its first message that still
waits, in RocketMQ's form, for tools that read it; and ``deliveriesUnderWay.json``, the note that
the schedule writes before it sends a batch. The note outlives the process, not a power failure.

    {"version": 1, "underWay": {"SCHEDULE_TOPIC_XXXX/2": [4711, 4712]}}
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import orjson

from rocketray.base.file_form import FileForm
from rocketray.base.recall import RecallHandle
from rocketray.base.system_topics import LEVELS_A_DISK, SCHEDULE_TOPIC, WAITING_QUEUES
from rocketray.base.whole_file import replace_file
from rocketray.broker.retries.deliveries import Place, Submit, at_once
from rocketray.broker.shards.owned_shard import OwnedShard
from rocketray.broker.shards.shard_process import ShardProcess
from rocketray.errors import StreamError
from rocketray.message import ForwardedMessage, StoredMessage
from rocketray.messaging.api.node_client import NodeClient
from rocketray.messaging.api.system_api import WaitingByMinute
from rocketray.runtime.files.paths import config_directory
from rocketray.runtime.files.state_files import disk_use, read_json, write_json
from rocketray.runtime.ipc.acknowledgement import AppendStatus
from rocketray.services.system.node_link import NodeLinks
from rocketray.store.batches.forward import encode_forwarded
from rocketray.store.retention import RetentionPolicy

from .schedule import Schedule
from .waiting_records import WaitingLog

_LOG = logging.getLogger(__name__)
_FORM = FileForm("config/deliveriesUnderWay.json")
_MINUTE_MS = 60_000
_TIDY_INTERVAL_MS = 10_000  # as RocketMQ flushes its delayOffset.json
# A look reads the queue entries of all old files, and finds the same as the one before unless many
# messages were delivered since.
_ROLL_INTERVAL_MS = 10 * 60_000
_OFFSET_MAX = 1 << 62  # a note that is damaged must not overflow the int64 arrays of offsets
_DELIVERED = RetentionPolicy(only_unneeded=True)  # no limit of age: what is delivered is useless


class DelayService:
    """A service (stepping.py) that is also the object behind ``DelaysApi``."""

    def __init__(
        self,
        process: ShardProcess,
        node: Callable[[], NodeClient],
        submit: Submit = at_once,
    ) -> None:
        """Take *node*, called only at deliveries, and *submit*, which runs them."""
        self._targets = _Targets(process, node)
        self._process = process
        self._config = config_directory(process.data)
        under_way = self._config / "deliveriesUnderWay.json"
        self._lock = threading.Lock()
        self._schedule = Schedule(
            self._targets,
            under_way=_noted(under_way),
            note=partial(_note, under_way),
            submit=submit,
        )
        self._tidied_ms = 0
        self._rolled_ms: int | None = None
        self._saved: dict[str, int] = {}
        self._cleared: Mapping[Place, int] = {}

    def step(self, now_ms: int) -> int:
        """Deliver the messages that are due; return when to call again."""
        with self._lock:
            wakeup_ms = self._schedule.step(now_ms)
            if abs(now_ms - self._tidied_ms) >= _TIDY_INTERVAL_MS:
                self._tidied_ms = now_ms
                self._tidy(now_ms)
            return wakeup_ms

    def recall(self, handle: str) -> bool:
        wanted = RecallHandle.parse(handle)
        place = wanted.topic, wanted.queue_id
        with self._lock:
            return self._schedule.recall(place, wanted.queue_offset, wanted.unique_key)

    def is_waiting(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        with self._lock:
            return self._schedule.is_waiting((topic, queue_id), queue_offset)

    def waiting(self) -> int:
        """Return the number of messages that wait on the disk, without recalled ones."""
        with self._lock:
            return len(self._schedule)

    def by_minute(self, most: int) -> WaitingByMinute:
        with self._lock:
            due_ms = self._schedule.due_times()
        minutes, counts = np.unique(due_ms // _MINUTE_MS, return_counts=True)
        first = zip((minutes[:most] * _MINUTE_MS).tolist(), counts[:most].tolist(), strict=True)
        return WaitingByMinute(tuple(first), int(counts[most:].sum()))

    def close(self) -> None:
        """Release everything; call this before the shards are closed."""
        with self._lock:
            self._save_offsets(self._schedule.first_open())
            self._schedule.close()
            self._targets.close()

    def _tidy(self, now_ms: int) -> None:
        """Save the offsets, and remove files whose messages are all done."""
        if self._rolled_ms is None or abs(now_ms - self._rolled_ms) >= _ROLL_INTERVAL_MS:
            rolled = self._schedule.roll()
            self._rolled_ms = None if rolled else now_ms  # there may be more to roll
            if rolled:
                _LOG.info(
                    "%d delayed messages are stored again, so that old files can be removed", rolled
                )
        first_open = self._schedule.first_open()
        self._save_offsets(first_open)
        self._schedule.let_go()
        if first_open == self._cleared:
            return  # nothing was delivered since
        for (topic, queue_id), offset in first_open.items():
            shard = self._process.find(topic, queue_id)
            if shard is not None:
                shard.writer.expire(_DELIVERED, offset, disk_use(shard.directory))
        self._cleared = first_open

    def _save_offsets(self, first_open: Mapping[Place, int]) -> None:
        offsets = {
            str(queue_id % LEVELS_A_DISK + 1): offset
            for (topic, queue_id), offset in first_open.items()
            if topic == SCHEDULE_TOPIC
        }
        if offsets and offsets != self._saved:
            path = self._config / "delayOffset.json"
            # Without a backup: tools read it, and this service does not. The marks are what counts.
            write_json(path, {"offsetTable": offsets}, backup=False)
            self._saved = offsets


def _noted(path: Path) -> dict[Place, list[int]]:
    """Return the messages that the previous process was delivering; none if not known."""
    found: dict[Place, list[int]] = {}
    try:
        noted = read_json(path, _FORM) or {}
        for name, offsets in noted.get("underWay", {}).items():
            topic, _, queue_id = name.rpartition("/")
            found[topic, int(queue_id)] = [
                int(offset) for offset in offsets if 0 <= int(offset) < _OFFSET_MAX
            ]
    except (StreamError, AttributeError, TypeError, ValueError) as error:
        _LOG.warning("%s is not used: %s", path, error)
    return found


def _note(path: Path, offsets: Mapping[Place, Sequence[int]]) -> None:
    """Record the messages that are delivered next, in a file that is replaced and not synced."""
    under_way = {f"{topic}/{queue}": one for (topic, queue), one in offsets.items()}
    replace_file(path, orjson.dumps(_FORM.of({"underWay": under_way})), sync=False)


class _Targets:
    """The targets of the schedule: shards of its own process, and the others through a producer."""

    def __init__(self, process: ShardProcess, node: Callable[[], NodeClient]) -> None:
        self._process = process
        links = NodeLinks(node)
        self.forward, self.is_stored = links.forward, links.is_stored
        self.sync, self.close = links.sync, links.close

    def waiting(self) -> list[Place]:
        return [
            (topic, queue_id)
            for topic in WAITING_QUEUES
            for queue_id in self._process.queues_of(topic)
        ]

    def find(self, topic: str, queue_id: int) -> WaitingLog | None:
        shard = self._process.find(topic, queue_id)
        return None if shard is None else _ShardLog(shard)


@dataclass(frozen=True, slots=True)
class _ShardLog:
    """A shard of the process, as the schedule reads it."""

    shard: OwnedShard

    @property
    def directory(self) -> Path:
        return self.shard.directory

    def minimum(self) -> int:
        return self.shard.writer.control.minimum()

    def visible(self) -> int:
        return self.shard.writer.control.visible()

    @property
    def segment_bytes(self) -> int:
        return self.shard.writer.store.config.commit_log_segment_bytes

    def append(self, messages: Sequence[ForwardedMessage]) -> bool:
        ack = self.shard.writer.append_built(lambda: encode_forwarded(messages))
        self.shard.writer.flush()
        return ack.status is AppendStatus.OK

    def query(self, unique_key: str) -> Sequence[StoredMessage]:
        return self.shard.lookups.query(unique_key)

    def bring_to_disk(self, physical_end: int) -> None:
        if self.shard.writer.control.flushed() < physical_end:
            self.shard.writer.flush()
