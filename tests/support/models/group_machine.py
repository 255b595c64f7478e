"""The rules by which a group of readers is tried: send, poll, finish, leave, crash, move, and so on.

After each step: what was delivered is what matches, from where the group stood, without a gap; a
queue has one reader; the offset is never past an unfinished message that matches; the lag is what
the lists say. At the end all is healed and everything that matches is finished.
"""

from __future__ import annotations

import itertools
import shutil
import sys
import tempfile
from collections import deque
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from support.models.group_model import FILTERS, SESSION_S, SURE_SILENCE_MS, GroupModel, Reader, Sent

from rocketray.base.delay import DelayOptions
from rocketray.base.system_topics import SCHEDULE_TOPIC
from rocketray.errors import ShardUnavailableError
from rocketray.message import Message
from rocketray.messaging.api.node_client import lag_of
from rocketray.testing import Broker

QUEUES = 3
READERS_MAX = 3
SAVED_AFTER_MS = 5_000
FIRST_LATER = 1_000
LEVELS = {1: 1, 5: 2, 30: 4}  # the delay level of so many seconds
TICK_MS = 1_000
_MEMORY = Path("/dev/shm")  # the node syncs its files; that is not what is tested here

queue_ids = st.integers(0, QUEUES - 1)
readers = st.runner().flatmap(lambda machine: st.sampled_from(machine.readers))


class Group(RuleBasedStateMachine):
    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.exits = ExitStack()
        self.directory = Path(tempfile.mkdtemp(dir=_MEMORY if _MEMORY.is_dir() else None))
        self.exits.callback(shutil.rmtree, self.directory)
        self.broker = Broker(self.directory)
        self.exits.callback(self.broker.close)
        self.broker.topics.ensure("T", QUEUES)
        self.producer = self.broker.producer()
        self.exits.callback(self.producer.close)
        self.model = GroupModel(QUEUES, lambda at: self.offsets()[at], self.is_moving)
        self.later: dict[int, tuple[int, int]] = {}
        self.numbers = itertools.count(FIRST_LATER)
        self.readers: list[Reader] = []
        self.names = 0
        self.restarted = False
        self.heard: deque[tuple[int, list[int]]] = deque()

    @initialize(number=st.integers(0, len(FILTERS) - 1))
    def begin(self, number: int) -> None:
        self.model.filter = FILTERS[number]

    @rule(queue_id=queue_ids, tags=st.lists(st.sampled_from([None, "Aa", "BB", "C"]), max_size=9))
    def send(self, queue_id: int, tags: list[str | None]) -> None:
        sent = self.model.queues[queue_id].sent
        new = [Sent(tag, (len(sent) + number) % 11) for number, tag in enumerate(tags)]
        self.producer.send_many("T", [_message(one) for one in new], queue_id=queue_id)
        sent += new

    @rule(queue_id=queue_ids)
    def send_in_vain(self, queue_id: int) -> None:
        self.broker.faults.fail_appends(1, "T", queue_id)
        with pytest.raises(ShardUnavailableError):
            self.producer.send("T", b"0", queue_id=queue_id)

    @rule(queue_id=queue_ids)
    def send_and_lose_the_answer(self, queue_id: int) -> None:
        self.broker.faults.lose_acks(1, "T", queue_id)
        one = Sent("C", 9)
        self.producer.send_many("T", [_message(one)], queue_id=queue_id)
        self.model.queues[queue_id].sent.append(one)

    @precondition(lambda self: len(self.readers) < READERS_MAX)
    @rule(handlers=st.integers(1, 3))
    def join(self, handlers: int) -> None:
        self.names += 1
        name = f"m{self.names}"
        subscription = self.model.filter.subscription
        member = self.broker.consumer("g", "T", subscription, client_id=name)
        self.readers.append(Reader(self.model, name, member, handlers))

    @precondition(lambda self: self.readers)
    @rule(reader=readers, max_messages=st.integers(1, 20))
    def poll(self, reader: Reader, max_messages: int) -> None:
        if not reader.is_paused:
            reader.poll(max_messages)

    @precondition(lambda self: any(reader.working() for reader in self.readers))
    @rule(data=st.data(), count=st.integers(1, 20))
    def finish(self, data: st.DataObject, count: int) -> None:
        """A handler goes on; those that do not are slow, or fail and get the message again."""
        working = [(reader, one) for reader in self.readers for one in reader.working()]
        reader, delivery = data.draw(st.sampled_from(working))
        reader.finish(delivery, count)

    @precondition(lambda self: self.readers)
    @rule(reader=readers)
    def commit(self, reader: Reader) -> None:
        reader.commit()

    @rule(seconds=st.sampled_from([0.1, 1, 1, 2, 3, 6, SESSION_S + 1]))
    def pass_time(self, seconds: float) -> None:
        self.advance(seconds)

    @rule(queue_id=queue_ids, seconds=st.sampled_from([1, 5, 30]), by_level=st.booleans())
    def send_later(self, queue_id: int, seconds: int, *, by_level: bool) -> None:
        """The message is delivered in time, once, whatever starts again meanwhile."""
        number = next(self.numbers)
        delay: DelayOptions = {"delay_level": LEVELS[seconds]} if by_level else {"delay": seconds}
        properties = {"number": str(number)}
        self.producer.send(
            "T", b"%d" % number, tags="C", properties=properties, queue_id=queue_id, **delay
        )
        self.later[number] = queue_id, self.broker.clock() + 1000 * seconds

    @rule()
    def restart_host(self) -> None:
        if SCHEDULE_TOPIC in self.broker.topics.all():
            self.broker.faults.restart_shard(SCHEDULE_TOPIC)

    @precondition(lambda self: any(queue.committed >= 0 for queue in self.model.queues))
    @rule(queue_id=queue_ids, data=st.data())
    def move(self, queue_id: int, data: st.DataObject) -> None:
        """Somebody sets the group's offset, back or forward, while its members live."""
        queue = self.model.queues[queue_id]
        queue.moves_to = queue.ordered = data.draw(st.integers(0, len(queue.sent)))
        self.broker.groups.move_offsets("g", "T", {queue_id: queue.moves_to})

    @rule()
    def settle(self) -> None:
        """Everybody does what it can, and hears of it: queues are where they belong."""
        for _ in range(4):
            self.advance(1)
            for reader in self.readers:
                if not reader.is_paused:
                    reader.poll(100)

    @precondition(lambda self: self.readers)
    @rule(reader=readers)
    def pause_or_resume(self, reader: Reader) -> None:
        reader.is_paused = not reader.is_paused

    @precondition(lambda self: self.readers)
    @rule(reader=readers)
    def leave(self, reader: Reader) -> None:
        reader.close()
        self.readers.remove(reader)

    @precondition(lambda self: self.readers)
    @rule(reader=readers)
    def crash(self, reader: Reader) -> None:
        reader.is_excused = True
        self.broker.faults.crash(reader.member)
        self.readers.remove(reader)

    @precondition(lambda self: self.readers)
    @rule(reader=readers, seconds=st.sampled_from([2, 30]))
    def lose_heartbeats(self, reader: Reader, seconds: int) -> None:
        since_ms = reader.silence(self.broker.clock)
        self.broker.faults.silence(reader.member, seconds=seconds)
        reader.is_excused |= reader.member.silent_until_ms - since_ms > SURE_SILENCE_MS

    @precondition(lambda self: self.readers)
    @rule(reader=readers)
    def poll_while_cut_off(self, reader: Reader) -> None:
        """It does not know that others may have its queues, but for its lease."""
        self.lose_heartbeats(reader, 3 * SESSION_S)
        self.advance(SESSION_S + 1)
        for queue_id in range(QUEUES):
            self.send(queue_id, ["Aa", "C"])
        self.poll(reader, 20)

    @precondition(lambda self: self.readers)
    @rule(number=st.integers(0, len(FILTERS) - 1))
    def change_filter(self, number: int) -> None:
        """All stop, and come again with another subscription: what was not finished is seen anew."""
        while self.readers:
            self.leave(self.readers[0])
        self.advance(SESSION_S + 1)  # members that crashed are given up
        self.check_offsets()
        self.model.filter = FILTERS[number]
        self.join(1)

    @rule()
    def restart_filter(self) -> None:
        self.broker.faults.restart_filter()

    @rule(queue_id=queue_ids)
    def restart_shard(self, queue_id: int) -> None:
        self.broker.faults.restart_shard("T", queue_id)

    @rule()
    def restart_coordinator(self) -> None:
        self.broker.faults.restart_coordinator()
        self.restarted = True
        waiting = self.broker.node.state.registry.moves._waiting.get(("g", "T"), {})
        for queue_id, queue in enumerate(self.model.queues):
            is_waiting = queue_id in waiting  # again, where it was done and that was not saved
            assert is_waiting or queue.moves_to is None, "a move that waits outlives a restart"
            assert not is_waiting or waiting[queue_id].offset == queue.ordered
            queue.moves_to = queue.ordered if is_waiting else None
        now_ms = self.broker.clock()
        saved = [offsets for ms, offsets in self.heard if ms < now_ms - SAVED_AFTER_MS]
        for before, after in zip(saved[-1] if saved else [], self.offsets(), strict=False):
            assert after >= before, "what was heard before the last save is not forgotten"
        self.heard.clear()

    @invariant()
    def check_offsets(self) -> None:
        type(self).steps += 1
        offsets = self.offsets()
        for queue_id, committed in enumerate(offsets):
            self.model.take_move(queue_id)
            self.model.check_committed(queue_id, committed, may_go_back=self.restarted)
        if self.model.has_moved:
            self.heard.clear()
        self.restarted = self.model.has_moved = False
        self.heard.append((self.broker.clock(), offsets))

    @invariant()
    def one_reader_has_a_queue(self) -> None:
        held = [queue for one in self.readers for queue in one.member.assignment()]
        if not any(one.is_excused for one in self.readers):
            assert len(held) == len(set(held))

    @invariant()
    def the_lag_is_that_of_the_lists(self) -> None:
        queue_id = self.steps % QUEUES  # each in its turn: counting costs more than most rules
        for group in self.broker.groups.all():
            asked = replace(group, offsets={queue_id: group.offsets[queue_id]})
            assert lag_of(self.broker.node, asked)[queue_id].count == self.model.lag(queue_id)

    def advance(self, seconds: float) -> None:
        """Let time pass, and see which delayed messages came."""
        self.broker.clock.advance(seconds=seconds)
        now_ms = self.broker.clock()
        for queue_id, queue in enumerate(self.model.queues):
            while (found := self.broker.messages.at("T", queue_id, len(queue.sent))) is not None:
                number = int(found.body)
                where, due_ms = self.later.pop(number)
                assert where == queue_id
                assert due_ms <= found.store_timestamp_ms
                queue.sent.append(Sent("C", number))
        assert [due_ms for _, due_ms in self.later.values() if due_ms < now_ms - TICK_MS] == []

    def is_moving(self, queue_id: int) -> bool:
        """Whether a move waits for the queue's owner."""
        return queue_id in self.broker.node.state.registry.moves.waiting("g", "T")

    def offsets(self) -> list[int]:
        """What the coordinator has heard, in each queue."""
        found = self.broker.node.state.registry.offsets
        return [found.get("g", "T", queue_id) for queue_id in range(QUEUES)]

    def teardown(self) -> None:
        with self.exits:
            if sys.exception() is None:
                self.heal()

    def heal(self) -> None:
        """Let all be well again: then all that matches is finished."""
        self.advance(60)
        assert not self.later, "delayed messages that were never delivered"
        if not self.readers:
            self.join(1)
        for reader in self.readers:
            reader.is_paused = False
        for _ in range(5):
            self.advance(1)
            for reader in self.readers:
                reader.poll(1000)
                for delivery in reader.working():
                    reader.finish(delivery, 1000)
                reader.commit()
        self.advance(1)
        self.check_offsets()
        assert self.offsets() == [len(queue.sent) for queue in self.model.queues]


def _message(sent: Sent) -> Message:
    return Message("T", b"%d" % sent.number, sent.tag, properties={"number": str(sent.number)})
