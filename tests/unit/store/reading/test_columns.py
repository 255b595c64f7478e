from __future__ import annotations

import base64
import datetime as dt
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.models.random_sql import spans_of
from support.models.records import RawRecord
from support.nodes.stores import GOLDEN_CONFIG, GOLDEN_STORE, SMALL, FakeClock, message, read_jsonl

from rocketray.base.config import StoreConfig
from rocketray.base.message_time import TIME_MAX_MS, TIME_MIN_MS
from rocketray.errors import ConfigError
from rocketray.filters.sql92 import compile_expression
from rocketray.filters.sql92.vectorized import VectorizedExpression
from rocketray.kernels.condition_codes import State
from rocketray.message import SHARDING_KEY
from rocketray.store.formats import arrow_spans
from rocketray.store.message_store import MessageStore
from rocketray.store.reading.columns import COLUMN_TYPES, read_columns
from rocketray.store.reading.reader import QueueReader

ALL = list(COLUMN_TYPES)


@pytest.fixture
def reader(tmp_path: Path) -> QueueReader:
    with MessageStore(tmp_path, SMALL, clock_ms=FakeClock()) as store:
        for number in range(60):
            one = message(number)
            key = {SHARDING_KEY: f"s{number}"} if number % 5 else {}
            store.put([replace(one, properties={**one.properties, **key})], 3)
    return QueueReader(tmp_path, "Trade", 3)


def test_the_types_are_those_promised_and_every_column_may_be_null(reader: QueueReader) -> None:
    timestamp = pa.timestamp("us", tz="UTC")
    promised = {
        "topic": pa.string(),
        "queueId": pa.int32(),
        "queueOffset": pa.int64(),
        "body": pa.binary(),
        "tags": pa.string(),
        "keys": pa.string(),
        "properties": pa.map_(pa.string(), pa.string()),
        "bornTimestamp": timestamp,
        "storeTimestamp": timestamp,
        "msgId": pa.string(),
        "shardingKey": pa.string(),
    }
    for stop in (0, 1, 60):
        batch = read_columns(reader, reader.entries(0, stop), ALL)
        batch.validate(full=True)
        assert batch.num_rows == stop
        assert batch.schema.equals(pa.schema(list(promised.items())))
        assert all(field.nullable for field in batch.schema)


def test_columns_hold_what_messages_say(reader: QueueReader) -> None:
    entries = reader.entries(5, 55).select(slice(None, None, 3))
    for row, one in zip(
        read_columns(reader, entries, ALL).to_pylist(), reader.messages(entries), strict=True
    ):
        born, stored = (
            dt.datetime.fromtimestamp(ms / 1000, dt.UTC)
            for ms in (one.born_timestamp_ms, one.store_timestamp_ms)
        )
        assert row == {
            "topic": "Trade",
            "queueId": 3,
            "queueOffset": one.queue_offset,
            "body": one.body,
            "tags": one.tags,
            "keys": " ".join(one.keys),
            "properties": list(one.properties.items()),
            "bornTimestamp": born,
            "storeTimestamp": stored,
            "msgId": one.offset_message_id,
            "shardingKey": one.properties.get(SHARDING_KEY),
        }


def test_only_the_columns_asked_for_come_in_their_order(reader: QueueReader) -> None:
    entries = reader.entries(0, 4)
    assert read_columns(reader, entries, ["tags", "queueOffset"]).schema.names == [
        "tags",
        "queueOffset",
    ]
    assert read_columns(reader, entries, []).num_columns == 0
    with pytest.raises(ConfigError, match="no column 'Body'; there are topic, queueId"):
        read_columns(reader, entries, ["Body"])


def test_queue_columns_need_no_record(reader: QueueReader, tmp_path: Path) -> None:
    entries = reader.entries(0, 4)
    for segment in (tmp_path / "commitlog").iterdir():
        segment.unlink()
    batch = read_columns(reader, entries, ["queueOffset", "topic", "queueId"])
    assert batch.to_pylist()[3] == {"queueOffset": 3, "topic": "Trade", "queueId": 3}


def test_a_batch_keeps_no_file_mapped_and_does_not_change_later(reader: QueueReader) -> None:
    entries = reader.entries(0, 10)
    batch = read_columns(reader, entries, ALL)
    entries.queue_offsets[:] = 0
    reader.close()
    assert batch.column("queueOffset").to_pylist() == list(range(10))
    assert batch.column("body").to_pylist()[9] == message(9).body


@pytest.mark.parametrize(("topic", "queue_id"), [("TopicA", 0), ("TopicB", 1)])
def test_rocketmqs_own_store_reads_as_rocketmq_says(topic: str, queue_id: int) -> None:
    rows = [
        row
        for row in read_jsonl("store-v1.jsonl")
        if (row.get("topic"), row.get("queueId")) == (topic, queue_id)
    ]
    with QueueReader(GOLDEN_STORE, topic, queue_id, GOLDEN_CONFIG) as reader:
        batch = read_columns(reader, reader.entries(0, len(rows)), ALL)
    batch.validate(full=True)
    for found, row in zip(batch.to_pylist(), rows, strict=True):
        assert found["body"] == base64.b64decode(row["body"])
        assert dict(found["properties"]) == row["properties"]
        assert (found["tags"], found["keys"]) == (row["tags"], row["keys"])
        assert found["msgId"] == row["offsetMsgId"]
        assert found["queueOffset"] == row["queueOffset"]
        assert found["storeTimestamp"].timestamp() * 1000 == pytest.approx(row["storeTimestamp"])


def foreign_store(directory: Path, record: RawRecord) -> QueueReader:
    """A store of one record that no writer of ours would make."""
    config = StoreConfig(commit_log_segment_bytes=4096, consume_queue_segment_entries=7)
    raw = record.encode()
    queue = directory / "consumequeue" / "TopicTest" / "0"
    queue.mkdir(parents=True)
    (directory / "commitlog").mkdir()
    (directory / "commitlog" / f"{0:020d}").write_bytes(raw.ljust(4096, b"\0"))
    (queue / f"{0:020d}").write_bytes(struct.pack(">qiq", 0, len(raw), 0).ljust(140, b"\0"))
    return QueueReader(directory, "TopicTest", 0, config)


def test_text_that_is_no_utf8_is_read_as_java_reads_it(tmp_path: Path) -> None:
    record = RawRecord(properties=b"TAGS\x01a\xff\x02\xfe\x01x\x02")
    reader = foreign_store(tmp_path, record)
    batch = read_columns(reader, reader.entries(0, 1), ["tags", "keys", "properties"])
    batch.validate(full=True)
    assert batch.to_pylist() == [
        {"tags": "a\ufffd", "keys": None, "properties": [("TAGS", "a\ufffd"), ("\ufffd", "x")]}
    ]


@pytest.mark.parametrize("born_ms", [1_790_000_000_000_000_000, 2**63 - 1, -(2**63)])
def test_a_time_that_no_calendar_has_is_null(tmp_path: Path, born_ms: int) -> None:
    reader = foreign_store(tmp_path, RawRecord(born_timestamp_ms=born_ms))
    batch = read_columns(reader, reader.entries(0, 1), ["bornTimestamp", "storeTimestamp"])
    batch.validate(full=True)
    assert batch.column("bornTimestamp").to_pylist() == [None]
    assert batch.column("storeTimestamp").to_pylist() == [dt.datetime.fromtimestamp(0, dt.UTC)]


@pytest.mark.parametrize("born_ms", [TIME_MIN_MS, -1, TIME_MAX_MS])
def test_all_times_of_the_calendar_are_exact(tmp_path: Path, born_ms: int) -> None:
    reader = foreign_store(tmp_path, RawRecord(born_timestamp_ms=born_ms))
    batch = read_columns(reader, reader.entries(0, 1), ["bornTimestamp"])
    assert batch.column(0).cast(pa.int64()).to_pylist() == [born_ms * 1000]


def test_an_encoded_surrogate_is_one_replacement(tmp_path: Path) -> None:
    text = b"TAGS\x01a\xed\xa0\x80\x02b\x01\xed\xa0\x02c\x01\xed\xa0\x80\xed\xb0\x80"
    reader = foreign_store(tmp_path, RawRecord(properties=text))
    batch = read_columns(reader, reader.entries(0, 1), ["tags", "properties"])
    batch.validate(full=True)
    wanted = [("TAGS", "a\ufffd"), ("b", "\ufffd"), ("c", "\ufffd\ufffd")]
    assert batch.to_pylist() == [{"tags": "a\ufffd", "properties": wanted}]
    [message] = reader.messages(reader.entries(0, 1))
    assert message.properties == dict(wanted)
    for sql, is_so in (
        ("c = '\ufffd\ufffd'", True),
        ("b = '\ufffd\ufffd'", False),
        ("b <> c", True),
    ):
        compiled = compile_expression(sql)
        filtered = VectorizedExpression(compiled)
        spans = spans_of([message.properties], filtered.names)
        assert (filtered.evaluate(*spans) == State.TRUE).tolist() == [is_so]
        assert compiled.matches(message.properties) is is_so


def test_an_ipv6_store_has_a_longer_message_id(tmp_path: Path) -> None:
    reader = foreign_store(tmp_path, RawRecord(store_ipv6=True, born_ipv6=True))
    batch = read_columns(reader, reader.entries(0, 1), ["msgId"])
    assert batch.column(0).to_pylist() == [bytes(range(101, 121)).hex().upper() + "0" * 16]


def test_duplicate_properties_are_one_with_the_last_value(tmp_path: Path) -> None:
    reader = foreign_store(tmp_path, RawRecord(properties=b"a\x011\x02b\x012\x02a\x013"))
    batch = read_columns(reader, reader.entries(0, 1), ["properties"])
    assert batch.column(0).to_pylist() == [[("a", "3"), ("b", "2")]]


def test_a_column_over_arrows_limit_is_refused_before_memory_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrow_spans, "ARROW_BYTES_MAX", 10)
    spans = np.array([0, 0]), np.array([5, 6])
    with pytest.raises(ConfigError, match="2 values have 11 bytes"):
        arrow_spans.binary_array(np.zeros(20, np.uint8), *spans)
