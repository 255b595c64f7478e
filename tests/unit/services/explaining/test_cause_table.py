"""The causes of a range: what is not read is said, and each filter decides as on one message."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rocketray.base.system_topics import SCHEDULE_TOPIC
from rocketray.broker.filtering.preview import PreviewRange
from rocketray.broker.retries.retry_records import sent_back
from rocketray.errors import ConfigError, FilterError, TopicNotFoundError
from rocketray.filters.subscription import Subscription
from rocketray.services.explaining.cause import Cause
from rocketray.services.explaining.cause_table import CauseTable, explain_range
from rocketray.testing import Broker, Clock

EVERYTHING = PreviewRange(limit=1_000_000)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path, clock=Clock(), predicates=["support"]) as node:
        node.topics.ensure("Trade", 1)
        yield node


def table(
    broker: Broker, group: str = "g", within: PreviewRange = EVERYTHING, copies_max: int = 100
) -> CauseTable:
    return explain_range(broker.node, group, "Trade", within, copies_max=copies_max)


def causes(found: CauseTable) -> dict[Cause, int]:
    return {row.cause: row.count for row in found.rows}


def alone(broker: Broker, group: str = "g") -> dict[Cause, int]:
    stored = broker.stored("Trade")
    return Counter(broker.explain(one.offset_message_id, group).cause for one in stored)


def send(broker: Broker, *bodies: bytes) -> None:
    with broker.producer() as producer:
        for number, body in enumerate(bodies):
            producer.send("Trade", body, keys=f"k{number}")


@pytest.mark.parametrize(
    "subscription",
    [
        Subscription.tags("Aa"),
        Subscription.tags("*"),
        Subscription.tags(" || C"),
        Subscription.sql("n > 5 OR word = 'x'"),
        Subscription.sql("n > 5 OR word = 'x'", "rocketmq"),
    ],
    ids=str,
)
def test_filters_decide_on_columns_as_on_one_message(
    broker: Broker, subscription: Subscription, seed: int
) -> None:
    rng = random.Random(seed)
    values = ["0", "1", "12", "1e400", "true", "99999999999", "x", "０"]
    with broker.producer() as producer:
        for _ in range(80):
            properties = {name: rng.choice(values) for name in ("n", "word") if rng.random() < 0.8}
            tags = rng.choice([None, "Aa", "BB", "C"])
            producer.send("Trade", b"", tags=tags, properties=properties)
    with broker.consumer("g", "Trade", subscription) as member:
        member.poll(skip=[0])
        member.beat()
        assert causes(table(broker)) == alone(broker)
        for batch in member.poll(max_messages=40):
            member.commit("Trade", 0, batch.next_queue_offset)
        member.beat()
        assert causes(table(broker)) == alone(broker)


@pytest.mark.parametrize("bodies", [[b"2", b"1", b"bad", b"2", b"1"], [b"bad"], [b"1"]])
@pytest.mark.parametrize("policy", ["stop", "skip", "deliver"])
def test_a_predicate_stops_its_group_or_not(
    broker: Broker, policy: str, bodies: list[bytes]
) -> None:
    send(broker, *bodies)
    subscription = Subscription.where("support.predicates:is_even", policy)  # type: ignore[arg-type]
    with broker.consumer("g", "Trade", subscription) as member:
        member.poll(skip=[0])
        member.beat()
        assert causes(table(broker)) == alone(broker)
        with suppress(FilterError):
            member.poll()
        member.beat()
        assert causes(table(broker)) == alone(broker)


def test_a_message_that_will_stop_its_group_is_found_where_it_is_near(broker: Broker) -> None:
    send(broker, *[b"2"] * 70, b"bad", b"1", b"2")
    stop = Subscription.where("support.predicates:is_even")
    with broker.consumer("g", "Trade", stop) as member:
        member.poll(skip=[0])
        member.beat()
        far = {Cause.ON_ITS_WAY: 71, Cause.STANDS_STILL: 1, Cause.CLASS_FALSE: 1}
        assert causes(table(broker)) == far
        for batch in member.poll(max_messages=10):
            member.commit("Trade", 0, batch.next_queue_offset)
        member.beat()
        near = {Cause.DELIVERED: 10, Cause.ON_ITS_WAY: 60, Cause.STANDS_STILL: 3}
        assert causes(table(broker)) == near


def test_broadcast_groups_are_unknown(broker: Broker) -> None:
    send(broker, b"1", b"2")
    with broker.consumer("g", "Trade", Subscription.tags("*"), broadcast=True, client_id="c"):
        assert causes(table(broker)) == alone(broker) == {Cause.UNKNOWN: 2}


def test_what_is_not_read_is_said(broker: Broker) -> None:
    send(broker, *[b"1"] * 10)
    broker.consumer("group", "Trade", Subscription.tags("*")).close()
    found = table(broker, "group", PreviewRange(begin_offset=2, limit=3))
    assert (found.held, found.explained, len(found.rows)) == (8, 3, 1)
    assert found.rows[0].example.queue_offset == 2
    assert found.notes == ("only 3 of 8 messages were explained: --max-scan",)
    nothing = table(broker, "group", PreviewRange(begin_offset=10, limit=3))
    assert (nothing.held, nothing.explained, nothing.rows) == (0, 0, ())


def test_an_unknown_group_is_said_with_a_similar_one(broker: Broker) -> None:
    send(broker, b"1")
    broker.consumer("group", "Trade", Subscription.tags("*")).close()
    found = table(broker, "grop")
    assert causes(found) == {Cause.NO_GROUP: 1}
    assert "did you mean 'group'?" in found.notes[0]


@pytest.mark.parametrize("topic", [SCHEDULE_TOPIC, "%RETRY%g", "%DLQ%g"])
def test_topics_with_copies_are_refused(broker: Broker, topic: str) -> None:
    with pytest.raises(ConfigError, match="name the topic to which they were sent"):
        explain_range(broker.node, "g", topic, EVERYTHING)


def test_a_topic_that_is_not_there_is_refused(broker: Broker) -> None:
    with pytest.raises(TopicNotFoundError, match="did you mean 'Trade'"):
        explain_range(broker.node, "g", "Trad", EVERYTHING)


def test_dead_letters_in_a_topic_of_any_name_are_found(broker: Broker) -> None:
    send(broker, *[b"1"] * 4)
    broker.topics.ensure("Failed", 2)
    with (
        broker.consumer("g", "Trade", Subscription.tags("*")) as member,
        broker.producer() as producer,
    ):
        for batch in member.poll():
            for message in batch.messages()[:3]:
                back = sent_back(message, "g", 0, "Failed")
                producer.forward(back.message.topic, back.queue_id, [back.message])
            member.commit("Trade", 0, batch.next_queue_offset)
        member.beat()
    assert causes(table(broker)) == alone(broker)
    assert causes(table(broker)) == {Cause.DEAD_LETTER: 3, Cause.DELIVERED: 1}
    assert causes(table(broker, "h")) == {Cause.NO_GROUP: 4}
    bounded = table(broker, copies_max=2)
    assert causes(bounded) == {Cause.DEAD_LETTER: 2, Cause.DELIVERED: 2}
    assert "only the first 2 copies of failed messages were read" in bounded.notes


def test_messages_that_are_not_in_the_topic_yet_are_counted_apart(broker: Broker) -> None:
    send(broker, b"1")
    with broker.producer() as producer:
        late = [producer.send("Trade", b"", delay=20) for _ in range(2)]
    found = table(broker)
    assert (found.explained, found.absent) == (1, 2)
    assert found.notes[-1] == "2 more for the topic are not in it"
    [row] = found.absent_rows
    assert (row.cause, row.count) == (Cause.DELAYED, 2)
    assert row.example.unique_key in {one.message_id for one in late}
    assert table(broker, within=PreviewRange(end_offset=1, limit=10)).absent is None
    broker.clock.advance(seconds=21)
    assert (table(broker).explained, table(broker).absent) == (3, 0)
