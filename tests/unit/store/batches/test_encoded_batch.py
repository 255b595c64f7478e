from __future__ import annotations

import struct
from dataclasses import fields

import numpy as np
import pytest
from support.models.records import GOLDEN_V1

from rocketray.errors import ConfigError, InvalidMessageError, MessageTooLargeError
from rocketray.hashing import index_key_hash, tags_code
from rocketray.kernels.layout import MAGIC_V2
from rocketray.message import Message
from rocketray.store.batches.batch_form import EncodedBatch, RecordOptions
from rocketray.store.batches.encoded_batch import encode_messages, pack_batch, unpack_batch
from rocketray.store.formats.record import decode_record

NOW = 1_700_000_000_000


def encode(*messages: Message, born_host: tuple[str, int] = ("192.168.1.2", 54321)) -> EncodedBatch:
    options = RecordOptions(properties_crc=False)  # only a store can fill it in
    return encode_messages(messages, born_host=born_host, clock_ms=lambda: NOW, options=options)


def batch_of_three() -> EncodedBatch:
    return encode(
        Message("T", b"one", tags="TagA", keys=("k1", "k2"), unique_key="u1"),
        Message("T", b"", born_timestamp_ms=5),
        Message("T", b"three", keys="k3", properties={"a": "ü"}, flag=9),
    )


def assert_same(left: EncodedBatch, right: EncodedBatch) -> None:
    for field in fields(EncodedBatch):
        ours, theirs = (np.asarray(getattr(batch, field.name)) for batch in (left, right))
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


def test_a_record_is_the_one_that_rocketmq_writes_but_for_the_stores_fields() -> None:
    message = Message("TopicTest", b"hello", tags="TagA", keys=("k1", "k2"), flag=7)
    raw = bytearray(encode(message).records.tobytes())
    expected = bytearray(GOLDEN_V1)
    for start, size in ((12, 4), (20, 8), (28, 8), (56, 8), (64, 8)):
        assert not any(raw[start : start + size])
        expected[start : start + size] = bytes(size)
    assert raw[:105] == expected[:105]
    # RocketMQ writes a hash map's order, we write keys before tags.
    assert raw[105:] == b"KEYS\x01k1 k2\x02TAGS\x01TagA\x02"
    assert sorted(raw[105:].split(b"\x02")) == sorted(expected[105:].split(b"\x02"))


def test_codes_and_key_hashes_are_what_queue_and_index_take() -> None:
    batch = batch_of_three()
    assert len(batch) == 3
    assert batch.tags_codes.tolist() == [tags_code("TagA"), 0, 0]
    keys = ["T#u1", "T#k1", "T#k2", "T#k3"]
    assert batch.key_hashes.tolist() == [index_key_hash(key) for key in keys]
    assert batch.key_records.tolist() == [0, 0, 0, 2]
    assert int(batch.sizes.sum()) == len(batch.records)


def test_records_decode_to_the_messages() -> None:
    batch = batch_of_three()
    ends = np.cumsum(batch.sizes)
    raw = [
        batch.records[end - size : end].tobytes()
        for size, end in zip(batch.sizes, ends, strict=True)
    ]
    decoded = [decode_record(record, "memory", 0) for record in raw]
    assert [one.body for one in decoded] == [b"one", b"", b"three"]
    assert [one.born_timestamp_ms for one in decoded] == [NOW, 5, NOW]
    assert [one.flag for one in decoded] == [0, 0, 9]
    assert decoded[0].unique_key == "u1"
    assert decoded[2].properties == {"KEYS": "k3", "a": "ü"}
    assert decoded[0].born_host == ("192.168.1.2", 54321)


def test_an_ipv6_producer_is_kept_with_its_flag() -> None:
    batch = encode(Message("T", b"x"), born_host=("fd00::2", 1))
    decoded = decode_record(batch.records.tobytes(), "memory", 0)
    assert (decoded.born_host, decoded.sys_flag) == (("fd00::2", 1), 0x10)


def test_a_long_retry_topic_takes_the_second_version() -> None:
    topic = "%RETRY%" + "g" * 121
    batch = encode(Message(topic, b"x"))
    assert struct.unpack_from(">i", batch.records.tobytes(), 4) == (MAGIC_V2,)
    assert decode_record(batch.records.tobytes(), "memory", 0).topic == topic


@pytest.mark.parametrize("host", ["localhost", "1.2.3", "", "::g"])
def test_a_born_host_is_an_address_not_a_name(host: str) -> None:
    with pytest.raises(ConfigError, match="not an IPv4 or IPv6 address"):
        encode(Message("T", b"x"), born_host=(host, 1))


def test_what_cannot_be_one_batch_is_refused() -> None:
    with pytest.raises(InvalidMessageError, match="no messages"):
        encode()
    with pytest.raises(InvalidMessageError, match="message 1 is for 'U', the first for 'T'"):
        encode(Message("T", b""), Message("U", b""))
    with pytest.raises(MessageTooLargeError, match="property string"):
        encode(Message("T", b"", properties={"a": "x" * 32_765}))
    with pytest.raises(InvalidMessageError, match="not valid Unicode"):
        encode(Message("T", b"", keys="\ud800"))


def test_a_frame_gives_back_the_batch() -> None:
    for batch in (batch_of_three(), encode(Message("T", b"no keys"))):
        assert_same(unpack_batch(pack_batch(batch)), batch)


@pytest.mark.parametrize("shift", range(8))
def test_a_frame_may_lie_anywhere_in_memory(shift: int) -> None:
    frame = pack_batch(batch_of_three())
    moved = memoryview(bytes(shift) + frame)[shift:]
    unpacked = unpack_batch(moved)
    assert_same(unpacked, batch_of_three())
    columns = [getattr(unpacked, field.name) for field in fields(EncodedBatch)]
    assert all(one.flags.aligned for one in columns if isinstance(one, np.ndarray))


def test_every_length_of_a_frame_is_checked() -> None:
    frame = pack_batch(batch_of_three())
    for end in range(len(frame)):
        with pytest.raises(InvalidMessageError):
            unpack_batch(frame[:end])
    with pytest.raises(InvalidMessageError):
        unpack_batch(frame + b"\0")


@pytest.mark.parametrize(
    ("at", "replacement"),
    [
        (0, b"RRB2"),  # magic
        (4, b"\2"),  # records
        (4, b"\0\0\0\0"),
        (7, b"\xff"),
        (8, b"\5"),  # keys
        (11, b"\xff"),
        (12, b"\2"),  # an unknown flag
        (16, b"\0"),  # record bytes
        (23, b"\xff"),
        (24 + 24, b"\0"),  # the first size
        (24 + 24 + 3, b"\xff"),
        (24 + 36 + 16, b"\3"),  # the record of the first key: too large, then falling
        (24 + 36 + 16, b"\1"),
    ],
)
def test_a_damaged_frame_is_refused(at: int, replacement: bytes) -> None:
    frame = bytearray(pack_batch(batch_of_three()))
    frame[at : at + len(replacement)] = replacement
    with pytest.raises(InvalidMessageError, match="packed batch"):
        unpack_batch(bytes(frame))
