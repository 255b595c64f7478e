"""Records of other stores made into batches of ours: what stays, what goes, what is added."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.nodes.stores import SMALL, FakeClock, kill

from rocketray.errors import InvalidMessageError, MessageTooLargeError
from rocketray.hashing import tags_code
from rocketray.kernels.property_crc import CRC_PROPERTY_NAME
from rocketray.message import IMPORTED_OFFSET_ID, PROPERTIES_MAX_BYTES, Message, StoredMessage
from rocketray.store.formats.message_id import encode_offset_id
from rocketray.store.formats.property_crc import CRC_ROOM
from rocketray.store.formats.record import (
    RecordFields,
    RecordValues,
    decode_record,
    encode_record,
    parse_record,
)
from rocketray.store.importing.import_batch import ImportBatch
from rocketray.store.importing.import_source import SourceRecord
from rocketray.store.message_store import MessageStore

IPV4, IPV6 = ("192.0.2.9", 10_911), ("2001:db8::9", 10_911)
BEFORE = b"never read "  # a record does not begin where its buffer does


def source_record(
    message: Message,
    *,
    store_host: tuple[str, int] = IPV4,
    born_host: tuple[str, int] = ("192.0.2.1", 5),
    sys_flag: int = 0,
    properties: bytes | None = None,
    properties_crc: bool = False,
) -> tuple[SourceRecord, StoredMessage]:
    """A record as another store has it, with *properties* in place of the message's."""
    raw = encode_record(
        RecordValues(
            message.topic,
            message.body,
            message.encoded_properties() if properties is None else properties,
            queue_id=3,
            queue_offset=70,
            physical_offset=700,
            born_timestamp_ms=1_111,
            born_host=born_host,
            store_timestamp_ms=2_222,
            store_host=store_host,
            flag=message.flag,
            sys_flag=sys_flag,
        ),
        properties_crc=properties_crc,
    )
    fields = parse_record(BEFORE + raw, len(BEFORE), len(BEFORE) + len(raw))
    assert isinstance(fields, RecordFields)
    source = SourceRecord(message.topic, 700, fields, memoryview(BEFORE + raw))
    return source, decode_record(raw, "theirs", 700)


def imported(directory: Path, *sources: SourceRecord) -> list[StoredMessage]:
    """The records as a store of ours has them afterwards."""
    batch = ImportBatch(sources[0].topic)
    for source in sources:
        batch.add(source, source.fields.store_timestamp_ms)
    encoded = batch.encode()
    assert (len(batch), batch.size) == (len(encoded), len(encoded.records))
    with MessageStore(directory, SMALL, clock_ms=FakeClock()) as store:
        store.append(sources[0].topic, 3, encoded)
        return list(store.reads.scan())


@pytest.mark.parametrize("store_host", [IPV4, IPV6])
@pytest.mark.parametrize("born_host", [IPV4, IPV6])
@pytest.mark.parametrize("topic", ["Trade", "%RETRY%" + "g" * 200])
def test_all_that_a_record_says_of_its_message_stays(
    tmp_path: Path, store_host: tuple[str, int], born_host: tuple[str, int], topic: str
) -> None:
    message = Message(
        topic, b"body", "größe", ("k1", "k2"), {"a": "1"}, flag=-7, unique_key="unique"
    )
    source, theirs = source_record(
        message, store_host=store_host, born_host=born_host, sys_flag=0x100 | 0x8
    )
    [ours] = imported(tmp_path, source)
    old_id = encode_offset_id(store_host, 700)
    assert ours.imported_offset_id == old_id == theirs.offset_message_id
    assert ours.properties == {**theirs.properties, IMPORTED_OFFSET_ID: old_id}
    assert (ours.body, ours.flag, ours.sys_flag & ~0x20) == (b"body", -7, theirs.sys_flag & ~0x20)
    assert (ours.born_host, ours.born_timestamp_ms) == (born_host, 1_111)
    assert (ours.store_host, ours.store_timestamp_ms) == (SMALL.store_host, 2_222)
    assert (ours.queue_id, ours.queue_offset, ours.physical_offset) == (3, 0, 0)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (b"", b""),
        (b"a\x011", b"a\x011\x02"),  # RocketMQ 4.9 and 5.1 leave the last separator out
        (b"a\x011\x02\x02\x02b\x012\x02", b"a\x011\x02b\x012\x02"),
        (b"IMPORTED_OFFSET_ID\x01FF\x02a\x01=\x01=\x02", b"a\x01=\x01=\x02"),
        (b"nothing\x02a\x01\x02", b"nothing\x02a\x01\x02"),
    ],
)
def test_property_strings_of_every_form_are_taken_over(
    tmp_path: Path, theirs: bytes, ours: bytes
) -> None:
    source, _ = source_record(Message("Trade", b"body"), properties=theirs)
    batch = ImportBatch("Trade")
    batch.add(source, 5)
    raw = batch.encode().records.tobytes()
    expected = ours + b"IMPORTED_OFFSET_ID\x01" + source.offset_id.encode() + b"\x02" + CRC_ROOM
    assert raw.endswith(len(expected).to_bytes(2, "big") + expected)
    [message] = imported(tmp_path, source)
    assert message.imported_offset_id == source.offset_id


def test_keys_count_as_they_do_for_rocketmq(tmp_path: Path) -> None:
    properties = b"KEYS\x01old\x02UNIQ_KEY\x01u\x02KEYS\x01k1  k2 k1\x02TAGS\x01t\x02"
    source, _ = source_record(Message("Trade", b"body"), properties=properties)
    imported(tmp_path, source)
    with MessageStore(tmp_path, clock_ms=FakeClock()) as store:
        assert store.statistics().keys == 5
        for key in ("u", "k1", "k2", source.offset_id):
            assert len(store.reads.query("Trade", key)) == 1
        assert not store.reads.query("Trade", "old")
        assert not store.reads.query("Trade", "")


def test_a_property_string_without_room_for_the_old_id_is_refused() -> None:
    properties = b"a\x01" + b"x" * (PROPERTIES_MAX_BYTES - 30) + b"\x02"
    source, _ = source_record(Message("Trade", b""), properties=properties)
    batch = ImportBatch("Trade")
    with pytest.raises(MessageTooLargeError, match="physical offset 700"):
        batch.add(source, 5)
    assert len(batch) == 0


def test_zeros_in_properties_are_no_damage_after_a_crash(tmp_path: Path) -> None:
    """As a client of RocketMQ may send them, and as a power failure leaves a sector."""
    text = b"TAGS\x01t\x00\x02KEYS\x01k\x00 l\x02a\x01" + bytes(1536) + b"\x02"
    source, theirs = source_record(Message("Trade", b"body"), properties=text)
    batch = ImportBatch("Trade")
    batch.add(source, 5)
    store = MessageStore(tmp_path, SMALL, clock_ms=FakeClock())
    store.append("Trade", 3, batch.encode())
    kill(store)
    with MessageStore(tmp_path, clock_ms=FakeClock()) as again:
        [ours] = again.reads.scan()
        assert ours.properties == {**theirs.properties, IMPORTED_OFFSET_ID: source.offset_id}
        assert again.verify().problems == ()


def test_zeros_without_room_for_a_crc_are_refused() -> None:
    text = b"a\x01" + bytes(PROPERTIES_MAX_BYTES - 60) + b"\x02"
    source, _ = source_record(Message("Trade", b""), properties=text)
    with pytest.raises(InvalidMessageError, match=r"offset 700: .* 512 zero bytes in a row"):
        ImportBatch("Trade").add(source, 5)


def test_a_crc_of_the_whole_record_is_made_anew(tmp_path: Path) -> None:
    message = Message("Trade", b"body", properties={"a": "1"})
    source, _ = source_record(message, properties_crc=True)
    [ours] = imported(tmp_path, source)  # reading checks it
    assert list(ours.properties) == ["a", IMPORTED_OFFSET_ID]
    log = (tmp_path / "commitlog" / f"{0:020d}").read_bytes()
    assert log[: ours.size].count(CRC_PROPERTY_NAME) == 1


def test_tags_and_keys_that_are_no_utf8_are_hashed_as_java_reads_them(tmp_path: Path) -> None:
    text = b"TAGS\x01a\xed\xa0\x80\x02KEYS\x01\xed\xb0\x80 k2\x02"
    source, theirs = source_record(Message("Trade", b""), properties=text)
    assert (theirs.tags, theirs.keys) == ("a\ufffd", ["\ufffd", "k2"])
    [ours] = imported(tmp_path, source)
    assert (ours.tags, ours.keys) == (theirs.tags, theirs.keys)
    with MessageStore(tmp_path, SMALL, clock_ms=FakeClock()) as store:
        assert store.reads.queue_entry("Trade", 3, 0).tags_code == tags_code("a\ufffd")
        for key in theirs.keys:
            assert [each.keys for each in store.reads.query("Trade", key)] == [theirs.keys]
