"""A group against lists: whatever is sent, read, failed, crashed and restarted, all comes, in order.

After each step: what was delivered is what matches, from where the group stood, without a gap; a
queue has one reader; the offset is never past an unfinished message that matches; the lag is what
the lists say. At the end all is healed and everything that matches is finished.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import deque
from dataclasses import replace
from pathlib import Path

import hypothesis
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support.group_model import FILTERS, GroupModel, Reader, Sent

from rocketray.errors import ShardUnavailableError
from rocketray.message import Message
from rocketray.testing import Broker

QUEUES = 3
READERS_MAX = 3
STEPS_EACH = 100
STEPS = 10_000
SAVED_AFTER_MS = 5_000
SESSION_S = 10
_MEMORY = Path("/dev/shm")  # the node syncs its files; that is not what is tested here

queue_ids = st.integers(0, QUEUES - 1)
readers = st.runner().flatmap(lambda machine: st.sampled_from(machine.readers))


class Group(RuleBasedStateMachine):
    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(dir=_MEMORY if _MEMORY.is_dir() else None))
        self.broker = Broker(self.directory)
        self.broker.create_topic("T", QUEUES)
        self.producer = self.broker.producer()
        self.model = GroupModel(QUEUES, lambda queue_id: self.offsets()[queue_id])
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
        self.producer.send_messages("T", [_message(one) for one in new], queue_id=queue_id)
        sent += new

    @rule(queue_id=queue_ids)
    def send_in_vain(self, queue_id: int) -> None:
        self.broker.fail_appends(1, "T", queue_id)
        with pytest.raises(ShardUnavailableError):
            self.producer.send("T", b"0", queue_id=queue_id)

    @rule(queue_id=queue_ids)
    def send_and_lose_the_answer(self, queue_id: int) -> None:
        self.broker.lose_acks(1, "T", queue_id)
        one = Sent("C", 9)
        self.producer.send_messages("T", [_message(one)], queue_id=queue_id)
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
        self.broker.clock.advance(seconds=seconds)

    @rule()
    def settle(self) -> None:
        """Everybody does what it can, and hears of it: queues are where they belong."""
        for _ in range(4):
            self.broker.clock.advance(seconds=1)
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
        self.broker.crash(reader.member)
        self.readers.remove(reader)

    @precondition(lambda self: self.readers)
    @rule(reader=readers, seconds=st.sampled_from([2, 30]))
    def lose_heartbeats(self, reader: Reader, seconds: int) -> None:
        reader.is_excused |= seconds > SESSION_S
        self.broker.silence(reader.member, seconds=seconds)

    @precondition(lambda self: self.readers)
    @rule(number=st.integers(0, len(FILTERS) - 1))
    def change_filter(self, number: int) -> None:
        """All stop, and come again with another subscription: what was not finished is seen anew."""
        while self.readers:
            self.leave(self.readers[0])
        self.broker.clock.advance(seconds=SESSION_S + 1)  # members that crashed are given up
        self.check_offsets()
        self.model.filter = FILTERS[number]
        self.join(1)

    @rule()
    def restart_filter(self) -> None:
        self.broker.restart_filter()

    @rule(queue_id=queue_ids)
    def restart_shard(self, queue_id: int) -> None:
        self.broker.restart_shard("T", queue_id)

    @rule()
    def restart_coordinator(self) -> None:
        self.broker.restart_coordinator()
        self.restarted = True
        for queue in self.model.queues:
            if queue.owner is not None:  # what it committed may be forgotten
                queue.given_up_at = None
                queue.owner.is_excused = True
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
            self.model.check_committed(queue_id, committed, may_go_back=self.restarted)
        self.restarted = False
        self.heard.append((self.broker.clock(), offsets))

    @invariant()
    def one_reader_has_a_queue(self) -> None:
        held = [queue for one in self.readers for queue in one.member.assignment()]
        if not any(one.is_excused for one in self.readers):
            assert len(held) == len(set(held))

    @invariant()
    def the_lag_is_that_of_the_lists(self) -> None:
        queue_id = self.steps % QUEUES  # each in its turn: counting costs more than most rules
        for group in self.broker.groups():
            asked = replace(group, offsets={queue_id: group.offsets[queue_id]})
            assert self.broker.lag(asked)[queue_id].count == self.model.lag(queue_id)

    def offsets(self) -> list[int]:
        """What the coordinator has heard, in each queue."""
        found = self.broker.state.registry.offsets
        return [found.get("g", "T", queue_id) for queue_id in range(QUEUES)]

    def teardown(self) -> None:
        if sys.exception() is None:
            self.heal()
        self.producer.close()
        self.broker.close()
        shutil.rmtree(self.directory)

    def heal(self) -> None:
        """Let all be well again: then all that matches is finished."""
        self.broker.clock.advance(seconds=60)
        if not self.readers:
            self.join(1)
        for reader in self.readers:
            reader.is_paused = False
        for _ in range(5):
            self.broker.clock.advance(seconds=1)
            for reader in self.readers:
                reader.poll(1000)
                for delivery in reader.working():
                    reader.finish(delivery, 1000)
                reader.commit()
        self.broker.clock.advance(seconds=1)
        self.check_offsets()
        assert self.offsets() == [len(queue.sent) for queue in self.model.queues]


def _message(sent: Sent) -> Message:
    return Message("T", b"%d" % sent.number, sent.tag, properties={"number": str(sent.number)})


def run(steps: int, seed: int) -> None:
    """Do at least that many steps; *seed* is that of the first examples."""

    class Run(Group):
        steps = 0

    while Run.steps < steps:
        run_state_machine_as_test(
            hypothesis.seed(seed)(Run),
            settings=settings(
                max_examples=20,
                stateful_step_count=STEPS_EACH,
                deadline=None,
                database=None,  # a seed repeats a run, whatever ran before
                print_blob=True,
                suppress_health_check=list(hypothesis.HealthCheck),
            ),
        )
        seed += 1


@pytest.mark.timeout(600)
def test_ten_thousand_steps(request: pytest.FixtureRequest) -> None:
    run(STEPS, request.config.getoption("--seed"))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_more_steps(request: pytest.FixtureRequest) -> None:
    steps = int(os.environ.get("ROCKETRAY_TEST_STEPS", str(10 * STEPS)))
    run(steps, request.config.getoption("--seed"))
