"""Faust's messages keep what they are: null, empty and binary keys and values, any headers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketray.base.names import check_group, check_topic
from rocketray.base.property_string import decode_properties
from rocketray.errors import InvalidMessageError, MessageTooLargeError
from rocketray.hashing import java_hash_code
from rocketray.message import StoredMessage
from rocketray.topology.values.wire import group_name, key_hash, message_of, parts_of, topic_name

BYTES = st.one_of(st.none(), st.binary(max_size=20), st.text(max_size=10).map(str.encode))
NAMES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "__SHARDINGKEY", "FAUST_NULL", "FAUST_HEADERS"]),
)


def stored(message: Any) -> StoredMessage:
    properties = decode_properties(replace(message, unique_key="unique").encoded_properties())
    return StoredMessage(
        message.topic, 0, 0, 0, 0, message.body, properties, "", 0, 0, 0,  # type: ignore[arg-type]
        message.born_timestamp_ms or 0, ("", 0), 0, ("", 0), 0, 0,
    )  # fmt: skip


@given(BYTES, BYTES, st.lists(st.tuples(NAMES, BYTES), max_size=5))
@settings(max_examples=200)
def test_messages_come_back_as_they_were(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    headers = [(name, text) for name, text in headers if not is_bad_tag(name, text)]
    found = parts_of(stored(message_of("T", key, value, headers, 12.5)))
    assert found[:2] == (key, value)
    assert sorted(found[2], key=repr) == sorted(headers, key=repr)


def is_bad_tag(name: str, text: bytes | None) -> bool:
    """A tag that no subscription could match is refused, as everywhere."""
    return name == "TAGS" and text is not None


def test_a_tag_among_the_headers_is_the_tag() -> None:
    message = message_of("T", None, b"", {"TAGS": b"pay", "region": "eu"}, None)
    assert message.tags == "pay"
    assert message.properties == {"region": "eu"}
    assert parts_of(stored(message))[2] == [("TAGS", b"pay"), ("region", b"eu")]
    with pytest.raises(InvalidMessageError, match="never be matched"):
        message_of("T", None, b"", {"TAGS": b"*"}, None)


def test_a_key_is_the_sharding_key_and_the_business_key() -> None:
    message = message_of("T", b"user-1", b"", None, 1.5)
    assert message.properties == {"__SHARDINGKEY": "user-1"}
    assert message.keys == ("user-1",)
    assert message.born_timestamp_ms == 1500
    assert message_of("T", b"two words", b"", None, None).keys == ("two\u00a0words",)
    assert key_hash(b"user-1") == key_hash("user-1") == java_hash_code("user-1")


def test_what_is_not_bytes_is_refused_with_what_to_do() -> None:
    with pytest.raises(InvalidMessageError, match="choose a key_serializer"):
        message_of("T", 5, b"", None, None)  # type: ignore[arg-type]
    with pytest.raises(InvalidMessageError, match="choose a value_serializer"):
        message_of("T", None, {"a": 1}, None, None)  # type: ignore[arg-type]
    with pytest.raises(MessageTooLargeError, match="property string"):
        message_of("T", None, b"", {"header": b"x" * 40_000}, None)


def test_names_with_dots_become_names_that_are_allowed() -> None:
    assert topic_name("words") == "words"
    assert topic_name("app-module.count") == "app-module%2Ecount"
    assert group_name("my.app") == "my%2Eapp"
    long = [f"{'app.module' * 30}-{number}" for number in (1, 2)]
    assert len({topic_name(name) for name in long}) == 2
    for name in (*long, "a b", "ü~x"):
        assert check_topic(topic_name(name))
        assert check_group(group_name(name))
