from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

import pytest
from support.nodes.stores import FakeClock, message

from rocketray.base.config import StoreConfig
from rocketray.message import StoredMessage
from rocketray.store.message_store import MessageStore
from rocketray.store.reading.pull import GetMessageStatus, PullLimits

CONFIG = StoreConfig(commit_log_segment_bytes=1 << 20, consume_queue_segment_entries=1000)
COUNT = 2500
FREE = PullLimits(max_time_ms=inf)


@dataclass
class Numbers:
    """Takes the messages whose number is in a set, by the record."""

    wanted: set[int]
    needs_record: bool = True

    def matches_entry(self, tags_code: int | None, _unit: object) -> bool:
        return tags_code is not None

    def matches_record(self, stored: StoredMessage) -> bool:
        return int(stored.body[:8]) in self.wanted


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageStore]:
    with MessageStore(tmp_path_factory.mktemp("s"), CONFIG, clock_ms=FakeClock()) as made:
        for start in range(0, COUNT, 500):
            made.put([message(number, "Trade", 100) for number in range(start, start + 500)], 0)
        yield made


def numbers(store: MessageStore, offset: int, count: int, limits: PullLimits) -> list[int]:
    result = store.reads.get_message("Trade", 0, offset, count, limits=limits)
    found = [int(one.body[:8]) for one in result.messages]
    assert result.next_queue_offset == offset + len(found)
    return found


def test_a_broker_gives_at_most_32_messages_of_one_queue_file(store: MessageStore) -> None:
    assert numbers(store, 0, 100, PullLimits.broker()) == list(range(32))
    assert numbers(store, 0, 10, PullLimits.broker()) == list(range(10))
    assert numbers(store, 990, 32, PullLimits.broker()) == list(range(990, 1000))


def test_from_disk_a_broker_gives_8(store: MessageStore) -> None:
    limits = replace(PullLimits.broker(), resident_bytes=100_000)
    assert numbers(store, 0, 32, limits) == list(range(8))
    assert len(numbers(store, COUNT - 50, 32, limits)) == 32


def test_bytes_are_limited_from_the_second_message_on(store: MessageStore) -> None:
    size = store.reads.get_message("Trade", 0, 0, 1).size + 25  # they differ by their tags
    assert numbers(store, 0, 10, replace(FREE, max_bytes=1)) == [0]
    assert len(numbers(store, 0, 10, replace(FREE, max_bytes=3 * size))) == 3
    limits = replace(FREE, memory_max_bytes=4 * size)
    assert len(numbers(store, 0, 10, limits)) == 4
    limits = replace(FREE, resident_bytes=0, disk_max_bytes=2 * size, memory_max_bytes=1)
    assert len(numbers(store, 0, 10, limits)) == 2


def test_a_broker_looks_at_800_entries_counted_from_the_request(store: MessageStore) -> None:
    rare = Numbers({799, 900})
    result = store.reads.get_message("Trade", 0, 0, 32, rare, limits=PullLimits.broker())
    assert result.status is GetMessageStatus.FOUND
    assert [one.queue_offset for one in result.messages] == [799]
    assert (result.next_queue_offset, result.filter_message_count) == (800, 799)
    result = store.reads.get_message("Trade", 0, 1000, 32, rare, limits=PullLimits.broker())
    assert result.status is GetMessageStatus.NO_MATCHED_MESSAGE
    assert (result.next_queue_offset, result.filter_message_count) == (1800, 800)
    result = store.reads.get_message("Trade", 0, 1000, 900, rare, limits=PullLimits.broker())
    assert result.next_queue_offset == 1900  # as many as were asked for, if that is more


def test_without_limits_a_read_goes_on_over_queue_files(store: MessageStore) -> None:
    assert numbers(store, 0, COUNT + 1, FREE) == list(range(COUNT))
    result = store.reads.get_message("Trade", 0, 0, 5, Numbers({2499}), limits=FREE)
    assert [one.queue_offset for one in result.messages] == [2499]
    assert result.next_queue_offset == COUNT


def test_files_are_travelled_until_one_has_a_match(store: MessageStore) -> None:
    limits = replace(FREE, max_queue_files=2)
    result = store.reads.get_message("Trade", 0, 0, 5, Numbers({1500, 2001}), limits=limits)
    assert [one.queue_offset for one in result.messages] == [1500]
    assert result.next_queue_offset == 2000
    result = store.reads.get_message("Trade", 0, 0, 5, Numbers({2001}), limits=limits)
    assert result.status is GetMessageStatus.NO_MATCHED_MESSAGE
    assert result.next_queue_offset == 2000


def test_time_is_limited_too(tmp_path: Path) -> None:
    clock = FakeClock()

    class Slow(Numbers):
        def matches_entry(self, tags_code: int | None, _unit: object) -> bool:
            clock.now_ms += 1
            return False

    with MessageStore(tmp_path, CONFIG, clock_ms=clock) as store:
        store.put([message(number) for number in range(1000)], 0)
        result = store.reads.get_message(
            "Trade", 0, 0, 10, Slow(set()), limits=PullLimits(max_time_ms=300)
        )
        assert result.status is GetMessageStatus.NO_MATCHED_MESSAGE
        assert result.next_queue_offset == 512  # looked at the clock at 256 and 512
        result = store.reads.get_message("Trade", 0, 512, 10, Slow(set()), limits=FREE)
        assert result.next_queue_offset == 1000


def test_a_record_that_is_gone_is_skipped_with_its_file(tmp_path: Path) -> None:
    config = replace(CONFIG, commit_log_segment_bytes=4096)
    with MessageStore(tmp_path, config, clock_ms=FakeClock()) as store:
        placed = [store.put([message(number, size=500)], 0)[0] for number in range(12)]
        segments = [one.physical_offset // 4096 for one in placed]
        first_of_second = segments.index(1)
        first_of_third = segments.index(2)
        gone = store._log.files._files[4096]
        gone.data[:] = 0
        result = store.reads.get_message("Trade", 0, first_of_second, 5)
        assert result.status is GetMessageStatus.FOUND
        assert result.messages[0].queue_offset == first_of_third
        result = store.reads.get_message("Trade", 0, 0, 100)
        assert [one.queue_offset for one in result.messages] == [
            *range(first_of_second),
            *range(first_of_third, 12),
        ]
        limits = replace(FREE, max_scan_entries=1)
        result = store.reads.get_message("Trade", 0, first_of_second, 1, limits=limits)
        assert result.status is GetMessageStatus.MESSAGE_WAS_REMOVING
        assert result.next_queue_offset == first_of_second + 1


def test_a_queue_without_a_message(store: MessageStore) -> None:
    for offset in (0, 5, -1):
        result = store.reads.get_message("Nothing", 0, offset, 1)
        assert result.status is GetMessageStatus.NO_MESSAGE_IN_QUEUE
        assert result.next_queue_offset == result.max_queue_offset == 0


def test_statuses_have_rocketmqs_order() -> None:
    assert [status.value for status in GetMessageStatus] == list(range(10))
