"""The rules by which members on other nodes are tried: calls get lost, gateways die, queues move.

Some members read through the gateway, and one beside the shards. After each step: each queue was
handed out in order and without a gap; by nobody whose lease ran out, and never by two; a message
came twice only where its reader lost its lease or its gateway, and then only what nobody had
committed; the group's offset is never past an unfinished message. At the end all is finished.
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
from support.stepped_gateway import Calls, Gateway, Loss, SteppedStandIn

from rocketray.actors.remote import kept_batches, long_poll, proxy_member, remote_members
from rocketray.actors.remote.remote_consumer import Member, RemoteGroupConsumer
from rocketray.actors.topics.consumed_batch import ConsumedBatch
from rocketray.errors import ShardUnavailableError
from rocketray.filters.subscription import Subscription
from rocketray.message import Message
from rocketray.testing import Broker

__all__ = ["Remote"]

QUEUES = 3
FAR_MIN, FAR_MAX = 2, 3
TAGS: list[str | None] = ["a", "b", None, "a", "c", None, None]
WANTED = {"a", "b"}
SUBSCRIPTION = Subscription.tags("a || b")
RESTARTS_MAX = 5
SWEEP_S = 5
HEAL_S = 90
WAITING_MAX = 2
SMALL: list[tuple[Any, str, Any]] = [
    (remote_members, "ProxyMember", SteppedStandIn),
    (proxy_member, "FRAME_BYTES", 400),
    (kept_batches, "_MANY", 2),
    (long_poll, "_RETRY_S", 0),
    (long_poll, "_JOINING_S", 0),
]
"""What is smaller than in life, so that it matters."""
_MEMORY = Path("/dev/shm")  # the node syncs its files; that is not what is tested here

queue_ids = st.integers(0, QUEUES - 1)
readers = st.runner().flatmap(lambda machine: st.sampled_from(machine.readers))
far_readers = st.runner().flatmap(lambda machine: st.sampled_from(machine.far()))
call_names = st.sampled_from(["poll", "poll", "commit", "give_up", "join", "leave", "leave_alone"])
losses = st.lists(st.sampled_from(["request", "answer"]), min_size=1, max_size=3)


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


class Reader:
    """A member, and a handler that works on one batch of each queue after the other."""

    def __init__(self, queues: list[Queue], member: Member, calls: Calls | None) -> None:
        self.member = member
        self.calls = calls
        self.is_stopped = False
        self.skip: frozenset[int] = frozenset()
        self._queues = queues
        self._excused = "no name"
        self._in_hand: dict[int, deque[ConsumedBatch]] = {}
        self._finished: dict[int, int] = {}
        member.on_revoke = self._give_up

    @property
    def is_excused(self) -> bool:
        """Its lease ran out, or its gateway died, since it joined: others may repeat its messages."""
        member = self.member
        return isinstance(member, RemoteGroupConsumer) and self._excused == member._name

    def excuse(self) -> None:
        """Until it has joined again; what it said last may not have been heard."""
        if isinstance(self.member, RemoteGroupConsumer):
            self._excused = self.member._name
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
            assert before is None or before.is_excused, "two read a queue"
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
                queue.is_given_up = not self.is_excused
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
        self.broker.create_topic("T", QUEUES)
        self.broker._restless_until_ms = 2**62  # leases run all the time
        self.producer = self.broker.producer()
        self.exits.callback(self.producer.close)
        self.gateway = Gateway(self.broker)
        self.exits.callback(self.gateway.members.close)
        self.queues = [Queue() for _ in range(QUEUES)]
        self.readers: list[Reader] = []
        self.restarts = 0
        for _ in range(FAR_MIN):
            self.join_far()

    def far(self) -> list[Reader]:
        return [reader for reader in self.readers if reader.calls is not None]

    def dispensable(self) -> list[Reader]:
        """Those who may leave: the others go on."""
        is_enough = len(self.far()) > FAR_MIN
        return [reader for reader in self.readers if is_enough or reader.calls is None]

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
        calls = Calls(self.gateway)
        member = RemoteGroupConsumer(
            calls, "g", "T", SUBSCRIPTION, has_heart=False, clock_ms=self.broker.clock.steady
        )
        self.readers.append(Reader(self.queues, member, calls))

    @precondition(lambda self: len(self.far()) == len(self.readers))
    @rule()
    def join_near(self) -> None:
        member = self.broker.consumer("g", "T", SUBSCRIPTION)
        self.readers.append(Reader(self.queues, member, None))

    @rule(reader=readers, rounds=st.sampled_from([1, 3]))
    def read(self, reader: Reader, rounds: int) -> None:
        for _ in range(rounds):
            self.gateway.take_turns()
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

    @rule(reader=far_readers, call=call_names, lost=losses)
    def lose(self, reader: Reader, call: str, lost: list[Loss]) -> None:
        assert reader.calls is not None
        reader.calls.losses.setdefault(call, []).extend(lost)

    @rule(reader=far_readers, calls=st.sampled_from([5, 30]))
    def be_cut_off(self, reader: Reader, calls: int) -> None:
        """Nothing of it arrives for a while, which may be longer than its lease."""
        assert reader.calls is not None
        reader.calls.cut_off_calls = calls

    @precondition(lambda self: self.restarts < RESTARTS_MAX)
    @rule()
    def restart_gateway(self) -> None:
        self.restarts += 1
        for reader in self.far():
            reader.excuse()
        self.gateway.restart()

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
            heard = max(self.broker.state.registry.offsets.get("g", "T", queue_id), 0)
            assert queue.finished.issuperset(queue.wanted(0, heard)), "passed over"
            assert heard >= queue.heard
            queue.heard = heard

    @invariant()
    def a_queue_has_one_reader(self) -> None:
        leased = [reader for reader in self.readers if reader.member.is_leased]
        held = [sorted(reader.member.assignment()) for reader in leased]
        assert sum(map(len, held)) == len(set().union(*held)), held

    def receive(self, reader: Reader) -> None:
        """The long poll's thread has its turn, unless it waits for the polling thread."""
        member = reader.member
        if not isinstance(member, RemoteGroupConsumer) or reader.is_stopped:
            return
        if len(member._long_poll.waiting()) < WAITING_MAX:
            member.receive()

    def advance(self, seconds: int) -> None:
        """Let time pass, in which members beat, proxies read, and silent ones are forgotten."""
        for _ in range(seconds):
            self.broker.clock.advance(seconds=1)
            self.gateway.settle()
            for reader in self.far():
                if not reader.is_stopped:
                    assert isinstance(reader.member, RemoteGroupConsumer)
                    reader.member.beat()
                if not reader.member.is_leased:
                    reader.excuse()
            self.gateway.take_turns()
            for reader in self.far():
                self.receive(reader)
            if self.broker.clock.steady() // 1000 % SWEEP_S == 0:
                self.gateway.members.sweep()
            self.a_queue_has_one_reader()

    def let_all_read(self, count: int) -> None:
        for reader in self.readers:
            if not reader.is_stopped:
                reader.poll()
                for queue_id in range(QUEUES):
                    reader.finish(queue_id, count)

    def teardown(self) -> None:
        with self.exits:
            self.exits.callback(self.close_members)
            if sys.exception() is None:
                self.heal()

    def close_members(self) -> None:
        for reader in self.readers:
            if reader.calls is not None:
                reader.calls.heal()
            reader.member.close()

    def heal(self) -> None:
        """Let all be well again: then all that matches is finished."""
        for reader in self.readers:
            reader.is_stopped, reader.skip = False, frozenset()
            if reader.calls is not None:
                reader.calls.heal()
        ends = [len(queue.tags) for queue in self.queues]
        for _ in range(HEAL_S):
            self.advance(1)
            for _ in range(8):
                self.gateway.take_turns()
                for reader in self.far():
                    self.receive(reader)
                self.let_all_read(1000)
            self.offsets_are_past_what_is_finished_only()
            if [queue.heard for queue in self.queues] == ends:
                return
        raise AssertionError(f"{[queue.heard for queue in self.queues]} of {ends} is finished")
