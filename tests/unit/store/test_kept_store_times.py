"""Batches that keep the store times of the store they come from, and the id they had there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.nodes.stores import SMALL, FakeClock, check_whole, kill

from rocketray.errors import InvalidMessageError
from rocketray.message import IMPORTED_OFFSET_ID, Message
from rocketray.store.batches.batch_form import EncodedBatch
from rocketray.store.batches.encoded_batch import encode_messages, pack_batch, unpack_batch
from rocketray.store.message_store import MessageStore

OLD_TIMES = [1_000, 1_000, 9_999, 20_000]
STORE_TIME_AT = {"192.0.2.1": 56, "2001:db8::1": 68}  # bytes into a record


def batch_with_times(times: list[int], born_host: str = "192.0.2.1") -> EncodedBatch:
    batch = encode_messages(
        [message(number) for number in range(len(times))],
        born_host=(born_host, 1),
        clock_ms=FakeClock(),
    )
    records = batch.records.copy()
    for start, time in zip(batch.starts().tolist(), times, strict=True):
        at = start + STORE_TIME_AT[born_host]
        records[at : at + 8] = np.frombuffer(time.to_bytes(8, "big"), np.uint8)
    return replace(batch, records=records, keeps_store_times=True)


def message(number: int) -> Message:
    old_id = f"{number:032X}"
    return Message(
        "Trade",
        b"imported",
        keys=(f"key-{number}",),
        unique_key=f"unique-{number}",
        properties={IMPORTED_OFFSET_ID: old_id},
    )


@pytest.mark.parametrize("born_host", STORE_TIME_AT)
def test_messages_are_found_by_the_times_they_came_with(tmp_path: Path, born_host: str) -> None:
    with MessageStore(tmp_path, SMALL, clock_ms=FakeClock()) as store:
        done = store.append("Trade", 0, batch_with_times(OLD_TIMES, born_host))
        assert done.store_timestamp_ms == OLD_TIMES[-1]
        assert [one.store_timestamp_ms for one in store.reads.scan()] == OLD_TIMES
        assert store.reads.queue_offset_by_time("Trade", 0, 1_001) == 2
        assert [
            one.queue_offset for one in store.reads.query("Trade", "key-2", 64, 9_999, 9_999)
        ] == [2]
        later = store.put([Message("Trade", b"now")], 0)[0]
        assert later.store_timestamp_ms == FakeClock().now_ms


@pytest.mark.parametrize("times", [[5, 4], [999]])
def test_times_that_go_back_are_refused_and_nothing_is_stored(
    tmp_path: Path, times: list[int]
) -> None:
    with MessageStore(tmp_path, SMALL, clock_ms=FakeClock()) as store:
        store.append("Trade", 0, batch_with_times([1_000]))
        with pytest.raises(InvalidMessageError, match="in order"):
            store.append("Trade", 0, batch_with_times(times))
        assert store.reads.max_queue_offset("Trade", 0) == 1
        store.append("Trade", 0, batch_with_times([1_000]))
        assert len(list(store.reads.scan())) == 2


def test_an_imported_id_is_a_key_also_after_a_crash(tmp_path: Path) -> None:
    with MessageStore(tmp_path, SMALL, clock_ms=FakeClock()) as store:
        store.append("Trade", 0, batch_with_times(OLD_TIMES))
        store.flush()
        before = store.reads.query("Trade", f"{2:032X}")
        assert [one.queue_offset for one in before] == [2]
        assert before[0].imported_offset_id == f"{2:032X}"
        assert store.statistics().keys == 3 * len(OLD_TIMES)
        kill(store)
    for path in (tmp_path / "index").iterdir():
        path.unlink()
    with MessageStore(tmp_path, clock_ms=FakeClock()) as store:
        assert store.reads.query("Trade", f"{2:032X}") == before
        assert check_whole(store) == len(OLD_TIMES)


def test_a_frame_says_that_its_batch_keeps_its_times() -> None:
    batch = batch_with_times(OLD_TIMES)
    frame = pack_batch(batch)
    assert unpack_batch(frame).keeps_store_times
    unknown = bytearray(frame)
    unknown[12] |= 4
    with pytest.raises(InvalidMessageError, match="the same version"):
        unpack_batch(unknown)
