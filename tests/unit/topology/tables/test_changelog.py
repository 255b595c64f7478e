from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.nodes.batches import stored

from rocketray.broker.topics.ownership_record import OWNERSHIP_KEY
from rocketray.errors import InvalidMessageError, MessageTooLargeError
from rocketray.message import SHARDING_KEY, Message
from rocketray.topology.app.app import App
from rocketray.topology.tables.changelog import (
    ChangelogBuffer,
    change_message,
    changelog_event,
)
from rocketray.topology.tables.key_form import changed_key

TOPIC = App("app").topic("C", value_serializer="raw")


def put(buffer: ChangelogBuffer, key: str, value: bytes | None = b"1", queue_id: int = 0) -> None:
    buffer.put(TOPIC, queue_id, key.encode(), value)


@given(st.binary(min_size=1, max_size=40))
def test_any_key_comes_back(key: bytes) -> None:
    message = change_message(TOPIC, key, b"v")
    message.encoded_properties()
    assert changed_key(stored(message, 0, 0)) == key


def test_a_key_that_is_that_of_another_record_comes_back_and_is_another_one() -> None:
    message = change_message(TOPIC, OWNERSHIP_KEY.encode(), b"v")
    assert message.properties[SHARDING_KEY] != OWNERSHIP_KEY, "for compaction, which keeps both"
    assert changed_key(stored(message, 0, 0)) == OWNERSHIP_KEY.encode()


def test_a_change_keeps_the_epoch_that_its_part_had() -> None:
    async def scenario() -> None:
        buffer, sent = ChangelogBuffer(), Sent()
        for epoch, key in ((5, b"a"), (6, b"b"), (7, b"a")):
            buffer.put(TOPIC, 0, key, b"1", epoch=epoch)
        await buffer.flush(sent.send)
        assert sent.epochs == [7, 6]

    asyncio.run(scenario())


def test_a_deletion_has_an_empty_body_and_a_value_has_none() -> None:
    assert change_message(TOPIC, b"k", None).body == b""
    with pytest.raises(InvalidMessageError, match="an empty body deletes its key"):
        put(ChangelogBuffer(), "k", b"")


@pytest.mark.parametrize(("key", "value"), [("k", bytes(4 * 1024 * 1024 + 1)), ("k" * 8193, b"1")])
def test_what_no_message_can_hold_is_refused_where_it_is_changed(key: str, value: bytes) -> None:
    buffer = ChangelogBuffer()
    with pytest.raises(MessageTooLargeError, match="changelog C"):
        put(buffer, key, value)
    assert len(buffer) == 0


def test_a_message_without_a_key_is_no_change() -> None:
    with pytest.raises(InvalidMessageError, match="send no other messages to changelogs"):
        changed_key(stored(Message("C", b"v"), 0, 0))


def test_a_change_that_does_not_decode_says_where_it_is() -> None:
    app = App("app")
    table = app.Table("t", value_type=int)
    change = stored(change_message(TOPIC, b"k", b"no number"), 3, 17)
    with pytest.raises(InvalidMessageError, match=r"C/3 offset 17: .*give the table the key_type"):
        changelog_event(app, change, table.decode)


class Sent:
    """What a flush sent; the send of one key may fail, or another change come during it."""

    def __init__(self) -> None:
        self.bodies: list[tuple[str, int, bytes]] = []
        self.epochs: list[int] = []
        self.during: dict[str, Any] = {}

    async def send(self, message: Message, queue_id: int, epoch: int) -> None:
        key = message.properties[SHARDING_KEY]
        await asyncio.sleep(0)
        meanwhile = self.during.pop(key, None)
        if isinstance(meanwhile, BaseException):
            raise meanwhile
        if meanwhile is not None:
            meanwhile()
        self.bodies.append((key, queue_id, message.body))
        self.epochs.append(epoch)


def test_the_last_change_of_a_key_is_sent_once() -> None:
    async def scenario() -> None:
        buffer, sent = ChangelogBuffer(), Sent()
        for number in range(5):
            put(buffer, "a", b"%d" % number)
        put(buffer, "a", b"other queue", queue_id=1)
        await buffer.flush(sent.send)
        await buffer.flush(sent.send)
        assert sent.bodies == [("a", 0, b"4"), ("a", 1, b"other queue")]

    asyncio.run(scenario())


def test_a_change_that_is_made_while_its_predecessor_is_sent_is_kept() -> None:
    async def scenario() -> None:
        buffer, sent = ChangelogBuffer(), Sent()
        put(buffer, "a")
        put(buffer, "b")
        sent.during["a"] = lambda: put(buffer, "a", b"2")
        await buffer.flush(sent.send)
        assert sent.bodies == [("a", 0, b"1"), ("b", 0, b"1")]
        assert len(buffer) == 1
        await buffer.flush(sent.send)
        assert sent.bodies[-1] == ("a", 0, b"2")

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [ValueError("on purpose"), asyncio.CancelledError()])
def test_a_flush_that_fails_keeps_what_it_did_not_send(error: BaseException) -> None:
    async def scenario() -> None:
        buffer, sent = ChangelogBuffer(), Sent()
        for key in "abc":
            put(buffer, key)
        sent.during["b"] = error
        with pytest.raises(type(error)):
            await buffer.flush(sent.send)
        assert len(buffer) == 2
        await buffer.flush(sent.send)
        assert sent.bodies == [("a", 0, b"1"), ("b", 0, b"1"), ("c", 0, b"1")]

    asyncio.run(scenario())
