"""What is sent is what arrives, or the send raises: any value, by any door.

Each door is driven up to the bytes that it would store, and from these to what a reader gets; no
node is needed for that, nor a session of Spark. What differs by type alone (without a declared type
a set comes back as a list) is not drawn.
"""

from __future__ import annotations

import enum
import json
import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import faust
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructField, StructType
from support.nodes.row_records import RowMessage, in_batch, in_frame, in_table

import rocketray as rr
from rocketray.base.property_string import decode_properties
from rocketray.base.property_text import property_text
from rocketray.errors import InvalidMessageError, StreamError
from rocketray.message import Message
from rocketray.messaging.producers.given_lists import GivenLists
from rocketray.queries.spark.writer_columns import WriterColumns
from rocketray.services.staging.message_rows import MessageRows
from rocketray.store.batches.encoded_batch import packed, unpack_batch
from rocketray.store.batches.encoded_table import MeasuredTable
from rocketray.store.batches.message_columns import RecordForm
from rocketray.topology.app.app import App
from rocketray.topology.values.codec import make_decoder
from rocketray.topology.values.wire import key_of, message_of, parts_of
from rocketray.views.outgoing import from_json, pairs_of

HERE: Any = {"born_host": ("127.0.0.1", 0), "born_timestamp_ms": 0}
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
WHOLE_ZONES = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
TIMES = st.times(timezones=st.none() | WHOLE_ZONES)
DATETIMES = st.datetimes(timezones=st.none() | WHOLE_ZONES)


class Color(enum.Enum):
    RED = "r"
    BLANK = "a b"


class Level(enum.IntEnum):
    LOW = -1
    HIGH = 2**70


SCALARS = (
    LEAVES
    | st.uuids()
    | TIMES
    | st.dates()
    | DATETIMES
    | st.decimals()
    | st.sampled_from([*Color, *Level])
    | st.binary(max_size=3)
)


class Reading(faust.Record, coerce=True):  # type: ignore[misc, call-arg]  # Faust's types are not followed
    name: str
    count: int = 7
    temp: float | None = 20.0
    due: datetime | None = None
    price: Decimal | None = None
    extra: Any = None


class Kinds(rr.Record, coerce=True):
    id: UUID
    at: time
    day: date
    seen: datetime
    color: Color
    level: Level
    pair: tuple[int, str]
    days: set[date]
    ids: frozenset[UUID]
    prices: tuple[Decimal, ...] = ()
    by_day: dict[date, Color] = {}  # noqa: RUF012 - a field of a Record
    reading: Reading | None = None


class Doors(App):
    async def send_message(self, message: Message, *_: Any, **_options: Any) -> Any:
        """Return what would be stored."""
        return message


APP = Doors("doors")
UNTYPED = APP.topic("Untyped")
TYPED = APP.topic("Typed", value_type=Reading, properties=["temp", "count"])
OF_KINDS = APP.topic(
    "Kinds", value_type=Kinds, properties=["id", "at", "day", "seen", "color", "level"]
)


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
@given(
    st.builds(
        Kinds,
        id=st.uuids(),
        at=TIMES,
        day=st.dates(),
        seen=DATETIMES,
        color=st.sampled_from(Color),
        level=st.sampled_from(Level),
        pair=st.tuples(WHOLE, TEXTS),
        days=st.sets(st.dates(), max_size=2),
        ids=st.frozensets(st.uuids(), max_size=2),
        prices=st.lists(st.decimals(allow_nan=False), max_size=2).map(tuple),
        by_day=st.dictionaries(st.dates(), st.sampled_from(Color), max_size=2),
        reading=st.none() | st.builds(Reading, name=st.text(), temp=FLOATS),
    )
)
def test_a_record_of_every_type(value: Kinds) -> None:
    message = sent_or_refused(OF_KINDS, value)
    if message is None:
        return
    found = received(OF_KINDS, message)
    assert found == value
    for name in Kinds.__annotations__:
        assert type(getattr(found, name)) is type(getattr(value, name)), name
    # A time's zone counts, which equality leaves out.
    assert found.seen.utcoffset() == value.seen.utcoffset()
    assert found.at.utcoffset() == value.at.utcoffset()
    texts = stored_properties(message)
    for name in ("id", "at", "day", "seen", "color", "level"):
        assert texts[name] == property_text(name, getattr(value, name)), name


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
    try:
        text = property_text("it", value)
    except StreamError:  # bytes that are no text
        with pytest.raises(StreamError, match="not UTF-8"):
            sent(UNTYPED, 1, properties={"p": value})
        return
    try:
        by_app = stored_properties(sent(UNTYPED, 1, properties={"p": value}))
    except StreamError:
        return
    assert by_app.get("p") == text
    if text is None:
        with pytest.raises(StreamError, match="leave it out"):
            Message("T", b"", properties={"p": value})
        assert of_columns({"p": [None, "x"]})[0] == {}, "where each has its own, None is absent"
        return
    assert stored_properties(Message("T", b"", properties={"p": text})) == by_app
    assert of_line({"p": text}) == by_app
    assert of_line(pairs_of([f"p={text}"], {})) == by_app, "the command's --property"
    assert of_columns({"p": text}) == [by_app, by_app]
    assert of_columns({"p": [text, None]}) == [by_app, {}]
    if not isinstance(value, str):
        for send in (
            lambda: Message("T", b"", properties={"p": value}),
            lambda: of_columns({"p": [value, "x"]}),
        ):
            with pytest.raises(StreamError) as hint:
                send()
            assert str(hint.value).endswith(f"give {text!r}")


def of_line(properties: dict[str, str]) -> dict[str, str]:
    """The properties of a line of JSON, and of a message that a command sends."""
    return stored_properties(from_json("T", {"text": "", "properties": properties}).message)


FORM = RecordForm("T", born_host=("127.0.0.1", 9), id_prefix="7F0000010001AABBCCDD")


def of_columns(properties: dict[str, Any]) -> list[dict[str, str]]:
    """The properties of two messages of ``send_many(bodies=, properties=)``."""
    lists = GivenLists("T", [b"", b""], None, None, properties)
    columns = lists.columns()
    if columns is None:  # one by one, as the producer sends it then
        return [stored_properties(message) for message in lists.messages()]
    batch = unpack_batch(packed(columns.encode(FORM).pack(range(2), 7, 8)))
    return [message.properties for message in in_batch(batch)]


ARROW = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.int8(): st.integers(-128, 127),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(),
    pa.large_string(): st.text(),
}
NOT_PROPERTIES = (
    pa.float64(), pa.decimal128(9, 2), pa.date32(), pa.time64("us"), pa.timestamp("ms"),
    pa.timestamp("us", "UTC"), pa.binary(), pa.list_(pa.int64()),
)  # fmt: skip


@pytest.mark.proves(
    "producers",
    "What is sent is what arrives, or the send raises: values, keys, properties and times by "
    "every door",
)
@given(st.data())
def test_a_typed_column_of_arrow_has_the_text_of_its_value(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([*ARROW]))
    value = data.draw(st.none() | ARROW[kind])
    batch = pa.record_batch({"body": [b""], "p": pa.array([value], kind)})
    text = property_text("p", value)
    try:
        (found,) = in_table(MeasuredTable("T", batch, property_columns=["p"], **HERE))
    except StreamError:
        assert value is not None
        assert text_is_refused(text)
    else:
        assert found.properties.get("p") == text


def text_is_refused(text: str | None) -> bool:
    properties: Any = {"p": text}
    try:
        Message("T", b"", properties=properties).encoded_properties()
    except StreamError:
        return True
    return False


@pytest.mark.parametrize("kind", NOT_PROPERTIES, ids=str)
def test_a_column_of_another_type_is_refused(kind: pa.DataType) -> None:
    """Arrow writes floats and times in other texts than Python does: the caller casts them."""
    batch = pa.record_batch({"body": [b""], "p": pa.array([None], kind)})
    with pytest.raises(StreamError, match=r"property column 'p' is .*; properties are strings"):
        MeasuredTable("T", batch, property_columns=["p"], **HERE)


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
    return in_table(MeasuredTable("T", batch_of(rows), **HERE))


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
