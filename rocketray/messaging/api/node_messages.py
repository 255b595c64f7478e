"""The stored messages of a node: lookups in one shard, or in all shards of a topic at once."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import SupportsIndex

from rocketray.broker.shards.shard_api import LookupApi, StoredFacts, lookups_of
from rocketray.broker.topics.catalog import TopicConfig, shard_of_host
from rocketray.broker.topics.topics import Topics
from rocketray.errors import ConfigError, InvalidMessageError
from rocketray.message import StoredMessage
from rocketray.runtime.calls.endpoint import CallTransport, Endpoint, client_of
from rocketray.store.formats.message_id import decode_offset_id


class NodeMessages:
    """The stored messages of a node."""

    def __init__(
        self, transport: CallTransport, topics: Topics, away: frozenset[str] = frozenset()
    ) -> None:
        """Take the disks that are *away*: lookups in all queues leave out those there."""
        self._transport = transport
        self._topics = topics
        self._away = away

    def view(self, offset_message_id: str) -> StoredMessage | None:
        """Return the message with that offset id, its own or that before its import, or None.

        An id that names none of the node's shards is looked up in all of them.

        Raises:
            ConfigError: it is not an offset id.
        """
        wanted = decode_offset_id(offset_message_id)
        topics = self._topics.all()
        place = shard_of_host(topics, wanted.store_host)
        if place is not None:
            found = self._in(*place).view(wanted.physical_offset)
            if found is not None:
                return found
        # An import indexes the old id as a key of the copy. Any message may have such a key, too.
        old_id = offset_message_id.upper()
        for topic in topics:
            for message in self.query(topic, old_id):
                if message.imported_offset_id == old_id:
                    return message
        return None

    def at(self, topic: str, queue_id: int, queue_offset: int) -> StoredMessage | None:
        """Return the message at a queue offset, or None."""
        _check_number("queue_offset", queue_offset)
        return self._in(topic, queue_id).message_at(queue_offset)

    def offset_at_time(self, topic: str, queue_id: int, time_ms: int) -> int:
        """Return the queue offset of the first message stored then or later, else the end."""
        _check_number("time_ms", time_ms)
        return self._in(topic, queue_id).offset_at_time(time_ms)

    def query(
        self,
        topic: str,
        key: str,
        max_count: int = 64,
        begin_ms: int = 0,
        end_ms: int = 2**63 - 1,
        *,
        queues: Iterable[int] | None = None,
        strict: bool = False,
    ) -> list[StoredMessage]:
        """Return the topic's messages with a business key or unique key, oldest first.

        They are those of all its queues, or of *queues*. If there are more than *max_count*, by
        default RocketMQ's ``maxMsgsNumBatch``, or than 10,000 in a queue, the newest are returned.
        Messages that damage on disk hides are missing, unless the query is *strict*.

        Raises:
            CorruptRecordError: *strict*, and there may be messages that damage hides.
            OffsetOutOfRangeError: *strict*, and retention removed one meanwhile: ask again.
            InvalidMessageError: *key* is empty, or no text.
            ConfigError: *max_count* is not a number from 1, or a time is not one.
        """
        _check_span(max_count, begin_ms, end_ms)
        if not isinstance(key, str) or not key:
            raise InvalidMessageError(f"the key to look up is {key!r:.80}; give a text: 'order-17'")
        span = max_count, begin_ms, end_ms
        found = self._transport.call_each(
            self._all(topic, queues), LookupApi.query, key, *span, strict=strict
        )
        return _in_order(found)[-max_count:]

    def query_by_time(
        self, topic: str, begin_ms: int, end_ms: int, max_count: int = 64
    ) -> list[StoredMessage]:
        """Return the messages stored from *begin_ms* to *end_ms* inclusive, oldest first.

        If there are more than *max_count*, or than 10,000 in a queue, the oldest are returned: the
        next query begins at the store time of the last one.

        Raises:
            ConfigError: *max_count* is not a number from 1, or a time is not one.
        """
        _check_span(max_count, begin_ms, end_ms)
        span = begin_ms, end_ms, max_count
        found = self._transport.call_each(self._all(topic), LookupApi.query_by_time, *span)
        return _in_order(found)[:max_count]

    def facts(self, message: StoredMessage) -> StoredFacts:
        """Return the facts that the message's shard has about it, for explanations."""
        return self._in(message.topic, message.queue_id).facts(message)

    def _in(self, topic: str, queue_id: int) -> LookupApi:
        config = self._topics.get(topic)
        config.check_queue(queue_id)
        return client_of(self._transport, lookups_of(config, queue_id))

    def _all(self, topic: str, queues: Iterable[int] | None = None) -> list[Endpoint[LookupApi]]:
        config = self._topics.get(topic)
        chosen = queues_there(config, self._away) if queues is None else queues
        return [lookups_of(config, queue_id) for queue_id in chosen]


def queues_there(topic: TopicConfig, away: frozenset[str]) -> list[int]:
    """Return the queues of a topic that are not on disks that are *away*."""
    return [queue_id for queue_id in range(topic.queues) if topic.disk_of(queue_id) not in away]


def processes_there(topics: Iterable[TopicConfig], away: frozenset[str]) -> list[str]:
    """Return the shard processes of queues that are not on disks that are *away*, each once."""
    names = (name for topic in topics for name in topic.by_process(queues_there(topic, away)))
    return [*dict.fromkeys(names)]


def _check_span(max_count: int, begin_ms: int, end_ms: int) -> None:
    _check_number("max_count", max_count, least=1)
    _check_number("begin_ms", begin_ms)
    _check_number("end_ms", end_ms)


def _check_number(name: str, value: object, *, least: int | None = None) -> None:
    """Raise :class:`ConfigError` unless *value* is a whole number, not below *least*."""
    number = operator.index(value) if isinstance(value, SupportsIndex) else None
    if number is None or isinstance(value, bool) or (least is not None and number < least):
        of_time = ", milliseconds since 1970" if name.endswith("_ms") else ""
        begin = "" if least is None else f" from {least}"
        raise ConfigError(f"{name} is {value!r:.80}; give a whole number{begin}{of_time}")


def _in_order(answers: Iterable[Sequence[StoredMessage]]) -> list[StoredMessage]:
    """Return the messages that several shards found, oldest first."""
    found = [message for answer in answers for message in answer]
    found.sort(key=lambda message: (message.store_timestamp_ms, message.queue_id))
    return found
