"""The table of marks: which names a program may give, which travel, and where each counts."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.harness.amounts import examples
from support.harness.source_tree import ROOT

from rocketray.base.delay import at_level
from rocketray.base.marks import (
    DELAY_PROPERTIES,
    FAILURE_REASON,
    GIVEN_UP_BY,
    LEFT_BEHIND,
    MARKS,
    ORIGIN_MESSAGE_ID,
    REAL_TOPIC,
    REDRIVEN_FROM,
    RETRY_QUEUE_ID,
    RETRY_TOPIC,
    Writer,
    mark,
)
from rocketray.base.system_topics import GIVEN_UP_TOPIC, HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from rocketray.broker.retries.retry_records import (
    dead_letter_topic,
    dead_lettered,
    origin_of,
    queue_of,
    retry_topic,
    sent_back,
    topic_of,
)
from rocketray.broker.retries.undeliverable import SCHEDULE_LETTERS, delayed_letter, first_place
from rocketray.errors import StreamError
from rocketray.message import (
    ForwardedMessage,
    Message,
    PhysicalOffset,
    QueueOffset,
    StoredMessage,
    check_properties,
    with_sharding_key,
)
from rocketray.messaging.producers.given_lists import GivenLists
from rocketray.store.batches.table_columns import check_names, read_table
from rocketray.store.batches.taken_on import taken_on_column
from rocketray.topology.app.app import App
from rocketray.topology.values.wire import key_of, message_of, parts_of
from rocketray.views.message_links import send_again
from rocketray.views.message_records import to_json
from rocketray.views.outgoing import from_json

OF_USER = {"region": "eu", "traceparent": "00-1-2-01"}
NOTED = dict.fromkeys(sorted(LEFT_BEHIND - {"__CRC32#"}), "7")
"""Each mark that does not travel, as a message may have it."""
REFUSED = sorted(name for name, each in MARKS.items() if not each.may_be_given)
RETRY, LETTERS = retry_topic("g"), dead_letter_topic("g")
MAP = pa.map_(pa.string(), pa.string())
HOST = ("127.0.0.1", 9)
PAGE = ROOT / "docs/reference/marks.md"
NAME = re.compile(r"`([^`]+)`")
APP = App("app")
TOPIC = APP.topic("Trade")


def stored(
    topic: str = "Trade", properties: Mapping[str, str] | None = None, queue_id: int = 1
) -> StoredMessage:
    return StoredMessage(
        topic=topic,
        queue_id=queue_id,
        queue_offset=QueueOffset(17),
        physical_offset=PhysicalOffset(4711),
        size=100,
        body=b"body",
        properties=properties or {},
        offset_message_id="7F" * 16,
        flag=0,
        sys_flag=0,
        body_crc=0,
        born_timestamp_ms=1,
        born_host=HOST,
        store_timestamp_ms=2,
        store_host=HOST,
        reconsume_times=0,
        prepared_transaction_offset=0,
    )


def again(message: ForwardedMessage, queue_id: int = 0, number: int = 1) -> StoredMessage:
    """*message* as it lies in its topic."""
    found = stored(message.topic, message.properties, queue_id)
    return replace(
        found,
        offset_message_id=f"{number:032X}",
        reconsume_times=message.reconsume_times,
        body=message.body,
    )


# Who may give one


def by_the_app(name: str) -> None:
    TOPIC.message(b"", None, properties={name: "7"})


DOORS: dict[str, Callable[[str], object]] = {
    "a message": lambda name: Message("Trade", b"", properties={name: "7"}),
    "one send": lambda name: check_properties({name: "7"}, "Trade"),
    "columns": lambda name: GivenLists("Trade", [b""], None, None, {name: ["7"]}),
    "a table": lambda name: read_table(
        "Trade", pa.table({"body": [b""], "properties": pa.array([[(name, "7")]], MAP)}), None, ()
    ),
    "a column of a table": lambda name: check_names(["body", name], [name], "Trade"),
    "an app's send": by_the_app,
    "an app's fields": lambda name: APP.topic("Trade", properties=[name]),
    "a line of JSON": lambda name: from_json("Trade", {"text": "", "properties": {name: "7"}}),
}


@pytest.mark.proves(
    "delivery",
    "No way on takes a [mark](../reference/marks.md) along, and no program gives one",
)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", REFUSED)
def test_no_program_gives_a_mark_of_the_nodes_by_any_door(name: str, door: str) -> None:
    if door == "a line of JSON" and MARKS[name].writer is Writer.PRODUCER:
        return  # there they stand for the fields
    with pytest.raises(StreamError, match=f"property {name} is (the node's own|set by the field)"):
        DOORS[door](name)


def test_the_refusal_says_what_to_do() -> None:
    with pytest.raises(
        StreamError, match=r"DELAY is the node's own.* send with delay_level=, delay="
    ):
        Message("Trade", b"", properties={"DELAY": "3"})
    with pytest.raises(
        StreamError, match=r"RETRY_TOPIC.* retries: use another name.*user_properties"
    ):
        Message("Trade", b"", properties={RETRY_TOPIC: "X"})


@pytest.mark.parametrize("topic", [RETRY, LETTERS, SCHEDULE_TOPIC, HALF_TOPIC])
def test_the_nodes_own_topics_take_marks_and_no_other_topic_afterwards(topic: str) -> None:
    for name in REFUSED:
        is_of_field = MARKS[name].writer is Writer.PRODUCER
        with pytest.raises(StreamError) if is_of_field else nullcontext():
            Message(topic, b"", properties={name: "7"})
        with pytest.raises(StreamError):
            Message("Trade", b"", properties={name: "7"})


def test_a_delay_is_no_property_of_a_program() -> None:
    """One that a program could give would be believed when its transaction is committed."""
    waiting, _ = at_level(Message("Trade", b"", properties=OF_USER), 3, 0)
    assert waiting.properties.keys() - OF_USER.keys() <= DELAY_PROPERTIES


# What travels


def sent_by_a_stock_app(properties: Mapping[str, str]) -> Mapping[str, str]:
    key, value, headers = parts_of(stored(properties=properties))
    return message_of("Other", key, value, headers, None).properties


def sent_by_an_app(properties: Mapping[str, str]) -> Mapping[str, str]:
    headers = {name: text.encode() for name, text in properties.items()}
    return TOPIC.message(b"", None, headers=headers).properties


def sent_by_json(properties: Mapping[str, str]) -> Mapping[str, str]:
    line = json.loads(json.dumps(to_json(stored(properties=properties))))
    return from_json("Other", line).message.properties


def sent_by_the_console(properties: Mapping[str, str]) -> Mapping[str, str]:
    words = shlex.split(send_again(stored(properties=properties)).command)
    given = [word.removeprefix("--property=") for word in words if word.startswith("--property=")]
    return dict(one.split("=", 1) for one in given)


def sent_as_a_table(properties: Mapping[str, str]) -> Mapping[str, str]:
    return dict(taken_on_column(pa.array([[*properties.items()]], MAP)).to_pylist()[0])


WAYS = {
    "by hand": lambda properties: stored(properties=properties).user_properties,
    "stock app": sent_by_a_stock_app,
    "app": sent_by_an_app,
    "JSON lines": sent_by_json,
    "console": sent_by_the_console,
    "Spark and Ray Data": sent_as_a_table,
}


@pytest.mark.proves(
    "delivery",
    "No way on takes a [mark](../reference/marks.md) along, and no program gives one",
)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NOTED)
def test_what_a_node_noted_is_left_behind(name: str, way: str) -> None:
    assert WAYS[way]({**OF_USER, name: NOTED[name]}) == OF_USER


@pytest.mark.parametrize("key", [b"", b"\xff", b"text"])
def test_a_message_that_is_sent_on_with_another_key_has_that_key(key: bytes) -> None:
    """The mark of a key that no property can hold says nothing about the next one."""
    read = stored(properties=message_of("Trade", key, b"", None, None).properties)
    by_hand = with_sharding_key(read.user_properties, "order-1", "Trade")
    outgoing = from_json("Trade", {**to_json(read), "shardingKey": "order-1"})
    by_line = with_sharding_key(outgoing.message.properties, "order-1", "Trade")
    for found in (by_hand, by_line):
        assert key_of(found) == b"order-1"


@pytest.mark.parametrize("name", NOTED)
def test_a_header_of_a_stock_app_with_such_a_name_is_a_header(name: str) -> None:
    message = message_of("T", None, b"", {name: b"7"}, None)
    assert name not in message.properties
    assert parts_of(stored(properties=message.properties))[2] == [(name, b"7")]


PAIRS = st.tuples(st.sampled_from(["a", "b", "TAGS", *NOTED]), st.sampled_from(["1", "ä"]))
ROWS = st.lists(st.none() | st.lists(PAIRS, max_size=4), max_size=5)


@given(ROWS, st.integers(0, 3), st.integers(0, 3))
@examples(100)
def test_columns_are_taken_on_as_messages_are(
    rows: list[list[tuple[str, str]] | None], before: int, behind: int
) -> None:
    array = pa.array([[("x", "DELAY")]] * before + rows + [[("DELAY", "x")]] * behind, MAP)
    found = taken_on_column(array.slice(before, len(rows)))
    assert found.type == MAP
    expected = [row and [pair for pair in row if pair[0] not in NOTED] for row in rows]
    assert found.to_pylist() == expected


def test_rows_that_are_null_take_nothing_along() -> None:
    names, texts = pa.array(["a", "DELAY", "b"]), pa.array(["1", "2", "3"])
    pairs = pa.StructArray.from_arrays([names, texts], fields=[MAP.key_field, MAP.item_field])
    valid, offsets = pa.array([True, False, True]), pa.array([0, 1, 2, 3], pa.int32())
    buffers = [valid.buffers()[1], offsets.buffers()[1]]
    array = pa.Array.from_buffers(MAP, 3, buffers, children=[pairs])
    assert taken_on_column(array).to_pylist() == [[("a", "1")], None, [("b", "3")]]


# Where one counts


def test_the_reference_page_lists_all_of_them() -> None:
    table, others = PAGE.read_text().partition("## The table")[2].split("## Other reserved", 1)
    named = {
        name
        for row in re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
        for name in NAME.findall(row)
    }
    assert named == {name for name in REFUSED if MARKS[name].writer is not Writer.PRODUCER}
    rest = {
        name
        for row in re.findall(r"^\| (`.+?) \|", others, re.MULTILINE)
        for name in NAME.findall(row)
    }
    assert rest == MARKS.keys() - named


def places() -> Iterator[tuple[str, StoredMessage]]:
    all_of_it = {**NOTED, RETRY_TOPIC: "X", RETRY_QUEUE_ID: "3", REAL_TOPIC: "X"}
    without_group = {name: text for name, text in all_of_it.items() if name != GIVEN_UP_BY}
    yield "plain", stored("Trade", without_group)
    yield "retry", stored(RETRY, all_of_it)
    yield "letter", stored(LETTERS, all_of_it)
    yield "named letter", stored("Letters", all_of_it)
    yield "waiting", stored(SCHEDULE_TOPIC, all_of_it)
    yield "waiting for a retry", stored(SCHEDULE_TOPIC, {**all_of_it, REAL_TOPIC: RETRY})
    yield "waiting for a time", stored(TIMER_TOPIC, all_of_it)
    yield "half", stored(HALF_TOPIC, all_of_it)
    yield "given up", stored(GIVEN_UP_TOPIC, all_of_it)
    yield "arrived", stored("X", without_group)


OF_RETRIES = {RETRY_TOPIC, RETRY_QUEUE_ID, ORIGIN_MESSAGE_ID, REDRIVEN_FROM}
OF_THE_WAY = DELAY_PROPERTIES - {"TIMER_DELAY_SEC", "TIMER_ROLLED_FROM"}
OF_THE_WAY |= {"TRAN_MSG", "PGROUP", "__transactionId__"}
COUNTING: dict[str, frozenset[str]] = {
    "plain": frozenset(),
    "retry": frozenset(OF_RETRIES),
    "letter": frozenset(OF_RETRIES | {FAILURE_REASON}),
    "named letter": frozenset(OF_RETRIES | {FAILURE_REASON, GIVEN_UP_BY}),
    "waiting": frozenset(OF_THE_WAY | {"TIMER_ROLLED_FROM"}),
    "waiting for a retry": frozenset(OF_THE_WAY | OF_RETRIES | {"TIMER_ROLLED_FROM"}),
    "waiting for a time": frozenset(OF_THE_WAY | {"TIMER_ROLLED_FROM"}),
    "half": frozenset(OF_THE_WAY | {"CHECK_IMMUNITY_TIME_IN_SECONDS"}),
    "given up": frozenset(OF_THE_WAY | {"CHECK_IMMUNITY_TIME_IN_SECONDS"}),
    "arrived": frozenset(OF_THE_WAY),
}


@pytest.mark.proves("delivery", "A mark counts only in the topics where the node puts it")
@pytest.mark.parametrize("where", COUNTING)
def test_a_mark_counts_where_the_node_puts_it(where: str) -> None:
    record = dict(places())[where]
    anywhere = {"UNIQ_KEY", "IMPORTED_OFFSET_ID"}
    found = {name for name in NOTED if mark(record, name) is not None}
    assert found == COUNTING[where] | anywhere


@pytest.mark.parametrize("where", ["plain", "arrived"])
def test_a_message_that_fails_is_of_the_topic_that_it_was_read_from(where: str) -> None:
    record = dict(places())[where]
    assert (topic_of(record), queue_of(record)) == (record.topic, 1)
    assert origin_of(record) == record.offset_message_id
    back = sent_back(record, "g", 16, LETTERS, retry_queues=4).message
    assert back.properties[RETRY_TOPIC] == record.topic
    assert back.properties[RETRY_QUEUE_ID] == back.properties["REAL_QID"] == "1"
    assert back.properties[ORIGIN_MESSAGE_ID] == record.offset_message_id
    assert REDRIVEN_FROM not in back.properties
    letter = again(dead_lettered(record, "g", LETTERS, 3).message)
    assert (topic_of(letter), queue_of(letter)) == (record.topic, 1)
    assert FAILURE_REASON not in letter.properties


def test_a_group_that_reads_dead_letters_fails_on_letters() -> None:
    """Its second try comes from where the first one came, and not from the letter's past."""
    first = stored("Trade", {"UNIQ_KEY": "U"}, queue_id=2)
    for topic in (LETTERS, "Letters"):
        letter = again(dead_lettered(first, "g", topic, 16, reason="ValueError: 1").message)
        assert (topic_of(letter), queue_of(letter)) == ("Trade", 2)
        waiting = sent_back(letter, "h", 1, dead_letter_topic("h")).message
        assert waiting.reconsume_times == 1, "and not one more than the attempts of g"
        retried = again(ForwardedMessage.of(again(waiting), topic=retry_topic("h")), number=2)
        assert (topic_of(retried), queue_of(retried)) == (topic, 0)
        assert origin_of(retried) == letter.offset_message_id
        assert retried.properties[FAILURE_REASON] == "ValueError: 1", "it is the same message"
        own = again(dead_lettered(retried, "h", dead_letter_topic("h"), 16).message)
        assert mark(own, GIVEN_UP_BY) is mark(own, FAILURE_REASON) is None
        assert GIVEN_UP_BY not in own.properties
        assert topic_of(own) == topic


def test_a_letter_of_the_nodes_own_names_a_place_only_if_the_node_knew_one() -> None:
    waiting = stored(SCHEDULE_TOPIC, {RETRY_TOPIC: "X", RETRY_QUEUE_ID: "3", "DELAY": "1"})
    letter = again(delayed_letter(waiting, None))
    assert letter.topic == SCHEDULE_LETTERS
    assert first_place(letter) is None
    assert first_place(again(delayed_letter(waiting, ("T", 2)))) == ("T", 2)
