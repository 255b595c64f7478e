"""Messages as lists and columns: the same bytes as from messages encoded one by one."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.models.message_texts import BORN_HOST, FIRST_ID, NOW_MS, PREFIX, texts, words

from rocketray.errors import InvalidMessageError, MessageTooLargeError
from rocketray.message import (
    BODY_MAX_BYTES,
    CRC_PROPERTY,
    IMPORTED_OFFSET_ID,
    PROPERTIES_MAX_BYTES,
    Message,
)
from rocketray.store.batches.batch_form import RecordOptions
from rocketray.store.batches.encoded_batch import encode_messages, pack_batch, packed
from rocketray.store.batches.message_columns import MessageColumns, RecordForm
from rocketray.store.batches.message_lists import GatheredMessages, MessageLists
from rocketray.store.formats.compression import Compression

pytestmark = pytest.mark.proves(
    "producers",
    "`send_many` stores columns like the messages of their rows, byte for byte",
)

compressions = st.none() | st.just(Compression("zlib", 50))


@st.composite
def alike(draw: st.DrawFn) -> list[Message]:
    """Messages with properties of the same names."""
    names = draw(st.lists(words.map(lambda text: "p" + text), max_size=3, unique=True))
    fields = st.tuples(
        st.binary(max_size=100) | st.binary(min_size=1, max_size=9).map(lambda part: part * 30),
        st.none() | st.sampled_from(["pay", "Aa", "BB", "日本"]) | words,
        st.lists(words, max_size=3),
        st.tuples(*[texts for _ in names]),
    )
    return [
        Message("Trade", body, tags, keys, dict(zip(names, values, strict=True)))
        for body, tags, keys, values in draw(st.lists(fields, min_size=1, max_size=6))
    ]


def form(compression: Compression | None = None) -> RecordForm:
    return RecordForm(
        "Trade", born_host=BORN_HOST, id_prefix=PREFIX, options=RecordOptions(compression)
    )


def one_by_one(several: Sequence[Message], compression: Compression | None = None) -> bytes:
    numbered = [
        replace(one, unique_key=f"{PREFIX}{FIRST_ID + number:012X}")
        for number, one in enumerate(several)
    ]
    batch = encode_messages(
        numbered,
        born_host=BORN_HOST,
        clock_ms=lambda: NOW_MS,
        options=RecordOptions(compression),
    )
    return pack_batch(batch)


@settings(max_examples=100, deadline=None)
@given(alike(), compressions, st.data())
def test_any_of_the_messages_pack_as_if_encoded_one_by_one(
    several: list[Message], compression: Compression | None, data: st.DataObject
) -> None:
    lists = MessageLists.of("Trade", several)
    assert lists is not None
    encoded = lists.encode(form(compression))
    everything = range(len(several))
    columns = MessageColumns(form(compression))
    columns.extend(several, [one.encoded_properties() for one in several])
    frame = packed(encoded.pack(everything, FIRST_ID, NOW_MS))
    assert frame == packed(columns.pack(FIRST_ID, NOW_MS))
    assert frame == one_by_one(several, compression)
    chosen = sorted(data.draw(st.sets(st.sampled_from(everything), min_size=1)))
    start = data.draw(st.sampled_from(everything))
    for numbers in (chosen, everything[start:]):
        expected = one_by_one([several[number] for number in numbers], compression)
        assert packed(encoded.pack(numbers, FIRST_ID, NOW_MS)) == expected
        sizes = [len(several[at].body) for at in numbers]
        assert all(map(int.__le__, sizes, encoded.sizes(numbers)))


@settings(max_examples=50, deadline=None)
@given(alike(), st.lists(st.integers(0, 3)))
def test_gathered_messages_are_those_that_were_added(
    several: list[Message], kinds: list[int]
) -> None:
    """Also those with a unique key, a flag or a time, of which there are no columns."""
    changes: list[dict[str, object]] = [{}, {"unique_key": "u"}, {"flag": 1}]
    changes.append({"born_timestamp_ms": 0})
    several = [
        replace(one, **changes[kind])  # type: ignore[arg-type]
        for one, kind in zip(several, [*kinds, *[0] * len(several)], strict=False)
    ]
    gathered = GatheredMessages("Trade")
    assert [gathered.append(one) for one in several] == [*range(len(several))]
    assert [*gathered] == several
    assert gathered[1:] == several[1:]
    assert gathered[-1] == several[-1]
    lists, expected = MessageLists.of("Trade", gathered), MessageLists.of("Trade", several)
    assert (lists is None) == (expected is None)
    if lists is not None and expected is not None:
        numbers = range(len(several))
        frames = [
            packed(one.encode(form()).pack(numbers, FIRST_ID, NOW_MS)) for one in (lists, expected)
        ]
        assert frames[0] == frames[1]


def test_no_container_is_made_for_a_message() -> None:
    """Each 700 have the garbage collector run, which in large programs takes longer than a list."""
    several = [Message("T", b"", "pay", ["k"], {"a": "b", "c": "d"}) for _ in range(5000)]
    before = gc.get_stats()[0]["collections"]
    assert MessageLists.of("T", several) is not None
    assert gc.get_stats()[0]["collections"] <= before + 2


PLAIN = Message("T", b"", properties={"a": "b"})


@pytest.mark.parametrize(
    "other",
    [
        Message("T", b""),
        Message("T", b"", properties={"b": "b"}),
        replace(PLAIN, unique_key="u"),
        replace(PLAIN, flag=1),
        replace(PLAIN, born_timestamp_ms=0),
        replace(PLAIN, body=bytearray(b"x")),  # type: ignore[arg-type]
    ],
)
def test_messages_that_differ_in_more_than_texts_have_no_columns(other: Message) -> None:
    assert MessageLists.of("T", [PLAIN, PLAIN]) is not None
    assert MessageLists.of("T", [PLAIN, other]) is None


def test_properties_are_stored_in_the_order_of_the_first_message() -> None:
    several = [
        Message("Trade", b"", None, ["k"], one)
        for one in ({"a": "1", "b": "2"}, {"b": "3", "a": "4"})
    ]
    ordered = [several[0], replace(several[1], properties={"a": "4", "b": "3"})]
    lists = MessageLists.of("Trade", several)
    assert lists is not None
    assert packed(lists.encode(form()).pack(range(2), FIRST_ID, NOW_MS)) == one_by_one(ordered)


def test_reading_properties_changes_none() -> None:
    properties: defaultdict[str, str] = defaultdict(str, b="b")
    given = [PLAIN, Message("T", b"", properties=properties)]
    assert MessageLists.of("T", given) is None
    assert properties == {"b": "b"}


@pytest.mark.parametrize("name", [CRC_PROPERTY, IMPORTED_OFFSET_ID])
def test_properties_with_a_meaning_of_their_own_are_no_columns(name: str) -> None:
    assert MessageLists.of("T", [Message("T", b"", properties={name: "x"})]) is None


def test_a_property_string_has_its_limit_and_the_error_its_message() -> None:
    room = PROPERTIES_MAX_BYTES - form().id_bytes - len("a\x01\x02")
    for size in (room - len(form().crc_room), room - 1, room):
        several = [Message("Trade", b"", properties={"a": "x" * n}) for n in (1, size)]
        lists = MessageLists.of("Trade", several)
        assert lists is not None
        frame = packed(lists.encode(form()).pack(range(2), FIRST_ID, NOW_MS))
        assert frame == one_by_one(several)
    for value in ("x" * (room + 1), "é" * (room // 2 + 1)):
        lists = MessageLists.of(
            "Trade", [Message("Trade", b"", properties={"a": one}) for one in ("x", value)]
        )
        assert lists is not None
        with pytest.raises(MessageTooLargeError, match=r"^message 1: topic 'Trade': a property"):
            lists.encode(form())


def test_text_that_is_no_unicode_is_refused_with_its_message() -> None:
    several = [Message("Trade", b"", "t", [key]) for key in ("a", "\ud800")]
    lists = MessageLists.of("Trade", several)
    assert lists is not None
    with pytest.raises(InvalidMessageError, match=r"^message 1: topic 'Trade': .*not valid Unico"):
        lists.encode(form())


def test_a_body_that_is_too_long_is_no_column() -> None:
    large = Message("T", bytes(BODY_MAX_BYTES))
    assert MessageLists.of("T", [large]) is not None
    object.__setattr__(large, "body", bytes(BODY_MAX_BYTES + 1))
    assert MessageLists.of("T", [large]) is None
