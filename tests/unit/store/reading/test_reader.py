from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.models.records import i32
from support.nodes.stores import (
    GOLDEN_CONFIG,
    GOLDEN_STORE,
    SMALL,
    FakeClock,
    message,
    read_all,
    read_jsonl,
)

from rocketray.base.property_string import decode_properties
from rocketray.errors import ConfigError, CorruptRecordError, OffsetOutOfRangeError
from rocketray.hashing import crc32, tags_code
from rocketray.message import Message, StoredMessage
from rocketray.store.batches.batch_form import RecordOptions
from rocketray.store.batches.encoded_batch import encode_messages
from rocketray.store.formats.arrow_spans import string_array
from rocketray.store.formats.compression import Compression, CompressionKind
from rocketray.store.message_store import MessageStore
from rocketray.store.reading import record_spans
from rocketray.store.reading.columns import read_columns
from rocketray.store.reading.reader import QueueReader
from rocketray.store.reading.record_spans import EntryColumns

COUNT = 100  # over several segments of log and queue


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with MessageStore(tmp_path / "shard", SMALL, clock_ms=FakeClock()) as store:
        for number in range(COUNT):
            store.put([message(number)], 0)
    return tmp_path / "shard"


@pytest.fixture
def expected(directory: Path) -> list[StoredMessage]:
    with MessageStore(directory, read_only=True, clock_ms=FakeClock()) as store:
        return read_all(store, "Trade", 0)


@pytest.fixture
def reader(directory: Path) -> Iterator[QueueReader]:
    with QueueReader(directory, "Trade", 0) as opened:
        yield opened


def test_the_store_spans_several_segments(directory: Path) -> None:
    assert len(list((directory / "commitlog").iterdir())) > 2
    assert len(list((directory / "consumequeue" / "Trade" / "0").iterdir())) > 2


def test_entries_are_those_of_the_range(reader: QueueReader, expected: list[StoredMessage]) -> None:
    for start, stop in ((0, COUNT), (0, 0), (3, 4), (5, 23), (COUNT, COUNT)):
        entries = reader.entries(start, stop)
        wanted = expected[start:stop]
        assert len(entries) == stop - start
        assert entries.queue_offsets.tolist() == list(range(start, stop))
        assert entries.physical_offsets.tolist() == [one.physical_offset for one in wanted]
        assert entries.sizes.tolist() == [one.size for one in wanted]
        assert entries.tags_codes.tolist() == [tags_code(one.tags) for one in wanted]


def test_a_scan_finds_the_tags_over_all_segments(
    reader: QueueReader, expected: list[StoredMessage]
) -> None:
    for tags in (["pay"], ["pay", "BB"], ["nobody"], []):
        codes = [tags_code(tag) for tag in tags]
        found = reader.match_tags(2, COUNT - 1, i32(codes))
        wanted = [one for one in expected[2 : COUNT - 1] if tags_code(one.tags) in codes]
        assert found.queue_offsets.tolist() == [one.queue_offset for one in wanted]
        assert found.physical_offsets.tolist() == [one.physical_offset for one in wanted]
        assert found.sizes.tolist() == [one.size for one in wanted]
    assert len(reader.match_tags(2, 50, None)) == 48


def test_every_part_of_the_messages_is_read(
    reader: QueueReader, expected: list[StoredMessage]
) -> None:
    entries = reader.match_tags(0, COUNT, i32([tags_code("pay"), tags_code("BB"), 0]))
    wanted = [one for one in expected if one.tags != "order"]
    assert reader.messages(entries) == wanted
    assert reader.bodies(entries) == [one.body for one in wanted]
    assert reader.tags(entries) == [one.tags for one in wanted]
    properties = [decode_properties(text) for text in reader.property_strings(entries)]
    assert properties == [one.properties for one in wanted]


def test_records_come_in_order_one_part_a_segment(
    reader: QueueReader, expected: list[StoredMessage]
) -> None:
    parts = reader.records(reader.entries(0, COUNT))
    assert len(parts) > 2
    assert len({part.path for part in parts}) == len(parts)
    assert sum(map(len, parts)) == COUNT
    assert [part.message(i) for part in parts for i in range(len(part))] == expected
    starts, sizes = parts[1].find(["region", "nothing"])
    first = parts[0]
    at = int(starts[0, 0])
    value = parts[1].segment[at : at + int(sizes[0, 0])].tobytes().decode()
    assert value == expected[len(first)].properties["region"]
    assert (sizes[1] == -1).all()


def test_the_exact_tag_is_compared_behind_the_hash(
    reader: QueueReader, expected: list[StoredMessage]
) -> None:
    entries = reader.match_tags(0, COUNT, i32([tags_code("BB")]))  # the hash of Aa, too
    assert len(entries) == COUNT // 4
    assert not reader.have_tags(entries, ["BB"]).any()
    assert reader.have_tags(entries, ["BB", "Aa"]).all()
    every = reader.entries(0, COUNT)
    mask = reader.have_tags(every, ["pay", "order"])
    assert mask.tolist() == [one.tags in {"pay", "order"} for one in expected]
    assert reader.have_tags(every.select(slice(0, 0)), ["pay"]).tolist() == []


def test_selected_entries_are_read_in_the_order_given(
    reader: QueueReader, expected: list[StoredMessage]
) -> None:
    order = np.array([70, 3, 71, 0])
    entries = reader.entries(0, COUNT).select(order)
    assert reader.bodies(entries) == [expected[i].body for i in order]
    assert EntryColumns.concatenated([entries, entries]).queue_offsets.tolist() == [*order, *order]


def test_a_reader_sees_what_a_living_writer_adds(tmp_path: Path) -> None:
    with MessageStore(tmp_path, SMALL, clock_ms=FakeClock()) as store:
        store.put([message(0)], 0)
        with QueueReader(tmp_path, "Trade", 0) as reader:
            assert reader.bodies(reader.entries(0, 1)) == [message(0).body]
            for number in range(1, 40):
                store.put([message(number)], 0)
            bodies = reader.bodies(reader.entries(0, 40))
    assert bodies == [message(number).body for number in range(40)]


def test_what_was_read_outlives_the_reader(directory: Path) -> None:
    reader = QueueReader(directory, "Trade", 0)
    entries = reader.entries(0, 10)
    parts = reader.records(entries)
    reader.close()
    assert parts[0].message(0).body == message(0).body  # the map lives as long as its array
    assert reader.bodies(entries)[9] == message(9).body  # and the reader maps anew


def test_a_range_or_a_segment_that_is_gone_is_out_of_range(
    directory: Path, reader: QueueReader
) -> None:
    with pytest.raises(OffsetOutOfRangeError, match="consumequeue"):
        reader.entries(0, 10_000)
    with pytest.raises(OffsetOutOfRangeError, match="consumequeue/Nope/3"):
        QueueReader(directory, "Nope", 3).entries(0, 1)
    entries = reader.entries(0, 1)
    (directory / "commitlog" / f"{0:020d}").unlink()
    with pytest.raises(OffsetOutOfRangeError, match=r"commitlog.* from 4096 "):
        reader.bodies(entries)


def test_an_entry_that_lies_is_corrupt_and_never_followed(reader: QueueReader) -> None:
    entries = reader.entries(5, 7)
    for lie in (
        replace(entries, physical_offsets=entries.physical_offsets + 1),
        replace(entries, sizes=entries.sizes + 1),
        replace(entries, sizes=np.full(2, -1, np.int32)),
        replace(entries, sizes=np.full(2, 2**31 - 1, np.int32)),
    ):
        with pytest.raises(CorruptRecordError, match="queue offset 5 of topic 'Trade' queue 0"):
            reader.bodies(lie)


def test_a_segment_of_another_size_is_refused(directory: Path, reader: QueueReader) -> None:
    path = directory / "commitlog" / f"{0:020d}"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptRecordError, match="4095 bytes where 4096 are expected"):
        reader.bodies(reader.entries(0, 1))


def test_the_sizes_must_be_known(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"store\.json"):
        QueueReader(GOLDEN_STORE, "TopicA", 0)
    with pytest.raises(ConfigError):
        QueueReader(tmp_path / "nothing", "T", 0)


@pytest.mark.parametrize(("topic", "queue_id"), [("TopicA", 0), ("TopicA", 1), ("TopicB", 0)])
def test_rocketmqs_own_store_is_read(topic: str, queue_id: int) -> None:
    rows = [
        row
        for row in read_jsonl("store-v1.jsonl")
        if (row.get("topic"), row.get("queueId")) == (topic, queue_id)
    ]
    with QueueReader(GOLDEN_STORE, topic, queue_id, GOLDEN_CONFIG) as reader:
        entries = reader.entries(0, len(rows))
        assert entries.tags_codes.tolist() == [row["cq"]["tagsCode"] for row in rows]
        assert reader.bodies(entries) == [base64.b64decode(row["body"]) for row in rows]
        assert reader.tags(entries) == [row["tags"] for row in rows]
        mask = reader.have_tags(entries, ["Aa"])
        assert mask.tolist() == [row["tags"] == "Aa" for row in rows]


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
def test_compressed_bodies_are_inflated_among_others(tmp_path: Path, kind: CompressionKind) -> None:
    sent = [Message("Trade", b"body %d " % i * (i % 3 * 40)) for i in range(12)]
    batch = encode_messages(
        sent,
        born_host=("10.0.0.9", 1),
        clock_ms=FakeClock(),
        options=RecordOptions(Compression(kind, over_bytes=500)),
    )
    with MessageStore(tmp_path, SMALL, clock_ms=FakeClock()) as store:
        store.append("Trade", 0, batch)
        stored = read_all(store, "Trade", 0)
        assert [one.body for one in stored] == [one.body for one in sent]
        assert store.reads.view(stored[2].physical_offset) == stored[2]
        flags = {bool(one.sys_flag & 1) for one in stored}
        assert flags == {True, False}
        assert stored[2].body_crc != crc32(stored[2].body)  # it is that of the stored body
    with QueueReader(tmp_path, "Trade", 0) as reader:
        entries = reader.entries(0, 12)
        assert reader.bodies(entries) == [one.body for one in sent]
        assert reader.messages(entries) == stored
        columns = read_columns(reader, entries, ["body", "queueOffset"])
        assert columns["body"].to_pylist() == [one.body for one in sent]


def test_inflated_bodies_over_arrows_limit_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = [Message("Trade", bytes(5000))] * 4
    batch = encode_messages(
        sent,
        born_host=("10.0.0.9", 1),
        clock_ms=FakeClock(),
        options=RecordOptions(Compression("zstd")),
    )
    with MessageStore(tmp_path, SMALL, clock_ms=FakeClock()) as store:
        store.append("Trade", 0, batch)
    monkeypatch.setattr(record_spans, "ARROW_BYTES_MAX", 15_000)
    with QueueReader(tmp_path, "Trade", 0) as reader:
        assert len(reader.bodies(reader.entries(0, 3))) == 3
        with pytest.raises(ConfigError, match="4 bodies have over 15000 bytes when infl"):
            reader.bodies(reader.entries(0, 4))


def test_a_flipped_bit_of_a_body_is_reported_with_its_place(
    directory: Path, reader: QueueReader, expected: list[StoredMessage]
) -> None:
    victim = expected[3]
    path = directory / "commitlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[content.index(victim.body)] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptRecordError, match="does not match its CRC") as raised:
        reader.bodies(reader.entries(0, 5))
    assert raised.value.physical_offset == victim.physical_offset
    assert len(reader.bodies(reader.entries(0, 3))) == 3


def test_an_entry_that_points_to_another_queue_offset_is_corrupt(reader: QueueReader) -> None:
    entries = reader.entries(4, 8)
    swapped = replace(entries, queue_offsets=entries.queue_offsets[::-1].copy())
    with pytest.raises(
        CorruptRecordError,
        match="queue offset 7 of topic 'Trade' queue 0 points to it, but its fields name",
    ):
        reader.bodies(swapped)


def test_properties_are_found_straight_from_the_entries_in_every_segment(
    reader: QueueReader, expected: list[StoredMessage]
) -> None:
    values: list[str | None] = []
    parts = list(reader.find_properties(reader.entries(0, COUNT), ("TAGS", "nothing")))
    for segment, starts, sizes in parts:
        assert (sizes[1] == -1).all()
        values += string_array(segment, starts[0], sizes[0]).to_pylist()
    assert values == [message.tags for message in expected]
    assert len(parts) == len(reader.records(reader.entries(0, COUNT))) > 1


def test_an_entry_whose_record_is_not_there_stops_the_search_for_properties(
    reader: QueueReader,
) -> None:
    entries = reader.entries(4, 8)
    entries.sizes[2] += 1
    with pytest.raises(CorruptRecordError, match="queue offset 6 of topic 'Trade' queue 0"):
        list(reader.find_properties(entries, ("TAGS",)))


def test_only_so_many_segments_stay_mapped(directory: Path) -> None:
    copy = directory.parent / "copy"
    shutil.copytree(directory, copy)
    reader = QueueReader(copy, "Trade", 0)
    reader._log._limit = reader._queue._limit = 2
    assert len(reader.bodies(reader.entries(0, COUNT))) == COUNT
    assert len(reader._log) == len(reader._queue) == 2
    assert len(reader.bodies(reader.entries(0, COUNT))) == COUNT
    reader.close()
    assert len(reader._log) == 0
