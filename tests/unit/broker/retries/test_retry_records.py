"""What a message is stored as when a group could not handle it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.nodes.stores import SMALL, FakeClock

from rocketray.base.delay import DELAY_LEVELS_MS, restored
from rocketray.base.marks import (
    DELAY_LEVEL,
    FAILURE_REASON,
    GIVEN_UP_BY,
    ORIGIN_MESSAGE_ID,
    RETRY_QUEUE_ID,
    RETRY_TOPIC,
)
from rocketray.base.system_topics import SCHEDULE_TOPIC
from rocketray.broker.retries.retry_records import (
    MAX_ATTEMPTS,
    dead_letter_topic,
    dead_lettered,
    origin_of,
    queue_of,
    retry_topic,
    sent_back,
    topic_of,
)
from rocketray.hashing import tags_code
from rocketray.message import ForwardedMessage, PhysicalOffset, QueueOffset, StoredMessage
from rocketray.store.batches.forward import encode_forwarded
from rocketray.store.message_store import MessageStore

GROUP, DEAD = "g", dead_letter_topic("g")
NAMES = st.text(
    st.characters(exclude_characters="\0\x01\x02 ", exclude_categories=["Cs"]),
    min_size=1,
    max_size=9,
)
OF_RETRIES = {RETRY_TOPIC, RETRY_QUEUE_ID, ORIGIN_MESSAGE_ID, "DELAY", "REAL_TOPIC", "REAL_QID"}
FIRST = StoredMessage(
    topic="Trade",
    queue_id=2,
    queue_offset=QueueOffset(7),
    physical_offset=PhysicalOffset(700),
    size=100,
    body=b"body",
    properties={"TAGS": "pay", "KEYS": "k1 k2", "UNIQ_KEY": "U", "n": "1"},
    offset_message_id="0A00000100002A9F00000000000002BC",
    flag=5,
    sys_flag=0,
    body_crc=0,
    born_timestamp_ms=1_000,
    born_host=("192.0.2.1", 77),
    store_timestamp_ms=2_000,
    store_host=("10.0.0.1", 10911),
    reconsume_times=0,
    prepared_transaction_offset=0,
)


@st.composite
def messages(draw: st.DrawFn) -> StoredMessage:
    properties = draw(st.dictionaries(NAMES, NAMES.map(lambda text: text + " =x"), max_size=3))
    for name in ("TAGS", "KEYS", "UNIQ_KEY"):
        if draw(st.booleans()):
            properties[name] = draw(NAMES)
    return replace(
        FIRST,
        topic=draw(st.sampled_from(["Trade", "T" * 127])),
        body=draw(st.binary(max_size=40)),
        properties=properties,
        flag=draw(st.integers(0, 2**31 - 1)),
        born_timestamp_ms=draw(st.integers(0, 2**50)),
        born_host=draw(st.sampled_from([("192.0.2.1", 77), ("2001:db8::1", 70_000)])),
    )


def stored_again(message: ForwardedMessage, number: int) -> StoredMessage:
    """*message* as a consumer gets it, at its next place."""
    return replace(
        FIRST,
        topic=message.topic,
        queue_id=0,
        body=message.body,
        properties=message.properties,
        offset_message_id=f"{number:032X}",
        flag=message.flag,
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=message.born_host,
        reconsume_times=message.reconsume_times,
    )


def without_retries(message: ForwardedMessage | StoredMessage) -> dict[str, str]:
    return {name: text for name, text in message.properties.items() if name not in OF_RETRIES}


@given(messages(), st.integers(0, 20))
def test_a_message_goes_up_the_ladder_and_stays_what_it_was(
    first: StoredMessage, max_attempts: int
) -> None:
    levels: list[int] = []
    message = first
    while True:
        back = sent_back(message, GROUP, max_attempts, DEAD)
        kept = (back.message.body, back.message.flag, back.message.born_timestamp_ms)
        assert kept == (first.body, first.flag, first.born_timestamp_ms)
        assert without_retries(back.message) == without_retries(first)
        assert back.message.properties[RETRY_TOPIC] == first.topic
        assert back.message.properties[ORIGIN_MESSAGE_ID] == first.offset_message_id
        assert queue_of(stored_again(back.message, 0)) == first.queue_id
        assert back.message.reconsume_times == message.reconsume_times + 1
        if back.is_dead_letter:
            break
        waiting = stored_again(back.message, 100 + len(levels))
        assert (waiting.topic, topic_of(waiting)) == (SCHEDULE_TOPIC, first.topic)
        levels.append(int(back.message.properties[DELAY_LEVEL]))
        assert back.queue_id == levels[-1] - 1 < len(DELAY_LEVELS_MS)
        again, queue_id = restored(waiting)
        assert (again.topic, queue_id) == (retry_topic(GROUP), 0)
        message = stored_again(again, 1_000 + len(levels))
        assert (topic_of(message), origin_of(message)) == (first.topic, first.offset_message_id)
    assert levels == [min(3 + times, 18) for times in range(max_attempts)]
    assert (back.message.topic, back.queue_id) == (DEAD, 0)


def test_in_a_retry_topic_of_several_queues_a_message_keeps_its_number() -> None:
    waiting = sent_back(replace(FIRST, queue_id=6), GROUP, 16, DEAD, retry_queues=4)
    again, queue_id = restored(stored_again(waiting.message, 1))
    assert (again.topic, queue_id) == (retry_topic(GROUP), 2)
    assert queue_of(replace(stored_again(again, 2), queue_id=2)) == 6


def test_the_ladder_is_that_of_rocketmq() -> None:
    message, delays = FIRST, []
    for _ in range(MAX_ATTEMPTS):
        back = sent_back(message, GROUP, MAX_ATTEMPTS, DEAD)
        delays.append(DELAY_LEVELS_MS[back.queue_id] // 1000)
        message = stored_again(replace(back.message, topic=retry_topic(GROUP)), 1)
    assert delays == [
        10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200
    ]  # fmt: skip
    assert sent_back(message, GROUP, MAX_ATTEMPTS, DEAD).is_dead_letter
    assert not sent_back(message, GROUP, None, DEAD).is_dead_letter


def test_a_dead_letter_names_its_group_where_its_topic_does_not() -> None:
    letter = dead_lettered(FIRST, GROUP, "Mine", 3)
    assert (letter.message.topic, letter.message.reconsume_times) == ("Mine", 4)
    assert DELAY_LEVEL not in letter.message.properties
    assert letter.message.properties[GIVEN_UP_BY] == GROUP
    assert GIVEN_UP_BY not in dead_lettered(FIRST, GROUP, DEAD, 3).message.properties


def test_a_dead_letter_says_why_it_is_one_unless_there_is_no_room() -> None:
    for back in (
        dead_lettered(FIRST, GROUP, DEAD, 3, reason="ValueError: 7"),
        sent_back(FIRST, GROUP, 0, DEAD, reason="ValueError: 7"),
    ):
        assert back.message.properties[FAILURE_REASON] == "ValueError: 7"
    waiting = sent_back(FIRST, GROUP, MAX_ATTEMPTS, DEAD, reason="ValueError: 7")
    assert FAILURE_REASON not in waiting.message.properties
    full = replace(FIRST, properties={**FIRST.properties, "a": "x" * 32_300})
    assert (
        FAILURE_REASON
        not in dead_lettered(full, GROUP, DEAD, 3, reason="é" * 200).message.properties
    )


@pytest.mark.parametrize(
    "make",
    [lambda: sent_back(FIRST, GROUP, 1, DEAD), lambda: dead_lettered(FIRST, GROUP, DEAD, 0)],
    ids=["waiting", "dead"],
)
def test_the_record_on_disk_says_all_of_it(
    make: Callable[[], tuple[ForwardedMessage, int, bool]], tmp_path: Path
) -> None:
    message, queue_id, _ = make()
    with MessageStore(tmp_path, SMALL, clock_ms=FakeClock()) as store:
        store.append(message.topic, queue_id, encode_forwarded([message]))
        entry = store.reads.queue_entry(message.topic, queue_id, 0)
        record = store.reads.view(entry.physical_offset)
        [by_key] = store.reads.query(message.topic, "k2")
        assert by_key == record
        if message.topic == DEAD:
            assert entry.tags_code == tags_code("pay")
    assert (record.reconsume_times, record.flag, record.born_host) == (1, 5, ("192.0.2.1", 77))
    assert (record.body, record.properties) == (b"body", message.properties)
