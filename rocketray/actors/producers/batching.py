"""The links of a producer: the queue and batch of each message, and when a batch is sent.

A message is sent at once if none was sent for a while (``queue_link.collecting_s``). A message that
comes sooner is collected, and is sent

- with the first message after that time,
- when ``BATCH_MAX`` or ``BATCH_BYTES`` are collected,
- when a caller waits for one of the messages, or
- after ``LINGER_S``, as soon as the shard has acknowledged or refused the batches before.

Each link has a lock, so a shard that accepts nothing blocks only the threads that send to it.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Self

from rocketray.actors.ipc.ring import Durability
from rocketray.actors.runtime.clock import system_clock_ms
from rocketray.actors.topics.catalog import TopicConfig
from rocketray.delay import WAITING_QUEUES, Delay, Placed
from rocketray.errors import ConfigError, StoreError, StreamError, TopicNotFoundError
from rocketray.hashing import java_hash_code
from rocketray.message import Message
from rocketray.names import check_open_topic, check_topic
from rocketray.recall import RecallHandle
from rocketray.store.batches.encoded_batch import RecordOptions
from rocketray.store.batches.message_columns import MessageColumns, RecordForm
from rocketray.store.formats.compression import COMPRESS_OVER_BYTES, Compression, CompressionKind
from rocketray.store.formats.message_id import UniqueIdGenerator

from .batch import AckMode, Batch, durability_of
from .pending_messages import Part
from .queue_link import QueueLink, Shards, collecting_s, no_room, unacknowledged

__all__ = ["BATCH_BYTES", "BATCH_MAX", "ProducerBatching", "settle_options"]

_LOG = logging.getLogger(__name__)
BATCH_MAX = 1024
BATCH_BYTES = 512 * 1024  # plus one message; a batch is in one file of the log
LINGER_S = 0.002
_ROOM_WAIT_S = 0.01
_LOOK_S = 1.0
_REFRESH_S = 30.0  # as RocketMQ's pollNameServerInterval
_CLOSED = "the producer is closed; make a new one"


def settle_options(
    ack: AckMode = "memory",
    timeout_s: float = 10.0,
    compression: CompressionKind | None = None,
    compress_over: int = COMPRESS_OVER_BYTES,
) -> tuple[Durability, RecordOptions]:
    """Return a producer's options in the form it uses, after checking them.

    Raises:
        ConfigError: one of them cannot be used as given.
    """
    if not isinstance(timeout_s, int | float) or not timeout_s > 0:
        raise ConfigError(f"timeout_s is {timeout_s!r:.60}; give seconds, more than 0")
    if isinstance(compress_over, bool) or not isinstance(compress_over, int):
        raise ConfigError(f"compress_over is {compress_over!r:.60}; give a number of bytes")
    options = RecordOptions(compression and Compression(compression, compress_over))
    return durability_of(ack), options


class ProducerBatching:
    """The parts of a producer other than its send calls."""

    def __init__(
        self,
        shards: Shards,
        *,
        ack: AckMode = "memory",
        timeout_s: float = 10.0,
        born_host: tuple[str, int] = ("127.0.0.1", 0),
        compression: CompressionKind | None = None,
        compress_over: int = COMPRESS_OVER_BYTES,
        clock_ms: Callable[[], int] = system_clock_ms,
    ) -> None:
        """With *compression*, store bodies of *compress_over* bytes and more compressed."""
        self._durability, self._options = settle_options(ack, timeout_s, compression, compress_over)
        self._shards = shards
        self._clock_ms = clock_ms
        self._timeout_s = timeout_s
        self._born_host = born_host
        self._ids = UniqueIdGenerator(
            born_host[0], os.getpid(), int(uuid.uuid4().fields[0]), clock_ms=clock_ms
        )
        self._topics: dict[str, TopicConfig] = {}
        self._forms: dict[str, RecordForm] = {}
        self._links: dict[str, list[QueueLink | None]] = {}  # of each topic, by queue
        self._lost = 0  # one-way messages of closed links
        self._turn = itertools.count()
        self._lock = threading.Lock()  # for the set of links; each link has its own
        self._refreshing = threading.Lock()
        self._collecting = threading.Event()
        self._closed = threading.Event()
        self._callers: dict[QueueLink, threading.Thread] = {}  # of the linger thread
        self._linger = threading.Thread(target=self._flush_lingering, daemon=True, name="linger")
        self._linger.start()

    def choose_queue(
        self, topic: str, queue_id: int | None = None, sharding_key: str | None = None
    ) -> int:
        """Return the queue of a message: the given one, the key's, or the next in turn.

        Raises:
            TopicNotFoundError, ConfigError: there is no such topic, or it has no such queue.
        """
        config = self._topic(topic if isinstance(topic, str) else check_topic(topic))
        if queue_id is None:
            if sharding_key is not None and not isinstance(sharding_key, str):
                raise ConfigError(
                    f"sharding_key is {sharding_key!r:.60}; give a text: str({sharding_key!r:.60})"
                )
            turn = next(self._turn) if sharding_key is None else java_hash_code(sharding_key)
            return turn % config.queues
        config.check_queue(queue_id)
        return queue_id

    def place(
        self,
        message: Message,
        delay: Delay,
        queue_id: int | None = None,
        sharding_key: str | None = None,
    ) -> Placed[Message]:
        """Return the message and the queue where it waits for *delay*; raises as both."""
        queue_id = self.choose_queue(message.topic, queue_id, sharding_key)
        placed = delay.place(message, queue_id, self._clock_ms())
        waits_in = placed.message.topic
        if waits_in in WAITING_QUEUES and waits_in not in self._topics:
            self._shards.create_topic(waits_in, WAITING_QUEUES[waits_in])
            self._topic(waits_in)  # so that later messages find it
        return placed

    def recall(self, handle: str) -> bool:
        """Recall a delayed message, so it is never delivered; False if it is too late or done.

        Raises:
            InvalidMessageError: *handle* is invalid, or not one of this node.
        """
        RecallHandle.parse(handle)
        return self._shards.recall(handle)

    def new_unique_key(self) -> str:
        """Return an id that no other message has."""
        return bytes(self._ids.next_ids(1)).decode()

    def flush(self) -> None:
        """Send everything collected and wait for the acknowledgements; results have the errors."""
        waiting = []
        for link in self._open_links():
            with link.lock:
                self._hand_over(link)
                if link.in_flight:
                    waiting.append((link, link.in_flight[-1]))
        for link, batch in waiting:
            self.settle(link, batch, None)

    def refresh_topics(self) -> None:
        """Update the number of queues of the topics, and drop deleted topics.

        This runs every 30 seconds by itself, as in RocketMQ's producers.
        """
        with self._refreshing:
            for name, known in list(self._topics.items()):
                if self._closed.is_set():
                    return
                try:
                    config = self._shards.topic(name)
                except TopicNotFoundError as error:
                    self._leave(name, error)
                except Exception as error:  # noqa: BLE001  # the next refresh tries again
                    _LOG.warning("topic %s: its queues are not known anew: %s", name, error)
                else:
                    if config.store_hosts[: known.queues] != known.store_hosts:
                        reason = f"topic {name!r} was deleted and made again meanwhile; send again"
                        self._leave(name, StoreError(reason))
                    elif config.queues > known.queues:
                        with self._lock:
                            links = self._links.get(name, [])
                            links += [None] * (config.queues - known.queues) if links else []
                            self._topics[name] = config

    def lose(self, error: StreamError) -> None:
        """Fail all unacknowledged and later sends with *error*: their shards are gone."""
        for topic in list(self._links):
            self._leave(topic, error)

    def close(self) -> None:
        """Flush, and release the rings; raises as :meth:`flush`, and is closed nevertheless."""
        if self._closed.is_set():
            return
        try:
            self.flush()
        finally:
            with self._lock:
                self._closed.set()
            self._collecting.set()
            self._linger.join()
            for link in self._open_links():
                with link.lock:
                    link.close(StoreError(_CLOSED))

    def __enter__(self) -> Self:
        """Return the producer itself; closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def settle(self, link: QueueLink, batch: Batch, timeout_s: float | None) -> None:
        """Wait until the outcome of a batch is known."""
        deadline = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        while True:
            with link.lock:
                if batch is link.collecting:
                    self._hand_over(link)
                link.harvest()
                if batch.settled:
                    return
            left = deadline - time.monotonic()
            if left <= 0:
                raise unacknowledged(link)
            link.wait(batch, min(left, _LOOK_S))

    def hand_over_part(self, part: Part, ack: AckMode | None) -> tuple[QueueLink, Batch]:
        """Build a batch and send it; an error that keeps it from being sent is its outcome."""
        durability = durability_of(ack) if ack else self._durability
        link = self._link(part.topic, part.queue_id, None)
        with link.lock:
            link.check_open()
            self._hand_over(link)  # earlier messages go first
            link.collecting = batch = Batch(link, link.form, durability)
            try:
                batch.columns.extend([part.messages[number] for number in part.numbers])
            except StreamError as error:
                link.collecting, batch.failure = None, error
            self._hand_over(link)
        return link, batch

    def ask_again(self, link: QueueLink, batch: Batch) -> None:
        """Call the shard again with a batch whose outcome a call left unknown."""
        with link.lock:
            link.check_open()
            link.ask_again(batch)

    def _collect(self, link: QueueLink, ack: AckMode | None, *, of_node: bool = False) -> Batch:
        """Return the batch that a message is added to; called with the link's lock held.

        Only the node's own parts send *of_node*: they may send to any topic.
        """
        durability = durability_of(ack) if ack else self._durability
        link.check_open()
        if link.is_closed_topic and not of_node:
            check_open_topic(link.topic)
        batch = link.collecting
        if batch is not None and batch.durability is not durability:
            self._hand_over(link)
            batch = None
        if batch is None:
            batch = link.collecting = Batch(link, link.form, durability)
        return batch

    def _hand_over_in_time(self, link: QueueLink, columns: MessageColumns, index: int) -> None:
        """Send the collected messages, if it is time; *index* is the newest message's number."""
        begun = time.monotonic()
        if index + 1 >= BATCH_MAX or columns.size >= BATCH_BYTES or begun >= link.next_hand_over:
            self._hand_over(link)
            ended = time.monotonic()
            link.next_hand_over = ended + collecting_s(ended - begun)
        elif not self._collecting.is_set():
            self._collecting.set()

    def _topic(self, name: str) -> TopicConfig:
        config = self._topics.get(name)
        if config is None:
            config = self._topics.setdefault(name, self._shards.topic(check_topic(name)))
        return config

    def _link(self, topic: str, queue_id: int | None, sharding_key: str | None) -> QueueLink:
        links = self._links.get(topic) if isinstance(topic, str) else None
        if links is None:
            queue_id = self.choose_queue(topic, queue_id, sharding_key)
            return self._open_link(topic, queue_id)
        if queue_id is None and sharding_key is None:
            queue_id = next(self._turn) % len(links)
        else:
            queue_id = self.choose_queue(topic, queue_id, sharding_key)
        link = links[queue_id] if queue_id < len(links) else None  # there may be more queues by now
        return link or self._open_link(topic, queue_id)

    def _open_link(self, topic: str, queue_id: int) -> QueueLink:
        """Return an existing link or a new one; other threads are not blocked by its shard."""
        while not self._closed.is_set():
            config = self._topic(topic)
            config.check_queue(queue_id)
            opened = QueueLink(self._shards, config, queue_id, self._form(topic))
            with self._lock:
                if self._topics.get(topic) is config and not self._closed.is_set():
                    links = self._links.setdefault(topic, [None] * config.queues)
                    link = links[queue_id]
                    if link is None:
                        links[queue_id] = opened
                        return opened
                else:
                    link = None  # the topic changed meanwhile, or the producer was closed
            opened.close(StoreError(_CLOSED))
            if link is not None:
                return link
        raise StoreError(_CLOSED)

    def _open_links(self) -> list[QueueLink]:
        """Return all open links."""
        topics = list(self._links.values())
        return [link for links in topics for link in links if link is not None]

    def _leave(self, topic: str, error: StreamError) -> None:
        """Close the links to the removed shards of a topic."""
        with self._lock:
            self._topics.pop(topic, None)
            links = self._links.pop(topic, [])
        for link in links:
            if link is not None:
                with link.lock:
                    link.close(error, is_gone=True)
                    self._lost += link.lost

    def _form(self, topic: str) -> RecordForm:
        form = self._forms.get(topic)
        if form is None:
            form = self._forms[topic] = RecordForm(
                topic,
                born_host=self._born_host,
                id_prefix=self._ids.prefix,
                compression=self._options.compression,
            )
        return form

    def _hand_over(self, link: QueueLink) -> None:
        """Pack the collected messages and write them to the ring; called with the link's lock."""
        batch = link.collecting
        if batch is None or not batch.columns:
            return
        link.collecting = None
        try:
            payload = batch.pack(self._ids.take(len(batch.columns)), self._clock_ms())
            self._until_sent(link, partial(link.try_send, payload.data, batch))
        except Exception as error:  # noqa: BLE001  # raised when a result of the batch is read
            batch.failure = error
            link.settled(batch)

    def _until_sent(self, link: QueueLink, try_send: Callable[[], bool]) -> None:
        """Send a batch as soon as there is room."""
        deadline = time.monotonic() + self._timeout_s
        while not try_send():
            if time.monotonic() >= deadline:
                raise no_room(link)
            link.wait_for_room(_ROOM_WAIT_S)

    def _flush_lingering(self) -> None:
        refresh_at = time.monotonic() + _REFRESH_S
        while not self._closed.is_set():
            self._collecting.wait(_REFRESH_S)
            time.sleep(LINGER_S)
            self._collecting.clear()
            waiting = [link for link in self._open_links() if not self._hand_over_lingering(link)]
            if waiting:
                self._collecting.set()
            if time.monotonic() >= refresh_at and not self._refreshing.locked():
                threading.Thread(target=self.refresh_topics, daemon=True, name="topics").start()
                refresh_at = time.monotonic() + _REFRESH_S

    def _hand_over_lingering(self, link: QueueLink) -> bool:
        """Send the collected messages, or begin to; False if the link must be checked again."""
        if link.ring is not None:
            return self._hand_over_if_free(link)
        if not link.has_collected:
            return True
        callers = {one: thread for one, thread in self._callers.items() if thread.is_alive()}
        if link not in callers:  # a call may take minutes: other links do not wait for it
            run = self._hand_over_if_free
            callers[link] = threading.Thread(target=run, args=(link,), daemon=True, name="call")
            callers[link].start()
        self._callers = callers
        return False

    def _hand_over_if_free(self, link: QueueLink) -> bool:
        """Send the collected messages, unless the link is in use or the shard is behind."""
        if not link.lock.acquire(blocking=False):
            return False
        try:
            link.harvest()
            if not link.in_flight:  # so there is room, and no wait for a dead shard
                self._hand_over(link)
            return not link.has_collected
        finally:
            link.lock.release()
