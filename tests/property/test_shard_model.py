"""A shard that is killed, closed and opened while batches come by rings and calls and questions are asked.

Whatever the order, a batch is stored once and whole, what was said of it is so, and a question
about a message is answered as everything that was sent before it would have it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from oracles import drain

from rocketray.base.ack_mode import Durability
from rocketray.base.config import StoreConfig
from rocketray.broker.shards import shard_appends
from rocketray.broker.shards.owned_shard import OwnedShard
from rocketray.broker.shards.shard_appends import ShardAppends
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.errors import StoreError
from rocketray.message import Message
from rocketray.runtime.files.paths import producer_rings_directory
from rocketray.runtime.files.runtime_lock import remove_runtime
from rocketray.runtime.ipc.acknowledgement import Ack, AppendStatus
from rocketray.runtime.ipc.ring import ProducerRing, ShardRing
from rocketray.runtime.processes import owned_name
from rocketray.store.batches.encoded_batch import encode_messages, pack_batch
from rocketray.store.index.key_index import KeyIndex
from rocketray.store.log.commit_log import CommitLog
from rocketray.store.queues.consume_queue import ConsumeQueue

TOPIC = "T"
CONFIG = StoreConfig(
    commit_log_segment_bytes=8192,
    consume_queue_segment_entries=16,
    index_hash_slots=16,
    index_entries=64,
)
RINGS = 3
BODY_BYTES = 400
STEPS: list[tuple[Any, str]] = [
    (drain, "_write_slot"),
    (drain, "append_records"),
    (drain, "append_queue_entries"),
    (drain, "put_keys"),
    (CommitLog, "append"),
    (ConsumeQueue, "append"),
    (KeyIndex, "put"),
    (ShardRing, "record"),
    (ShardRing, "acknowledge"),
    (ShardAppends, "publish_appended"),
]


class Killed(BaseException):
    """The process ends here."""


@dataclass
class Sent:
    """A batch, the numbers of whose messages nobody else has."""

    first: int
    count: int
    ack: Callable[[], Ack]

    def numbers(self) -> range:
        return range(self.first, self.first + self.count)


@dataclass
class QueueLink:
    """A producer's ring, and what went there."""

    ring: ProducerRing
    sent: list[Sent] = field(default_factory=list)

    def is_answered(self) -> bool:
        return self.ring.acknowledged() == len(self.sent)


class Machine:
    """The shard, its producers, and what they know."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._topic = TopicCatalog().with_topic(TOPIC, 1).get(TOPIC)
        self._rings = producer_rings_directory(data, TOPIC, 0)
        self._next = 0
        self._made = 0
        self.sent: list[Sent] = []
        self._writable = True
        self.shard = self._open()
        self.links = [self._link() for _ in range(RINGS)]

    # What happens

    def send(self, link: int, count: int, durability: Durability) -> None:
        first, payload = self._payload(count)
        ring = self.links[link].ring
        sequence = ring.try_write(payload, durability)
        assert sequence is not None
        ring.publish()
        sent = Sent(first, count, lambda: ring.ack(sequence))
        self.links[link].sent.append(sent)
        self.sent.append(sent)

    def call(self, count: int, durability: Durability, steps: int | None) -> None:
        """Send by calls until one is answered; the process ends in the first."""
        first, payload = self._payload(count)
        ack = self._until_killed(lambda: self.shard.append(payload, durability, attempt=1), steps)
        if ack is None:
            ack = self.shard.append(payload, durability, attempt=2)
        else:
            assert self.shard.append(payload, durability, attempt=2) == ack
        self.sent.append(Sent(first, count, lambda: ack))

    def drain(self, steps: int | None) -> None:
        self._until_killed(self.shard.drain, steps)

    def ask(self, steps: int | None) -> None:
        """Ask for the newest message; what is in the rings counts as stored."""
        if not self._next:
            return
        number = self._next - 1
        found = self._until_killed(lambda: self._count(number), steps)
        assert found is None or found == self._expected(number)
        assert self._count(number) == self._expected(number)
        assert all(link.is_answered() for link in self.links)

    def allow(self, writable: bool) -> None:
        self._writable = writable
        self.shard.set_writable(writable)

    def leave(self, link: int) -> None:
        """A producer goes, and another one comes."""
        self.links[link].ring.close()
        self.links[link] = self._link()

    def tidy(self, half_made: int) -> None:
        """A producer begins to make a ring; the shard flushes and forgets those that went."""
        (self._rings / owned_name(f"half-{self._made}")).write_bytes(bytes(half_made))
        self._made += 1
        self.shard.flush()

    def reopen(self, steps: int | None, opening_steps: int | None) -> None:
        """Close the shard and open it again; either may fail in the middle and is done anew."""
        self._until_killed(self.shard.close, steps)
        self.shard.close()
        killed: list[Killed] = []
        try:
            with _killed_after(opening_steps, killed):
                self.shard = self._open()
        except (Killed, StoreError):
            assert killed
            event("killed while opening")
            self.shard = self._open()

    def end(self) -> None:
        """All that was sent is known, and is so."""
        self.shard.set_writable(writable=True)
        self.shard.drain()
        assert all(link.is_answered() for link in self.links)
        stored = [message.body for message in self.shard.writer.store.reads.scan()]
        known: dict[int, bytes] = {}
        for sent in self.sent:
            ack = sent.ack()
            if ack.status is AppendStatus.OK:
                assert ack.messages == sent.count
                at = self.shard.lookups.view(ack.first_physical_offset)
                assert at is not None
                assert at.body == _body(sent.first)
                known |= {
                    ack.first_queue_offset + n: _body(i) for n, i in enumerate(sent.numbers())
                }
            else:
                assert ack.status is AppendStatus.NOT_WRITABLE
        assert sorted(known) == list(range(len(stored)))
        assert [known[offset] for offset in range(len(stored))] == stored
        assert self.shard.writer.control.visible() == len(stored)
        found = [self.shard.lookups.message_at(offset) for offset in range(len(stored))]
        assert [one and one.body for one in found] == stored
        self.shard.close()

    # What it takes

    def _payload(self, count: int) -> tuple[int, bytes]:
        first = self._next
        self._next += count
        messages = [Message(TOPIC, _body(n), unique_key=_key(n)) for n in range(first, self._next)]
        return first, pack_batch(
            encode_messages(messages, born_host=("127.0.0.1", 1), clock_ms=lambda: 1)
        )

    def _link(self) -> QueueLink:
        self._made += 1
        ring = ProducerRing(self._rings / owned_name(f"{self._made % 7}-{self._made}"), 64 * 1024)
        self.shard.attach_ring(str(ring.path))
        return QueueLink(ring)

    def _open(self) -> OwnedShard:
        shard = OwnedShard(self._data, self._topic, 0, CONFIG, clock_ms=lambda: 1000)
        shard.set_writable(self._writable)
        return shard

    def _until_killed(self, run: Callable[[], Any], steps: int | None) -> Any:
        """What *run* answers; None when the process ended in it, and another one began."""
        killed: list[Killed] = []
        try:
            with _killed_after(steps, killed):
                return run()
        except (Killed, StoreError):
            assert killed  # what the end of the process leaves undone is its error alone
            event("killed")
            store = self.shard.writer.store
            store._damage = store._damage or "killed"
            store.close()
            self.shard = self._open()
            return None

    def _count(self, number: int) -> int:
        return len(self.shard.lookups.query(_key(number), 10, 0, 2**62))

    def _expected(self, number: int) -> int:
        [sent] = [sent for sent in self.sent if number in sent.numbers()]
        return int(sent.ack().status is AppendStatus.OK)


def _body(number: int) -> bytes:
    return b"%d" % number * BODY_BYTES


def _key(number: int) -> str:
    return f"{number:032d}"


@contextmanager
def _killed_after(steps: int | None, killed: list[Killed]) -> Iterator[None]:
    """End the process before or behind its step of that number, from 0 on; and say so."""
    left = -1 if steps is None else steps

    def may_end() -> None:
        nonlocal left
        left -= 1
        if left == -1:
            killed.append(Killed())
            raise killed[0]

    def wrapped(step: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            may_end()
            result = step(*arguments, **options)
            may_end()
            return result

        return run

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_appends, "drain_frames", drain.drain_frames)
        if steps is not None:
            for owner, name in STEPS:
                patch.setattr(owner, name, wrapped(getattr(owner, name)))
        yield


KILL = st.none() | st.integers(0, 9) | st.integers(0, 60)
COUNT = st.integers(1, 6)
LINK = st.integers(0, RINGS - 1)
DURABILITY = st.sampled_from(Durability)
OPERATIONS = st.one_of(
    st.tuples(st.just("send"), LINK, COUNT, DURABILITY),
    st.tuples(st.just("send"), LINK, COUNT, DURABILITY),
    st.tuples(st.just("call"), COUNT, DURABILITY, KILL),
    st.tuples(st.just("drain"), KILL),
    st.tuples(st.just("ask"), KILL),
    st.tuples(st.just("reopen"), KILL, KILL),
    st.tuples(st.just("allow"), st.booleans()),
    st.tuples(st.just("leave"), LINK),
    st.tuples(st.just("tidy"), st.sampled_from([0, 1, 4096, 70_000])),
)
MEMORY, DISK = Durability.MEMORY, Durability.DISK
SEND = ("send", 0, 5, DISK)


@settings(max_examples=30)
@given(st.lists(OPERATIONS, max_size=14))
@example(
    [SEND, SEND, ("send", 1, 3, MEMORY), ("drain", 2), ("call", 4, MEMORY, None), ("ask", None)]
)
@example([SEND, ("reopen", 2, 9), ("call", 1, DISK, 1), ("ask", 7)])
def test_batches_are_stored_once_and_questions_answered_truly_whatever_ends_the_shard(
    operations: list[tuple[Any, ...]],
) -> None:
    data = Path(tempfile.mkdtemp())
    try:
        machine = Machine(data)
        for name, *arguments in operations:
            getattr(machine, name)(*arguments)
        machine.end()
    finally:
        remove_runtime(data)
        shutil.rmtree(data)
