"""Messages collected as columns: the same bytes as from messages encoded one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.models.message_texts import BORN_HOST, FIRST_ID, NOW_MS, PREFIX, texts, words

from rocketray.errors import InvalidMessageError, MessageTooLargeError
from rocketray.message import BODY_MAX_BYTES, IMPORTED_OFFSET_ID, SHARDING_KEY, Message
from rocketray.store.batches.batch_form import RecordOptions
from rocketray.store.batches.encoded_batch import encode_messages, pack_batch, packed, unpack_batch
from rocketray.store.batches.message_columns import MessageColumns, RecordForm
from rocketray.store.formats.compression import Compression

messages = st.builds(
    Message,
    st.just("Trade"),
    st.binary(max_size=100),
    st.none() | st.sampled_from(["pay", "Aa", "BB", "日本"]) | words,
    st.lists(words, max_size=3),
    st.dictionaries(
        words.map(lambda text: "p" + text) | st.just(IMPORTED_OFFSET_ID), texts, max_size=3
    ),
    st.sampled_from([0, 0, 7]),
    st.none() | words,
    st.none() | st.integers(0, 2**41),
)


def form(topic: str = "Trade", compression: Compression | None = None) -> RecordForm:
    return RecordForm(
        topic, born_host=BORN_HOST, id_prefix=PREFIX, options=RecordOptions(compression)
    )


def one_by_one(several: Sequence[Message], compression: Compression | None = None) -> bytes:
    numbered = [
        replace(one, unique_key=one.unique_key or f"{PREFIX}{FIRST_ID + number:012X}")
        for number, one in enumerate(several)
    ]
    batch = encode_messages(
        numbered,
        born_host=BORN_HOST,
        clock_ms=lambda: NOW_MS,
        options=RecordOptions(compression),
    )
    return pack_batch(batch)


@settings(max_examples=150, deadline=None)
@given(st.lists(messages, min_size=1, max_size=8), st.booleans())
def test_any_messages_pack_as_if_encoded_one_by_one(several: list[Message], at_once: bool) -> None:
    columns = MessageColumns(form())
    if at_once:
        columns.extend(several, [one.encoded_properties() for one in several])
    else:
        for number, message in enumerate(several):
            assert columns.add_message(message) == number
    packing = columns.pack(FIRST_ID, NOW_MS)
    assert packed(packing) == one_by_one(several)
    assert packing.sizes().tolist() == unpack_batch(packed(packing)).sizes.tolist()


@settings(max_examples=80, deadline=None)
@given(st.lists(messages, min_size=1, max_size=4))
def test_what_is_given_in_parts_packs_as_a_message_does(several: list[Message]) -> None:
    columns = MessageColumns(form())
    for number, one in enumerate(several):
        assert columns.add(one.body, one.tags, one.keys, one.properties) == number
    plain = [Message(one.topic, one.body, one.tags, one.keys, one.properties) for one in several]
    assert packed(columns.pack(FIRST_ID, NOW_MS)) == one_by_one(plain)


@pytest.mark.parametrize("sharding_key", ["order-7", "ä" * 300])
@pytest.mark.parametrize(("keys", "properties"), [((), {}), (("k",), {}), ((), {"a": "b"})])
def test_a_sharding_key_packs_as_the_property_of_that_name(
    sharding_key: str, keys: tuple[str, ...], properties: dict[str, str]
) -> None:
    columns = MessageColumns(form())
    for tags in ("pay", None, "pay"):  # the second time it is a known one
        columns.add(b"x", tags, keys, properties, sharding_key)
    expected = [
        Message("Trade", b"x", tags, keys, {**properties, SHARDING_KEY: sharding_key})
        for tags in ("pay", None, "pay")
    ]
    assert packed(columns.pack(FIRST_ID, NOW_MS)) == one_by_one(expected)


def test_any_number_of_sharding_keys_is_packed_and_a_wrong_one_is_refused() -> None:
    columns = MessageColumns(form())
    names = [f"order-{number % 5000}" for number in range(9000)]
    for name in names:
        columns.add(b"", "pay", sharding_key=name)
    expected = [Message("Trade", b"", "pay", (), {SHARDING_KEY: name}) for name in names]
    with pytest.raises(InvalidMessageError, match=SHARDING_KEY):
        columns.add(b"", "pay", sharding_key="a\x02b")
    assert len(columns) == len(names)
    assert packed(columns.pack(FIRST_ID, NOW_MS)) == one_by_one(expected)


def test_one_key_may_be_given_as_a_bare_text() -> None:
    columns = MessageColumns(form())
    columns.add(b"", None, "key")
    expected = one_by_one([Message("Trade", b"", keys=("key",))])
    assert packed(columns.pack(FIRST_ID, NOW_MS)) == expected


@pytest.mark.parametrize("count", [1, 3])
def test_plain_messages_of_a_long_topic_pack_alike(count: int) -> None:
    topic = "%RETRY%" + "g" * 200  # a record of version 2
    several = [Message(topic, b"%d" % number, "pay") for number in range(count)]
    columns, bulk = MessageColumns(form(topic)), MessageColumns(form(topic))
    for message in several:
        columns.add(message.body, message.tags)
    bulk.extend(several, [one.encoded_properties() for one in several])
    expected = one_by_one(several)
    assert packed(columns.pack(FIRST_ID, NOW_MS)) == expected
    assert packed(bulk.pack(FIRST_ID, NOW_MS)) == expected


def test_large_bodies_are_compressed() -> None:
    compression = Compression("zlib", 50)
    several = [Message("Trade", b"a" * 1000), Message("Trade", b"b"), Message("Trade", b"c" * 60)]
    columns = MessageColumns(form(compression=compression))
    columns.extend(several, [one.encoded_properties() for one in several])
    frame = packed(columns.pack(FIRST_ID, NOW_MS))
    assert frame == one_by_one(several, compression)
    assert len(frame) < 1000


def test_what_a_message_refuses_is_not_added() -> None:
    columns = MessageColumns(form())
    for body, tags, keys, properties in (
        (b"", "*", (), None),
        (b"", "a\x01", (), None),
        (b"", None, "a b", None),
        (b"", None, ("",), None),
        (b"", None, (), {"TAGS": "x"}),
        (b"", None, (), {"a": "x\x02"}),
        (b"", None, (), {"a\x01": "x"}),
        (b"", None, (), {"a": 7}),
        (b"", None, (), {"": "x"}),
        (b"", None, (), {"a": "\ud800"}),
        ("text", "pay", (), None),
    ):
        with pytest.raises(InvalidMessageError):
            columns.add(body, tags, keys, properties)  # type: ignore[arg-type]
    wide = memoryview(bytes(BODY_MAX_BYTES + 8)).cast("q")
    too_large: list[tuple[Any, dict[str, str] | None]] = [
        (bytes(BODY_MAX_BYTES + 1), None),
        (wide, None),
        (b"", {"a": "x" * 32_730}),
    ]
    for body, properties in too_large:
        with pytest.raises(MessageTooLargeError):
            columns.add(body, "pay", (), properties)
    assert not columns
    assert columns.add(bytearray(b"x"), "pay") == 0  # type: ignore[arg-type]
    assert packed(columns.pack(FIRST_ID, NOW_MS)) == one_by_one([Message("Trade", b"x", "pay")])
