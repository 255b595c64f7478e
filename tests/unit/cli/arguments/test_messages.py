"""Messages as JSON: what is printed goes in again, and what cannot be sent says why."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest

from rocketray.base.delay import Delay
from rocketray.base.property_string import decode_properties
from rocketray.cli.arguments.messages import one_line
from rocketray.errors import InvalidMessageError, StreamError
from rocketray.message import PhysicalOffset, QueueOffset, StoredMessage
from rocketray.views.message_records import to_json
from rocketray.views.outgoing import from_json


def stored(body: bytes = b"two books", **properties: str) -> StoredMessage:
    return StoredMessage(
        topic="Trade",
        queue_id=3,
        queue_offset=QueueOffset(7),
        physical_offset=PhysicalOffset(4096),
        size=200,
        body=body,
        properties=properties,
        offset_message_id="7F00000100002A9F0000000000001000",
        flag=0,
        sys_flag=0,
        body_crc=0,
        born_timestamp_ms=1,
        born_host=("127.0.0.1", 1),
        store_timestamp_ms=1_700_000_000_000,
        store_host=("127.0.0.1", 10911),
        reconsume_times=0,
        prepared_transaction_offset=0,
    )


def test_a_stored_message_has_the_ten_fields_in_order() -> None:
    printed = to_json(stored(b"\xff\x00", TAGS="pay", KEYS="a b", UNIQ_KEY="U", region="eu"))
    assert list(printed.items()) == [
        ("topic", "Trade"),
        ("queueId", 3),
        ("queueOffset", 7),
        ("commitLogOffset", 4096),
        ("tags", "pay"),
        ("keys", "a b"),
        ("properties", {"TAGS": "pay", "KEYS": "a b", "UNIQ_KEY": "U", "region": "eu"}),
        ("body", "/wA="),
        ("storeTimestamp", 1_700_000_000_000),
        ("offsetMsgId", "7F00000100002A9F0000000000001000"),
    ]


def test_without_tag_and_keys_both_are_null() -> None:
    printed = to_json(stored())
    assert (printed["tags"], printed["keys"], printed["properties"]) == (None, None, {})


def test_a_line_for_people_names_the_flags() -> None:
    assert one_line(stored(TAGS="pay")) == "Trade/3@7  pay  -  two books"
    flagged = replace(stored(), sys_flag=0x209)
    assert one_line(flagged) == "Trade/3@7  -  -  COMPRESSED(ZSTD)  COMMIT  two books"


def test_what_was_printed_is_sent_as_the_same_message() -> None:
    message = stored(b"\xff\x00", TAGS="pay", KEYS="a b", UNIQ_KEY="U", region="eu")
    outgoing = from_json("Copy", to_json(message))
    assert outgoing.message.topic == "Copy"
    assert decode_properties(outgoing.message.encoded_properties()) == message.properties
    assert outgoing.message.body == message.body
    assert outgoing.queue_id == 3


def test_the_short_forms() -> None:
    value = {"text": "zwölf", "keys": ["a", "b"], "shardingKey": "s", "properties": {"n": "1"}}
    outgoing = from_json("Trade", value)
    assert outgoing.message.body == "zwölf".encode()
    assert tuple(outgoing.message.keys) == ("a", "b")
    assert outgoing.message.properties == {"n": "1"}
    assert (outgoing.queue_id, outgoing.sharding_key) == (None, "s")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({}, "give the body once"),
        ({"text": "a", "body": "YQ=="}, "give the body once"),
        ({"body": "not base64!"}, "base64"),
        ({"text": "\ud800"}, "invalid text"),
        ({"text": "a", "tag": "pay"}, "no field 'tag'"),
        ({"text": 5}, "text is 5"),
        ({"text": "a", "keys": [1]}, "keys is [1]"),
        ({"text": "a", "properties": ["a"]}, "properties is"),
        ({"text": "a", "properties": {"a": 5}}, 'properties are strings: write "a": "5"'),
        ({"text": "a", "properties": {"a": True}}, "property 'a' is true; properties are"),
        ({"text": "a", "properties": {"a": None}}, "'a' is null; properties are strings: leave"),
        ({"text": "a", "queueId": "1"}, 'queueId is "1"'),
        ({"text": "a", "queueId": True}, "queueId is true"),
        ({"text": "a", "tags": "*"}, "can never be matched"),
        ({"text": "a", "keys": [""]}, "a key is empty"),
    ],
)
def test_what_cannot_be_sent_says_why(value: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidMessageError) as caught:
        from_json("Trade", value)
    assert says in str(caught.value)


def test_a_body_over_the_limit_is_refused() -> None:
    body = base64.b64encode(bytes(4 * 1024 * 1024 + 1)).decode()
    with pytest.raises(StreamError, match="over the limit"):
        from_json("Trade", {"body": body})


def test_one_line_is_one_line() -> None:
    line = one_line(stored(b"two\nbooks\x1b[2J", TAGS="pay", KEYS="a b"))
    assert line == "Trade/3@7  pay  a b  two·books·[2J"


@pytest.mark.parametrize(
    ("fields", "delay"),
    [
        ({}, None),
        ({"delayLevel": 3}, Delay(level=3)),
        ({"delayMs": 1}, Delay(delay_ms=1)),
        ({"delayMs": -5}, Delay(delay_ms=0)),
        ({"deliverAt": 17}, Delay(deliver_at_ms=17)),
    ],
)
def test_a_line_says_when_its_message_is_delivered(
    fields: dict[str, Any], delay: Delay | None
) -> None:
    assert from_json("Trade", {"text": "x", **fields}).delay == delay


@pytest.mark.parametrize(
    "fields",
    [
        {"delayLevel": "3"},
        {"delayMs": 1.5},
        {"delayMs": 10**30},
        {"delayLevel": 1, "deliverAt": 17},
    ],
)
def test_a_line_with_a_delay_that_cannot_be_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(StreamError):
        from_json("Trade", {"text": "x", **fields})
