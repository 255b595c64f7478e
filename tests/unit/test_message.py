from __future__ import annotations

import pickle
from copy import copy, deepcopy
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest
from support.rocketmq.golden import golden_rows

from rocketray.base.property_string import decode_properties, decode_text, encode_properties
from rocketray.errors import InvalidMessageError, InvalidNameError, MessageTooLargeError
from rocketray.filters.subscription import matches_exactly, parse
from rocketray.message import BODY_MAX_BYTES, PROPERTIES_MAX_BYTES, Message, check_tag


@pytest.mark.parametrize("row", golden_rows("properties"), ids=lambda row: repr(row["s"]))
def test_properties_are_read_and_written_as_rocketmq_does(row: dict[str, Any]) -> None:
    assert decode_properties(row["s"]) == row["map"]
    assert decode_properties(row["s"].encode()) == row["map"]
    # Java's map has an order of its own, so the pairs are compared and not the whole text.
    assert sorted(encode_properties(row["map"]).split("\x02")) == sorted(row["back"].split("\x02"))


def test_properties_that_are_no_utf_8_are_still_read() -> None:
    assert decode_properties(b"a\x01\xff\x02b\x012\x02") == {"a": "\ufffd", "b": "2"}


def test_utf_8_is_read_as_javas_decoder_reads_it() -> None:
    rows = golden_rows("utf8")
    assert len(rows) > 1500
    for row in rows:
        assert decode_text(bytes.fromhex(row["bytes"])) == row["text"], row


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"\xed\xa0\x80", "\ufffd"),  # an encoded surrogate is one
        (b"\xed\xa0\x80\xed\xb0\x80", "\ufffd\ufffd"),  # a pair is two
        (b"\xed\xa0", "\ufffd"),  # cut short at the end
        (b"\xed\xa0a", "\ufffda"),
        (b"\xed\xa0\xed\xa0\x80", "\ufffd\ufffd"),
        (b"\xed", "\ufffd"),
        (b"\xed\x9f\xbf", "\ud7ff"),  # the last character before them
    ],
)
def test_a_surrogate_in_a_stored_property_is_one_replacement(value: bytes, text: str) -> None:
    assert decode_properties(b"a\x01" + value + b"\x02b\x012\x02") == {"a": text, "b": "2"}


def test_stored_properties_hold_everything_in_order() -> None:
    message = Message("T", b"", "pay", ["k1", "k2"], {"region": "eu"}, unique_key="U")
    assert list(decode_properties(message.encoded_properties()).items()) == [
        ("UNIQ_KEY", "U"),
        ("KEYS", "k1 k2"),
        ("TAGS", "pay"),
        ("region", "eu"),
    ]
    assert Message("T", b"", keys=["one", "key"][0]).keys == ("one",)


@pytest.mark.proves("producers", "Tags that no subscription can match are refused")
@pytest.mark.parametrize("tag", ["", "*", "a||b", " a", "a ", "\ta", "\x00"])
def test_a_tag_that_can_never_match_is_refused(tag: str) -> None:
    with pytest.raises(InvalidMessageError, match="never be matched"):
        Message("T", b"", tag)


@pytest.mark.parametrize("tag", ["a", "a|b", "a b", "中文", "Aa", "|a", "\u00a0a"])
def test_any_other_tag_can_be_subscribed_to(tag: str) -> None:
    assert matches_exactly(parse(f"other || {tag}"), check_tag(tag))


@pytest.mark.proves("producers", "U+0000, U+0001 and U+0002 in properties are refused")
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"keys": [""]}, "empty"),
        ({"keys": "a b"}, "one key or several"),
        ({"keys": ["a\x01"]}, "a key holds"),
        ({"tags": "a\x02b"}, "the tag holds"),
        ({"unique_key": "a\x01b"}, "the unique key holds"),
        ({"properties": {"TAGS": "x"}}, "tags="),
        ({"properties": {"a": ""}}, "empty name or value"),
        ({"properties": {"": "a"}}, "empty name or value"),
        ({"properties": {"a": "x\x02"}}, r"U\+0001 or U\+0002"),
        ({"properties": {"a\x01": "x"}}, r"U\+0001 or U\+0002"),
        ({"properties": {"a": "x\0"}}, r"U\+0000"),
        ({"keys": ["\0"]}, r"U\+0000"),
        ({"properties": {"a": 5}}, r"give '5'"),
        ({"properties": {"a": None}}, "leave it out"),
    ],
    ids=repr,
)
def test_what_no_reader_would_see_is_refused(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidMessageError, match=reason):
        Message("T", b"", **arguments)


def test_a_topic_is_checked() -> None:
    with pytest.raises(InvalidNameError):
        Message("no.dots", b"")


@pytest.mark.proves("producers", "A body has a maximum size")
def test_a_body_has_a_limit() -> None:
    Message("T", bytes(BODY_MAX_BYTES))
    with pytest.raises(MessageTooLargeError, match=f"limit of {BODY_MAX_BYTES}"):
        Message("T", bytes(BODY_MAX_BYTES + 1))


def test_the_limit_of_a_body_is_in_bytes_whatever_its_items_are() -> None:
    wide: Any = memoryview(bytes(BODY_MAX_BYTES + 8)).cast("q")
    with pytest.raises(MessageTooLargeError, match=f"{BODY_MAX_BYTES + 8} bytes"):
        Message("T", wide)


@pytest.mark.proves("producers", "Tag, keys and properties together have a maximum size")
def test_a_property_string_has_a_limit_in_bytes() -> None:
    room = PROPERTIES_MAX_BYTES - len("a\x01\x02")
    assert len(Message("T", b"", properties={"a": "x" * room}).encoded_properties()) == 32_767
    for value in ("x" * (room + 1), "é" * (room // 2 + 1)):
        with pytest.raises(MessageTooLargeError, match="32767"):
            Message("T", b"", properties={"a": value}).encoded_properties()


@pytest.mark.proves("producers", "Text that is not valid Unicode is refused")
def test_text_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(InvalidMessageError, match="not valid Unicode"):
        Message("T", b"", properties={"a": "\ud800"}).encoded_properties()


def test_a_message_never_changes_and_its_copies_are_equal() -> None:
    keys = ["k"]
    message = Message("T", b"body", "pay", keys, {"a": "b"}, 3, "U", 5)
    keys.append("invalid key")
    assert message.keys == ("k",)
    for name in [each.name for each in fields(Message)]:
        with pytest.raises(FrozenInstanceError):
            setattr(message, name, None)
        with pytest.raises(FrozenInstanceError):
            delattr(message, name)
    copies = copy(message), deepcopy(message), replace(message), pickle.loads(pickle.dumps(message))
    assert {*map(type, copies)} == {Message}
    assert all(one == message for one in copies)
    with pytest.raises(InvalidMessageError):
        replace(message, tags="*")


def test_a_message_has_no_subclass() -> None:
    with pytest.raises(TypeError, match=r"^Other: Message has no subclasses; put the message into"):
        type("Other", (Message,), {})
