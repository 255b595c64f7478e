"""A queue offset is one message's for ever, whatever a power failure takes."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import pytest
from support.harness.amounts import tenth
from support.nodes.stores import FakeClock, kill, message, read_all
from support.sim.sim_disk import Bound, PowerLostError, SimDisk, power_fails_after

from rocketray.base.config import StoreConfig
from rocketray.errors import StoreError
from rocketray.store.files.checkpoint import read_checkpoint
from rocketray.store.files.failed_disk import has_failed_disk
from rocketray.store.files.store_settings import Salvage
from rocketray.store.message_store import MessageStore
from rocketray.store.retention import DiskUse, RetentionPolicy

pytestmark = pytest.mark.proves(
    "durability",
    "No queue offset is given twice, whatever a power failure takes; a group gets each "
    "message that is stored afterwards",
)

STORE = Path("/store")
CONFIG = StoreConfig(
    commit_log_segment_bytes=4096,
    consume_queue_segment_entries=4,
    index_hash_slots=3,
    index_entries=8,
)
BOUND = Bound(all_up_to=0, random_count=1)
LIVES = tenth(30)
STEPS = 40
OUTCOMES = 20  # of them one is taken
QUEUES = (0, 1)
Place = tuple[int, int]


@dataclass
class History:
    """What a store was told and answered over many lives."""

    chance: random.Random
    disk: SimDisk = field(default_factory=SimDisk)
    clock: FakeClock = field(default_factory=FakeClock)
    given: dict[Place, bytes] = field(default_factory=dict)
    held: dict[Place, bytes] = field(default_factory=dict)
    safe: dict[Place, bytes] = field(default_factory=dict)
    removed: int = 0
    number: int = 0
    rests: int = 0

    def open(self, salvage: Salvage = Salvage.NOTHING) -> MessageStore:
        return MessageStore(
            STORE, CONFIG, clock_ms=self.clock, file_system=self.disk, salvage=salvage
        )

    def live(self, store: MessageStore) -> None:
        """Put messages, flush now and then, and let the system write what it likes."""
        for _ in range(self.chance.randrange(STEPS)):
            self.clock.now_ms += self.chance.choice([0, 1, 5_000])
            act = self.chance.randrange(10)
            if act < 6:
                self.put(store, self.chance.randrange(1, 12))
            elif act < 8:
                self.flush(store)
            elif act == 8:
                store.prepare_next()
            else:
                self.rest(store)
            self.disk.note()

    def put(self, store: MessageStore, count: int) -> None:
        queue = self.chance.choice(QUEUES)
        messages = [message(self.number + at) for at in range(count)]
        self.number += count
        for one, placed in zip(messages, store.put(messages, queue), strict=True):
            place = (queue, int(placed.queue_offset))
            assert place not in self.given, f"{place} was given to another message before"
            self.given[place] = self.held[place] = bytes(one.body)

    def rest(self, store: MessageStore) -> None:
        """Flush, and leave the store at rest; so it may be killed, and written again, too."""
        store.flush(everything=True)
        self.safe = dict(self.held)
        self.rests += store.rest()

    def flush(self, store: MessageStore) -> None:
        store.flush(everything=self.chance.random() < 0.3)
        self.safe = dict(self.held)

    def end(self, store: MessageStore) -> None:
        """End this life: by a stop, a kill, a power failure, or a sync that fails before one."""
        how = self.chance.choice(["stop", "kill", "power", "power", "power", "disk"])
        if how == "stop":
            store.close()
            self.safe = dict(self.held)
            return
        if how == "disk":
            self.fail_a_sync(store)
        kill(store)
        if how in ("power", "disk"):
            outcomes = self.disk.outcomes(BOUND, self.chance)
            *_, outcome = islice(outcomes, self.chance.randrange(1, OUTCOMES))
            self.disk = outcome.disk()

    def fail_a_sync(self, store: MessageStore) -> None:
        def fail(name: str, path: Path) -> None:
            if name == "sync" and "log" in str(path):
                raise OSError(5, "the disk is broken", str(path))

        self.put(store, 1)
        self.disk.before = fail
        with pytest.raises(StoreError):
            store.flush()
        self.disk.before = lambda _name, _path: None

    def reopened(self) -> MessageStore:
        failed = has_failed_disk(self.disk, STORE)
        return self.open(Salvage.ALL if failed else Salvage.NOTHING)

    def check(self, store: MessageStore) -> None:
        """Check that what is there has its offset, and that nothing safe is missing."""
        assert store.verify().problems == ()
        there = {
            (queue, int(one.queue_offset)): bytes(one.body)
            for queue in QUEUES
            for one in read_all(store, "Trade", queue)
        }
        assert there.items() <= self.given.items()
        begins = {queue: store.reads.min_queue_offset("Trade", queue) for queue in QUEUES}
        for place, body in self.safe.items():
            assert place[1] < begins[place[0]] or there.get(place) == body, place
        store.flush(everything=True)
        self.held, self.safe = there, dict(there)

    def expire(self, store: MessageStore) -> None:
        """Remove the oldest files of the log."""
        keep = self.chance.choice([1, 20_000])
        self.removed += len(store.expire(RetentionPolicy(max_bytes=keep), DiskUse(0, 1 << 40)))


def run(seed: int) -> History:
    history = History(random.Random(seed))
    for _ in range(12):
        store = history.reopened()
        history.check(store)
        history.live(store)
        if history.chance.random() < 0.1:
            history.expire(store)
            history.check(store)
        history.end(store)
    kill(history.reopened())
    return history


def test_no_queue_offset_is_given_twice(seed: int) -> None:
    removed = given = number = 0
    while number < LIVES or not removed:  # few lives may remove no file
        assert number < 10 * LIVES
        history = run(seed * 1000 + number)
        removed += history.removed
        given += len(history.given)
        number += 1
    assert given > number * 100


def test_a_queue_that_loses_all_its_messages_each_time_gives_no_offset_twice() -> None:
    """Nothing of it is on disk, not even the name of the file that begins behind the gap."""
    disk, given = SimDisk(), set[int]()
    for life in range(4):
        store = MessageStore(
            STORE, replace(CONFIG, consume_queue_segment_entries=40), clock_ms=FakeClock(),
            file_system=disk,
        )  # fmt: skip
        (placed,) = store.put([message(life)], 0)
        assert placed.queue_offset not in given
        given.add(placed.queue_offset)
        kill(store)
        disk = next(disk.outcomes(BOUND, random.Random(0))).disk()  # of all, the least


@pytest.mark.parametrize("count", [0, 6])
def test_files_without_content_have_their_size_after_a_clean_stop(count: int) -> None:
    """No flush reaches a file that was prepared, or one that a power failure left empty."""
    disk = SimDisk()
    for life in range(3):
        store = MessageStore(STORE, CONFIG, clock_ms=FakeClock(), file_system=disk)
        if life == 0:
            store.put([message(number) for number in range(count or 1)], 0)
            store.prepare_next()
            disk.sync(STORE / "commitlog")  # the name is there, and perhaps nothing else
        if life or count:
            store.close()
        else:
            kill(store)
        disk = next(disk.outcomes(BOUND, random.Random(0))).disk()  # of all, the least
    store = MessageStore(STORE, CONFIG, clock_ms=FakeClock(), file_system=disk)
    assert store.recovery is not None
    assert store.recovery.was_clean
    assert len(read_all(store, "Trade", 0)) == count
    kill(store)


@pytest.mark.proves(
    "durability",
    "What is flushed stays, wherever a process that created the directories was killed before",
)
def test_what_is_flushed_stays_wherever_the_one_before_was_killed() -> None:
    """A directory that a killed process made is there, and its name is perhaps not on disk."""
    kills = 0
    while True:
        disk = SimDisk()
        disk.before = power_fails_after(kills)
        try:
            store = MessageStore(STORE, CONFIG, clock_ms=FakeClock(), file_system=disk)
            store.put([message(0)], 0)
        except PowerLostError:
            kills += 1
        else:
            break
        disk.before = lambda _name, _path: None
        disk.locks.clear()
        store = MessageStore(STORE, CONFIG, clock_ms=FakeClock(), file_system=disk)
        (placed,) = store.put([message(1)], 0)
        store.flush()
        kill(store)
        disk = next(disk.outcomes(BOUND, random.Random(0))).disk()  # of all, the least
        store = MessageStore(STORE, CONFIG, clock_ms=FakeClock(), file_system=disk)
        assert placed.queue_offset in [one.queue_offset for one in read_all(store, "Trade", 0)]
        kill(store)
    assert kills > 20


def test_no_offset_is_given_twice_wherever_the_one_before_was_killed() -> None:
    """Nothing is flushed, so a queue whose directory is lost does not know what it gave."""
    kills = 0
    while True:
        disk = SimDisk()
        disk.before = power_fails_after(kills)
        try:
            store = MessageStore(STORE, CONFIG, clock_ms=FakeClock(), file_system=disk)
            assert store.rest()
            store.put([message(0)], 0)
            store.flush(everything=True)
            assert store.rest()
            store.put([message(0)], 1)
        except PowerLostError:
            kills += 1
        else:
            break
        disk.before = lambda _name, _path: None
        disk.locks.clear()
        store = MessageStore(STORE, CONFIG, clock_ms=FakeClock(), file_system=disk)
        (placed,) = store.put([message(1)], 1)
        kill(store)
        disk = next(disk.outcomes(BOUND, random.Random(0))).disk()  # of all, the least
        store = MessageStore(STORE, CONFIG, clock_ms=FakeClock(), file_system=disk)
        (again,) = store.put([message(2)], 1)
        assert again.queue_offset > placed.queue_offset, kills
        kill(store)
    assert kills > 10


@pytest.mark.parametrize("short", [1, 2, 3])
def test_new_queue_files_whose_sizes_were_lost_cost_no_older_message(
    tmp_path: Path, short: int
) -> None:
    """The part of the log that is read again has no message of that queue."""
    clock = FakeClock()
    store = MessageStore(tmp_path, CONFIG, clock_ms=clock)
    stored = [store.put([message(number)], 0)[0] for number in range(12)]
    clock.now_ms += 60_000
    for number in range(100):
        store.put([message(100 + number)], 1)
    store.flush(everything=True)
    kill(store)
    for number in range(short):
        path = tmp_path / "consumequeue/Trade/0" / f"{20 * (len(stored) + 4 * number):020d}"
        path.write_bytes(b"")
    with MessageStore(tmp_path, CONFIG, clock_ms=clock) as store:
        assert store.verify().problems == ()
        assert len(read_all(store, "Trade", 0)) == len(stored)
        (placed,) = store.put([message(12)], 0)
        assert placed.queue_offset == max(12, 12 + 4 * short if short > 1 else 0)


def test_no_more_messages_are_unflushed_than_the_checkpoint_says(tmp_path: Path) -> None:
    config = StoreConfig(consume_queue_segment_entries=10_000)
    with MessageStore(tmp_path, config, clock_ms=FakeClock()) as store:
        for count in (1, 1_000, 30, 5_000, 100):
            store.put([message(number) for number in range(count)], 0)
            allowed = read_checkpoint(tmp_path / "checkpoint").unflushed_max
            assert store.reads.max_queue_offset("Trade", 0) <= allowed
        assert allowed < 20_000


def test_a_gap_takes_no_space_on_disk(tmp_path: Path) -> None:
    config = StoreConfig(consume_queue_segment_entries=10_000)
    with MessageStore(tmp_path, config, clock_ms=FakeClock()) as store:
        store.put([message(0)], 0)
        store.skip_to("Trade", 0, 305_000)
        store.put([message(1)], 0)
        store.flush(everything=True)
        queue = tmp_path / "consumequeue" / "Trade" / "0"
        first, *skipped, last = sorted(queue.iterdir())
        assert (int(first.name), int(last.name)) == (0, 20 * 300_000)
        assert len(skipped) == 29
        assert sum(path.stat().st_blocks for path in skipped) * 512 <= 64 * 1024
        assert [one.queue_offset for one in read_all(store, "Trade", 0)] == [0, 305_000]
