from __future__ import annotations

import errno
import os
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.harness.faults import largest_file
from support.nodes.stores import SMALL, FakeClock, check_whole, message, repair

from rocketray.base.config import StoreConfig
from rocketray.errors import (
    ConfigError,
    CorruptRecordError,
    InvalidNameError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    StoreClosedError,
    StoreError,
    StoreFullError,
)
from rocketray.kernels.property_crc import CRC_PROPERTY_BYTES
from rocketray.message import Message
from rocketray.store.batches.encoded_batch import encode_messages
from rocketray.store.files import file_system
from rocketray.store.message_store import MessageStore
from rocketray.store.reading.pull import GetMessageStatus, PullLimits


def open_store(directory: Path, config: StoreConfig | None = None) -> MessageStore:
    return MessageStore(directory, config, clock_ms=FakeClock())


def content(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_messages_are_found_by_offset_id_key_and_time(tmp_path: Path) -> None:
    clock = FakeClock()
    with MessageStore(tmp_path, SMALL, clock_ms=clock) as store:
        for number in range(10):
            store.put([message(number)], 3)
            clock.now_ms += 100
        found = store.reads.query("Trade", "key-4")
        assert [one.queue_offset for one in found] == [4]
        assert store.reads.view_by_id(found[0].offset_message_id) == found[0]
        assert found[0].store_host == SMALL.store_host
        assert store.reads.query("Trade", str(found[0].unique_key)) == found
        newest = store.reads.query("Trade", "group-1", 2)
        assert [one.queue_offset for one in newest] == [4, 7]
        times = [one.store_timestamp_ms for one in store.reads.query("Trade", "group-1")]
        within = store.reads.query("Trade", "group-1", 64, times[1], times[1])
        assert [one.queue_offset for one in within] == [4]
        assert store.reads.queue_offset_by_time("Trade", 3, times[1] - 50) == 4
        assert store.reads.queue_offset_by_time("Trade", 3, times[1] - 50, "upper") == 3
        assert store.reads.queue_offset_by_time("Other", 3, 0) == 0


def test_a_key_is_compared_and_not_only_its_hash(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        store.put([Message("Trade", b"1", keys=("Aa",)), Message("Trade", b"2", keys=("BB",))], 0)
        store.put([Message("Other", b"3", keys=("Aa",))], 0)
        assert [one.body for one in store.reads.query("Trade", "Aa")] == [b"1"]
        assert [one.body for one in store.reads.query("Trade", "BB")] == [b"2"]
        assert [one.body for one in store.reads.query("Other", "Aa")] == [b"3"]
        assert store.reads.query("Trade", "none") == store.reads.query("None", "Aa") == []


def test_store_times_never_go_back(tmp_path: Path) -> None:
    clock = FakeClock()
    store = MessageStore(tmp_path, SMALL, clock_ms=clock)
    first = store.put([message(0)], 0)[0]
    clock.now_ms -= 10_000
    assert store.put([message(1)], 0)[0].store_timestamp_ms == first.store_timestamp_ms
    store.close()
    with MessageStore(tmp_path, SMALL, clock_ms=clock) as store:
        assert store.put([message(2)], 0)[0].store_timestamp_ms == first.store_timestamp_ms


def test_a_batch_never_crosses_files(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        for start in range(0, 60, 6):
            placed = store.put([message(start + i, size=100) for i in range(6)], 0)
            assert len({one.physical_offset // 4096 for one in placed}) == 1
        assert store.statistics().log_files > 3
        check_whole(store)


def test_a_batch_that_fits_no_file_is_refused_whole(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        store.put([message(0)], 0)
        before = store.statistics()
        with pytest.raises(MessageTooLargeError, match=r"a batch of records of .* 4088 bytes"):
            store.put([message(number, size=500) for number in range(10)], 0)
        assert store.statistics() == before
        largest = Message("Trade", bytes(4088 - 91 - len("Trade") - CRC_PROPERTY_BYTES))
        store.put([largest], 0)
        with pytest.raises(MessageTooLargeError):
            store.put([replace(largest, body=largest.body + b"x")], 0)
        assert check_whole(store) == 2


def test_bad_names_make_no_directory(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        batch = encode_messages([message(1)], born_host=("1.2.3.4", 5), clock_ms=FakeClock())
        with pytest.raises(InvalidNameError):
            store.append("../escape", 0, batch)
        with pytest.raises(ConfigError, match="queue id -1 is below 0"):
            store.append("Trade", -1, batch)
    assert not (tmp_path / "consumequeue").exists()


def test_a_batch_that_is_not_what_it_says_changes_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        store.put([message(0)], 0)
        good = encode_messages(
            [message(1), message(2)], born_host=("1.2.3.4", 5), clock_ms=FakeClock()
        )
        wrong_sizes = replace(good, sizes=good.sizes + np.array([1, -1], np.int32))
        with pytest.raises(CorruptRecordError, match="not 2 complete records"):
            store.append("Trade", 0, wrong_sizes)
        with pytest.raises(ConfigError, match="2 records and 1 tags code;"):
            store.append("Trade", 0, replace(good, tags_codes=good.tags_codes[:1]))
        with pytest.raises(IndexError):
            store.append("Trade", 0, replace(good, key_records=good.key_records + np.int32(2)))
        assert check_whole(store) == 1
        store.append("Trade", 0, good)
        assert check_whole(store) == 3


@pytest.mark.parametrize("limit", [4095, 100, 139, 200])
def test_a_full_disk_refuses_whole_batches_and_the_store_goes_on(
    tmp_path: Path, limit: int
) -> None:
    with open_store(tmp_path, SMALL) as store:
        stored = 0
        with largest_file(limit):  # below a log file's, a queue file's and an index file's size
            for number in range(40):
                try:
                    store.put([message(number)], number % 2)
                except StoreFullError as error:
                    assert "free space" in str(error)  # noqa: PT017
                else:
                    stored += 1
        assert store.statistics().messages == stored == 0
        for number in range(30):
            store.put([message(number)], number % 2)
        assert check_whole(store) == 30
    with open_store(tmp_path) as store:
        assert check_whole(store) == 30


def test_a_disk_that_fills_up_while_rolling_keeps_what_was_stored(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        store.put([message(0)], 0)
        stored = 1
        with largest_file(10):
            for number in range(1, 40):
                try:
                    store.put([message(number)], 0)
                except StoreFullError:
                    continue  # and nothing later comes through either
                assert stored == number
                stored += 1
        assert 1 < stored < 40
        assert check_whole(store) == stored
        store.put([message(201)], 0)
    with open_store(tmp_path) as store:
        assert check_whole(store) == stored + 1


def with_failed_flush(path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> MessageStore:
    """A store with a message whose flush failed with that error."""
    store = open_store(path, SMALL)
    store.put([message(0)], 0)

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(file_system, "sync_map", fail)
        with pytest.raises(StoreError, match="from offset 0 on may not be on disk"):
            store.flush()
    return store


@pytest.mark.proves(
    "durability",
    "What a failed sync left in memory, which Linux takes for written, is on disk after the next "
    "opening; a store whose disk failed stays closed until it is repaired",
)
def test_a_failed_flush_ends_the_stores_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = with_failed_flush(tmp_path, monkeypatch, errno.EIO)
    for use in (store.flush, lambda: store.put([message(1)], 0)):
        with pytest.raises(StoreError, match="close the store and open it again"):
            use()
    assert store.reads.view(0).body.startswith(b"00000000")
    store.close()
    with pytest.raises(StoreError, match=r"flushing failed: .*; its disk may fail"):
        open_store(tmp_path)
    with MessageStore(tmp_path, read_only=True, clock_ms=FakeClock()) as reader:
        assert reader.reads.view(0).body.startswith(b"00000000")
    repair(tmp_path)
    with open_store(tmp_path) as again:
        assert check_whole(again) == 1


def test_a_flush_without_room_needs_no_repair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_failed_flush(tmp_path, monkeypatch, errno.ENOSPC).close()
    with open_store(tmp_path) as again:
        assert check_whole(again) == 1


def test_an_unreadable_note_of_a_failed_disk_keeps_the_store_closed(tmp_path: Path) -> None:
    open_store(tmp_path, SMALL).close()
    (tmp_path / "failed_disk.json").write_bytes(b"{")
    with pytest.raises(StoreError, match=r"failed_disk\.json is not readable, .*store recover"):
        open_store(tmp_path)
    repair(tmp_path)
    open_store(tmp_path).close()


def test_an_interrupted_append_is_recovered_by_the_next_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path, SMALL)
    store.put([message(0)], 0)
    queue = store._queues.find("Trade", 0)
    assert queue is not None

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(queue, "append", interrupt)
    with pytest.raises(KeyboardInterrupt):
        store.put([message(1)], 0)
    with pytest.raises(StoreError, match="interrupted between log and queue"):
        store.put([message(2)], 0)
    store.close()
    with open_store(tmp_path) as again:
        assert check_whole(again) == 2


def test_offsets_outside_the_log_are_refused(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        end = store.put([message(0), message(1)], 0)[1].physical_offset
        size = store.reads.view(end).size
        for offset in (end + size, -1, 1 << 40):
            with pytest.raises(OffsetOutOfRangeError):
                store.reads.view(offset)
        with pytest.raises(CorruptRecordError):
            store.reads.view(end + 1)
        assert store.reads.view_by_id("0A0102030000" + "2A9F" + f"{end + 1:016X}") is None
        assert store.reads.view_by_id("0A0102030000" + "2A9F" + f"{end:016X}") is not None
        assert store.reads.view_by_id("0A0102040000" + "2A9F" + f"{end:016X}") is None
        with pytest.raises(OffsetOutOfRangeError):
            store.reads.queue_entry("Trade", 9, 0)


def test_a_record_damaged_in_the_middle_is_never_handed_out(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        placed = store.put([message(number) for number in range(5)], 0)
        segment = store._log.files.file(0)
        assert segment is not None
        segment.data[placed[2].physical_offset + 90] ^= 1
        result = store.reads.get_message("Trade", 0, 0, 5)
        assert [one.queue_offset for one in result.messages] == [0, 1, 3, 4]
        assert [one.queue_offset for one in store.reads.scan()] == [0, 1, 3, 4]
        segment.data[placed[2].physical_offset + 4] ^= 1
        assert [one.queue_offset for one in store.reads.scan()] == [0, 1, 3, 4]
        alone = store.reads.get_message("Trade", 0, 2, 1, limits=PullLimits(max_scan_entries=1))
        assert alone.status is GetMessageStatus.MESSAGE_WAS_REMOVING
        assert store.reads.query("Trade", "key-2") == []


def test_a_closed_store_is_closed(tmp_path: Path) -> None:
    store = open_store(tmp_path, SMALL)
    store.close()
    store.close()
    for use in (
        store.flush,
        store.statistics,
        store.reads.scan,
        lambda: store.put([message(1)], 0),
    ):
        with pytest.raises(StoreClosedError):
            use()


def test_an_empty_store_keeps_no_segment(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        assert store.reads.queues() == []
        assert store.put([], 0) == []
        assert list(store.reads.scan()) == []
        store.prepare_next()
        store.flush()
    assert not any(path.stat().st_size > 4096 for path in tmp_path.rglob("*"))
    with open_store(tmp_path) as store:
        assert store.statistics().messages == 0


def test_queues_and_index_follow_the_log_once_a_second(tmp_path: Path) -> None:
    clock = FakeClock()
    with MessageStore(tmp_path, SMALL, clock_ms=clock) as store:
        store.put([message(0)], 0)
        assert store.flush() == store.reads.flushed_offset == store.reads.max_physical_offset
        assert (tmp_path / "checkpoint").read_bytes()[:40] == bytes(40)
        clock.now_ms += 1000
        store.flush()
        times = (tmp_path / "checkpoint").read_bytes()[:24]
        assert times == (clock.now_ms - 1000).to_bytes(8, "big") * 3


def test_flushing_and_preparing_beside_the_writer(tmp_path: Path) -> None:
    clock = FakeClock()
    stop = threading.Event()
    failures: list[BaseException] = []
    config = replace(SMALL, commit_log_segment_bytes=16_384, index_entries=1000)
    config = replace(config, consume_queue_segment_entries=100, index_hash_slots=500)
    with MessageStore(tmp_path, config, clock_ms=clock) as store:

        def serve() -> None:
            try:
                while not stop.is_set():
                    clock.now_ms += 400
                    store.prepare_next()
                    before = store.reads.max_physical_offset
                    assert store.flush() >= before
            except BaseException as error:  # noqa: BLE001 - handed to the test
                failures.append(error)

        thread = threading.Thread(target=serve)
        thread.start()
        for start in range(0, 3000, 10):
            store.put([message(start + i) for i in range(10)], start // 10 % 3)
        stop.set()
        thread.join()
        assert not failures
        assert check_whole(store) == 3000
