"""The parts of a message in one pass: the text, or the refusal, of their checks one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import message_parts as plain
from support.models.message_texts import BORN_HOST, FIRST_ID, NOW_MS, PREFIX

from rocketray.base import message_parts
from rocketray.errors import InvalidMessageError
from rocketray.message import CRC_PROPERTY, IMPORTED_OFFSET_ID, SHARDING_KEY, Message
from rocketray.store.batches.encoded_batch import encode_messages, pack_batch, packed
from rocketray.store.batches.message_columns import MessageColumns, RecordForm


class Text(str):
    """A text of another class."""

    __slots__ = ()


texts = st.text(st.sampled_from("a9-| \0\1\2\n\u00a0\u00e9\u3042\ud83d"), max_size=4)
some_text = texts | texts.map(Text) | st.sampled_from([None, 7, b"a"])
names = some_text | st.sampled_from(
    ["region", "a", "TAGS", "KEYS", "DELAY", CRC_PROPERTY, IMPORTED_OFFSET_ID, SHARDING_KEY]
)
properties = st.dictionaries(names, some_text, max_size=3).flatmap(
    lambda one: st.sampled_from([one, MappingProxyType(one)])
)
lists = st.lists(some_text, max_size=3)
keys: st.SearchStrategy[Any] = texts | texts.map(Text) | lists | lists.map(lambda some: (*some,))
TOPICS = st.sampled_from(["Trade", "SCHEDULE_TOPIC_XXXX"])


def of(make: Callable[..., str], *arguments: Any) -> str | None:
    try:
        return make(*arguments)
    except (InvalidMessageError, ValueError):
        return None


@settings(max_examples=600, deadline=None)
@given(keys, properties, TOPICS)
def test_the_text_of_parts_is_that_of_their_checks_one_by_one(
    some_keys: Any, some: Any, topic: str
) -> None:
    for _ in range(2):  # the second time the names are known
        assert of(message_parts.keys_text, some_keys) == of(plain.keys_text, some_keys)
        found = of(message_parts.properties_text, some, topic)
        assert found == of(plain.properties_text, some, topic)


valid = st.text(st.sampled_from("a9-| \u00a0\u00e9\u3042"), min_size=1, max_size=4)
valid_keys = st.one_of(
    valid.filter(lambda key: " " not in key),
    st.lists(valid, max_size=3),
    st.lists(valid, max_size=3).map(lambda some: (*some,)),
)
valid_names = valid.map("p".__add__) | st.sampled_from([IMPORTED_OFFSET_ID, CRC_PROPERTY])
sends = st.tuples(
    st.binary(max_size=9),
    st.sampled_from([None, "pay", "\u3042"]),
    valid_keys,
    st.none() | st.dictionaries(valid_names, valid, max_size=3),
    st.sampled_from([None, None, "key", "\u00e9"]),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(sends, min_size=1, max_size=6))
def test_sends_are_packed_as_messages_that_are_encoded_one_by_one(several: list[Any]) -> None:
    columns = MessageColumns(RecordForm("Trade", born_host=BORN_HOST, id_prefix=PREFIX))
    expected = []
    for number, (body, tags, some_keys, some, sharding_key) in enumerate(several):
        given_keys: Sequence[str] = some_keys.copy() if isinstance(some_keys, list) else some_keys
        properties = None if some is None else some.copy()
        assert columns.add(body, tags, given_keys, properties, sharding_key) == number
        whole = {**(some or {}), **({SHARDING_KEY: sharding_key} if sharding_key else {})}
        its_id = f"{PREFIX}{FIRST_ID + number:012X}"
        expected.append(Message("Trade", body, tags, some_keys, whole, unique_key=its_id))
        if isinstance(given_keys, list):
            given_keys.clear()  # what is sent does not change with what its sender does later
        if properties:
            properties.clear()
    frame = packed(columns.pack(FIRST_ID, NOW_MS))
    batch = encode_messages(expected, born_host=BORN_HOST, clock_ms=lambda: NOW_MS)
    assert frame == pack_batch(batch)
