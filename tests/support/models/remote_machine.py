"""The rules by which members on other nodes are tried: calls get lost, gateways die, queues move.

Some members fetch from the gateway, and one reads beside the shards. After each step: each queue was
handed out in order and without a gap; by nobody whose lease ran out, and never by two; a message
came twice only where its reader lost its lease, and then only what nobody had committed, and never
because a gateway died or a fetch got lost; the group's offset is never past an unfinished message.
At the end all is finished.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.nodes.lossy_calls import Loss, LossyCalls
from support.nodes.wired_fetches import wired

from rocketray.broker.topics.consumed_batch import ConsumedBatch
from rocketray.errors import ShardUnavailableError
from rocketray.filters.subscription import Subscription
from rocketray.message import Message
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.messaging.remote import fetch_sessions, fetched_streams
from rocketray.messaging.remote.fetch_sessions import FetchSessions
from rocketray.messaging.remote.fetched_streams import FetchedStreams
from rocketray.testing import Broker

QUEUES = 3
FAR_MIN, FAR_MAX = 2, 3
TAGS: list[str | None] = ["a", "b", None, "a", "c", None, None]
WANTED = {"a", "b"}
SUBSCRIPTION = Subscription.tags("a || b")
SWEEP_S = 5
HEAL_S = 90
SMALL: list[tuple[Any, str, Any]] = [
    (fetch_sessions, "FRAME_BYTES", 400),
    (fetch_sessions, "REPLY_BYTES", 1500),
    (fetch_sessions, "_TAKE_MESSAGES", 7),
    (fetched_streams, "CREDIT_BYTES", 1000),
    (fetched_streams, "_RETRY_S", 0),
]
"""What is smaller than in life, so that it matters."""
_MEMORY = Path("/dev/shm")  # the node syncs its files; that is not what is tested here

queue_ids = st.integers(0, QUEUES - 1)
readers = st.runner().flatmap(lambda machine: st.sampled_from(machine.readers))
far_readers = st.runner().flatmap(lambda machine: st.sampled_from(machine.far()))
fetch_names = st.sampled_from(["fetch", "fetch", "attach", "bounds", "wake", "leave"])
fetch_losses = st.lists(
    st.sampled_from(["request", "answer", "late", "twice"]), min_size=1, max_size=3
)
session_names = st.sampled_from(["heartbeat", "heartbeat", "leave"])
session_losses = st.lists(st.sampled_from(["request", "answer"]), min_size=1, max_size=3)


@dataclass
class Queue:
    """One queue: its messages, and how far which reader is."""

    tags: list[str | None] = field(default_factory=list)
    finished: set[int] = field(default_factory=set)
    position: int = 0
    """What comes next; where its owner was lost, that or something before it."""
    owner: Reader | None = None
    """Who reads it."""
    last: Reader | None = None
    """Who gave it up last."""
    is_given_up: bool = True
    """That one said how far it came, and nothing kept the word from being heard."""
    heard: int = 0
    """The group's offset."""

    def wanted(self, start: int, stop: int) -> list[int]:
        """The offsets from *start* up to, not including, *stop* that the group is to get."""
        return [at for at in range(start, stop) if self.tags[at] in WANTED]


class FarNode:
    """The node as a member on another node sees it: its calls to the coordinator may get lost."""

    def __init__(self, broker: Broker) -> None:
        self.sessions: Any = LossyCalls(lambda: broker.sessions)
        self._broker = broker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker.node, name)


class Reader:
    """A member, and a handler that works on one batch of each queue after the other."""

    def __init__(self, queues: list[Queue], member: GroupConsumer, *calls: LossyCalls) -> None:
        self.member = member
        self.calls = calls
        """Those to the gateway and to the coordinator; none of a member beside the shards."""
        self.is_stopped = False
        self.skip: frozenset[int] = frozenset()
        self._queues = queues
        self._in_hand: dict[int, deque[ConsumedBatch]] = {}
        self._finished: dict[int, int] = {}
        member.on_revoke = self._give_up

    def excuse(self) -> None:
        """Others may repeat its messages: what it said last may not have been heard."""
        for queue in self._queues:
            if queue.owner is None and queue.last is self:
                queue.is_given_up = False

    def poll(self) -> None:
        """Take what there is."""
        try:
            batches = self.member.poll(0.0, 1000, self.skip)
        except ShardUnavailableError:
            return
        for batch in batches:
            assert self.member.is_leased
            assert batch.queue_id not in self.skip
            self._take(self._queues[batch.queue_id], batch)

    def _take(self, queue: Queue, batch: ConsumedBatch) -> None:
        queue_id, offsets = batch.queue_id, batch.queue_offsets.tolist()
        stop = batch.next_queue_offset
        due = queue.wanted(queue.position, stop)
        begin = queue.position
        if queue.owner is not self:
            before = queue.owner
            assert before is None or not before.member.is_leased, "two read a queue"
            if before is not None or not queue.is_given_up:
                due = queue.wanted(queue.heard, stop)[-len(offsets) or stop :]
                assert set(queue.wanted(queue.position, stop)) <= set(due), "a gap"
                begin = offsets[0] if offsets else stop
            queue.owner = self
            self._finished[queue_id] = begin
        assert offsets == due, (offsets, due, queue)
        queue.position = stop
        self._in_hand.setdefault(queue_id, deque()).append(batch)

    def finish(self, queue_id: int, count: int = 1) -> None:
        """The handler is through with the next batches of a queue."""
        waiting = self._in_hand.get(queue_id, deque())
        for _ in range(min(count, len(waiting))):
            batch = waiting.popleft()
            self._queues[queue_id].finished |= set(batch.queue_offsets.tolist())
            self._finished[queue_id] = batch.next_queue_offset
            self.member.commit("T", queue_id, batch.next_queue_offset)

    def _give_up(self, queues: frozenset[tuple[str, int]]) -> None:
        for _, queue_id in queues:
            self.finish(queue_id)  # what it was in the middle of
            self._in_hand.pop(queue_id, None)
            queue = self._queues[queue_id]
            if queue.owner is self:
                queue.owner, queue.last = None, self
                queue.is_given_up = self.member.is_leased
                if queue.is_given_up:
                    queue.position = self._finished[queue_id]


def _name(random: Random) -> UUID:
    return UUID(int=random.getrandbits(128))


class Remote(RuleBasedStateMachine):
    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.exits = ExitStack()
        for module, name, value in SMALL:
            self.exits.enter_context(mock.patch.object(module, name, value))
        names = Random(0)  # a seed repeats who gets which queue, too
        self.exits.enter_context(mock.patch("uuid.uuid4", partial(_name, names)))
        self.exits.enter_context(
            mock.patch("secrets.token_hex", lambda count: names.randbytes(count).hex())
        )
        self.directory = Path(tempfile.mkdtemp(dir=_MEMORY if _MEMORY.is_dir() else None))
        self.exits.callback(shutil.rmtree, self.directory)
        self.broker = Broker(self.directory)
        self.exits.callback(self.broker.close)
        self.broker.topics.ensure("T", QUEUES)
        self.broker._stepped._restless_until_ms = 2**62  # leases run all the time
        self.producer = self.broker.producer()
        self.exits.callback(self.producer.close)
        self.gateway = self.new_gateway()
        self.queues = [Queue() for _ in range(QUEUES)]
        self.readers: list[Reader] = []
        for _ in range(FAR_MIN):
            self.join_far()

    def new_gateway(self) -> FetchSessions:
        return FetchSessions(self.broker.node, lambda: self.broker.clock.steady() / 1000)

    def far(self) -> list[Reader]:
        return [reader for reader in self.readers if reader.calls]

    def dispensable(self) -> list[Reader]:
        """Those who may leave: the others go on."""
        is_enough = len(self.far()) > FAR_MIN
        return [reader for reader in self.readers if is_enough or not reader.calls]

    @rule(first=st.integers(0, 7), count=st.sampled_from([1, 6, 20]))
    def send(self, first: int, count: int) -> None:
        for queue_id, queue in enumerate(self.queues):
            tags = [TAGS[(first + queue_id + number) % len(TAGS)] for number in range(count)]
            messages = [Message("T", b"", tag) for tag in tags]
            self.producer.send_many("T", messages, queue_id=queue_id)
            queue.tags += tags

    @precondition(lambda self: len(self.far()) < FAR_MAX)
    @rule()
    def join_far(self) -> None:
        node: Any = FarNode(self.broker)
        as_sent = wired(lambda: self.gateway)
        fetches = LossyCalls(lambda: as_sent)
        clock_ms = self.broker.clock.steady
        streams: Any = FetchedStreams(fetches, "g", "T", lambda: clock_ms() / 1000)
        member = GroupConsumer(
            node, "g", "T", SUBSCRIPTION, streams=streams, has_heart=False, clock_ms=clock_ms
        )
        self.readers.append(Reader(self.queues, member, fetches, node.sessions))

    @precondition(lambda self: len(self.far()) == len(self.readers))
    @rule()
    def join_near(self) -> None:
        member = self.broker.consumer("g", "T", SUBSCRIPTION)
        self.readers.append(Reader(self.queues, member))

    @rule(reader=readers, rounds=st.sampled_from([1, 3]))
    def read(self, reader: Reader, rounds: int) -> None:
        for _ in range(rounds):
            self.receive(reader)
            if not reader.is_stopped:
                reader.poll()

    @rule(reader=readers, queue_id=queue_ids, count=st.sampled_from([1, 5]))
    def finish(self, reader: Reader, queue_id: int, count: int) -> None:
        if not reader.is_stopped:
            reader.finish(queue_id, count)

    @rule(reader=readers, skip=st.frozensets(queue_ids))
    def leave_queues_alone(self, reader: Reader, skip: frozenset[int]) -> None:
        reader.skip = skip

    @rule(seconds=st.sampled_from([1, 3, 9]))
    def pass_time(self, seconds: int) -> None:
        self.advance(seconds)

    @rule(seconds=st.sampled_from([1, 3, 6]), count=st.sampled_from([0, 1, 1000]))
    def work(self, seconds: int, count: int) -> None:
        """Everybody does what it can, and handlers are through with so many batches a second."""
        for _ in range(seconds):
            self.advance(1)
            self.let_all_read(count)

    @rule(reader=far_readers, call=fetch_names, lost=fetch_losses)
    def lose_fetches(self, reader: Reader, call: str, lost: list[Loss]) -> None:
        reader.calls[0].losses.setdefault(call, []).extend(lost)

    @rule(reader=far_readers)
    def late_fetches_arrive(self, reader: Reader) -> None:
        reader.calls[0].arrive_late()

    @rule(reader=far_readers, call=session_names, lost=session_losses)
    def lose_heartbeats(self, reader: Reader, call: str, lost: list[Loss]) -> None:
        reader.calls[1].losses.setdefault(call, []).extend(lost)

    @rule(reader=far_readers, to=st.integers(0, 1), calls=st.sampled_from([5, 30]))
    def be_cut_off(self, reader: Reader, to: int, calls: int) -> None:
        """Nothing of it arrives for a while, which may be longer than its lease."""
        reader.calls[to].cut_off_calls = calls

    @rule()
    def restart_gateway(self) -> None:
        """Costs nobody a message or a second delivery."""
        self.gateway.close()
        self.gateway = self.new_gateway()

    @rule(reader=far_readers)
    def stop_or_go_on(self, reader: Reader) -> None:
        reader.is_stopped = not reader.is_stopped

    @precondition(lambda self: self.dispensable())
    @rule(reader=st.runner().flatmap(lambda machine: st.sampled_from(machine.dispensable())))
    def leave(self, reader: Reader) -> None:
        try:
            reader.member.close()
        except ShardUnavailableError:
            reader.excuse()
        self.readers.remove(reader)

    @precondition(lambda self: len(self.far()) > FAR_MIN)
    @rule(reader=far_readers)
    def crash(self, reader: Reader) -> None:
        for queue in self.queues:
            if queue.owner is reader:
                queue.owner, queue.last = None, reader
        reader.excuse()
        self.readers.remove(reader)

    @invariant()
    def offsets_are_past_what_is_finished_only(self) -> None:
        type(self).steps += 1
        for queue_id, queue in enumerate(self.queues):
            heard = max(self.broker.node.state.registry.offsets.get("g", "T", queue_id), 0)
            assert queue.finished.issuperset(queue.wanted(0, heard)), "passed over"
            assert heard >= queue.heard
            queue.heard = heard

    @invariant()
    def a_queue_has_one_reader(self) -> None:
        leased = [reader for reader in self.readers if reader.member.is_leased]
        held = [sorted(reader.member.assignment()) for reader in leased]
        assert sum(map(len, held)) == len(set().union(*held)), held

    def receive(self, reader: Reader) -> None:
        """The fetching thread has its turn."""
        if isinstance(reader.member._streams, FetchedStreams) and not reader.is_stopped:
            reader.member._streams.step()

    def advance(self, seconds: int) -> None:
        """Let time pass, in which members beat and fetch, and idle sessions are dropped."""
        for _ in range(seconds):
            self.broker.clock.advance(seconds=1)
            for reader in self.far():
                if not reader.is_stopped:
                    reader.member.beat()
                if not reader.member.is_leased:
                    reader.excuse()
                self.receive(reader)
            if self.broker.clock.steady() // 1000 % SWEEP_S == 0:
                self.gateway.sweep()
            self.a_queue_has_one_reader()

    def let_all_read(self, count: int) -> None:
        for reader in self.readers:
            if not reader.is_stopped:
                reader.poll()
                for queue_id in range(QUEUES):
                    reader.finish(queue_id, count)

    def teardown(self) -> None:
        with self.exits:
            self.exits.callback(self.close_all)
            if sys.exception() is None:
                self.heal()

    def close_all(self) -> None:
        for reader in self.readers:
            for calls in reader.calls:
                calls.heal()
            reader.member.close()
        self.gateway.close()

    def heal(self) -> None:
        """Let all be well again: then all that matches is finished."""
        for reader in self.readers:
            reader.is_stopped, reader.skip = False, frozenset()
            for calls in reader.calls:
                calls.heal()
        ends = [len(queue.tags) for queue in self.queues]
        for _ in range(HEAL_S):
            self.advance(1)
            for _ in range(8):
                for reader in self.far():
                    self.receive(reader)
                self.let_all_read(1000)
            self.offsets_are_past_what_is_finished_only()
            if [queue.heard for queue in self.queues] == ends:
                return
        raise AssertionError(f"{[queue.heard for queue in self.queues]} of {ends} is finished")
