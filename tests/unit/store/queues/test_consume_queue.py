from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.models.records import i32, i64

from rocketray.errors import OffsetOutOfRangeError
from rocketray.store.queues.consume_queue import ConsumeQueue, QueueEntry
from rocketray.store.queues.queue_recovery import (
    clear_tail,
    find_begin,
    find_end,
    last_before,
    put_entries,
)

ENTRIES = 5
FAR = 1 << 40


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[ConsumeQueue]:
    made = ConsumeQueue(tmp_path / "queue", ENTRIES, read_only=False)
    yield made
    made.close()


def add(queue: ConsumeQueue, count: int, first_physical: int = 0, size: int = 100) -> None:
    queue.reserve(count)
    queue.append(i32([size] * count), i64(list(range(count))), first_physical, i64([1] * count))


def reopened(queue: ConsumeQueue) -> ConsumeQueue:
    return ConsumeQueue(queue.files.directory, ENTRIES, read_only=False)


def test_the_bytes_of_an_entry(queue: ConsumeQueue) -> None:
    queue.reserve(2)
    queue.append(i32([126, 5]), i64([2_598_919, -720_863_880]), 1000, i64([1, 1]))
    file = queue.files.file(0)
    assert file is not None
    assert file.read(0, 20).hex() == "00000000000003e80000007e000000000027a807"
    assert file.read(32, 8).hex() == "ffffffffd5087d78"


def test_a_batch_crosses_files_and_reading_does_not(queue: ConsumeQueue) -> None:
    add(queue, 3)
    add(queue, 9, 300)
    assert (queue.min_offset, queue.max_offset) == (0, 12)
    assert [entry.queue_offset for entry in queue.entries(2)] == [2, 3, 4]
    assert [entry.physical_offset for entry in queue.entries(5)] == [500, 600, 700, 800, 900]
    assert [entry.queue_offset for entry in queue.entries(10)] == [10, 11]
    assert queue.entry(11) == QueueEntry(11, 1100, 100, 8)
    assert queue.next_file(7) == 10
    assert list(queue.entries(12)) == list(queue.entries(-1)) == []


def test_an_offset_outside_says_what_there_is(queue: ConsumeQueue) -> None:
    add(queue, 3)
    with pytest.raises(OffsetOutOfRangeError, match="ask for one from 0 up to, not including, 3"):
        queue.entry(3)


def test_the_end_is_found_again(queue: ConsumeQueue) -> None:
    assert find_end(queue, FAR) == 0
    for count in (3, 2, 6):  # the middle one fills a file to its end
        add(queue, count, queue.max_offset * 100)
        again = reopened(queue)
        assert find_end(again, FAR) == queue.max_offset
        assert find_end(again, 700) == min(queue.max_offset, 7)
        assert find_end(again, 0) == 0
        again.close()


def test_entries_that_are_not_in_the_order_of_the_log_end_it(queue: ConsumeQueue) -> None:
    add(queue, 2, 500)
    add(queue, 2, 100)
    assert find_end(reopened(queue), FAR) == 2


def test_a_queue_begins_with_the_first_record_that_is_left(queue: ConsumeQueue) -> None:
    add(queue, 8)
    for log_begin, expected in ((0, 0), (1, 1), (100, 1), (650, 7), (900, 8)):
        find_begin(queue, log_begin)
        assert queue.min_offset == expected
    assert [entry.queue_offset for entry in queue.entries(8)] == []


def test_a_queue_may_begin_above_zero_with_fillers_before(queue: ConsumeQueue) -> None:
    add(queue, 2)
    queue.restart_at(13)
    add(queue, 3, 5000)
    assert (queue.min_offset, queue.max_offset) == (13, 16)
    file = queue.files.file(10 * 20)
    assert file is not None
    assert file.read(0, 20).hex() == "00000000000000007fffffff0000000000000000"
    again = reopened(queue)
    again.max_offset = find_end(again, FAR)
    find_begin(again, 0)
    assert (again.min_offset, again.max_offset) == (13, 16)
    assert last_before(again, 13) is None
    assert last_before(again, 16) == QueueEntry(15, 5200, 100, 2)


def test_bisection_finds_the_first_entry_that_satisfies(queue: ConsumeQueue) -> None:
    assert queue.first_at_or_after(lambda _: True) == 0
    add(queue, 12)
    for wanted in range(13):

        def is_behind(entry: QueueEntry, wanted: int = wanted) -> bool:
            return entry.queue_offset >= wanted

        assert queue.first_at_or_after(is_behind) == wanted


def test_an_ext_address_without_ext_files_is_no_tags_code(queue: ConsumeQueue) -> None:
    queue.reserve(2)
    queue.append(i32([1, 1]), i64([-2_147_483_648, -2_147_483_649]), 0, i64([1, 1]))
    assert [entry.tags_code for entry in queue.entries(0)] == [-2_147_483_648, None]


def test_recovery_puts_records_that_lie_anywhere(queue: ConsumeQueue) -> None:
    offsets = i64([0, 1000, 1100, 5000, 9000, 9100, 10_000])
    put_entries(queue, offsets, i32([100] * 7), i64([1] * 7), i64([1] * 7))
    assert [queue.entry(at).physical_offset for at in range(7)] == offsets.tolist()
    queue.flush()
    again = reopened(queue)
    assert find_end(again, 9050) == 5
    again.max_offset = 5
    clear_tail(again)
    assert find_end(again, FAR) == 5


def test_entries_stay_in_place_for_readers_when_they_are_put_again(queue: ConsumeQueue) -> None:
    add(queue, 4)
    file = queue.files.file(0)
    assert file is not None
    before = np.array(file.data)
    queue.max_offset = 1
    put_entries(queue, i64([100, 200, 300]), i32([100] * 3), i64([1, 2, 3]), i64([1] * 3))
    assert (file.data == before).all()
