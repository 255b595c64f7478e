"""When a producer sends what it collected, and how it waits for the outcome.

A message is sent at once if none was sent for a while (``queue_link.collecting_s``). A message that
comes sooner is collected, and is sent

- with the first message after that time,
- when ``BATCH_MAX`` or ``BATCH_BYTES`` are collected,
- when a caller waits for one of the messages, or
- after ``LINGER_S``, as soon as the shard has acknowledged or refused the batches before.

While a call is in flight (``link.is_busy``), only a full batch is sent behind it. Another one goes
when the call has ended, so batches grow with its latency.

Each link has a lock, so a shard that accepts nothing blocks only the threads that send to it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rocketray.base.ack_mode import Durability
from rocketray.base.system_topics import check_open_topic
from rocketray.errors import ShardUnavailableError, StreamError
from rocketray.message import Message
from rocketray.runtime.clock import system_clock_ms
from rocketray.runtime.one_process import OfOneProcess
from rocketray.store.batches.batch_form import RecordOptions
from rocketray.store.batches.encoded_batch import Packing, packed
from rocketray.store.batches.encoded_table import MeasuredTable
from rocketray.store.batches.message_columns import MessageColumns
from rocketray.store.batches.message_lists import EncodedLists
from rocketray.store.formats.unique_id import UniqueIdGenerator

from .batch import Batch
from .links import QueueLinks
from .outcome_watch import OutcomeWatch
from .parts import BATCH_BYTES, BATCH_MAX, Messages, Part
from .queue_link import QueueLink, collecting_s, unacknowledged

# The most that a collected message waits while its shard keeps up; so the linger thread has 500
# turns a second at most, and none while nothing is collected.
LINGER_S = 0.002
# Between two tries while there is no room; an acknowledgement, which frees some, ends it sooner.
_ROOM_WAIT_S = 0.01
# A waiter looks itself once in that time: its batch may have been sent another way meanwhile, with
# another number, or not have been sent at all (:meth:`QueueLink.follow`).
_LOOK_S = 1.0
_STUCK_S = 0.5
"""After that a batch without an outcome may be that of a queue that has moved."""
# Between two looks at the queues of batches that are in flight, whether they are handed over.
_MOVING_S = 0.1
_REFRESH_S = 30.0  # as RocketMQ's pollNameServerInterval


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """The options of a producer, checked (producer_options.py)."""

    durability: Durability | None
    """When a message counts as stored; None: as its topic says."""
    timeout_s: float
    records: RecordOptions
    born_host: tuple[str, int] = ("127.0.0.1", 0)
    clock_ms: Callable[[], int] = system_clock_ms


MessageFields = tuple[bytes, str | None, Sequence[str], Mapping[str, str] | None]
"""Body, tag, keys and properties of a message that has nothing else."""


@dataclass(frozen=True, slots=True)
class Handling:
    """How a message is sent."""

    durability: Durability | None
    """When it counts as stored; None: as the topic of its queue says."""
    one_way: bool = False
    """Whether its failure is counted, as it has no result."""
    at_once: bool = False
    """Whether its sender waits for it, so that nothing more is collected."""
    of_node: bool = False
    """Whether a part of the node sends it, also to the node's own topics."""
    timeout_s: float | None = None
    """How long to wait for room; None: the producer's."""


class Batcher(OfOneProcess, what="producer"):
    """The batches of one producer, from their first message to their outcome; for any thread."""

    def __init__(self, links: QueueLinks, ids: UniqueIdGenerator, settings: BatchSettings) -> None:
        self.settings = settings
        self.outcomes = OutcomeWatch()
        """Reports to tasks and callbacks."""
        self._links = links
        self._ids = ids
        self._collecting = threading.Event()  # set while a message may wait for the linger thread
        self._is_noted = False  # as the event, which is asked for every message
        self._closed = threading.Event()
        links.on_idle = self.hand_over_lingering
        self._linger = threading.Thread(target=self._flush_lingering, daemon=True, name="linger")
        self._linger.start()

    def add(
        self,
        link: QueueLink,
        fields: MessageFields,
        sharding_key: str | None,
        handling: Handling,
        now_s: float,
    ) -> tuple[Batch, int]:
        """Add a message to the batch of its queue; return the batch, and its number in it.

        *now_s* is the monotonic time.
        """
        body, tags, keys, properties = fields
        with link.lock:
            batch = link.collecting
            if batch is None or batch.handling is not handling:
                batch = self._open_batch(link, handling)
            columns = batch.columns
            index = columns.add(body, tags, keys, properties, sharding_key)
            if handling.one_way:
                batch.one_way += 1
            is_full = index + 1 >= BATCH_MAX or columns.size >= BATCH_BYTES
            if is_full or handling.at_once or now_s >= link.next_hand_over:
                self._send_due(link, handling, is_full=is_full)
            elif not self._is_noted:
                self._note_collected()
        return batch, index

    def add_message(
        self, link: QueueLink, message: Message, handling: Handling
    ) -> tuple[Batch, int]:
        """Add any message as :meth:`add`."""
        with link.lock:
            batch = self._open_batch(link, handling)
            index = batch.columns.add_message(message)
            if handling.one_way:
                batch.one_way += 1
            is_full = index + 1 >= BATCH_MAX or batch.columns.size >= BATCH_BYTES
            self._send_due(link, handling, is_full=is_full)
        return batch, index

    def try_add(
        self,
        link: QueueLink,
        fields: MessageFields,
        sharding_key: str | None,
        handling: Handling,
    ) -> tuple[Batch, int] | None:
        """Add a message as :meth:`add`; None, and nothing was done, if that might wait."""
        body, tags, keys, properties = fields
        if len(body) > BATCH_BYTES:  # up to 4 MiB: there may be no room at once
            return None
        if not link.lock.acquire(blocking=False):
            return None
        try:
            if self._is_full(link, handling) and not self.try_hand_over(link):
                return None
            batch = self._open_batch(link, handling)
            index = batch.columns.add(body, tags, keys, properties, sharding_key)
            if handling.one_way:
                batch.one_way += 1
            begun = time.monotonic()
            is_due = begun >= link.next_hand_over and not link.is_busy
            if index + 1 >= BATCH_MAX or is_due:
                self.try_hand_over(link)
                ended = time.monotonic()
                link.next_hand_over = ended + collecting_s(ended - begun)
            if link.has_collected:
                self._note_collected()
            return batch, index
        finally:
            link.lock.release()

    def _is_full(self, link: QueueLink, handling: Handling) -> bool:
        """Return whether the collected batch has to be sent before a message can be added."""
        batch = link.collecting
        if batch is None:
            return False
        durability = link.durability if handling.durability is None else handling.durability
        if batch.durability is not durability:
            return True
        return len(batch.columns) >= BATCH_MAX or batch.columns.size >= BATCH_BYTES

    def _open_batch(self, link: QueueLink, handling: Handling) -> Batch:
        """Return the batch that a message is added to; called with the link's lock held."""
        if not link.is_for_all:
            link.check_open()
            if not handling.of_node:
                check_open_topic(link.topic)
        durability = handling.durability
        if durability is None:
            durability = link.durability
        batch = link.collecting
        if batch is not None and batch.durability is not durability:
            self.hand_over(link, handling.timeout_s)
            batch = None
        if batch is None:
            batch = link.collecting = Batch(link, link.form, durability)
        batch.handling = handling
        return batch

    def _send_due(self, link: QueueLink, handling: Handling, *, is_full: bool) -> None:
        """Send the collected messages if it is time, or have them sent later."""
        if handling.at_once and not link.is_busy:
            self.hand_over(link, handling.timeout_s)
            return
        begun = time.monotonic()
        if is_full or (begun >= link.next_hand_over and not link.is_busy):
            self.hand_over(link, handling.timeout_s)
            ended = time.monotonic()
            link.next_hand_over = ended + collecting_s(ended - begun)
        else:
            self._note_collected()

    def _note_collected(self) -> None:
        """Have the linger thread look for collected messages."""
        if not self._is_noted:
            self._is_noted = True
            self._collecting.set()

    def hand_over(self, link: QueueLink, timeout_s: float | None = None) -> None:
        """Pack the collected messages and send them; called with the link's lock.

        Waits for room, for *timeout_s* at most. An error is the outcome of the batch.
        """
        batch = link.collecting
        if batch is None or not (count := len(batch.columns)):
            return
        link.collecting = None
        try:
            packing = batch.pack(self._ids.take_numbers(count), self.settings.clock_ms())
            self._until_sent(link, batch, packing, timeout_s)
        except Exception as error:  # noqa: BLE001  # raised when a result of the batch is read
            batch.failure = error
            link.settled(batch)

    def try_hand_over(self, link: QueueLink) -> bool:
        """Send the collected messages if that waits for nothing; False if some are left."""
        if not link.lock.acquire(blocking=False):
            return False
        try:
            batch = link.collecting
            if batch is not None and link.has_room(batch.columns.packed_max_bytes()):
                self.hand_over(link)
            return not link.has_collected
        finally:
            link.lock.release()

    def elsewhere(self, topic: str) -> int | None:
        """Return the next queue of a topic on a disk that does not fail; None if there is none."""
        return self._links.turns.elsewhere(self._links.topic(topic))

    def send_part(
        self,
        part: Part,
        durability: Durability,
        *,
        one_way: bool = False,
        timeout_s: float | None = None,
        after: Batch | None = None,
    ) -> tuple[QueueLink, Batch]:
        """Build a batch and send it; an error that keeps it from being sent is its outcome."""
        link = self._links.link(part.topic, part.queue_id, None)
        with link.lock:
            link.check_open()
            self.hand_over(link, timeout_s)  # earlier messages go first
            batch = Batch(link, link.form, durability)
            batch.one_way, batch.after = len(part.numbers) if one_way else 0, after
            batch.owner_epoch = part.owner_epoch
            try:
                if isinstance(part.content, Messages):
                    part.content.fill(batch.columns, part.numbers)
                    link.collecting = batch
                else:
                    self._send_columns(link, batch, part, timeout_s)
            except StreamError as error:
                batch.failure = error
                link.settled(batch)
            self.hand_over(link, timeout_s)
        return link, batch

    def _send_columns(
        self, link: QueueLink, batch: Batch, part: Part, timeout_s: float | None
    ) -> None:
        """Send a part that is columns or rows of a table."""
        first_id = self._ids.take_numbers(len(part.numbers))
        packing: Packing
        if part.content is None:
            packing = table = self._measured(part, first_id)
            batch.measured(table.sizes, first_id)
        else:
            assert isinstance(part.content, EncodedLists)
            packing = rows = part.content.pack(part.numbers, first_id, self.settings.clock_ms())
            batch.measured(rows.sizes(), first_id)
        self._until_sent(link, batch, packing, timeout_s)

    def ask_again(self, link: QueueLink, batch: Batch) -> None:
        """Call the shard again with a batch of unknown outcome, unless another caller did so."""
        with link.lock:
            if batch.unsure is not None:
                link.check_open()
                link.ask_again(batch)

    def repeat(self, link: QueueLink, batch: Batch, part: Part) -> None:
        """Ask again as :meth:`ask_again`; also send a part again that the shard failed to store."""
        with link.lock:
            if batch.may_be_repeated and batch.unsure is None:
                batch.unsure = packed(batch.owned(self._packing(link, part, batch.first_id)))
            self.ask_again(link, batch)

    def send_whole(self, link: QueueLink, batch: Batch, packing: Packing) -> None:
        """Send a batch that was not collected, after what was; with the link's lock."""
        self.hand_over(link)
        self._until_sent(link, batch, packing)

    def settle(self, link: QueueLink, batch: Batch, timeout_s: float | None = None) -> None:
        """Wait until the outcome of a batch is known.

        Raises:
            ShardUnavailableError: it is not, after *timeout_s*, by default the producer's.
        """
        if timeout_s is None:
            timeout_s = self.settings.timeout_s
        deadline = time.monotonic() + timeout_s
        if batch.sequence:  # it was sent, and is often acknowledged soon
            link.wait(batch, min(timeout_s, _LOOK_S))
        while True:
            with link.lock:
                if batch is link.collecting and not link.is_busy:
                    self.hand_over(link)
                link.harvest()
                if batch.settled:
                    return
            left = deadline - time.monotonic()
            if left <= 0:
                raise unacknowledged(link)
            link.wait(batch, min(left, _LOOK_S))

    def flush(self) -> None:
        """Send everything collected and wait for the acknowledgements; results have the errors."""
        waiting = []
        for link in self._links.opened():
            with link.lock:
                self.hand_over(link)
                if link.in_flight:
                    waiting.append((link, link.in_flight[-1]))
        for link, batch in waiting:
            self.settle(link, batch)

    def close(self) -> None:
        """End the threads, once no further links are opened."""
        self.outcomes.close()
        self._closed.set()
        self._collecting.set()
        self._linger.join()

    def _packing(self, link: QueueLink, part: Part, first_id: int) -> Packing:
        """Return the batch of a part, with unique keys from that number on."""
        now_ms = self.settings.clock_ms()
        if part.content is None:
            return self._measured(part, first_id)
        if isinstance(part.content, EncodedLists):
            return part.content.pack(part.numbers, first_id, now_ms)
        columns = MessageColumns(link.form)
        part.content.fill(columns, part.numbers)
        return columns.pack(first_id, now_ms)

    def _measured(self, part: Part, first_id: int) -> MeasuredTable:
        """Return the rows of a part, with unique keys from that number on."""
        assert part.rows is not None
        settings, count = self.settings, len(part.numbers)
        return MeasuredTable(
            part.topic,
            part.rows,
            property_columns=part.property_columns,
            born_host=settings.born_host,
            born_timestamp_ms=settings.clock_ms(),
            unique_ids=self._ids.ids_from(first_id, count),
            options=settings.records,
        )

    def _until_sent(
        self, link: QueueLink, batch: Batch, packing: Packing, timeout_s: float | None = None
    ) -> None:
        packing = batch.owned(packing)
        if link.try_send(packing, batch):
            return
        deadline = time.monotonic() + (self.settings.timeout_s if timeout_s is None else timeout_s)
        while not link.try_send(packing, batch):
            if time.monotonic() >= deadline:
                batch.is_unsent = True
                reason = "it does not accept messages now; nothing of this batch was sent"
                raise ShardUnavailableError(f"shard {link.name}", reason)
            link.wait_for_room(_ROOM_WAIT_S)

    def _flush_lingering(self) -> None:
        refresh_at = time.monotonic() + _REFRESH_S
        look_at = 0.0
        links = self._links
        # The oldest batch in flight at the last look, and the time of the look that saw it first: a
        # link that has the same one for long is stuck. Batches that come and go in between are no
        # sign of it, and neither is a batch that was just sent.
        first: dict[QueueLink, tuple[Batch, float]] = {}
        while not self._closed.is_set():
            self._collecting.wait(_MOVING_S if first else _STUCK_S)
            time.sleep(LINGER_S)
            # Before the look, so that a message behind it sets it again; in this order, so that one
            # in between is seen.
            self._collecting.clear()
            self._is_noted = False
            waiting = [link for link in links.opened() if not self.hand_over_lingering(link)]
            if waiting:
                self._collecting.set()
            now_s = time.monotonic()
            if now_s >= look_at:
                first = _first_in_flight(links.opened(), first, now_s)
                for link, (_, since_s) in first.items():
                    if since_s < now_s and link.is_moving():
                        links.follow_soon(link)
                is_stuck = any(now_s - since_s >= _STUCK_S for _, since_s in first.values())
                look_at = now_s + _MOVING_S
                if is_stuck or now_s >= refresh_at:
                    links.look_again()
                    refresh_at = now_s + _REFRESH_S

    def hand_over_lingering(self, link: QueueLink) -> bool:
        """Send the collected messages, unless the link is in use or the shard is behind.

        Return False if some are left, so that the link must be checked again.
        """
        if not link.lock.acquire(blocking=False):
            return False
        try:
            link.harvest()
            if not link.in_flight:  # so there is room, and no wait for a dead shard
                self.hand_over(link)
            return not link.has_collected
        finally:
            link.lock.release()


def _first_in_flight(
    links: Iterable[QueueLink], before: Mapping[QueueLink, tuple[Batch, float]], now_s: float
) -> dict[QueueLink, tuple[Batch, float]]:
    """Return the oldest batch in flight of each link, and since when; takes no lock."""
    found = {}
    for link in links:
        with suppress(IndexError):
            batch, known = link.in_flight[0], before.get(link)
            found[link] = known if known is not None and known[0] is batch else (batch, now_s)
    return found
