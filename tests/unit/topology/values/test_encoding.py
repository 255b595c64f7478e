"""What an encoder makes of a value or a key is what Faust's own steps make of it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import faust
import pytest
from faust.serializers import codecs
from faust.serializers.schemas import Schema
from hypothesis import given
from hypothesis import strategies as st

import rocketray as rr
from rocketray.topology.app.app import App
from rocketray.topology.values.encoding import make_encoders
from rocketray.topology.values.topic import Topic


class Color(enum.Enum):
    RED = "r"


class Part(rr.Record):
    name: str
    made: date | None = None


class Order(rr.Record):
    order_id: str
    amount: float | None
    tags: set[str]
    at: datetime | None
    part: Part | None
    parts: list[Part]
    more: Any = None


class Rush(Order):
    until: date | None = None


class Bare(rr.Record, include_metadata=False):
    x: Any


class Yaml(rr.Record, serializer="yaml"):
    x: Any


class Shown(rr.Record):
    x: Any

    def to_representation(self) -> Mapping[str, Any]:
        return {"shown": self.x}


class Written(rr.Record):
    x: Any

    def dumps(self, *, serializer: Any = None) -> bytes:
        return f"written by {serializer}".encode()


class Text(str):
    __slots__ = ()


parts = st.builds(Part, name=st.text(max_size=5), made=st.none() | st.dates())
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.decimals(),
    st.uuids(), st.dates(), st.datetimes(timezones=st.just(UTC)), st.sampled_from(Color),
    st.binary(max_size=3),
)  # fmt: skip
values = st.recursive(
    scalars | parts,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.sets(st.text(max_size=3), max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=6,
)
fields: dict[str, st.SearchStrategy[Any]] = {
    "order_id": st.text(max_size=5),
    "amount": st.none() | st.floats(),
    "tags": st.sets(st.text(max_size=3), max_size=3),
    "at": st.none() | st.datetimes(),
    "part": st.none() | parts,
    "parts": st.lists(parts, max_size=2),
    "more": values,
}
orders = st.builds(Order, **fields) | st.builds(Rush, until=st.none() | st.dates(), **fields)
records = orders | st.one_of([st.builds(kind, values) for kind in (Bare, Yaml, Shown, Written)])


def outcome(encode: Any, given: Any) -> Any:
    try:
        return encode(given)
    except Exception as error:  # noqa: BLE001  # compared
        return type(error), str(error)


APP = App("app")
TOPICS = [
    APP.topic("T", **options)
    for options in (
        {},
        {"value_type": Order, "key_type": Part},
        {"value_type": bytes, "key_type": bytes},
        {"value_type": str, "key_type": str},
        {"value_type": int, "key_type": int},
        {"value_serializer": "raw", "key_serializer": "json"},
        {"value_serializer": "json|binary", "key_serializer": "raw|binary"},
        {"value_type": Order, "value_serializer": codecs.get_codec("json")},
        {"value_type": Yaml, "key_type": Yaml},
    )
]


@pytest.mark.proves("faust", "JSON: differs")
@pytest.mark.parametrize("topic", TOPICS)
@given(records | values | st.builds(Text, st.text(max_size=3)))
def test_an_encoder_writes_what_faust_writes(topic: Any, value: Any) -> None:
    encoders = make_encoders(APP, topic)
    assert encoders is not None

    def body(given: Any) -> Any:
        return topic.prepare_value(given, None, None, {})[0]

    def key(given: Any) -> Any:
        return topic.prepare_key(given, None, None, {})[0]

    assert outcome(encoders.values[type(value)], value) == outcome(body, value)
    if value is not None:  # a message without a key has none to encode
        assert outcome(encoders.keys[type(value)], value) == outcome(key, value)


def test_a_class_is_looked_at_once() -> None:
    encoders = make_encoders(APP, APP.topic("T", value_type=Order))
    assert encoders is not None
    assert not encoders.values
    assert encoders.values[Part] is encoders.values[Part]
    assert {*encoders.values} == {Part}


class MarkedSchema(Schema):  # type: ignore[misc]  # Faust's types are not followed
    def on_dumps_value_prepare_headers(self, value: Any, headers: Any) -> Any:
        return {**headers, "kind": type(value).__name__.encode()}


class MarkedTopic(Topic[Any]):
    def prepare_key(self, key: Any, *_: Any, **__: Any) -> Any:
        return f"key of {key}".encode(), {"marked": b"1"}


@pytest.mark.parametrize(
    "topic",
    [
        APP.topic("T", schema=MarkedSchema(value_type=Order)),
        MarkedTopic(APP, topics=["T"]),
    ],
)
def test_steps_of_its_own_leave_a_topic_without_encoders(topic: Any) -> None:
    assert make_encoders(APP, topic) is None


def test_another_codec_json_is_used() -> None:
    class Upper(codecs.json):  # type: ignore[misc]  # Faust's types are not followed
        def _dumps(self, s: Any) -> bytes:
            return str(s).upper().encode()

    ours = codecs.get_codec("json")
    codecs.register("json", Upper())
    try:
        encoders = make_encoders(APP, APP.topic("T", value_serializer="json"))
        assert encoders is not None
        assert encoders.values[dict]({"a": 1}) == b"{'A': 1}"
    finally:
        codecs.register("json", ours)


def test_values_keep_their_exact_forms() -> None:
    encoders = make_encoders(APP, APP.topic("T", value_type=Order))
    assert encoders is not None
    order = Order(
        "o-1", at=datetime(2013, 1, 2, tzinfo=UTC), tags={"a"}, amount=None, part=None, parts=[]
    )
    body = encoders.values[Order](order)
    assert b'"at":"2013-01-02T00:00:00Z"' in body
    assert encoders.values[dict]({1: UUID(int=7), "n": Decimal("1.50")}) == (
        b'{"1":"00000000-0000-0000-0000-000000000007","n":"1.50"}'
    )


def test_faust_has_the_steps_that_are_left_out() -> None:
    """Without them every topic would look like one with steps of its own."""
    assert all(map(callable, (faust.Topic.prepare_value, faust.Topic.prepare_key)))
