"""Producers: collect messages into batches, send them to the shards, and report their outcomes.

This module has the send calls; when and how a message is sent is in batching.py.

Invariants
  1. A result is returned after the shard acknowledged the batch with the requested ack mode.
  2. Memory is bounded: a link holds one batch that is not yet sent, and the ring. Then ``send``
     blocks, and raises :class:`ShardUnavailableError` after ``timeout_s``. Threads that send to the
     same queue then wait one after the other; threads that send to other queues do not.
  3. Messages of one thread to one queue are stored in the order they were sent.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TypedDict, Unpack

import pyarrow as pa

from rocketray.delay import Delay, DelayOptions, delay_of
from rocketray.errors import ConfigError, InvalidMessageError, ShardUnavailableError
from rocketray.meant import refuse_unknown
from rocketray.message import SHARDING_KEY, ForwardedMessage, Message
from rocketray.names import check_open_topic, check_topic
from rocketray.store.batches.encoded_batch import MeasuredTable

from .batch import AckMode, Batch, BatchResult, SendResult, SendResults, by_queue, durability_of
from .batch_split import cut_messages, cut_table
from .batching import ProducerBatching
from .pending_messages import Part, PendingMessages
from .pending_send import PendingSend
from .queue_link import QueueLink
from .queue_selector import QueueSelector, select_each, select_queue

__all__ = ["AckMode", "PendingSend", "Producer", "SendResult", "SendResults"]


class _NoOptions(TypedDict):
    """No further argument, for type checkers: at run time each is refused, with a suggestion."""


class Producer(ProducerBatching):
    """A producer for the topics of a cluster; safe to use from several threads."""

    def send(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        sharding_key: str | None = None,
        queue_selector: QueueSelector | None = None,
        ack: AckMode | None = None,
        **delay: Unpack[DelayOptions],
    ) -> SendResult:
        """Store one message and return where; blocks until the *ack* is reached.

        Messages with one ``sharding_key`` go to one queue, in order; others to each queue in turn.
        A ``queue_selector`` chooses by the number of queues and the message (queue_selector.py). To
        deliver it later, give ``delay_level=``, ``delay=`` or ``deliver_at=`` (:class:`Delay`).
        """
        if queue_selector is not None:
            message = Message(topic, body, tags, keys, properties or {})
            queue_id = self._select(queue_selector, message, queue_id, sharding_key)
        if delay:
            message = Message(topic, body, tags, keys, properties or {})
            later = delay_of(self.send, delay)
            return self.send_message_async(message, queue_id, sharding_key, ack, later).result()
        link = self._link(topic, queue_id, sharding_key)
        with link.lock:
            batch = self._collect(link, ack)
            index = batch.columns.add(body, tags, keys, properties)
            self._hand_over(link)
        link.wait(batch, self._timeout_s)
        self.settle(link, batch, 0)
        return batch.result(index)

    def send_async(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        sharding_key: str | None = None,
        queue_selector: QueueSelector | None = None,
        ack: AckMode | None = None,
        **delay: Unpack[DelayOptions],
    ) -> PendingSend:
        """Send one message and return at once; the returned object has the result."""
        if queue_selector is not None:
            message = Message(topic, body, tags, keys, properties or {})
            queue_id = self._select(queue_selector, message, queue_id, sharding_key)
        if delay:
            message = Message(topic, body, tags, keys, properties or {})
            later = delay_of(self.send_async, delay)
            return self.send_message_async(message, queue_id, sharding_key, ack, later)
        link = self._link(topic, queue_id, sharding_key)
        with link.lock:
            batch = self._collect(link, ack)
            index = batch.columns.add(body, tags, keys, properties)
            self._hand_over_in_time(link, batch.columns, index)
        return PendingSend(self.settle, link, batch, index)

    def send_oneway(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        sharding_key: str | None = None,
        queue_selector: QueueSelector | None = None,
        **unknown: Unpack[_NoOptions],
    ) -> None:
        """Send one message without a result; ``one_way_lost`` counts failures."""
        _refuse_options(unknown)
        if queue_selector is not None:
            message = Message(topic, body, tags, keys, properties or {})
            queue_id = self._select(queue_selector, message, queue_id, sharding_key)
        link = self._link(topic, queue_id, sharding_key)
        with link.lock:
            batch = self._collect(link, None)
            index = batch.columns.add(body, tags, keys, properties)
            batch.one_way += 1
            self._hand_over_in_time(link, batch.columns, index)

    @property
    def one_way_lost(self) -> int:
        """Number of one-way messages that were not stored, of those with a known outcome."""
        lost = self._lost
        for link in self._open_links():
            with link.lock:
                link.harvest()
                lost += link.lost
        return lost

    def send_message_async(
        self,
        message: Message,
        queue_id: int | None = None,
        sharding_key: str | None = None,
        ack: AckMode | None = None,
        delay: Delay | None = None,
    ) -> PendingSend:
        """Send an existing message, as :meth:`send_async`."""
        of_node = delay is not None
        if delay is not None:
            message, queue_id = self.place(message, delay, queue_id, sharding_key)
        return self._send_message(message, queue_id, sharding_key, ack, of_node=of_node)

    def send_of_node(self, message: Message, queue_id: int) -> PendingSend:
        """Send as :meth:`send_message_async`, for the node's own parts: also to system topics."""
        return self._send_message(message, queue_id, None, None, of_node=True)

    def _send_message(
        self,
        message: Message,
        queue_id: int | None,
        sharding_key: str | None,
        ack: AckMode | None,
        *,
        of_node: bool,
    ) -> PendingSend:
        link = self._link(message.topic, queue_id, sharding_key)
        with link.lock:
            batch = self._collect(link, ack, of_node=of_node)
            index = batch.columns.add_message(message)
            self._hand_over_in_time(link, batch.columns, index)
        return PendingSend(self.settle, link, batch, index)

    def send_delayed(
        self,
        messages: Sequence[tuple[Message, Delay]],
        *,
        queue_id: int | None = None,
        queue_selector: QueueSelector | None = None,
        ack: AckMode | None = None,
    ) -> SendResults:
        """Store messages that are delivered later; the results are in the messages' order.

        *queue_selector* chooses a queue for each, before any is sent. Without it and *queue_id*, a
        message goes to the queue of its ``__SHARDINGKEY``, if it has one.
        """
        return self.begin_delayed(
            messages, queue_id=queue_id, queue_selector=queue_selector, ack=ack
        ).results()

    def begin_delayed(
        self,
        messages: Sequence[tuple[Message, Delay]],
        *,
        queue_id: int | None = None,
        queue_selector: QueueSelector | None = None,
        ack: AckMode | None = None,
    ) -> PendingMessages:
        """Send as :meth:`send_delayed`, for callers that may ask for the results several times."""
        chosen = [queue_id] * len(messages)
        if queue_selector is not None:
            chosen = [self._select(queue_selector, one, queue_id, None) for one, _ in messages]
        placed = [
            self.place(message, delay, queue, message.properties.get(SHARDING_KEY))
            for (message, delay), queue in zip(messages, chosen, strict=True)
        ]
        together: dict[tuple[str, int], list[int]] = {}
        for number, one in enumerate(placed):
            together.setdefault((one.message.topic, one.queue_id), []).append(number)
        waiting = [one.message for one in placed]
        parts = [
            Part(topic, queue, waiting, numbers)
            for (topic, queue), those in together.items()
            for numbers in cut_messages(waiting, those)
        ]
        return PendingMessages(self, parts, ack)

    def send_messages(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        queue_id: int | None = None,
        queue_selector: QueueSelector | None = None,
        ack: AckMode | None = None,
    ) -> SendResults:
        """Store messages of one topic in batches; the results are in the messages' order.

        *queue_selector* chooses a queue for each, before any is sent. Without it and *queue_id*,
        messages with the property ``__SHARDINGKEY`` go to the queue of that key, and each batch of
        the others to the next queue in turn.
        """
        return self.begin_messages(
            topic, messages, queue_id=queue_id, queue_selector=queue_selector, ack=ack
        ).results()

    def begin_messages(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        queue_id: int | None = None,
        queue_selector: QueueSelector | None = None,
        ack: AckMode | None = None,
    ) -> PendingMessages:
        """Send as :meth:`send_messages`, for callers that may ask for the results several times."""
        check_open_topic(check_topic(topic))
        _refuse_strangers(topic, messages)
        parts = [
            Part(topic, queue, messages, numbers)
            for queue, numbers in self._parts(topic, messages, queue_id, queue_selector)
        ]
        return PendingMessages(self, parts, ack)

    def _parts(
        self,
        topic: str,
        messages: Sequence[Message],
        queue_id: int | None,
        queue_selector: QueueSelector | None,
    ) -> Iterator[tuple[int, Sequence[int]]]:
        """Yield each batch's queue and the numbers of its messages."""
        if queue_selector is not None:
            _refuse_other_choices(queue_id)
            for chosen, part in select_each(queue_selector, self._topic(topic).queues, messages):
                for numbers in cut_messages(messages, part):
                    yield chosen, numbers
            return
        for numbers in cut_messages(messages, range(len(messages))):
            if queue_id is not None:
                yield queue_id, numbers
            else:
                queues = self._topic(topic).queues
                yield from by_queue(messages, numbers, queues, next(self._turn) % queues)

    def _select(
        self,
        queue_selector: QueueSelector,
        message: Message,
        queue_id: int | None,
        sharding_key: str | None,
    ) -> int:
        _refuse_other_choices(queue_id, sharding_key)
        return select_queue(queue_selector, self._topic(message.topic).queues, message)

    def send_many(
        self,
        topic: str,
        table: pa.Table | pa.RecordBatch,
        *,
        property_columns: Sequence[str] = (),
        ack: AckMode | None = None,
    ) -> BatchResult:
        """Store the rows of an Arrow table, in batches over the topic's queues in turn.

        Columns: ``body`` (binary or string), and optionally ``tags``, ``keys`` (text, or a list of
        texts), ``properties`` (a map). *property_columns* become properties, absent where null.
        """
        durability = durability_of(ack) if ack else self._durability
        if not isinstance(table, pa.Table | pa.RecordBatch):
            raise InvalidMessageError(
                f"the table is {table!r:.60}; give a pyarrow Table or RecordBatch with a column "
                "body, or send a list of rr.Message with send_messages()"
            )
        check_open_topic(check_topic(topic))
        counts: dict[int, int] = {}
        placed: list[tuple[QueueLink, Batch]] = []
        for rows in cut_table(table):
            measured = MeasuredTable(
                topic,
                rows,
                property_columns=property_columns,
                born_host=self._born_host,
                born_timestamp_ms=self._clock_ms(),
                unique_ids=self._ids.next_ids(rows.num_rows),
                options=self._options,
            )
            link = self._link(topic, None, None)
            with link.lock:
                link.check_open()
                self._hand_over(link)
                batch = Batch(link, link.form, durability)
                self._until_sent(link, partial(link.try_send_table, measured, batch))
            placed.append((link, batch))
            counts[link.queue_id] = counts.get(link.queue_id, 0) + rows.num_rows
        for link, batch in placed:
            self.settle(link, batch, None)
            batch.check()
        return BatchResult(table.num_rows, counts)

    def forward(
        self,
        topic: str,
        queue_id: int,
        messages: Sequence[ForwardedMessage],
        *,
        ack: AckMode | None = None,
    ) -> SendResults:
        """Store messages again, as one batch: all of them are stored, or none.

        If the shard did not report the outcome in time, the same call waits for it again. Another
        call also waits for it, and raises :class:`ShardUnavailableError` once it is known: before
        sending some of the messages again, the caller has to check which are stored.
        """
        _refuse_strangers(topic, messages)
        link = self._link(topic, queue_id, None)
        with link.lock:
            link.check_open()
            is_same = link.forwarding is None or link.forwarding[0] == list(messages)
            if link.forwarding is not None:
                batch = link.forwarding[1]
            else:
                self._hand_over(link)
                batch = Batch(link, link.form, durability_of(ack) if ack else self._durability)
                payload = memoryview(batch.pack_forwarded(messages))
                self._until_sent(link, partial(link.try_send, payload, batch))
                link.forwarding = list(messages), batch
        self.settle(link, batch, None)
        link.forwarding = None
        if not is_same:
            raise ShardUnavailableError(link.name, 0, "it was busy with what was sent before")
        batch.check()
        return SendResults([(batch, range(len(messages)))], len(messages))


def _refuse_other_choices(*others: int | str | None) -> None:
    if any(other is not None for other in others):
        raise ConfigError(
            "queue_selector=, queue_id= and sharding_key= each choose a message's queue; give one"
        )


def _refuse_options(given: Mapping[str, object]) -> None:
    """Refuse further arguments of ``send_oneway``, and suggest the valid ones."""
    if given:
        _, *known, _ = inspect.signature(Producer.send_oneway).parameters
        otherwise = f"its arguments are {', '.join(known)}"
        refuse_unknown("send_oneway() has no argument", given, known, otherwise)


def _refuse_strangers(topic: str, messages: object) -> None:
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise InvalidMessageError(
            f"the messages are {messages!r:.60}; give a list of rr.Message(topic, body)"
        )
    for number, message in enumerate(messages):
        if not isinstance(message, Message | ForwardedMessage):
            raise InvalidMessageError(
                f"message {number} is {message!r:.60}; make each of them with rr.Message(topic, "
                "body), or send a body alone with send()"
            )
        if message.topic != topic:
            raise InvalidMessageError(
                f"message {number} is for topic {message.topic!r} and was sent to topic {topic!r}; "
                "send the messages of each topic by themselves"
            )
