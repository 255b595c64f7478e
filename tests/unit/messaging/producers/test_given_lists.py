"""Messages that a program gives as columns are the messages that it could make one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketray.errors import InvalidMessageError, MessageTooLargeError
from rocketray.message import BODY_MAX_BYTES, Message
from rocketray.messaging.producers.given_lists import GivenLists
from rocketray.store.batches.encoded_batch import packed
from rocketray.store.batches.message_columns import MessageColumns, RecordForm

FORM = RecordForm("Trade", born_host=("127.0.0.1", 9), id_prefix="7F0000010001AABBCCDD")
COUNT = 3

words = st.text(st.sampled_from("ab\u00e9\u3042\U0001f600"), min_size=1, max_size=4)
any_texts = words | st.text(st.sampled_from("a*|\0\1\2 \ud800"), max_size=3)


def columns_of(text: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A text for all messages, or one for each."""
    return text | st.lists(st.none() | text, min_size=COUNT, max_size=COUNT)


def lists_of(text: st.SearchStrategy[str]) -> st.SearchStrategy[GivenLists]:
    return st.builds(
        GivenLists,
        st.just("Trade"),
        st.lists(st.binary(max_size=9), min_size=COUNT, max_size=COUNT),
        st.none() | columns_of(text),
        st.none() | columns_of(text) | st.lists(st.lists(text), min_size=COUNT, max_size=COUNT),
        st.dictionaries(st.sampled_from(["region", "ä", "IMPORTED_OFFSET_ID"]), columns_of(words)),
    )


def entry(column: Any, number: int) -> Any:
    return column[number] if isinstance(column, list) else column


def messages(lists: GivenLists) -> list[Message]:
    """The same, made by hand."""
    return [
        Message(
            lists.topic,
            body,
            entry(lists.tags, number),
            () if entry(lists.keys, number) is None else entry(lists.keys, number),
            {
                name: entry(texts, number)
                for name, texts in lists.properties.items()
                if entry(texts, number) is not None
            },
        )
        for number, body in enumerate(lists.bodies)
    ]


def frame_of(several: list[Message]) -> bytes:
    columns = MessageColumns(FORM)
    columns.extend(several, [one.encoded_properties() for one in several])
    return packed(columns.pack(7, 8))


@pytest.mark.proves(
    "producers",
    "`send_many` stores columns like the messages of their rows, byte for byte",
)
@settings(max_examples=150, deadline=None)
@given(lists_of(words))
def test_columns_pack_as_the_messages_do(lists: GivenLists) -> None:
    columns = lists.columns()
    assert lists.messages() == messages(lists)
    if columns is None:
        assert "IMPORTED_OFFSET_ID" in lists.properties
    else:
        assert packed(columns.encode(FORM).pack(range(COUNT), 7, 8)) == frame_of(messages(lists))


@pytest.mark.proves(
    "producers",
    "An error about a message of a list or of columns has its number, and nothing is sent",
)
@settings(max_examples=300, deadline=None)
@given(lists_of(any_texts))
def test_columns_refuse_what_a_message_refuses_and_say_which(lists: GivenLists) -> None:
    number = 0
    try:
        for number in range(COUNT):
            keys = entry(lists.keys, number)
            one = Message("Trade", b"", entry(lists.tags, number), () if keys is None else keys)
            one.encoded_properties()
    except InvalidMessageError as error:
        reason = str(error)
    else:
        reason = ""
    columns = lists.columns()
    if columns is not None and not reason:
        columns.encode(FORM)
        return
    if columns is not None:
        with pytest.raises(InvalidMessageError, match=rf"^message {number}: .*not valid Unicode"):
            columns.encode(FORM)
    elif reason and "not valid Unicode" not in reason:
        with pytest.raises(InvalidMessageError) as raised:
            lists.messages()
        assert str(raised.value) == f"message {number}: {reason}"


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ({"tags": ["a"]}, "tags has 1 entry for 3 bodies; give a string for all"),
        ({"keys": []}, "keys has 0 entries for 3 bodies"),
        ({"properties": {"a": ["1", "2"]}}, "property 'a' has 2 entries for 3 bodies"),
        ({"tags": 5}, "tags is 5; give a string for all messages, or a list with one for each"),
        ({"keys": b"abc"}, "keys is b'abc'; give a string for all messages"),
        ({"properties": {"a": 5}}, "property 'a' is 5; give a string for all messages"),
        ({"properties": {"TAGS": "x"}}, "property TAGS is set by the field"),
        ({"properties": {"": ["x"] * 3}}, "empty name"),
        ({"properties": [("a", "b")]}, "give a mapping"),
        ({"bodies": b"abc"}, "bodies is b'abc'; give a list of bytes"),
        ({"bodies": [b"a", "b", b"c"]}, "body 1 is 'b'; give bytes"),
    ],
)
def test_what_is_no_column_is_refused(column: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidMessageError, match=reason):
        GivenLists(
            **{"topic": "T", "bodies": [b""] * 3, "tags": None, "keys": None, "properties": {}}
            | column
        )


def test_a_column_of_other_things_is_refused_with_the_message() -> None:
    lists = GivenLists("T", [b"", b""], None, None, {"a": ["x", 5]})  # type: ignore[list-item]
    assert lists.columns() is None
    with pytest.raises(InvalidMessageError, match=r"^message 1: property 'a' is a int; .*give '5'"):
        lists.messages()


def test_a_body_over_the_limit_is_refused_with_the_message() -> None:
    lists = GivenLists("T", [b"", bytes(BODY_MAX_BYTES + 1)], None, None, {})
    assert lists.columns() is None
    with pytest.raises(MessageTooLargeError, match=r"^message 1: topic 'T': a body of 4194305"):
        lists.messages()


def test_bodies_of_other_types_are_made_messages() -> None:
    lists = GivenLists("Trade", [bytearray(b"x"), b"y"], "pay", None, {})  # type: ignore[list-item]
    assert lists.columns() is None
    assert [bytes(one.body) for one in lists.messages()] == [b"x", b"y"]
