"""Producers: send messages to the shards in batches, and report their outcomes.

There are three ways to send, with the same options (producer_options.py): ``send`` waits for the
outcome, ``send_async`` returns a future, and ``send_many`` sends a list or a table;
``send_oneway`` and ``send_many_oneway`` report no outcome. When a message is sent is in batcher.py.

Invariants
  1. A result is returned after the shard acknowledged the batch with the requested ack mode.
  2. Memory is bounded: a link holds one batch that is not yet sent, and the ring or as many bytes
     of batches that go by calls. Then a send blocks, and raises :class:`ShardUnavailableError`
     after ``timeout_s``. Threads that send to the same queue then wait one after the other; threads
     that send to other queues do not.
  3. Messages of one thread to one queue are stored in the order they were sent.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Self, Unpack

from rocketray.base.ack_mode import AckMode, Durability, durability_of
from rocketray.base.delay import Delay
from rocketray.errors import ConfigError, ShardUnavailableError, StoreFullError, StreamError
from rocketray.message import ForwardedMessage, Message
from rocketray.messaging.api.node_client import NodeClient
from rocketray.runtime.clock import system_clock_ms
from rocketray.runtime.one_process import OfOneProcess
from rocketray.store.batches.message_columns import RecordForm
from rocketray.store.formats.unique_id import UniqueIdGenerator

from .batch import Batch, SendResult, SendResults
from .batcher import Batcher
from .links import QueueLinks
from .many import Table, check_messages, delayed_parts, parts_of
from .message_sends import MessageSends
from .parts import Part
from .producer_options import (
    ManyOptions,
    OtherOptions,
    ProducerOptions,
    batch_settings,
)
from .send_future import ListFuture, SendFuture
from .traced_sends import TracedSends, traced_many
from .transactional_sends import Transaction, Transactions


class NodeProducer(OfOneProcess, what="producer"):
    """A producer for the topics of a cluster; safe to use from several threads."""

    def __init__(
        self,
        node: NodeClient,
        *,
        born_host: tuple[str, int] = ("127.0.0.1", 0),
        clock_ms: Callable[[], int] = system_clock_ms,
        first_turn: int = 0,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """Make a producer; its options are those of :class:`ProducerOptions`.

        The first message without a queue gets the queue *first_turn*, modulo their number.
        """
        settings = replace(batch_settings(options), born_host=born_host, clock_ms=clock_ms)
        self._node = node
        self._clock_ms = clock_ms
        self._durability = settings.durability
        # RocketMQ has the hash of a class loader in place of the random number; here it tells two
        # producers of a process apart.
        self._ids = UniqueIdGenerator(
            born_host[0], os.getpid(), int(uuid.uuid4().fields[0]), clock_ms=clock_ms
        )

        def form(topic: str) -> RecordForm:
            return RecordForm(
                topic, born_host=born_host, id_prefix=self._ids.prefix, options=settings.records
            )

        self.links = QueueLinks(node, form, first_turn=first_turn)
        """Its queues, for parts of the node."""
        self._batcher = Batcher(self.links, self._ids, settings)
        self._transactions: Transactions | None = None
        group, check = options.get("group"), options.get("check")
        if group is not None and check is not None:
            self._transactions = Transactions(node, group, check, self._ids.next_id)
        sends = MessageSends(self.links, self._batcher, self._transactions)
        self._tracing = tracing = options.get("tracing")
        self.singles = sends if tracing is None else TracedSends(sends, tracing)
        """Sends of single messages, for :class:`~.async_producer.NodeAsyncProducer`."""

    # Tag, keys and properties are parameters beside the mapping of the other options: to take them
    # out of that takes a tenth of the time of a send.
    def send(
        self,
        topic: str,
        body: bytes,
        *,
        ack: AckMode | None = None,
        tags: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        **options: Unpack[OtherOptions],
    ) -> SendResult:
        """Store one message and return where; blocks until the *ack* is reached.

        A message that a full disk refuses goes to another disk, unless its queue was chosen. The
        options are those of :class:`SendOptions`.
        """
        singles, fields = self.singles, (body, tags, keys, properties)
        timeout_s = options.get("timeout_s")
        all_options = options.copy()  # the call takes them out
        while True:
            future = singles.begin("send", topic, fields, ack, options, at_once=True)
            try:
                return future.result(timeout_s)
            except StoreFullError:
                queue_id = singles.elsewhere(topic, properties, all_options)
                if queue_id is None:
                    raise
                options = {**all_options, "queue_id": queue_id}

    def send_async(
        self,
        topic: str,
        body: bytes,
        *,
        ack: AckMode | None = None,
        tags: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        **options: Unpack[OtherOptions],
    ) -> SendFuture[SendResult]:
        """Send one message as :meth:`send`, and return at once, while there is room.

        The future has the result.
        """
        fields = body, tags, keys, properties
        return self.singles.begin("send_async", topic, fields, ack, options)

    def send_oneway(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        **options: Unpack[OtherOptions],
    ) -> None:
        """Send one message without a result: return at once, while there is room.

        What was not stored is logged and counted in :attr:`one_way_lost`.
        """
        fields = body, tags, keys, properties
        self.singles.begin("send_oneway", topic, fields, None, options, one_way=True)

    def send_many(
        self,
        topic: str,
        messages: Sequence[Message] | Table | None = None,
        *,
        ack: AckMode | None = None,
        **options: Unpack[ManyOptions],
    ) -> SendResults:
        """Store messages of one topic in batches; the results are in the messages' order.

        The messages are a list, the rows of an Arrow table, or columns: ``bodies=`` with ``tags=``,
        ``keys=`` and ``properties=`` of :class:`ManyOptions`. A table has the column ``body``
        (binary or string), and optionally ``tags``, ``keys`` (text, or a list of texts) and
        ``properties`` (a map).

        A queue selector chooses a queue for each message, before any is sent. Without a choice,
        messages with the property ``__SHARDINGKEY`` go to the queue of that key, and each batch of
        the others to the next queue in turn.
        """
        with self._traced_many(topic, messages, options) as traced:
            parts = self._parts("send_many", topic, traced, options)
            durability = self._durability_of(topic, ack)
            return ListFuture(self._batcher, parts, durability).result(options.get("timeout_s"))

    def send_many_oneway(
        self,
        topic: str,
        messages: Sequence[Message] | Table | None = None,
        **options: Unpack[ManyOptions],
    ) -> None:
        """Send messages as :meth:`send_many`, without results: see :meth:`send_oneway`."""
        with self._traced_many(topic, messages, options) as traced:
            parts = self._parts("send_many_oneway", topic, traced, options)
            durability, timeout_s = self._durability_of(topic, None), options.get("timeout_s")
            for part in parts:
                self._batcher.send_part(part, durability, one_way=True, timeout_s=timeout_s)

    @contextmanager
    def _traced_many(
        self, topic: str, messages: Sequence[Message] | Table | None, options: ManyOptions
    ) -> Iterator[Sequence[Message] | Table | None]:
        """Yield the messages with the context of their span, which has the outcome of the block."""
        if self._tracing is None:
            yield messages
            return
        sending, carried = traced_many(self._tracing, topic, messages, options)
        try:
            yield carried
        except BaseException as error:
            sending.failed(error)
            raise
        sending.stored()

    def _parts(
        self,
        function: str,
        topic: str,
        messages: Sequence[Message] | Table | None,
        options: ManyOptions,
    ) -> list[Part]:
        now_ms = self._clock_ms()
        return parts_of(self.links, function, topic, messages, options, now_ms=now_ms)

    def begin_many(
        self,
        topic: str,
        messages: Sequence[Message] | Table | None = None,
        *,
        ack: AckMode | None = None,
        delays: Sequence[Delay] = (),
        owner_epoch: int = 0,
        **options: Unpack[ManyOptions],
    ) -> SendFuture[SendResults]:
        """Send as :meth:`send_many`, and return once all has room: the shards store it meanwhile.

        A list is encoded while the one before it is stored, and its result may be asked for several
        times. *delays* has a delay for each of a list of messages, where these are not the same.
        Each batch carries *owner_epoch*, that of the sender's grant of the queue; 0 for none.
        """
        if delays:
            assert not isinstance(messages, Table | None)
            check_messages(topic, messages)
            queues = [options.get("queue_id")] * len(messages)
            parts = delayed_parts(self.links, messages, delays, queues, self._clock_ms())
        else:
            parts = self._parts("begin_many", topic, messages, options)
        if owner_epoch:
            parts = [part._replace(owner_epoch=owner_epoch) for part in parts]
        durability = self._durability_of(topic, ack)
        future = ListFuture(self._batcher, parts, durability)
        with suppress(ShardUnavailableError):  # the result sends what is left
            future.send(options.get("timeout_s"))
        return future

    def begin(self) -> Transaction:
        """Return a new transaction: give it to :meth:`send`, and commit it or roll it back.

        As a context, it is committed at the end of the block, or rolled back if that raises.

        Raises:
            ConfigError: the producer was made without ``group=`` and ``check=``.
        """
        return self.transactions.begin()

    @property
    def transactions(self) -> Transactions:
        """The transactions of this producer; raises as :meth:`begin`."""
        if self._transactions is None:
            raise ConfigError("this producer has no transactions; make it with group= and check=")
        return self._transactions

    @property
    def one_way_lost(self) -> int:
        """Number of messages sent one-way that are known not to be stored."""
        return self.links.one_way_lost

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
        check_messages(topic, messages)
        link = self.links.link(topic, queue_id, None)
        with link.lock:
            link.check_open()
            is_same = link.forwarding is None or link.forwarding[0] == list(messages)
            if link.forwarding is not None:
                batch = link.forwarding[1]
            else:
                durability = self._durability_of(topic, ack)
                batch = Batch(link, link.form, durability)
                self._batcher.send_whole(link, batch, batch.pack_forwarded(messages))
                link.forwarding = list(messages), batch
        self._batcher.settle(link, batch)
        with link.lock:
            if link.forwarding is not None and link.forwarding[1] is batch:
                link.forwarding = None  # else another thread has begun a later one
        if not is_same:  # now, as the outcome of the earlier one is known
            raise ShardUnavailableError(f"shard {link.name}", "it was busy with earlier batches", 0)
        batch.check()
        return SendResults([(batch, range(len(messages)))])

    def _durability_of(self, topic: str, ack: AckMode | None) -> Durability:
        """Return when messages to *topic* count as stored: as *ack*, or this producer, or it says.

        It is that of the topic that they are for, also if they wait in another one.
        """
        if ack is not None:
            return durability_of(ack)
        if self._durability is not None:
            return self._durability
        return durability_of(self.links.topic(topic).default_ack)

    def recall(self, handle: str) -> bool:
        """Recall a delayed message, so it is never delivered; False if it is too late or done.

        Raises:
            InvalidMessageError: *handle* is invalid, or not one of this node.
        """
        return self._node.delays.recall(handle)

    def flush(self) -> None:
        """Send everything collected and wait for the acknowledgements; results have the errors."""
        self._batcher.flush()

    def refresh_topics(self) -> None:
        """Look for new queues and deleted topics, as it does itself every 30 seconds."""
        self.links.refresh()

    def lose(self, error: StreamError) -> None:
        """Fail all unacknowledged and later sends with *error*: their shards are gone."""
        self.links.lose(error)

    def close(self) -> None:
        """Flush, and release the rings; raises as :meth:`flush`, and is closed nevertheless."""
        if self.links.is_closed:
            return
        if self._transactions is not None:
            self._transactions.close()
        try:
            self._batcher.flush()
        finally:
            # In this order: no link is opened any more, no thread uses one, and then the rings go.
            self.links.refuse()
            self._batcher.close()
            self.links.close()

    def __enter__(self) -> Self:
        """Return the producer itself; closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
