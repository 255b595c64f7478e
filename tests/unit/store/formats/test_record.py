from __future__ import annotations

import struct
import zlib

import pytest
from support.models.records import GOLDEN_V1

from rocketray.errors import CorruptRecordError, MessageTooLargeError
from rocketray.hashing import crc32
from rocketray.message import Message
from rocketray.store.formats.compression import INFLATED_BODY_MAX_BYTES
from rocketray.store.formats.record import (
    RecordValues,
    decode_record,
    encode_blank,
    encode_host,
    encode_record,
    is_blank,
    parse_record,
)

MESSAGE = Message("TopicTest", b"hello", tags="TagA", keys=("k1", "k2"), flag=7)


def encode(message: Message = MESSAGE, born: str = "192.168.1.2", store: str = "10.0.0.1") -> bytes:
    return encode_record(
        RecordValues(
            message.topic,
            message.body,
            message.encoded_properties(),
            flag=message.flag,
            queue_id=3,
            queue_offset=42,
            physical_offset=1000,
            born_timestamp_ms=1_700_000_000_000,
            born_host=(born, 54_321),
            store_timestamp_ms=1_700_000_000_123,
            store_host=(store, 10_911),
        )
    )


def with_body(body: bytes, sys_flag: int) -> bytes:
    """The record of MESSAGE with other stored bytes for a body."""
    record = bytearray(encode(Message("TopicTest", body)))
    struct.pack_into(">i", record, 36, sys_flag)
    return bytes(record)


def test_the_record_that_rocketmq_wrote_decodes_to_its_fields() -> None:
    message = decode_record(GOLDEN_V1, "log", 1000)
    assert (message.topic, message.body, message.tags) == ("TopicTest", b"hello", "TagA")
    assert message.keys == ["k1", "k2"]
    assert (message.queue_id, message.flag, message.queue_offset) == (3, 7, 42)
    assert (message.size, message.body_crc, message.sys_flag) == (126, 907_060_870, 0)
    assert message.born_host == ("192.168.1.2", 54_321)
    assert message.store_host == ("10.0.0.1", 10_911)
    assert message.born_timestamp_ms == 1_700_000_000_000
    assert message.store_timestamp_ms == 1_700_000_000_123
    assert message.offset_message_id == "0A00000100002A9F00000000000003E8"


def test_the_same_message_encodes_to_the_same_bytes_but_for_the_order_of_properties() -> None:
    ours = encode()
    assert len(ours) == len(GOLDEN_V1) == 126
    assert ours[:105] == GOLDEN_V1[:105]
    assert sorted(ours[105:].split(b"\2")) == sorted(GOLDEN_V1[105:].split(b"\2"))


def test_a_long_topic_makes_a_v2_record_that_decodes_alike() -> None:
    topic = "%RETRY%" + "g" * 200
    record = encode(Message(topic, b"x", tags="t"))
    assert record[4:8].hex() == "daa320ab"
    assert decode_record(record, "log", 1000).topic == topic


@pytest.mark.parametrize("born", ["1.2.3.4", "fd00::2"])
@pytest.mark.parametrize("store", ["5.6.7.8", "fd00::1"])
def test_hosts_are_ipv4_or_ipv6_each_for_itself(born: str, store: str) -> None:
    message = decode_record(encode(born=born, store=store), "log", 1000)
    assert (message.born_host[0], message.store_host[0]) == (born, store)
    assert message.sys_flag == 16 * (":" in born) + 32 * (":" in store)
    assert len(message.offset_message_id) == (56 if ":" in store else 32)
    assert message.body == b"hello"


def test_a_zlib_body_is_inflated_whether_its_kind_is_said_or_not() -> None:
    stored = zlib.compress(b"many words " * 100)
    for kind in (0x001, 0x301):
        message = decode_record(with_body(stored, kind), "log", 1000)
        assert message.body == b"many words " * 100
        assert message.body_crc == crc32(stored)


@pytest.mark.parametrize(
    ("body", "sys_flag", "reason"),
    [
        (b"no zlib at all", 1, "is not a valid zlib stream"),
        (zlib.compress(b"x" * 100)[:-5], 1, "is truncated"),
        (b"\x04\x22\x4d\x18", 0x101, "is not a valid lz4 stream: Truncated"),
        (b"\x28\xb5\x2f\xfd", 0x201, "is not a valid zstd stream: Truncated"),
        (b"?", 0x701, "unknown method, number 7"),
    ],
)
def test_a_body_that_cannot_be_inflated_says_why(body: bytes, sys_flag: int, reason: str) -> None:
    with pytest.raises(CorruptRecordError, match=reason):
        decode_record(with_body(body, sys_flag), "log", 1000)


def test_a_body_that_inflates_without_end_is_stopped() -> None:
    bomb = zlib.compress(bytes(INFLATED_BODY_MAX_BYTES + 1), 9)
    with pytest.raises(MessageTooLargeError, match="inflated body"):
        decode_record(with_body(bomb, 1), "log", 1000)


@pytest.mark.parametrize(
    ("position", "content", "reason"),
    [
        (4, b"\0\0\0\0", "invalid magic code: 0x00000000"),
        (0, struct.pack(">i", 125), "do not add up to its size of 125"),
        (0, struct.pack(">i", 127), "invalid record size: 127 bytes, and 126 bytes"),
        (0, struct.pack(">i", -1), "invalid record size: -1"),
        (84, struct.pack(">i", -1), "do not add up"),
        (84, struct.pack(">i", 2**31 - 1), "do not add up"),
        (93, b"\x80", "do not add up"),
        (103, b"\xff\xff", "do not add up"),
        (36, b"\0\0\0\x30", "do not add up|too few for its hosts"),
        (28, struct.pack(">q", 999), "its physical offset field is 999"),
        (88, b"H", "body does not match its CRC"),
        (94, b"\xff", "topic is not UTF-8"),
    ],
)
def test_a_damaged_record_says_what_is_wrong(position: int, content: bytes, reason: str) -> None:
    record = bytearray(GOLDEN_V1)
    record[position : position + len(content)] = content
    with pytest.raises(CorruptRecordError, match=reason) as raised:
        decode_record(bytes(record), "log", 1000)
    assert (raised.value.path, raised.value.physical_offset) == ("log", 1000)


def test_a_record_must_fill_its_bytes_exactly() -> None:
    with pytest.raises(CorruptRecordError, match="its size is 126, not 127"):
        decode_record(GOLDEN_V1 + b"\0", "log", 1000)
    with pytest.raises(CorruptRecordError, match="only 90 bytes of the file remain"):
        decode_record(GOLDEN_V1[:90], "log", 1000)


def test_a_record_is_found_within_its_file_only() -> None:
    padded = b"\0" * 10 + GOLDEN_V1 + b"\0" * 10
    fields = parse_record(padded, 10, len(padded))
    assert not isinstance(fields, str)
    assert padded[fields.topic_start : fields.topic_end] == b"TopicTest"
    assert isinstance(parse_record(padded, 10, 135), str)


def test_a_blank_record_is_its_size_and_a_magic_code() -> None:
    blank = encode_blank(3691)
    assert blank.hex() == "00000e6bcbd43194"
    assert is_blank(blank, 0, 8)
    assert not is_blank(blank, 0, 7)
    assert not is_blank(GOLDEN_V1, 0, 126)


def test_a_port_has_four_bytes() -> None:
    assert encode_host(("10.0.0.1", 10_911)).hex() == "0a00000100002a9f"
    assert len(encode_host(("fd00::1", 1))) == 20
