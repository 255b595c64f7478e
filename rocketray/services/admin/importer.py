"""Import of the messages of another store into topics of a running node, each message once.

The import reads the source from its first record to its last. Each chosen queue collects batches
for the queue of the same number in the target, whose shard stores them. No progress is saved apart
from the messages: the content of the target's queues is the progress.

Invariants
  1. A queue gets the source's messages in the source's order, from the first, without a gap. So the
     source's offset id of its last message marks the progress of the import.
  2. A batch is sent only after the one before it in its queue is known to be stored, directly
     behind its predecessor. If that is not known, or another producer wrote to the queue, the
     import ends.
  3. Every record that is read is imported, was there already, or is counted with its reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rocketray.base.ack_mode import Durability
from rocketray.base.quantity import counted
from rocketray.base.system_topics import is_system_topic
from rocketray.broker.shards.shard_api import ShardApi, call_ends_ms
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.errors import (
    ConfigError,
    CorruptRecordError,
    InvalidMessageError,
    InvalidNameError,
    MessageTooLargeError,
    StoreError,
)
from rocketray.message import StoredMessage
from rocketray.messaging.api.node_client import NodeClient
from rocketray.runtime.ipc.acknowledgement import AppendStatus
from rocketray.runtime.ipc.append_status import refusal
from rocketray.store.batches.encoded_batch import pack_batch
from rocketray.store.formats.message_id import decode_offset_id
from rocketray.store.formats.sys_flag import INNER_BATCH, PREPARED, ROLLBACK, TRANSACTION
from rocketray.store.importing.import_batch import ImportBatch
from rocketray.store.importing.import_source import ImportSource, SourceRecord

# A batch is the argument of one call to the shard. Each of a source's queues collects one, so an
# import of 1,000 queues holds 500 MiB at most.
_BATCH_BYTES = 512 * 1024
_BATCH_RECORDS = 4096
_LOOK_EVERY = 1024  # records between two checks of ``should_stop``


@dataclass(slots=True)
class QueueImport:
    """The counts of one queue, which has the same number in the source and in the target.

    ``first_queue_offset`` is the source's offset of its first message, None without a message. The
    target is numbered from 0, so a source offset minus this is the target's offset, as long as
    nothing was skipped.
    """

    topic: str
    queue_id: int
    read: int = 0
    imported: int = 0
    already_there: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    first_queue_offset: int | None = None


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The result of an import: ``read == imported + already_there + skipped``.

    ``skipped`` counts by reason, and includes those of the queues. ``retimed`` messages had a store
    time before that of the preceding message, and were given that time: the source's clock was set
    back. If it is not ``complete``, the import was stopped, and resumes at that point when it is
    run again. ``left_out`` are the topics that a node cannot have, with the reason; their messages
    are skipped.
    """

    complete: bool
    read: int
    imported: int
    already_there: int
    skipped: Mapping[str, int]
    retimed: int
    left_out: Mapping[str, str]
    queues: tuple[QueueImport, ...]


class Importer:
    """One import, from :meth:`prepare` to :meth:`run`; used once."""

    def __init__(
        self, source: ImportSource, target: NodeClient, *, skip_damaged: bool = False
    ) -> None:
        self._source = source
        self._target = target
        self._skip_damaged = skip_damaged
        self._queues: dict[tuple[str, int], _Queue] = {}
        self._topics: set[str] = set()
        self._left_out: dict[str, str] = {}
        self._read = 0
        self._skipped: Counter[str] = Counter()

    def prepare(self, topics: Sequence[str] | None, queues: Mapping[str, int]) -> None:
        """Choose *topics*, or all but RocketMQ's system topics, and create the missing ones.

        Of all, those are left out that a node cannot have, by their name or number of queues.
        *queues* gives the number of queues of the source's topics, where it is known; a topic has
        at least as many as there are files for.

        Raises:
            ConfigError: the source has no such topic, or the node's has too few queues.
            InvalidNameError: a node cannot have one of *topics*.
            StoreError: the node's has messages that are not from an import of this source.
        """
        there: dict[str, int] = dict(queues)
        for topic, queue_id in self._source.queues():
            there[topic] = max(there.get(topic, 0), queue_id + 1)
        chosen = sorted(t for t in there if not is_system_topic(t)) if topics is None else topics
        for topic in chosen:
            if topic not in there:
                raise ConfigError(
                    f"{self._source.directory} has no topic {topic!r}; it has: "
                    f"{', '.join(sorted(there)) or 'none'}"
                )
            existing = self._target.topics.all().get(topic)
            if existing is not None and existing.queues < there[topic]:
                raise ConfigError(
                    f"topic {topic!r} has {counted(existing.queues, 'queue')}, and "
                    f"{there[topic]} in {self._source.directory}; give it more with: "
                    f"rocketray topics alter {topic} --queues {there[topic]}"
                )
        for topic in chosen:  # all are checked before one is created
            try:
                config = self._target.topics.ensure(topic, there[topic])
            except InvalidNameError as error:
                if topics is not None:
                    raise
                self._left_out[topic] = str(error)
            else:
                self._open(config)

    def run(
        self,
        *,
        on_progress: Callable[[int, int], None] = lambda _position, _imported: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> ImportReport:
        """Read the source to its end, or until *should_stop*, and return the report.

        *on_progress* is called with the physical offset and the number of messages imported.

        Raises:
            CorruptRecordError: the source is damaged there, and damage is not to be skipped.
            ShardUnavailableError: a shard did not answer; run the import again.
            StoreError: another producer writes to a topic, or its messages are of another import.
        """
        is_complete = True
        for number, record in enumerate(self._records()):
            if number % _LOOK_EVERY == 0:
                if should_stop():
                    is_complete = False
                    break
                imported = sum(queue.counts.imported for queue in self._queues.values())
                on_progress(record.physical_offset, imported)
            self._take(record)
        for queue in self._queues.values():
            queue.finish(is_complete=is_complete)
        counts = tuple(
            replace(queue.counts, skipped=Counter(dict(sorted(queue.counts.skipped.items()))))
            for queue in self._queues.values()
        )
        return ImportReport(
            is_complete,
            self._read,
            sum(each.imported for each in counts),
            sum(each.already_there for each in counts),
            dict(sorted(self._skipped.items())),
            sum(queue.retimed for queue in self._queues.values()),
            dict(self._left_out),
            counts,
        )

    def _open(self, config: TopicConfig) -> None:
        topic = config.name
        self._topics.add(topic)
        statistics = self._target.shard_statistics(topic)
        for queue_id in range(config.queues):
            stored = statistics[queue_id].max_queue_offset
            last = self._target.messages.at(topic, queue_id, stored - 1) if stored else None
            if stored and (last is None or not self._is_from_source(last)):
                raise StoreError(
                    f"topic {topic!r}, queue {queue_id} has {stored} messages, and the last is not "
                    f"from an import of {self._source.directory}; import into a topic that is "
                    f"empty, or remove this one first with: rocketray topics delete {topic}"
                )
            shard = self._target.shard_calls(config, queue_id)
            data = self._target.at(config.disk_of(queue_id)).data
            self._queues[topic, queue_id] = _Queue(topic, queue_id, shard, stored, last, data=data)

    def _is_from_source(self, message: StoredMessage) -> bool:
        """Return whether the source has the record that *message* claims to be a copy of."""
        old_id = message.imported_offset_id
        if old_id is None:
            return False
        try:
            # The first record from there on is the one, if it is that of the id.
            for record in self._source.records(decode_offset_id(old_id).physical_offset):
                there = (record.topic, record.fields.queue_id, record.offset_id)
                return there == (message.topic, message.queue_id, old_id)
        except (ConfigError, CorruptRecordError):
            pass  # not an id, or no record is there
        return False

    def _records(self) -> Iterator[SourceRecord]:
        """Yield all records; with ``skip_damaged``, count and skip those that cannot be read."""
        at: int | None = self._source.begin
        while at is not None:
            try:
                yield from self._source.records(at)
            except CorruptRecordError as error:
                if not self._skip_damaged:
                    raise
                damaged = error.physical_offset
                at = self._source.next_known(damaged)
                end = self._source.end if at is None else at
                for name, count in self._source.entries_between(damaged, end).items():
                    self._skip("damaged", self._queues.get(name), count)
            else:
                return

    def _take(self, record: SourceRecord) -> None:
        queue = self._queues.get((record.topic, record.fields.queue_id))
        reason = self._reason_to_skip(record)
        if reason is not None:
            self._skip(reason, queue)
            return
        if queue is None:
            raise StoreError(
                f"{self._source.directory}: a message of topic {record.topic!r} is for queue "
                f"{record.fields.queue_id}, which has no files; start the broker that wrote "
                "it and stop it again, so that it rebuilds them"
            )
        try:
            queue.take(record)
        except (MessageTooLargeError, InvalidMessageError) as error:
            if not self._skip_damaged:
                raise
            is_long = isinstance(error, MessageTooLargeError)
            self._skip("no room for its old id" if is_long else "zeros in its properties", queue)
        else:
            self._read += 1

    def _reason_to_skip(self, record: SourceRecord) -> str | None:
        if record.topic in self._left_out:
            return "topic left out"
        if record.topic not in self._topics:
            return "system topic" if is_system_topic(record.topic) else "other topic"
        transaction = record.fields.sys_flag & TRANSACTION
        if transaction == PREPARED:
            return "half message"
        if transaction == ROLLBACK:
            return "rollback"
        return "inner batch" if record.fields.sys_flag & INNER_BATCH else None

    def _skip(self, reason: str, queue: _Queue | None, count: int = 1) -> None:
        self._read += count
        self._skipped[reason] += count
        if queue is not None:
            queue.counts.read += count
            queue.counts.skipped[reason] += count


class _Queue:
    """The import of one queue, from the messages that it already has to its last batch."""

    def __init__(
        self,
        topic: str,
        queue_id: int,
        shard: ShardApi,
        stored: int,
        last: StoredMessage | None,
        *,
        data: Path,
    ) -> None:
        """Start behind the *stored* messages of the target's queue, of which *last* is the last.

        *data* is the data directory of its disk, for errors.
        """
        self.counts = QueueImport(topic, queue_id)
        self._data = data
        self._name = f"{topic}/{queue_id}"
        self._shard = shard
        self._stored = stored
        self._resume_at = -1
        if last is not None and last.imported_offset_id is not None:
            self._resume_at = decode_offset_id(last.imported_offset_id).physical_offset
        self._last_ms = last.store_timestamp_ms if last else 0
        self._batch = ImportBatch(topic)
        self.retimed = 0

    def take(self, record: SourceRecord) -> None:
        """Add the next message of the queue. Raises as :meth:`Importer.run`."""
        if record.physical_offset <= self._resume_at:
            self.counts.already_there += 1
            if record.physical_offset == self._resume_at:
                self._check_resumed()
        else:
            is_full = len(self._batch) >= _BATCH_RECORDS or self._batch.size >= _BATCH_BYTES
            if is_full or not self._batch.suits(record):
                self._send(Durability.MEMORY)
            # Store times never decrease in a store: the bisection by time relies on it.
            store_ms = max(record.fields.store_timestamp_ms, self._last_ms)
            self._batch.add(record, store_ms)
            self.retimed += store_ms != record.fields.store_timestamp_ms
            self._last_ms = store_ms
        if self.counts.first_queue_offset is None:
            self.counts.first_queue_offset = record.fields.queue_offset
        self.counts.read += 1

    def finish(self, *, is_complete: bool) -> None:
        """Send the last batch; after a complete import it is on disk with everything before it."""
        if len(self._batch):
            self._send(Durability.DISK if is_complete else Durability.MEMORY)
        elif self._stored and is_complete:
            self._check_resumed()

    def _check_resumed(self) -> None:
        if self.counts.already_there != self._stored:
            raise StoreError(
                f"queue {self._name} has {self._stored} messages, and up to the last of them the "
                f"source has {self.counts.already_there}: they are not from an import of this source, or "
                "that import skipped damage and this one does not; import into an empty topic"
            )

    def _send(self, durability: Durability) -> None:
        count = len(self._batch)
        payload = pack_batch(self._batch.encode())
        ack = self._shard.append(payload, durability, not_after_ms=call_ends_ms())
        if ack.status is AppendStatus.MESSAGE_ILLEGAL:
            raise StoreError(
                f"queue {self._name} refused a batch: either another producer writes to the topic, "
                "so that store times would go back, or a record is damaged; see the log of the "
                "node's shard"
            )
        if ack.status is not AppendStatus.OK:
            raise refusal(ack.status, self._name, self._data)
        expected = self._stored + self.counts.imported
        if ack.first_queue_offset != expected:
            raise StoreError(
                f"queue {self._name}: a batch was stored at offset {ack.first_queue_offset}, not "
                f"{expected}: another producer writes to the topic; import into an empty topic "
                "that no producer writes to"
            )
        self.counts.imported += count
        self._batch = ImportBatch(self.counts.topic)
