from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.nodes.stores import NO_CRC, FakeClock, check_whole, kill, message, read_all

from rocketray.base.config import StoreConfig
from rocketray.errors import CorruptRecordError
from rocketray.message import (
    CRC_PROPERTY,
    PROPERTIES_MAX_BYTES,
    ForwardedMessage,
    Message,
    StoredMessage,
)
from rocketray.store.batches.batch_form import EncodedBatch, RecordOptions
from rocketray.store.batches.encoded_batch import encode_messages, packed, unpack_batch
from rocketray.store.batches.encoded_table import MeasuredTable
from rocketray.store.batches.forward import encode_forwarded
from rocketray.store.batches.message_columns import MessageColumns, RecordForm
from rocketray.store.formats.property_crc import (
    CRC_ROOM,
    crc_property,
    find_crc_mismatches,
    with_crc_property,
)
from rocketray.store.formats.record import (
    RecordValues,
    decode_record,
    encode_record,
    parse_record,
)
from rocketray.store.message_store import MessageStore
from rocketray.store.reading.columns import read_columns
from rocketray.store.reading.reader import QueueReader

CONFIG = StoreConfig(
    commit_log_segment_bytes=4096,
    consume_queue_segment_entries=7,
    index_hash_slots=5,
    index_entries=9,
)
CONFIG_LARGE = StoreConfig(commit_log_segment_bytes=1 << 18)
RECORD = encode_record(
    RecordValues(
        "Trade",
        b"body",
        b"TAGS\x01pay\x02",
        queue_id=3,
        queue_offset=42,
        physical_offset=1000,
        born_timestamp_ms=1,
        born_host=("10.0.0.1", 1),
        store_timestamp_ms=2,
        store_host=("10.0.0.2", 2),
    ),
    properties_crc=True,
)


RECORD_WITHOUT_PROPERTIES = encode_record(
    RecordValues(
        "Trade", b"", b"", physical_offset=1000, born_timestamp_ms=1, born_host=("10.0.0.1", 1)
    ),
    properties_crc=True,
)


def ends_with_crc(store: MessageStore, one: StoredMessage) -> bool:
    record = store._log.read(one.physical_offset, one.size)
    return record[-20:] == crc_property(record)


def test_the_digits_stand_with_the_lowest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zlib, "crc32", lambda _: 1_234_567 | 1 << 31)
    vector = bytes.fromhex("5f5f435243333223013736353433323130303002")
    assert crc_property(bytes(100)) == vector  # RocketMQ's own for this CRC, without the top bit


def test_the_property_covers_the_record_up_to_itself() -> None:
    assert int(RECORD[-11:-1][::-1]) == zlib.crc32(RECORD[:-20]) & 0x7FFFFFFF


@pytest.mark.parametrize("missing", [0, 1])
def test_properties_that_leave_no_room_are_stored_as_they_are(missing: int) -> None:
    value = "v" * (PROPERTIES_MAX_BYTES - len(CRC_ROOM) - len(b"a\x01\x02") + missing)
    properties = b"a\x01" + value.encode() + b"\x02"
    values = RecordValues("Trade", b"", properties, born_timestamp_ms=1, born_host=("10.0.0.1", 1))
    record = encode_record(values, properties_crc=True)
    assert decode_record(record, "log", 0).properties == {"a": value}
    assert (record[-len(CRC_ROOM) :] == crc_property(record)) is (missing == 0)


@pytest.mark.parametrize("lost", [1, 12, 20, 21, 24])
def test_an_end_that_was_not_written_is_noticed(lost: int) -> None:
    with pytest.raises(CorruptRecordError, match="does not match its CRC property"):
        decode_record(RECORD[:-lost] + bytes(lost), "log", 1000)


def test_readers_of_properties_do_not_see_it(tmp_path: Path) -> None:
    assert decode_record(RECORD, "log", 1000).properties == {"TAGS": "pay"}
    with MessageStore(tmp_path, CONFIG, clock_ms=FakeClock()) as store:
        store.put([Message("Trade", b"", properties={"a": "1"}), Message("Trade", b"")], 0)
        with QueueReader(tmp_path, "Trade", 0) as reader:
            column = read_columns(reader, reader.entries(0, 2), ["properties"])["properties"]
        assert column.to_pylist() == [[("a", "1")], []]
        assert [one.properties for one in read_all(store, "Trade", 0)] == [{"a": "1"}, {}]


@pytest.mark.proves(
    "durability",
    "A changed byte costs one record, and is not delivered, after `store recover` either",
)
@pytest.mark.parametrize("mask", [1 << bit for bit in range(8)] + [0xFF])
def test_a_change_of_any_byte_is_noticed(mask: int) -> None:
    for record in (RECORD, RECORD_WITHOUT_PROPERTIES):
        for position in range(len(record)):
            damaged = bytearray(record)
            damaged[position] ^= mask
            with pytest.raises(CorruptRecordError):
                decode_record(bytes(damaged), "log", 1000)
            fields = parse_record(damaged, 0, len(damaged))
            if isinstance(fields, str) or fields.size != len(damaged):
                continue
            data = np.frombuffer(damaged, np.uint8)
            size, start = np.array([fields.size]), np.array([fields.properties_start])
            assert find_crc_mismatches(data, size, start, size - start).all()


@pytest.mark.parametrize("digits", [b"0000000000", b"x000000000", b"9999999999"])
def test_a_wrong_property_is_no_match(digits: bytes) -> None:
    with pytest.raises(CorruptRecordError, match="does not match its CRC property"):
        decode_record(RECORD[:-11] + digits + b"\x02", "log", 1000)


def test_a_property_that_only_looks_like_it_is_the_users_own() -> None:
    for name in ("x__CRC32#", "__CRC32"):
        record = encode_record(
            RecordValues(
                "Trade",
                b"",
                f"{name}\x011234567890\x02".encode(),
                queue_id=0,
                queue_offset=0,
                physical_offset=0,
                born_timestamp_ms=1,
                born_host=("10.0.0.1", 1),
                store_timestamp_ms=2,
                store_host=("10.0.0.2", 2),
            )
        )
        assert decode_record(record, "log", 0).properties == {name: "1234567890"}


def test_a_separator_comes_before_it_where_one_is_missing() -> None:
    assert with_crc_property(b"") == b"__CRC32#\x010000000000\x02"
    assert with_crc_property(b"a\1b\2") == b"a\1b\2__CRC32#\x010000000000\x02"
    assert with_crc_property(b"a\1b") == b"a\1b\2__CRC32#\x010000000000\x02"
    room = PROPERTIES_MAX_BYTES - 20
    assert len(with_crc_property(b"\2" * room)) == PROPERTIES_MAX_BYTES
    for too_long in (b"\2" * (room + 1), b"x" * room):
        assert with_crc_property(too_long) == too_long


def test_a_store_that_writes_it_is_read_and_recovered(tmp_path: Path) -> None:
    store = MessageStore(tmp_path, CONFIG, clock_ms=FakeClock())
    for number in range(40):
        store.put([message(number), Message("Trade", b"", properties={CRC_PROPERTY: "old"})], 0)
    stored = read_all(store, "Trade", 0)
    assert all(ends_with_crc(store, one) for one in stored)
    kill(store)
    with MessageStore(tmp_path, clock_ms=FakeClock()) as again:
        assert check_whole(again) == 80
    with QueueReader(tmp_path, "Trade", 0) as reader:
        assert reader.messages(reader.entries(0, 80)) == stored


def test_a_flipped_bit_of_a_property_is_reported_by_readers_and_ends_the_log(
    tmp_path: Path,
) -> None:
    store = MessageStore(tmp_path, CONFIG, clock_ms=FakeClock())
    store.put([message(number) for number in range(5)], 0)
    victim = read_all(store, "Trade", 0)[3]
    kill(store)
    path = tmp_path / "commitlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[content.index(b"amount\x013") + 7] ^= 1
    path.write_bytes(content)
    with (
        QueueReader(tmp_path, "Trade", 0) as reader,
        pytest.raises(CorruptRecordError, match="does not match its CRC property") as raised,
    ):
        reader.tags(reader.entries(0, 5))
    assert raised.value.physical_offset == victim.physical_offset
    with MessageStore(tmp_path, read_only=True, clock_ms=FakeClock()) as beside:
        assert beside.reads.max_physical_offset == victim.physical_offset
    with MessageStore(tmp_path, clock_ms=FakeClock()) as again:
        assert check_whole(again) == 3


def test_a_record_without_it_is_as_good_as_any_in_a_store_that_writes_it(tmp_path: Path) -> None:
    """As with RocketMQ's ``enabledAppendPropCRC`` alone."""
    batch = MeasuredTable(
        "Trade",
        pa.table({"body": pa.array([b"no room left"], pa.binary())}),
        born_host=("10.0.0.9", 1),
        born_timestamp_ms=1,
        options=RecordOptions(properties_crc=False),
    ).encode()
    store = MessageStore(tmp_path, CONFIG, clock_ms=FakeClock())
    store.put([message(1)], 0)
    store.append("Trade", 0, batch)
    store.put([message(2)], 0)
    kill(store)
    with MessageStore(tmp_path, clock_ms=FakeClock()) as again:
        assert again.recovery is not None
        assert again.recovery.holes == ()
        assert check_whole(again) == 3
        assert again.verify().problems == ()
        has_one = [ends_with_crc(again, one) for one in again.reads.scan()]
        assert has_one == [True, False, True]


def test_a_producer_may_leave_room_and_any_store_fills_it(tmp_path: Path) -> None:
    table = pa.table({"body": pa.array([b"one", b"two"], pa.binary()), "tags": ["a", None]})
    batch = MeasuredTable(
        "Trade",
        table,
        born_host=("10.0.0.9", 1),
        born_timestamp_ms=1,
    ).encode()
    before = batch.records.copy()
    with MessageStore(tmp_path, NO_CRC, clock_ms=FakeClock()) as store:
        store.put([message(1)], 0)
        store.append("Trade", 0, batch)
        stored = read_all(store, "Trade", 0)
        assert [ends_with_crc(store, one) for one in stored] == [False, True, True]
    np.testing.assert_array_equal(batch.records, before)


@pytest.mark.parametrize("kind", ["columns", "table", "messages", "forwarded"])
def test_every_sender_leaves_room_where_the_limit_allows_it(kind: str, tmp_path: Path) -> None:
    with MessageStore(tmp_path, CONFIG_LARGE, clock_ms=FakeClock()) as store:
        for size in (sizes := [1, 32_700, 32_730 if kind == "columns" else 32_760]):
            batch = batch_of(kind, {"a": "x" * size})
            store.append("Trade", 0, batch)
        stored = read_all(store, "Trade", 0)
        assert [ends_with_crc(store, one) for one in stored] == [True, True, False]
        assert [len(one.properties["a"]) for one in stored] == sizes


def batch_of(kind: str, properties: dict[str, str]) -> EncodedBatch:
    """Return a batch of one message, encoded in one of four ways."""
    host = ("10.0.0.9", 1)
    if kind == "columns":
        columns = MessageColumns(RecordForm("Trade", born_host=host, id_prefix="0" * 10))
        columns.add(b"", None, (), properties)
        return unpack_batch(packed(columns.pack(0, 1)))
    if kind == "table":
        table = pa.table(
            {"body": pa.array([b""], pa.binary()), **{k: [v] for k, v in properties.items()}}
        )
        return MeasuredTable(
            "Trade", table, born_host=host, born_timestamp_ms=1, property_columns=list(properties)
        ).encode()
    if kind == "messages":
        one = Message("Trade", b"", properties=properties)
        return encode_messages([one], born_host=host, clock_ms=lambda: 1)
    return encode_forwarded([ForwardedMessage("Trade", b"", properties, 1, host)])
