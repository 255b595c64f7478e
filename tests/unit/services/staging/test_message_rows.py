"""Rows as messages: what a producer makes of the same values, one message at a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.harness.amounts import examples
from support.nodes.row_records import in_frame

from rocketray.base.delay import at_time
from rocketray.base.property_string import decode_properties
from rocketray.errors import ConfigError, InvalidMessageError, TopicNotFoundError
from rocketray.hashing import java_hash_code
from rocketray.message import Message, with_sharding_key
from rocketray.services.staging.message_rows import MessageRows

NOW_MS = 1_700_000_000_000
QUEUES = {"A": 3, "B": 1}
WORDS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Zs"]), min_size=1, max_size=6
)
TAGS = WORDS.filter(lambda text: text != "*" and "||" not in text and text == text.strip())
NAMES = ["a", "b", "__SHARDINGKEY", "FAUST_KEY"]
KEYS = st.sampled_from(["x", "y"])
SCHEMA = pa.schema(
    {
        "topic": pa.string(),
        "body": pa.binary(),
        "tags": pa.string(),
        "keys": pa.string(),
        "properties": pa.map_(pa.string(), pa.string()),
        "shardingKey": pa.string(),
        "queueId": pa.int32(),
        "deliverAt": pa.timestamp("us", "UTC"),
    }
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "topic": st.sampled_from(["A", "B"]),
            "body": st.binary(max_size=9),
            "tags": st.none() | TAGS,
            "keys": st.none() | WORDS,
            "properties": st.none() | st.dictionaries(st.sampled_from(NAMES), WORDS | KEYS),
            "shardingKey": st.none() | WORDS | KEYS,
            "queueId": st.none() | st.just(0),
            "deliverAt": st.none() | st.integers(-5_000_000, 5_000_000),
        }
    ),
    min_size=1,
    max_size=8,
)
Found = tuple[str, int | None, bytes, dict[str, str]]


def queues_of(topic: str) -> int:
    if topic not in QUEUES:
        raise TopicNotFoundError(topic)
    return QUEUES[topic]


def made(batch: pa.RecordBatch, topic: str | None = None) -> list[Found]:
    """Return the messages that rows become: topic, queue, body, and properties."""
    rows = MessageRows(queues_of, topic, clock_ms=lambda: NOW_MS)
    found: list[Found] = []
    for frame in rows.frames(batch):
        for message in in_frame(frame):
            assert message.topic == frame.topic
            found.append((frame.topic, frame.queue_id, message.body, message.properties))
    return found


def expected(rows: Sequence[dict[str, Any]]) -> list[Found]:
    """Do the same with objects; the queue is None where any will do."""
    found = []
    for row in rows:
        properties = dict(row["properties"] or {})
        if row["shardingKey"] is not None:
            properties = dict(with_sharding_key(properties, row["shardingKey"], row["topic"]))
        keys = [row["keys"]] if row["keys"] else []
        message = Message(row["topic"], row["body"], row["tags"], keys, properties)
        queue: int | None = row["queueId"]
        if queue is None and row["shardingKey"] is not None:
            queue = java_hash_code(row["shardingKey"]) % QUEUES[row["topic"]]
        if row["deliverAt"] is not None:
            due_ms = NOW_MS + -(-row["deliverAt"] // 1000)
            message, queue = at_time(message, due_ms, -1 if queue is None else queue, NOW_MS)
        named = decode_properties(message.encoded_properties())
        found.append((message.topic, None if queue == -1 else queue, message.body, named))
    return found


def plain(found: Found) -> Any:
    topic, _, body, properties = found
    kept = {name: value for name, value in properties.items() if name != "REAL_QID"}
    return topic, body, sorted(kept.items())


@pytest.mark.proves("spark", "The columns of a write")
@given(ROWS)
@examples(200)
def test_rows_become_the_messages_that_a_producer_makes(rows: list[dict[str, Any]]) -> None:
    start = datetime.fromtimestamp(NOW_MS / 1000, UTC)
    values = [
        row
        if row["deliverAt"] is None
        else {**row, "deliverAt": start + timedelta(microseconds=row["deliverAt"])}
        for row in rows
    ]
    ours = made(pa.RecordBatch.from_pylist(values, SCHEMA))
    theirs = expected(rows)
    assert sorted(map(plain, ours)) == sorted(map(plain, theirs))
    queues: dict[Any, list[int | None]] = {}
    for each in theirs:
        queues.setdefault(repr(plain(each)), []).append(each[1])
    for each in ours:
        allowed = queues[repr(plain(each))]
        assert each[1] in allowed or None in allowed


def test_rows_of_one_key_keep_their_order_and_the_others_take_the_queues_in_turn() -> None:
    keyed = pa.RecordBatch.from_pydict(
        {"body": [f"{n}" for n in range(6)], "shardingKey": ["x", "y"] * 3}
    )
    found = made(keyed, "A")
    for key in "xy":
        queue = java_hash_code(key) % 3
        those = [body for _, at, body, named in found if named["__SHARDINGKEY"] == key]
        assert those == [b"%d" % n for n in range(6) if "xy"[n % 2] == key]
        assert {at for _, at, _, named in found if named["__SHARDINGKEY"] == key} == {queue}
    rows = MessageRows(queues_of, "A", first_queue=2, clock_ms=lambda: NOW_MS)
    batch = pa.RecordBatch.from_pydict({"body": ["a"]})
    assert [next(rows.frames(batch)).queue_id for _ in range(4)] == [2, 0, 1, 2]


def test_ids_are_new_in_each_task() -> None:
    batch = pa.RecordBatch.from_pydict({"body": ["a"] * 3})
    ids = set()
    for _ in range(2):
        for frame in MessageRows(queues_of, "A", clock_ms=lambda: NOW_MS).frames(batch):
            content = bytes(frame.content)
            at = content.index(b"UNIQ_KEY\x01")
            ids.add(content[at : at + 41])
    assert len(ids) == 2


@pytest.mark.parametrize(
    ("columns", "error", "said"),
    [
        ({"body": ["a", None]}, InvalidMessageError, "row 1: the body is null"),
        ({"body": ["a"], "queueId": [3]}, InvalidMessageError, "queueId is 3.*queues 0 to 2"),
        ({"body": ["a"], "queueId": [-1]}, InvalidMessageError, "queueId is -1"),
        ({"body": ["a"], "tags": ["a||b"]}, InvalidMessageError, "can never be matched"),
        ({"tags": ["a"]}, ConfigError, "body"),
        (
            {"body": ["a"], "deliverAt": [datetime(2100, 1, 1, tzinfo=UTC)]},
            InvalidMessageError,
            "row 0: deliverAt is more than 40 days ahead",
        ),
    ],
)
def test_rows_that_are_no_messages_are_refused(
    columns: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        made(pa.RecordBatch.from_pydict(columns), "A")


def test_rows_without_a_topic_that_can_be_written_are_refused() -> None:
    for topic, error, said in (
        (None, InvalidMessageError, "row 0: the topic is null"),
        ("C", TopicNotFoundError, "'C' does not exist"),
        ("SCHEDULE_TOPIC_XXXX", InvalidMessageError, "SCHEDULE_TOPIC_XXXX"),
    ):
        columns = {"body": ["a"], "topic": pa.array([topic], pa.string())}
        with pytest.raises(error, match=said):
            made(pa.RecordBatch.from_pydict(columns))
