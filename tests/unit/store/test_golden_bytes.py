"""Every record of the store that RocketMQ wrote, written again by us: the same bytes.

Nothing is normalised but what is said here. RocketMQ's properties stand in the order of a Java
HashMap, so where our own order would do (the encoders of messages and tables), pairs are compared
sorted, without what a broker adds to a message: its place, the store's time and host, how often it
was consumed again, and the offset of a transaction's first half. A tag of no characters, which RocketMQ stores as a pair that no reader sees and we refuse
to send, is given to the two lower ways as it is.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.models.records import i64, u8
from support.nodes.stores import GOLDEN_STORE, open_golden

from rocketray.base.property_string import decode_properties
from rocketray.kernels.encode import write_pairs, write_records
from rocketray.kernels.hashing import crc32_spans
from rocketray.message import KEYS, TAGS, UNIQUE_KEY, Message
from rocketray.store.batches.batch_form import (
    EncodedBatch,
    RecordOptions,
    born_host_form,
    record_header,
    topic_form,
)
from rocketray.store.batches.encoded_batch import encode_messages
from rocketray.store.batches.encoded_table import MeasuredTable
from rocketray.store.formats.record import RecordFields, RecordValues, decode_record, encode_record
from rocketray.store.log.commit_log import CommitLog
from rocketray.store.log.log_walk import walk

COUNT = 600
SEGMENT_BYTES = 65_536
HOST = ("127.0.0.1", 10_911)
Row = tuple[int, bytes, RecordFields]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """Each record's offset, bytes and fields; positions in the fields are those in the bytes."""
    with open_golden() as store:
        found = []
        for offset, fields, _ in walk(store._log.files, 0, verify=True):
            raw = store._log.read(offset, fields.size)
            shift = offset % SEGMENT_BYTES
            starts = {
                name: getattr(fields, name) - shift
                for name in RecordFields._fields
                if name.endswith(("_start", "_end"))
            }
            found.append((offset, raw, fields._replace(**starts)))
    assert len(found) == COUNT
    return found


def test_the_plain_encoder_writes_each_record(rows: list[Row]) -> None:
    for offset, raw, fields in rows:
        one = decode_record(raw, "log", offset)
        written = encode_record(
            RecordValues(
                one.topic,
                one.body,
                raw[fields.properties_start :],
                queue_id=one.queue_id,
                queue_offset=one.queue_offset,
                physical_offset=offset,
                born_timestamp_ms=one.born_timestamp_ms,
                born_host=one.born_host,
                store_timestamp_ms=one.store_timestamp_ms,
                store_host=one.store_host,
                flag=one.flag,
                sys_flag=one.sys_flag,
                reconsume_times=one.reconsume_times,
                prepared_transaction_offset=one.prepared_transaction_offset,
            )
        )
        assert written == raw


def by_kernels(raw: bytes, fields: RecordFields) -> EncodedBatch:
    """A batch of the record, as a producer's kernels write it: what the store knows is missing."""
    one = decode_record(raw, "log", fields.physical_offset)
    form, host = topic_form(one.topic), born_host_form(*one.born_host)
    header = record_header(len(host.encoded), 8).pack(
        0, form.magic, 0, 0, one.flag, 0, 0, host.sys_flag | one.sys_flag,
        one.born_timestamp_ms, host.encoded, 0, bytes(8),
        one.reconsume_times, one.prepared_transaction_offset, 0,
    )  # fmt: skip
    data = u8(raw)
    body_start, body_size = i64([fields.body_start]), i64([len(one.body)])
    crcs, cursors = np.empty(1, np.int32), np.empty(1, np.int64)
    crc32_spans(data, body_start, body_size, crcs)
    properties_size = i64([len(raw) - fields.properties_start])
    records = np.zeros(len(raw), np.uint8)
    write_records(
        records, i64([0, len(raw)]), u8(header), data, body_start, body_size, crcs,
        u8(form.field), properties_size, cursors,
    )  # fmt: skip
    names, values = [], []
    at = fields.properties_start
    for pair in raw[at:].split(b"\x02")[:-1]:
        split = pair.index(b"\x01")
        names.append((at, split))
        values.append((at + split + 1, len(pair) - split - 1))
        at += len(pair) + 1
    name_spans, value_spans = (
        np.array(names, np.int64).reshape(-1, 2),
        np.array(values, np.int64).reshape(-1, 2),
    )
    write_pairs(
        records, cursors, i64([0, len(names)]),
        data, name_spans[:, 0].copy(), name_spans[:, 1].copy(),
        data, value_spans[:, 0].copy(), value_spans[:, 1].copy(),
    )  # fmt: skip
    assert cursors[0] == len(raw)
    none = np.empty(0, np.int32)
    return EncodedBatch(records, np.array([len(raw)], np.int32), i64([0]), none, none)


def test_kernels_and_commit_log_write_the_same_files(rows: list[Row], tmp_path: Path) -> None:
    log = CommitLog(tmp_path, SEGMENT_BYTES, HOST, read_only=False)
    for offset, raw, fields in rows:
        log.reserve(len(raw))
        written = log.append(
            by_kernels(raw, fields),
            fields.queue_id,
            fields.queue_offset,
            fields.store_timestamp_ms,
        )
        assert written == offset
    log.files.close()
    theirs = sorted((GOLDEN_STORE / "commitlog").iterdir())
    ours = sorted(tmp_path.iterdir())
    assert [path.name for path in ours] == [path.name for path in theirs]
    for mine, golden in zip(ours, theirs, strict=True):
        assert mine.read_bytes() == golden.read_bytes()  # BLANK records included


def sortable(record: bytes, start: int) -> bytes:
    """The record with its pairs sorted and without what no message has."""
    pairs = b"".join(sorted(pair + b"\x02" for pair in record[start:].split(b"\x02")[:-1]))
    zeroed = bytearray(record[:start] + pairs)
    for at, width in ((12, 4), (20, 8), (28, 8), (56, 8), (64, 20)):
        zeroed[at : at + width] = bytes(width)
    return bytes(zeroed)


def test_messages_and_tables_encode_to_the_same_but_for_the_order_of_properties(
    rows: list[Row],
) -> None:
    compared = 0
    for offset, raw, fields in rows:
        one = decode_record(raw, "log", offset)
        stored = raw[fields.properties_start :]
        if b"TAGS\x01\x02" in stored:
            continue  # we refuse to send it
        compared += 1
        properties = decode_properties(stored)
        unique_key, tags = properties.pop(UNIQUE_KEY, None), properties.pop(TAGS, None)
        keys = properties.pop(KEYS, "").split()
        message = Message(
            one.topic,
            one.body,
            tags,
            keys,
            properties,
            flag=one.flag,
            unique_key=unique_key,
            born_timestamp_ms=one.born_timestamp_ms,
        )
        options = RecordOptions(sys_flag=one.sys_flag, properties_crc=False)
        batch = encode_messages(
            [message], born_host=one.born_host, clock_ms=lambda: 0, options=options
        )
        expected = sortable(raw, fields.properties_start)
        assert sortable(batch.records.tobytes(), fields.properties_start) == expected
        table = pa.table(
            {
                "body": pa.array([one.body], pa.binary()),
                "tags": pa.array([tags], pa.string()),
                "keys": pa.array([" ".join(keys) or None], pa.string()),
                "properties": pa.array(
                    [list(properties.items())], pa.map_(pa.string(), pa.string())
                ),
            }
        )
        of_table = MeasuredTable(
            one.topic,
            table,
            born_host=one.born_host,
            born_timestamp_ms=one.born_timestamp_ms,
            unique_ids=None if unique_key is None else pa.array([unique_key]),
            options=options,
        ).encode()
        flag = bytes(4)  # a table has no column for the user's flag
        without_flag = expected[:16] + flag + expected[20:]
        assert sortable(of_table.records.tobytes(), fields.properties_start) == without_flag
    assert compared == COUNT - 53
