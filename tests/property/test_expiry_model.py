"""A store that forgets against a list: whatever is put, expired, reopened or killed, the rest stays.

The model keeps every message for ever and says, by its place in the log, whether it should be gone.
It knows the true ages, all that the clocks ever read, and what the store should make of it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.harness.machines import run_histories
from support.nodes.stores import SMALL, kill, message, read_all

from rocketray.errors import OffsetOutOfRangeError
from rocketray.store.age_clock import AgeClock
from rocketray.store.message_store import MessageStore
from rocketray.store.reading.pull import GetMessageStatus
from rocketray.store.retention import DiskUse, RetentionPolicy
from rocketray.testing import Clock

pytestmark = pytest.mark.proves(
    "retention",
    "Nothing is taken for older than it is, whatever the clock is set to, and look-ups by "
    "time are right",
)

QUEUES = [("Trade", 0), ("Trade", 1), ("%RETRY%group", 0)]
SEGMENT = SMALL.commit_log_segment_bytes
DISK = DiskUse(0, 1 << 40)
SETTLING_MS = 1000


class Put(NamedTuple):
    queue: tuple[str, int]
    queue_offset: int
    physical_offset: int
    stored_ms: int
    number: int
    born_ms: int  # by the steady clock


class ForgettingStore(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.clock = Clock()
        self.last_ms = 0  # the last store time
        self.puts: list[Put] = []
        self.counts = dict.fromkeys(QUEUES, 0)
        self.log_min = 0

    @initialize(with_ext=st.booleans())
    def begin(self, with_ext: bool) -> None:
        self.config = SMALL
        if with_ext:
            self.config = replace(
                SMALL, consume_queue_ext=True, consume_queue_ext_segment_bytes=1024
            )
        self.open()

    def open(self) -> None:
        self.process = AgeClock(self.clock, self.clock.elapsed, settling_ms=SETTLING_MS)
        self.begun_ms = self.clock.elapsed()
        self.seen_ms: dict[int, int] = {}  # of the full files, in this process
        self.read: list[int] = []
        self.read_clock()
        self.store = MessageStore(self.directory, self.config, clock_ms=self.process)

    def read_clock(self) -> None:
        """Have the process read its clock: it knows only of steps that it could see."""
        self.read.append(self.process() - self.clock.elapsed())

    @rule(
        seconds=st.sampled_from([-100_000, -7, 7, 100_000]),
        age=st.sampled_from([None, 1, 4000, 16_000]),
        is_for_a_moment=st.booleans(),
    )
    def set_clock(self, seconds: int, age: int | None, is_for_a_moment: bool) -> None:
        self.clock.jump(seconds=seconds)
        self.read_clock()
        if age is not None:
            self.expire_by_time(age, None)
        if is_for_a_moment:
            self.clock.jump(seconds=-seconds)
            self.read_clock()

    @rule(
        queue=st.sampled_from(QUEUES),
        batches=st.integers(1, 8),
        size=st.sampled_from([0, 200]),
        pause_ms=st.sampled_from([0, 1, 1000, 5000]),
    )
    def put(self, queue: tuple[str, int], batches: int, size: int, pause_ms: int) -> None:
        for _ in range(batches):
            numbers = range(len(self.puts), len(self.puts) + 9)
            self.last_ms = max(self.clock(), self.last_ms)
            born_ms = self.clock.elapsed()
            placed = self.store.put([message(n, queue[0], size) for n in numbers], queue[1])
            for number, one in zip(numbers, placed, strict=True):
                assert one.queue_offset == self.counts[queue]  # goes on, also in an empty queue
                self.counts[queue] += 1
                self.puts.append(
                    Put(
                        queue,
                        one.queue_offset,
                        one.physical_offset,
                        self.last_ms,
                        number,
                        born_ms,
                    )
                )
            self.clock.advance(milliseconds=pause_ms)

    @rule(age=st.sampled_from([1, 4000, 16_000]), needed=st.none() | st.integers(0, 200))
    def expire_by_time(self, age: int, needed: int | None) -> None:
        holds = {} if needed is None else {QUEUES[0]: needed}
        self.see_files()
        self.store.expire(RetentionPolicy(max_age_ms=age), DISK, needed=holds)
        held = self.held_from(needed)
        for start in range(self.log_min, self.newest_file(), SEGMENT):
            limit = age if held >= start + SEGMENT else 2 * age
            if self.age_ms(start) < limit:
                break
            self.log_min = start + SEGMENT

    @rule(size=st.sampled_from([1, SEGMENT, 3 * SEGMENT]))
    def expire_by_size(self, size: int) -> None:
        self.see_files()
        self.store.expire(RetentionPolicy(max_bytes=size), DISK)
        end = self.store.reads.max_physical_offset
        for start in range(self.log_min, self.newest_file(), SEGMENT):
            if end - (start + SEGMENT) >= size:
                self.log_min = start + SEGMENT

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.open()
        assert self.store.recovery is not None
        assert self.store.recovery.was_clean
        assert self.store.recovery.records_read == 0

    @rule()
    def kill_and_reopen(self) -> None:
        kill(self.store)
        self.open()
        assert self.store.recovery is not None
        assert not self.store.recovery.was_clean
        assert self.store.recovery.bytes_kept_aside == 0

    @precondition(lambda self: self.puts)
    @rule(data=st.data())
    def look_up(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.puts) - 1))
        put = self.puts[number]
        found = self.store.reads.query(put.queue[0], f"key-{number}")
        if put.physical_offset >= self.log_min:
            assert [one.physical_offset for one in found] == [put.physical_offset]
            assert self.store.reads.view(put.physical_offset) == found[0]
        else:
            assert found == []
            with pytest.raises(OffsetOutOfRangeError):
                self.store.reads.view(put.physical_offset)

    @rule(queue=st.sampled_from(QUEUES), back_ms=st.integers(-2, 20_000))
    def find_by_time(self, queue: tuple[str, int], back_ms: int) -> None:
        at = self.last_ms - back_ms
        left = self.left(queue)
        first = self.counts[queue] - len(left)
        lower = self.store.reads.queue_offset_by_time(*queue, at)
        assert lower == first + sum(put.stored_ms < at for put in left)

    @rule(queue=st.sampled_from(QUEUES))
    def fall_behind(self, queue: tuple[str, int]) -> None:
        minimum = self.counts[queue] - len(self.left(queue))
        result = self.store.reads.get_message(*queue, minimum - 1, 5)
        if self.counts[queue]:
            assert result.status is GetMessageStatus.OFFSET_TOO_SMALL
            assert result.next_queue_offset == minimum == result.min_queue_offset

    @invariant()
    def holds_what_is_left(self) -> None:
        if not hasattr(self, "store"):
            return
        assert self.store.reads.min_physical_offset == self.log_min
        for queue in QUEUES:
            left = self.left(queue)
            assert self.store.reads.max_queue_offset(*queue) == self.counts[queue]
            assert self.store.reads.min_queue_offset(*queue) == self.counts[queue] - len(left)
            assert [
                (one.queue_offset, int(one.body[:8])) for one in read_all(self.store, *queue)
            ] == [(put.queue_offset, put.number) for put in left]
        scanned = [one.physical_offset for one in self.store.reads.scan()]
        assert scanned == [
            put.physical_offset for put in self.puts if put.physical_offset >= self.log_min
        ]
        self.check_files()

    def check_files(self) -> None:
        """No file is kept that leads to nothing, but those that say where a queue goes on."""
        names = [int(path.name) for path in (self.directory / "commitlog").glob("0*")]
        assert min(names, default=0) == self.log_min
        entry_bytes = SMALL.consume_queue_segment_entries * 20
        for topic, queue_id in QUEUES:
            files = (self.directory / "consumequeue" / topic / str(queue_id)).glob("0*")
            count = self.counts[topic, queue_id]
            first = min(count - len(self.left((topic, queue_id))), max(count - 1, 0)) * 20
            expected = first - first % entry_bytes
            kept = min((int(path.name) for path in files), default=0)
            assert kept in (expected, expected - entry_bytes)  # the last one of an earlier round

    def left(self, queue: tuple[str, int]) -> list[Put]:
        return [
            put for put in self.puts if put.queue == queue and put.physical_offset >= self.log_min
        ]

    def see_files(self) -> None:
        for start in range(self.log_min, self.newest_file(), SEGMENT):
            self.seen_ms.setdefault(start, self.clock.elapsed())

    def age_ms(self, start: int) -> int:
        """What the store makes of a file's age, which is never above the true one of this run."""
        inside = [put for put in self.puts if start <= put.physical_offset < start + SEGMENT]
        stored_ms = max(put.stored_ms for put in inside)
        now_ms = self.clock.elapsed()
        age_ms = now_ms - self.seen_ms[start]
        if now_ms >= self.begun_ms + SETTLING_MS:
            age_ms = max(age_ms, min(self.read) + now_ms - stored_ms)
        true_ms = now_ms - max(put.born_ms for put in inside)
        assert age_ms <= true_ms or true_ms > now_ms - self.begun_ms
        return age_ms

    def newest_file(self) -> int:
        last = self.puts[-1].physical_offset if self.puts else 0
        return last - last % SEGMENT

    def held_from(self, needed: int | None) -> int:
        """The place in the log of what the group needs; behind everything when it needs nothing."""
        waiting = [put for put in self.left(QUEUES[0]) if put.queue_offset >= (needed or 0)]
        if needed is None or not waiting:
            return self.store.reads.max_physical_offset
        return waiting[0].physical_offset

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
        shutil.rmtree(self.directory)


def test_a_store_that_forgets_against_lists(seed: int, amount: Callable[[int], int]) -> None:
    run_histories(ForgettingStore, seed, amount(25), 25)
