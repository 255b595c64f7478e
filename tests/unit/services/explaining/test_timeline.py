"""The timeline of a message has the events of all its copies, in order of time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.nodes.transactions import begin

from rocketray.base.delay import DELAY_LEVELS_MS
from rocketray.base.system_topics import SCHEDULE_TOPIC
from rocketray.broker.retries.retry_records import dead_letter_topic, retry_topic, sent_back
from rocketray.filters.subscription import Subscription
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.services.admin.seeking import carry_out, plan_moves
from rocketray.services.explaining.cause import Cause
from rocketray.services.explaining.explanation import Explanation
from rocketray.testing import Broker, Clock

ALL = Subscription.tags("*")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def broker(tmp_path: Path, clock: Clock) -> Iterator[Broker]:
    with Broker(tmp_path, clock=clock) as node:
        node.topics.ensure("T", 1)
        node.topics.ensure(SCHEDULE_TOPIC, len(DELAY_LEVELS_MS), internal=True)
        for group in ("g", "h"):
            node.topics.ensure(retry_topic(group), 1, internal=True)
            node.topics.ensure(dead_letter_topic(group), 1, internal=True)
        yield node


def events(found: Explanation) -> list[str]:
    times = [event.time_ms for event in found.timeline if event.time_ms is not None]
    assert times == sorted(times)
    return [event.event for event in found.timeline]


def consume(
    broker: Broker, topic: str = "T", fails: int | None = None, group: str = "g"
) -> list[str]:
    """A member finishes what is there, after it gave it back; at *fails* times it is dead."""
    found = []
    with broker.consumer(group, topic, ALL) as member, broker.producer() as producer:
        for batch in member.poll():
            for message in batch.messages():
                found.append(message.keys[0])
                if fails is not None:
                    back = sent_back(message, group, fails, dead_letter_topic(group), reason="no")
                    producer.forward(back.message.topic, back.queue_id, [back.message])
            member.commit(topic, batch.queue_id, batch.next_queue_offset)
        member.beat()
    return found


def test_a_message_that_fails_until_it_is_dead(broker: Broker, clock: Clock) -> None:
    with broker.producer() as producer:
        sent = producer.send("T", b"", keys="k")
    assert events(broker.explain("k", "g")) == ["stored", "now"]
    assert consume(broker, fails=1) == ["k"]
    way = ["stored", "verdict", "finished", "came back"]
    assert events(broker.explain("k", "g")) == [*way, "now"]
    clock.advance(seconds=11)
    assert consume(broker, retry_topic("g"), fails=1) == ["k"]
    found = broker.explain("k", "g")
    assert found.cause is Cause.DEAD_LETTER
    assert events(found) == [*way, "redelivered", "dead letter", "now"]
    details = [event.detail for event in found.timeline]
    assert "attempt 1; it is redelivered at" in details[3]
    assert details[4] == "to group 'g', attempt 2"
    assert details[5] == "of group 'g', after attempt 2: no"
    [letter] = broker.stored(dead_letter_topic("g"))
    for name in (sent.message_id, sent.offset_message_id, letter.offset_message_id):
        assert events(broker.explain(name, "g")) == events(found)


def test_a_message_alone_shows_all_groups(broker: Broker) -> None:
    with broker.producer() as producer:
        producer.send("T", b"", keys="k")
    consume(broker, fails=0, group="g")
    consume(broker, fails=5, group="h")
    found = broker.explain("k")
    assert (found.cause, events(found)[0]) == (Cause.STORED, "stored")
    assert sorted(events(found)[1:]) == ["came back", "dead letter", "now"]
    assert "its topic is read by 'g', 'h'; --group" in found.timeline[-1].detail
    assert "dead letter" not in events(broker.explain("k", "h"))
    [letter] = broker.stored(dead_letter_topic("g"))
    assert broker.explain(letter.offset_message_id).message_id == found.message_id


def test_a_delayed_message_waits_and_arrives(broker: Broker, clock: Clock) -> None:
    with broker.producer() as producer:
        producer.send("T", b"", keys="k", delay=20)
        found = broker.explain("k")
        assert (found.cause, events(found)) == (Cause.DELAYED, ["waits", "now"])
        clock.advance(seconds=21)
        found = broker.explain("k")
        assert (found.cause, events(found)) == (Cause.STORED, ["waits", "arrived", "now"])
        recalled = producer.send("T", b"", keys="r", delay=20)
        assert recalled.recall_handle
        broker.delays.recall(recalled.recall_handle)
        assert broker.explain("r").cause is Cause.RECALLED


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_transaction_is_half_and_decided(
    broker: Broker, clock: Clock, is_committed: bool
) -> None:
    producer = NodeProducer(broker.node, group="pg", check=lambda _: "unknown")
    transaction = begin(producer, "T", b"", keys=["k"])
    assert events(broker.explain("k")) == ["half", "now"]
    if is_committed:
        transaction.commit()
    else:
        transaction.rollback()
    clock.advance(seconds=1)
    found = broker.explain(transaction.message_id)
    producer.close()
    if is_committed:
        assert sorted(events(found)[1:-1]) == ["arrived", "committed"]
        assert found.cause is Cause.STORED
    else:
        assert events(found) == ["half", "rolled back", "now"]


def test_moves_of_the_group_are_events(broker: Broker, clock: Clock) -> None:
    with broker.producer() as producer:
        producer.send("T", b"", keys="first")
        consume(broker)
        producer.send("T", b"", keys="k")
    [description] = [each for each in broker.groups.all() if each.topic == "T"]
    for goal in ("latest", "earliest"):
        clock.advance(seconds=1)
        moves = plan_moves(broker.node, [description], to=goal)
        carry_out(broker.groups, moves, 0.0, sleep=lambda _: None, who="me")
        [description] = [each for each in broker.groups.all() if each.topic == "T"]
    found = events(broker.explain("k", "g"))
    assert found == ["stored", "verdict", "skipped", "moved back", "now"]
    clock.advance(seconds=1)
    assert consume(broker) == ["first", "k"]
    assert events(broker.explain("k", "g"))[2:] == ["skipped", "moved back", "finished", "now"]


def test_an_explanation_as_json_has_the_events(broker: Broker) -> None:
    with broker.producer() as producer:
        producer.send("T", b"", keys="k")
    [stored, now] = broker.explain("k").to_json()["timeline"]
    assert stored | {"timeMs": 0} == {
        "timeMs": 0, "event": "stored", "place": "T/0, offset 0", "detail": "as sent"
    }  # fmt: skip
    assert (now["event"], now["place"]) == ("now", None)
