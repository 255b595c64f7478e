"""What is sent is what arrives, or the send raises: any value, by any door.

Each door is driven up to the bytes that it would store, and from these to what a reader gets; no
node is needed for that, nor a session of Spark. What differs by type alone (without a declared type
a set comes back as a list) is not drawn.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import faust
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructField, StructType
from support.nodes.row_records import RowMessage, in_frame, in_table

from rocketray.base.property_string import decode_properties
from rocketray.base.property_text import property_text
from rocketray.errors import InvalidMessageError, StreamError
from rocketray.message import Message
from rocketray.queries.spark.writer_columns import WriterColumns
from rocketray.services.staging.message_rows import MessageRows
from rocketray.store.batches.encoded_table import MeasuredTable
from rocketray.topology.app.app import App
from rocketray.topology.values.codec import make_decoder
from rocketray.topology.values.wire import key_of, message_of, parts_of
from rocketray.views.outgoing import from_json

FLOATS = st.floats(allow_nan=True, allow_infinity=True)
WHOLE = st.integers() | st.integers(-(2**130), 2**130) | st.integers(2**63 - 2, 2**64 + 2)
TEXTS = (
    st.text() | st.text(st.characters(categories=["Cs", "L"])) | st.sampled_from(["", " ", "a b"])
)
LEAVES = st.none() | st.booleans() | FLOATS | WHOLE | TEXTS
VALUES = st.recursive(
    LEAVES | st.binary(max_size=3),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(TEXTS, each, max_size=3),
    max_leaves=8,
)
SCALARS = LEAVES | st.uuids() | st.times() | st.dates() | st.datetimes() | st.decimals()


class Reading(faust.Record, coerce=True):  # type: ignore[misc, call-arg]  # Faust's types are not followed
    name: str
    count: int = 7
    temp: float | None = 20.0
    due: datetime | None = None
    price: Decimal | None = None
    extra: Any = None


class Doors(App):
    async def send_message(self, message: Message, *_: Any, **_options: Any) -> Any:
        """Return what would be stored."""
        return message


APP = Doors("doors")
UNTYPED = APP.topic("Untyped")
TYPED = APP.topic("Typed", value_type=Reading, properties=["temp", "count"])


def sent(topic: Any, value: Any, key: Any = None, **options: Any) -> Message:
    """The message that ``topic.send`` gives the app; nothing on this way waits."""
    try:
        topic.send(value=value, key=key, **options).send(None)
    except StopIteration as end:
        message: Message = end.value
        return message
    raise AssertionError("the send waits")


def sent_or_refused(topic: Any, value: Any) -> Message | None:
    refused = None
    try:
        return sent(topic, value)
    except StreamError as error:
        refused = str(error)
    assert f"topic {topic}" in refused.replace("'", "")
    return None


def received(topic: Any, message: Message) -> Any:
    decode = make_decoder(APP, topic)
    return message.body if decode is None else decode(message.body)


def stored_properties(message: Message) -> dict[str, str]:
    return decode_properties(message.encoded_properties())


@given(VALUES)
@example(math.nan)
@example({"a": [None, math.inf]})
@example(2**64)
@example({"\ud83d": "\ud83d"})
def test_a_value_without_a_type(value: Any) -> None:
    message = sent_or_refused(UNTYPED, value)
    if message is None:
        return
    if isinstance(value, bytes):  # serialized already
        assert message.body == value
        return
    assert repr(received(UNTYPED, message)) == repr(value)
    assert repr(json.loads(message.body)) == repr(value), "and it is JSON for everybody"
    assert b"NaN" not in message.body or "NaN" in repr(value)


@pytest.mark.proves(
    "producers",
    "What is sent is what arrives, or the send raises: values, keys, properties and times by "
    "every door",
)
@given(
    st.builds(
        Reading,
        name=st.text() | st.sampled_from(["\ud83d"]),
        count=WHOLE,
        temp=FLOATS | st.none(),
        due=st.none() | st.datetimes(timezones=st.just(UTC)),
        price=st.none() | st.decimals(),
        extra=LEAVES,
    )
    | st.none()
)
@example(Reading(name="a", temp=math.nan))
@example(Reading(name="a", price=Decimal("NaN")))
@example(Reading(name="a", price=Decimal("sNaN")))
@example(None)
def test_a_record(value: Reading | None) -> None:
    message = sent_or_refused(TYPED, value)
    if message is None:
        return
    assert received(TYPED, message) == value


@pytest.mark.proves(
    "producers",
    "What is sent is what arrives, or the send raises: values, keys, properties and times by "
    "every door",
)
@given(SCALARS)
@example(UUID(int=1))
@example(time(3, 4))
@example(date(2013, 1, 2))
@example(True)
@example(math.nan)
def test_a_property_has_one_text_by_all_doors(value: Any) -> None:
    text = property_text("it", value)
    try:
        by_app = stored_properties(sent(UNTYPED, 1, properties={"p": value}))
    except StreamError:
        return
    assert by_app.get("p") == text
    if text is None:
        with pytest.raises(StreamError, match="leave it out"):
            Message("T", b"", properties={"p": value})
        return
    assert stored_properties(Message("T", b"", properties={"p": text})) == by_app
    assert (
        stored_properties(from_json("T", {"text": "", "properties": {"p": text}}).message) == by_app
    )
    if not isinstance(value, str):
        with pytest.raises(StreamError) as hint:
            Message("T", b"", properties={"p": value})
        assert str(hint.value).endswith(f"give {text!r}")


@given(st.none() | TEXTS | st.binary(max_size=6))
@example("")
@example(b"")
@example("=")
def test_a_key(key: Any) -> None:
    try:
        message = sent(UNTYPED, 1, key)
    except StreamError:
        return
    expected = key.encode() if isinstance(key, str) else key
    assert key_of(stored_properties(message)) == expected


@given(st.none() | st.binary(max_size=6), st.none() | st.binary(max_size=6))
def test_a_stock_apps_key_and_value(key: bytes | None, value: bytes | None) -> None:
    message = message_of("T", key, value, None, None)
    stored: Any = _Stored(message.body, stored_properties(message))
    assert parts_of(stored)[:2] == (key, value)


@given(st.integers() | st.floats())
def test_a_time(timestamp: float) -> None:
    try:
        message = sent(UNTYPED, 1, timestamp=timestamp)
    except StreamError:
        return
    assert message.born_timestamp_ms == int(timestamp * 1000)
    assert abs(message.born_timestamp_ms) < 2**63 // 1000, "so no column wraps around"


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "body": st.binary(max_size=9),
            "tags": st.none() | TEXTS,
            "keys": st.lists(TEXTS, max_size=2),
            "properties": st.dictionaries(TEXTS, TEXTS, max_size=2),
        }
    ),
    min_size=1,
    max_size=3,
)
TYPES = {
    "body": (pa.binary(), BinaryType()),
    "tags": (pa.string(), StringType()),
    "keys": (pa.list_(pa.string()), ArrayType(StringType())),
    "properties": (pa.map_(pa.string(), pa.string()), MapType(StringType(), StringType())),
}


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """The rows as Arrow has them; a text that is not Unicode is no text of Arrow's."""
    columns = {
        name: [[*row[name].items()] if name == "properties" else row[name] for row in rows]
        for name in TYPES
    }
    try:
        return pa.record_batch({name: pa.array(columns[name], TYPES[name][0]) for name in TYPES})
    except UnicodeEncodeError as error:
        raise InvalidMessageError("not Unicode") from error


def by_arrow(rows: list[dict[str, Any]]) -> list[RowMessage]:
    """``Producer.send_many`` of a table, and the sink of Ray Data."""
    host = ("127.0.0.1", 0)
    return in_table(MeasuredTable("T", batch_of(rows), born_host=host, born_timestamp_ms=0))


def by_spark(rows: list[dict[str, Any]]) -> list[RowMessage]:
    """A task of the Spark writer, from the rows that Spark hands it."""
    schema = StructType([StructField(name, kind) for name, (_, kind) in TYPES.items()])
    columns = WriterColumns.of(schema, "rocketray", has_topic=True)
    made = MessageRows(lambda _: 1, "T", clock_ms=lambda: 0)
    frames = made.frames(columns.shape(batch_of(rows)))
    return [message for frame in frames for message in in_frame(frame)]


@pytest.mark.proves(
    "groups",
    "A key with a blank is one key by every door, and is found by its own text",
)
@given(ROWS)
@example([{"body": b"", "tags": None, "keys": ["van Dyck", "k"], "properties": {}}])
@example([{"body": b"", "tags": None, "keys": [], "properties": {"p": "NaN"}}])
@example([{"body": b"", "tags": "", "keys": [], "properties": {}}])
@example([{"body": b"", "tags": None, "keys": [""], "properties": {}}])
@example([{"body": b"", "tags": None, "keys": [], "properties": {"p": ""}}])
def test_rows_become_the_messages_that_objects_are(rows: list[dict[str, Any]]) -> None:
    expected: list[RowMessage] | None
    try:
        objects = [Message("T", **row) for row in rows]
        expected = [RowMessage("T", each.body, stored_properties(each)) for each in objects]
    except StreamError:
        expected = None
    for door in (by_arrow, by_spark):
        try:
            found = door(rows)
        except StreamError:
            assert expected is None, door
        else:
            assert found == expected, door


class _Stored:
    def __init__(self, body: bytes, properties: dict[str, str]) -> None:
        self.body, self.properties = body, properties
