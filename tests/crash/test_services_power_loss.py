"""Power failures under the services of the shared process: what they note never outlives its logs."""

from __future__ import annotations

import gc
import random
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest
from support.harness.amounts import tenth
from support.nodes.stores import FakeClock
from support.sim.sim_disk import Bound, Outcome, PowerLostError, SimDisk, power_fails_after

from rocketray.base.config import StoreConfig
from rocketray.base.delay import TIMER_QUEUE_ID, after
from rocketray.base.system_topics import END_TOPIC, HALF_TOPIC, OP_TOPIC, TIMER_TOPIC
from rocketray.base.transaction import Decision, decision_message, half_message
from rocketray.broker.retries.deliveries import Place
from rocketray.message import ForwardedMessage, Message, StoredMessage
from rocketray.services.delays.schedule import Schedule
from rocketray.services.system.system_log import SystemLog
from rocketray.services.transactions.transaction_service import TransactionService
from rocketray.store.batches.forward import encode_forwarded
from rocketray.store.message_store import MessageStore
from rocketray.store.retention import RetentionPolicy
from rocketray.testing import Broker

CONFIG = StoreConfig(
    commit_log_segment_bytes=4096,
    consume_queue_segment_entries=20,
    index_hash_slots=3,
    index_entries=8,
)
BOUND = Bound(all_up_to=64, random_count=16)
QUICK = Bound(all_up_to=tenth(20), random_count=tenth(10))


class SimLog:
    """Queue 0 of some topics on a simulated disk."""

    def __init__(self, disk: SimDisk, clock: FakeClock, topics: Sequence[str]) -> None:
        self.disk = disk
        self.stores = {
            topic: MessageStore(Path("/") / topic, CONFIG, clock_ms=clock, file_system=disk)
            for topic in topics
        }

    def exists(self, topic: str) -> bool:
        return topic in self.stores

    def read(self, topic: str, queue_offset: int, max_count: int) -> list[StoredMessage]:
        reads = self.stores[topic].reads
        result = reads.get_message(topic, 0, queue_offset, max_count)
        return list(result.messages)

    def count(self, topic: str) -> int:
        reads = self.stores[topic].reads
        return reads.gaps(topic, 0).count(0, reads.max_queue_offset(topic, 0))

    def store(self, message: Message) -> int:
        offset = self.stores[message.topic].put([message], 0)[0].queue_offset
        self.disk.note()
        return offset

    def expire(self, needed_from: Mapping[str, int], policy: RetentionPolicy) -> None:
        """All files are young here."""

    def flush(self, *topics: str) -> None:
        for topic in topics:
            self.stores[topic].flush()


class Waiting:
    """The shard of delayed messages, as a schedule sees it, and what it delivered."""

    directory = Path("/") / TIMER_TOPIC

    def __init__(self, disk: SimDisk, clock: FakeClock) -> None:
        self.log = SimLog(disk, clock, [TIMER_TOPIC])
        self.clock = clock
        self.arrived: list[str] = []
        self.schedule = Schedule(self, file_system=disk)

    def waiting(self) -> Iterable[Place]:
        return [(TIMER_TOPIC, TIMER_QUEUE_ID)]

    def find(self, topic: str, queue_id: int) -> Waiting | None:
        return self if (topic, queue_id) == (TIMER_TOPIC, TIMER_QUEUE_ID) else None

    def minimum(self) -> int:
        return int(self.log.stores[TIMER_TOPIC].reads.min_queue_offset(TIMER_TOPIC, 0))

    def visible(self) -> int:
        return int(self.log.stores[TIMER_TOPIC].reads.max_queue_offset(TIMER_TOPIC, 0))

    segment_bytes = CONFIG.commit_log_segment_bytes

    def append(self, messages: Sequence[ForwardedMessage]) -> bool:
        self.log.stores[TIMER_TOPIC].append(TIMER_TOPIC, 0, encode_forwarded(messages))
        self.log.disk.note()
        self.log.flush(TIMER_TOPIC)
        return True

    def query(self, unique_key: str) -> Sequence[StoredMessage]:
        return self.log.stores[TIMER_TOPIC].reads.query(TIMER_TOPIC, unique_key)

    def bring_to_disk(self, physical_end: int) -> None:
        assert self.log.stores[TIMER_TOPIC].flush() >= physical_end

    def forward(self, topic: str, queue_id: int, messages: Sequence[ForwardedMessage]) -> None:
        self.arrived += [message.properties["UNIQ_KEY"] for message in messages]

    def is_stored(self, message: ForwardedMessage, queue_id: int) -> bool:
        raise NotImplementedError

    def sync(self, topic: str, queue_id: int) -> None:
        raise NotImplementedError

    def send(self, key: str, delay_ms: int = 60_000) -> tuple[Place, int, str]:
        message = Message("trade", key.encode(), unique_key=key)
        placed = after(message, delay_ms, 0, self.clock.now_ms)
        return (TIMER_TOPIC, TIMER_QUEUE_ID), self.log.store(placed.message), key

    def step(self) -> int:
        return self.schedule.step(self.clock.now_ms)


def outcomes(disk: SimDisk) -> Iterator[Outcome]:
    return disk.outcomes(BOUND, random.Random(1))


def test_a_recall_never_takes_a_message_that_comes_to_its_place_after_a_power_failure() -> None:
    disk, clock = SimDisk(), FakeClock()
    waiting = Waiting(disk, clock)
    sent = [waiting.send(f"first {number}") for number in range(3)]
    waiting.step()
    for one in sent[1:]:
        assert waiting.schedule.recall(*one)
    count, lengths = 0, set()
    for outcome in outcomes(disk):
        again = Waiting(outcome.disk(), clock)
        found = again.log.count(TIMER_TOPIC)
        again.step()
        before = len(again.schedule)  # 0 where all of the store is gone
        for number in range(3):
            again.send(f"second {number}")
        again.step()
        assert len(again.schedule) == before + 3, outcome.files.keys()
        assert before == min(found, 1)
        lengths.add(found)
        count += 1
    assert count > 1
    assert lengths == {3}, "what is recalled is on disk, and so is what was stored before it"


def test_what_is_rolled_waits_once_wherever_the_power_fails() -> None:
    keys = {"far 0", "far 5", "far 20"}
    states, cuts = 0, 0
    for survives in range(40):
        disk, clock = SimDisk(), FakeClock()
        waiting = Waiting(disk, clock)
        for number in range(40):  # some twelve a file
            key = f"far {number}"
            waiting.send(key if key in keys else f"near {number}", 10**9 if key in keys else 1)
        clock.now_ms += 1_000
        while len(waiting.arrived) < 37:
            waiting.step()
        disk.before = power_fails_after(survives)
        try:
            assert waiting.schedule.roll() == 3
            is_whole = True
        except PowerLostError:
            is_whole = False
        disk.before = lambda _name, _path: None
        for outcome in disk.outcomes(QUICK, random.Random(survives)):
            again = Waiting(outcome.disk(), FakeClock(clock.now_ms))
            again.step()
            assert len(again.schedule) == 3, "each waits once"
            again.clock.now_ms += 2 * 10**9
            again.step()
            assert set(again.arrived) == keys
            assert len(again.arrived) == 3
            states += 1
        cuts += not is_whole
        gc.collect()  # disks, and with them open files
        if is_whole:
            assert waiting.schedule.first_open()[TIMER_TOPIC, TIMER_QUEUE_ID] >= 40
            break
    assert cuts > 1
    assert states > cuts


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as node:
        node.topics.ensure("Trade", 1)
        yield node


def begin_and_commit(log: SimLog, key: str) -> None:
    half = log.store(half_message(Message("Trade", key.encode()), 0, "payments", key))
    log.store(decision_message(Decision(half, key, "payments", "commit")))


def test_transactions_that_come_after_a_power_failure_are_carried_out(
    broker: Broker, tmp_path: Path
) -> None:
    disk, clock = SimDisk(), FakeClock()
    topics = (HALF_TOPIC, END_TOPIC, OP_TOPIC)
    log = SimLog(disk, clock, topics)
    host = TransactionService(
        cast("SystemLog", log), lambda: broker.node, data=tmp_path / "first", clock_ms=clock
    )
    log.flush(*topics)  # the shards are there; what follows may be lost
    for number in range(3):
        begin_and_commit(log, f"first {number}")
        clock.now_ms += 10_000  # so that each step saves how far it is
        host.step(clock.now_ms)
    assert len(broker.stored("Trade")) == 3
    ends = set()
    for count, outcome in enumerate(outcomes(disk)):
        data = tmp_path / f"life {count}"
        shutil.copytree(tmp_path / "first", data)
        survived = SimLog(outcome.disk(), clock, topics)
        ends.add(len(survived.read(HALF_TOPIC, 0, 10)))
        again = TransactionService(
            cast("SystemLog", survived), lambda: broker.node, data=data, clock_ms=clock
        )
        begin_and_commit(survived, f"second {count}")
        again.step(clock.now_ms)
        assert broker.stored("Trade")[-1].body == f"second {count}".encode()
        again.close()
    assert ends == {3}, "progress is saved behind its logs"
    host.close()
    delivered = [one.body for one in broker.stored("Trade")]
    assert len(delivered) == len(set(delivered))
