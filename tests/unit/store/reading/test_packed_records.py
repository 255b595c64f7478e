"""Records that travel: what comes out is what lies in the files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from support.nodes.stores import SMALL, FakeClock

from rocketray.errors import CorruptRecordError, InvalidMessageError
from rocketray.message import Message
from rocketray.store.batches.encoded_batch import encode_messages
from rocketray.store.message_store import MessageStore
from rocketray.store.reading.columns import COLUMN_TYPES, read_columns
from rocketray.store.reading.packed_records import pack_records, unpack_records
from rocketray.store.reading.reader import QueueReader

HOST = ("192.0.2.1", 1)
COUNT = 300


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[QueueReader]:
    messages = [
        Message("Trade", bytes(number * 7), "a", [f"k{number}"], {"n": str(number)})
        for number in range(COUNT)
    ]
    with MessageStore(tmp_path, SMALL, clock_ms=FakeClock()) as store:
        for message in messages:  # over several segments
            store.append(
                "Trade", 3, encode_messages([message], born_host=HOST, clock_ms=FakeClock())
            )
    with QueueReader(tmp_path, "Trade", 3) as reader:
        yield reader


@pytest.mark.parametrize("share", [1.0, 0.1, 0.0])
def test_what_is_unpacked_reads_like_the_files(
    reader: QueueReader, share: float, rng: Random
) -> None:
    entries = reader.entries(10, COUNT)
    entries = entries.select([rng.random() < share for _ in range(len(entries))])
    there = unpack_records(memoryview(pack_records(reader, entries, COUNT)))
    assert there.next_queue_offset == COUNT
    assert (there.reader.topic, there.reader.queue_id) == ("Trade", 3)
    assert there.reader.messages(there.entries) == reader.messages(entries)
    assert there.reader.bodies(there.entries) == reader.bodies(entries)
    columns = list(COLUMN_TYPES)
    assert read_columns(there.reader, there.entries, columns) == read_columns(
        reader, entries, columns
    )
    some = there.entries.select(slice(1, None, 3))
    assert there.reader.messages(some) == reader.messages(entries.select(slice(1, None, 3)))


def test_a_frame_that_is_damaged_is_refused(reader: QueueReader, rng: Random) -> None:
    frame = pack_records(reader, reader.entries(0, 5), 5)
    for cut in (0, 10, len(frame) - 1):
        with pytest.raises(InvalidMessageError, match="batch from another node"):
            unpack_records(frame[:cut])
    with pytest.raises(InvalidMessageError, match="should have"):
        unpack_records(frame + b"x")
    for _ in range(300):
        damaged = bytearray(frame)
        damaged[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
        try:
            there = unpack_records(bytes(damaged))
            found = there.reader.messages(there.entries)
        except (InvalidMessageError, CorruptRecordError):
            continue
        assert len(found) == 5  # a bit of a field that no checksum covers
