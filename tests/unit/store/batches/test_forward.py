"""Messages that are stored again: what they keep, and what becomes new."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.nodes.stores import SMALL, FakeClock

from rocketray.errors import InvalidMessageError, MessageTooLargeError
from rocketray.hashing import tags_code
from rocketray.message import PROPERTIES_MAX_BYTES, ForwardedMessage, StoredMessage
from rocketray.store.batches.batch_form import EncodedBatch
from rocketray.store.batches.forward import encode_forwarded
from rocketray.store.formats.property_crc import CRC_ROOM
from rocketray.store.formats.record import RecordFields, parse_record
from rocketray.store.formats.sys_flag import COMMIT, COMPRESSED, STORE_IPV6
from rocketray.store.message_store import MessageStore

HOSTS = st.sampled_from([("192.0.2.1", 5), ("2001:db8::1", 70_000)])
TEXTS = st.text(
    st.characters(exclude_characters="\0\x01\x02 ", exclude_categories=["Cs"]), min_size=1
)


@st.composite
def forwarded(draw: st.DrawFn) -> ForwardedMessage:
    named = draw(st.dictionaries(TEXTS, TEXTS.map(lambda text: text + "\x01 x"), max_size=3))
    for name in ("UNIQ_KEY", "KEYS", "TAGS"):
        if draw(st.booleans()):
            named[name] = draw(TEXTS)
    return ForwardedMessage(
        "%RETRY%group",
        draw(st.binary(max_size=50)),
        named,
        draw(st.integers(0, 2**50)),
        draw(HOSTS),
        flag=draw(st.integers(-5, 5)),
        sys_flag=COMMIT | draw(st.sampled_from([0, COMPRESSED, STORE_IPV6])),
        reconsume_times=draw(st.integers(0, 20)),
        prepared_transaction_offset=draw(st.integers(0, 2**60)),
    )


def stored(directory: Path, batch: EncodedBatch, topic: str) -> list[StoredMessage]:
    with MessageStore(directory, SMALL, clock_ms=FakeClock()) as store:
        result = store.append(topic, 2, batch)
        entries = [store.reads.queue_entry(topic, 2, number) for number in range(result.count)]
        assert [entry.tags_code for entry in entries] == batch.tags_codes.tolist()
        return [store.reads.view(entry.physical_offset) for entry in entries]


@given(st.lists(forwarded(), min_size=1, max_size=4))
def test_a_forwarded_message_is_stored_with_all_that_it_brings(
    tmp_path_factory: pytest.TempPathFactory, messages: list[ForwardedMessage]
) -> None:
    batch = encode_forwarded(messages)
    assert batch.tags_codes.tolist() == [tags_code(one.properties.get("TAGS")) for one in messages]
    found = stored(tmp_path_factory.mktemp("store"), batch, messages[0].topic)
    again = [ForwardedMessage.of(one, topic=one.topic) for one in found]
    assert again == [
        replace(one, sys_flag=COMMIT | (16 if ":" in one.born_host[0] else 0)) for one in messages
    ]


def test_unique_key_and_keys_are_indexed(tmp_path: Path) -> None:
    named = {"KEYS": "a b", "UNIQ_KEY": "id", "x": "1"}
    message = ForwardedMessage("Trade", b"", named, 1, ("192.0.2.1", 1))
    with MessageStore(tmp_path, SMALL, clock_ms=FakeClock()) as store:
        store.append("Trade", 0, encode_forwarded([message]))
        for key in ("a", "b", "id"):
            assert len(store.reads.query("Trade", key, 9)) == 1


def test_what_replaces_a_field_is_said(tmp_path: Path) -> None:
    message = ForwardedMessage("Trade", b"x", {"a": "b"}, 1, ("192.0.2.1", 1), reconsume_times=3)
    [one] = stored(tmp_path, encode_forwarded([message]), "Trade")
    moved = ForwardedMessage.of(
        one,
        topic="Other",
        properties={"c": "d"},
        sys_flag=COMMIT,
        reconsume_times=0,
        prepared_transaction_offset=7,
    )
    expected = ForwardedMessage("Other", b"x", {"c": "d"}, 1, ("192.0.2.1", 1), 0, COMMIT, 0, 7)
    assert moved == expected


def test_the_new_record_has_room_for_a_crc() -> None:
    message = ForwardedMessage("Trade", b"", {"a": "b"}, 1, ("192.0.2.1", 1))
    raw = bytes(encode_forwarded([message]).records)
    fields = parse_record(raw, 0, len(raw))
    assert isinstance(fields, RecordFields)
    assert raw[fields.properties_start :] == b"a\x01b\x02" + CRC_ROOM


def test_only_what_goes_together_is_one_batch() -> None:
    message = ForwardedMessage("Trade", b"", {}, 1, ("192.0.2.1", 1))
    for other in (replace(message, topic="Other"), replace(message, sys_flag=COMMIT)):
        with pytest.raises(InvalidMessageError, match="do not go together"):
            encode_forwarded([message, other])
    with pytest.raises(InvalidMessageError, match="no messages"):
        encode_forwarded([])
    long = replace(message, properties={"a": "x" * PROPERTIES_MAX_BYTES})
    with pytest.raises(MessageTooLargeError, match="property string"):
        encode_forwarded([long])
    with pytest.raises(InvalidMessageError, match="separator"):
        replace(message, properties={"a": "b\x02c"})
