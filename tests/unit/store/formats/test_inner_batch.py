from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.nodes.stores import FakeClock

from rocketray.base.config import StoreConfig
from rocketray.errors import CorruptRecordError
from rocketray.hashing import crc32
from rocketray.store.formats.inner_batch import BatchUnit, decode_units
from rocketray.store.formats.record import RecordValues, encode_record
from rocketray.store.message_store import MessageStore

# Written by RocketMQ: bodies "x" with K=1 and "yy" with T=2.
VECTOR = bytes.fromhex(
    "0000001b000000000000000000000000000000017800044b013102"
    "0000001c000000000000000000000000000000027979000454013202"
)
UNITS = [BatchUnit(0, b"x", b"K\x011\x02"), BatchUnit(0, b"yy", b"T\x012\x02")]
units = st.builds(
    BatchUnit, st.integers(-(2**31), 2**31 - 1), st.binary(max_size=40), st.binary(max_size=40)
)


def encode_units(several: Iterable[BatchUnit]) -> bytes:
    """What RocketMQ writes: size, magic code, CRC, flag and body length before the body."""
    parts = []
    for unit in several:
        size = 22 + len(unit.body) + len(unit.properties)
        head = struct.pack(">iiiii", size, 0, 0, unit.flag, len(unit.body))
        parts += [head, unit.body, struct.pack(">h", len(unit.properties)), unit.properties]
    return b"".join(parts)


def decode(batch: bytes) -> list[BatchUnit]:
    return list(decode_units(batch, "log", 1000))


def test_rocketmqs_batch_is_read_and_written() -> None:
    assert decode(VECTOR) == UNITS
    assert encode_units(UNITS) == VECTOR


@given(st.lists(units, max_size=5))
def test_what_was_encoded_is_decoded(several: list[BatchUnit]) -> None:
    assert decode(encode_units(several)) == several


@given(st.binary(max_size=200) | st.binary(max_size=9).map(lambda tail: VECTOR[:-9] + tail))
def test_any_bytes_are_units_that_encode_to_them_or_are_corrupt(raw: bytes) -> None:
    try:
        found = decode(raw)
    except CorruptRecordError:
        return
    assert len(encode_units(found)) == len(raw)


@pytest.mark.parametrize("position", [0, 16, 21])
@pytest.mark.parametrize("value", [-1, 0, 1, 2**31 - 1, -(2**31)])
def test_a_wrong_length_is_corrupt_and_said_where(position: int, value: int) -> None:
    raw = bytearray(VECTOR)
    if position == 21:
        struct.pack_into(">h", raw, position, max(min(value, 32_767), -32_768))
    else:
        struct.pack_into(">i", raw, position, value)
    if raw == VECTOR:
        return
    with pytest.raises(CorruptRecordError, match="offset 1000: the batch in its body is broken"):
        decode(bytes(raw))


def test_every_cut_is_corrupt() -> None:
    for length in range(1, len(VECTOR)):
        if length != 27:
            with pytest.raises(CorruptRecordError):
                decode(VECTOR[:length])


@pytest.mark.parametrize(("sys_flag", "bodies"), [(0xC0, [b"x", b"yy"]), (0x80, [VECTOR])])
def test_a_scan_takes_apart_what_rocketmq_marked_as_an_inner_batch(
    tmp_path: Path, sys_flag: int, bodies: list[bytes]
) -> None:
    record = encode_record(
        RecordValues(
            "Batches",
            VECTOR,
            b"INNER_NUM\x012\x02",
            queue_id=1,
            queue_offset=40,
            physical_offset=0,
            born_timestamp_ms=5,
            born_host=("1.2.3.4", 5),
            store_timestamp_ms=6,
            store_host=("5.6.7.8", 9),
            sys_flag=sys_flag,
        )
    )
    log = tmp_path / "commitlog"
    log.mkdir()
    (log / f"{0:020d}").write_bytes(record.ljust(4096, b"\0"))
    config = StoreConfig(commit_log_segment_bytes=4096)
    with MessageStore(tmp_path, config, read_only=True, clock_ms=FakeClock()) as store:
        found = list(store.reads.scan())
        assert [one.body for one in found] == bodies
        assert [one.queue_offset for one in found] == list(range(40, 40 + len(bodies)))
        assert all(one.body_crc == crc32(one.body) for one in found)
        assert all(one.born_host == ("1.2.3.4", 5) for one in found)
        assert store.reads.view(0).body == VECTOR  # by its offset, the record as it is
    if sys_flag == 0xC0:
        assert [one.properties for one in found] == [{"K": "1"}, {"T": "2"}]
