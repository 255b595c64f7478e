"""ConsumeQueueExt: the bytes of a unit, where files end, and what recovery makes of lost ones."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.nodes.stores import SMALL, FakeClock, check_whole, kill, message, read_all

from rocketray.base.config import StoreConfig
from rocketray.errors import ConfigError
from rocketray.hashing import tags_code
from rocketray.store.message_store import MessageStore
from rocketray.store.queues.consume_queue_ext import ConsumeQueueExt
from rocketray.store.queues.ext_unit import ExtUnit

FIRST = -(1 << 63)
CONFIG = replace(SMALL, consume_queue_ext=True, consume_queue_ext_segment_bytes=1024)
SEGMENT = 1024


class Marks:
    """Bitmaps of *size* bytes that repeat the last byte of the property string's size."""

    def __init__(self, size: int = 14) -> None:
        self.size = size

    def bitmaps(
        self,
        topic: str,
        data: npt.NDArray[np.uint8],
        starts: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.uint8] | None:
        assert all(data[starts + sizes - 1] == 2)
        if topic == "NoFilters":
            return None
        return np.repeat((sizes % 256).astype(np.uint8)[:, None], self.size, axis=1)


def i64(values: Sequence[int]) -> npt.NDArray[np.int64]:
    return np.array(values, np.int64)


def put(ext: ConsumeQueueExt, count: int, bitmap_bytes: int) -> list[int]:
    bitmaps = np.full((count, bitmap_bytes), 7, np.uint8) if bitmap_bytes else None
    ext.reserve(count, bitmap_bytes)
    addresses: list[int] = ext.append(i64(range(count)), i64([9] * count), bitmaps).tolist()
    return addresses


@pytest.fixture
def ext(tmp_path: Path) -> ConsumeQueueExt:
    return ConsumeQueueExt(tmp_path, SEGMENT, read_only=False)


def test_a_unit_has_rocketmqs_bytes(ext: ConsumeQueueExt, tmp_path: Path) -> None:
    ext.reserve(1, 14)
    codes, times = i64([2_598_919]), i64([1_700_000_000_123])
    assert ext.append(codes, times, np.zeros((1, 14), np.uint8)).tolist() == [FIRST]
    wanted = "0022000000000027a8070000018bcfe5687b000e" + "00" * 14
    assert (tmp_path / f"{0:020d}").read_bytes()[:34].hex() == wanted
    assert ext.unit(FIRST) == ExtUnit(2_598_919, 1_700_000_000_123, bytes(14))


def test_a_message_without_filters_has_a_unit_without_a_bitmap(ext: ConsumeQueueExt) -> None:
    assert put(ext, 2, 0) == [FIRST, FIRST + 20]
    assert ext.unit(FIRST + 20) == ExtUnit(1, 9, None)


def test_a_file_is_closed_when_a_unit_would_leave_less_than_four_bytes(
    ext: ConsumeQueueExt, tmp_path: Path
) -> None:
    # 1024 = 30 * 34 + 4: the thirtieth unit just fits.
    assert put(ext, 31, 14) == [FIRST + 34 * n for n in range(30)] + [FIRST + SEGMENT]
    raw = (tmp_path / f"{0:020d}").read_bytes()
    assert raw[30 * 34 :] == b"\xff\xff\0\0"
    put(ext, 2, 480)
    assert struct.unpack(">h", (tmp_path / f"{SEGMENT:020d}").read_bytes()[534:536]) == (-1,)
    assert ext.unit(FIRST + 2 * SEGMENT) == ExtUnit(1, 9, b"\7" * 480)


def test_a_bitmap_that_no_unit_can_hold_leaves_the_tags_code(ext: ConsumeQueueExt) -> None:
    assert put(ext, 3, SEGMENT - 4 - 20 + 1) == [0, 1, 2]
    assert put(ext, 1, SEGMENT - 4 - 20) == [FIRST]


@settings(max_examples=60, deadline=None)
@given(
    runs=st.lists(st.tuples(st.integers(1, 70), st.integers(0, 300)), max_size=8),
    more=st.integers(1, 40),
)
def test_every_unit_is_found_at_its_address_and_goes_on_where_the_last_ended(
    tmp_path_factory: pytest.TempPathFactory, runs: list[tuple[int, int]], more: int
) -> None:
    directory = tmp_path_factory.mktemp("ext")
    ext = ConsumeQueueExt(directory, SEGMENT, read_only=False)
    addresses: list[int] = []
    for count, width in runs:
        found = put(ext, count, width)
        addresses += found
        for number, address in enumerate(found):
            assert ext.unit(address) == ExtUnit(number, 9, b"\7" * width or None)
    assert addresses == sorted(set(addresses))
    again = ConsumeQueueExt(directory, SEGMENT, read_only=False)
    if addresses:
        assert again.end_with(addresses[-1])
    else:
        again.end_at_begin()
    assert put(again, more, 14) == put(ext, more, 14)
    ext.files.close()
    again.files.close()


@pytest.mark.parametrize(
    "raw",
    [
        b"\0" * 40,
        b"\xff\xff" * 20,
        struct.pack(">hqqh", 34, 1, 1, 13) + bytes(40),
        struct.pack(">hqqh", 19, 1, 1, -1) + bytes(40),
    ],
)
def test_what_is_no_unit_is_none(ext: ConsumeQueueExt, tmp_path: Path, raw: bytes) -> None:
    put(ext, 1, 0)
    path = tmp_path / f"{0:020d}"
    path.write_bytes(raw.ljust(SEGMENT, b"\0"))
    damaged = ConsumeQueueExt(tmp_path, SEGMENT, read_only=True)
    assert damaged.unit(FIRST) is None


@pytest.mark.parametrize("address", [0, -1, -(1 << 31), FIRST + SEGMENT, FIRST + SEGMENT - 19])
def test_an_address_of_nothing_is_none(ext: ConsumeQueueExt, address: int) -> None:
    put(ext, 1, 0)
    assert ext.unit(address) is None


# In a store


def opened(directory: Path, config: StoreConfig = CONFIG) -> MessageStore:
    return MessageStore(directory, config, clock_ms=FakeClock(), bitmap_source=Marks())


def units_are_whole(store: MessageStore, topic: str, queue_id: int) -> None:
    """Every entry has a unit with its message's tags code, time and bitmap."""
    found = read_all(store, topic, queue_id)
    assert len(found) == store.reads.max_queue_offset(
        topic, queue_id
    ) - store.reads.min_queue_offset(topic, queue_id)
    for one in found:
        entry = store.reads.queue_entry(topic, queue_id, one.queue_offset)
        unit = entry.unit
        assert unit is not None
        assert (unit.tags_code, unit.store_timestamp_ms) == (
            tags_code(one.tags),
            one.store_timestamp_ms,
        )
        assert entry.tags_code == unit.tags_code
        assert (unit.bitmap is None) == (topic == "NoFilters")
        assert unit.bitmap is None or len(set(unit.bitmap)) == 1


def fill(store: MessageStore, numbers: range) -> None:
    for number in numbers:
        store.put([message(number), message(number + 1000)], number % 2)
        store.put([message(number, "NoFilters")], 0)


def all_whole(store: MessageStore) -> None:
    check_whole(store)
    for queue in store.reads.queues():
        units_are_whole(store, *queue)


@pytest.mark.parametrize("clean", [True, False])
def test_a_store_with_ext_is_whole_after_each_opening(tmp_path: Path, *, clean: bool) -> None:
    for start in range(0, 120, 40):
        store = opened(tmp_path)
        fill(store, range(start, start + 40))
        all_whole(store)
        store.close() if clean else kill(store)
    with MessageStore(tmp_path, read_only=True, clock_ms=FakeClock()) as store:
        assert len(list(store.reads.scan())) == 360
        all_whole(store)


@pytest.mark.parametrize("cut_units", [1, 5, 60])
def test_units_that_did_not_reach_the_disk_are_made_again(tmp_path: Path, cut_units: int) -> None:
    store = opened(tmp_path)
    fill(store, range(60))
    kill(store)
    for queue in ("Trade/0", "NoFilters/0"):
        paths = sorted((tmp_path / "consumequeue_ext" / queue).iterdir())
        zeroed = cut_units * 34
        for path in reversed(paths):
            raw = path.read_bytes()
            keep = max(len(raw.rstrip(b"\0")) - zeroed, 0)
            zeroed -= len(raw) - keep
            path.write_bytes(raw[:keep].ljust(SEGMENT, b"\0"))
            if zeroed <= 0:
                break
    with opened(tmp_path) as store:
        all_whole(store)
        fill(store, range(60, 70))
        all_whole(store)


def test_units_that_were_lost_after_a_clean_stop_are_made_again(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        fill(store, range(30))
    for path in (tmp_path / "consumequeue_ext" / "Trade" / "1").iterdir():
        path.unlink()
    with opened(tmp_path) as store:
        all_whole(store)


def test_a_unit_that_cannot_be_read_lets_its_message_pass(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        fill(store, range(30))
    path = tmp_path / "consumequeue_ext" / "Trade" / "0" / f"{0:020d}"
    path.write_bytes(b"\xff" * 34 + path.read_bytes()[34:])
    with MessageStore(tmp_path, read_only=True, clock_ms=FakeClock()) as store:
        entry = store.reads.queue_entry("Trade", 0, 0)
        assert (entry.tags_code, entry.unit) == (None, None)
        assert len(read_all(store, "Trade", 0)) == 30


def test_files_of_units_go_with_the_entries_they_belong_to(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        fill(store, range(200))
        queue = store._queues.find("Trade", 0)
        assert queue is not None
        before = len(list((tmp_path / "consumequeue_ext" / "Trade" / "0").iterdir()))
        middle = queue.entry(queue.max_offset - 20)
        queue.forget_before(middle.physical_offset)
        queue.remove_forgotten()
        names = sorted((tmp_path / "consumequeue_ext" / "Trade" / "0").iterdir())
        assert 1 <= len(names) < before
        units_are_whole(store, "Trade", 0)


def test_segments_too_small_for_units_are_refused() -> None:
    with pytest.raises(ConfigError, match="consume_queue_ext_segment_bytes is 1000"):
        StoreConfig(consume_queue_ext=True, consume_queue_ext_segment_bytes=1000)
