"""Messages whose topic was deleted are found by each of their names, as long as a copy is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.nodes.transactions import begin

from rocketray.base.system_topics import GIVEN_UP_TOPIC, HALF_TOPIC, SCHEDULE_TOPIC
from rocketray.broker.retries.retry_records import retry_topic, sent_back
from rocketray.broker.retries.undeliverable import SCHEDULE_LETTERS, TRANSACTION_LETTERS
from rocketray.filters.subscription import EVERYTHING
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.services.admin.dead_letters import redrive
from rocketray.services.explaining import arrival
from rocketray.services.explaining.cause import Cause
from rocketray.testing import Broker, Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def broker(tmp_path: Path, clock: Clock) -> Iterator[Broker]:
    with Broker(tmp_path, clock=clock) as node:
        node.topics.ensure("Gone", 1)
        yield node


def cause(broker: Broker, wanted: str, group: str = "g") -> Cause:
    return broker.explain(wanted, group).cause


def told(broker: Broker, wanted: str) -> str:
    return "\n".join(step.detail for step in broker.explain(wanted, "g").steps)


@pytest.mark.proves(
    "groups",
    "`explain` finds a message whose topic was deleted by each of its names",
)
@pytest.mark.parametrize("level", [0, 2])
def test_a_message_whose_topic_was_deleted_is_found_by_each_of_its_names(
    broker: Broker, clock: Clock, level: int
) -> None:
    delay: dict[str, Any] = {"delay_level": level} if level else {"delay": 5}
    with (
        broker.producer() as producer,
        NodeProducer(broker.node, group="pg", check=lambda _: "unknown") as transactional,
    ):
        sent = producer.send("Gone", b"", keys="delayed", **delay)
        open_, done = (begin(transactional, "Gone", b"", keys=[key]) for key in ("open", "done"))
        halves = {half.keys[0]: half.offset_message_id for half in broker.stored(HALF_TOPIC)}
        broker.topics.delete("Gone")

        def check(key: str, unique: str, offset_id: str, expected: Cause) -> None:
            for name in (key, unique, offset_id):
                for group in ("g", "unknown"):
                    assert cause(broker, name, group) is expected, name
                assert broker.explain(name).cause is expected
                assert broker.explain(name, topic="Gone").cause is expected

        delayed = "delayed", sent.message_id, sent.offset_message_id
        check(*delayed, Cause.DELAYED)
        check("open", open_.message_id, halves["open"], Cause.HALF_MESSAGE)
        transactional.transactions.decide((0, 1), done.message_id, "commit")
        clock.advance(seconds=10)
        check(*delayed, Cause.UNDELIVERABLE)
        check("done", done.message_id, halves["done"], Cause.UNDELIVERABLE)
        clock.advance(hours=73)
        for letters in (SCHEDULE_LETTERS, TRANSACTION_LETTERS):
            [letter] = broker.stored(letters)
            assert cause(broker, letter.offset_message_id) is Cause.UNDELIVERABLE
            assert f"it is a dead letter in {letters}" in told(broker, letter.offset_message_id)
        [abandoned] = broker.stored(GIVEN_UP_TOPIC)
        assert cause(broker, abandoned.offset_message_id) is Cause.HALF_MESSAGE
        check("open", open_.message_id, halves["open"], Cause.HALF_MESSAGE)


@pytest.mark.parametrize("attempts", [0, 16])
def test_a_failed_message_whose_topic_was_deleted_is_found_by_each_of_its_names(
    broker: Broker, clock: Clock, attempts: int
) -> None:
    for topic, queues in ((SCHEDULE_TOPIC, 18), (retry_topic("g"), 1), ("%DLQ%g", 1)):
        broker.topics.ensure(topic, queues, internal=True)
    with broker.producer() as producer:
        producer.send("Gone", b"body", keys="k")
    with broker.consumer("g", "Gone", EVERYTHING) as member:
        [batch] = member.poll()
        member.commit("Gone", 0, batch.next_queue_offset)
    [message] = broker.stored("Gone")
    back = sent_back(message, "g", attempts, "%DLQ%g")
    with broker.producer() as producer:
        producer.forward(back.message.topic, back.queue_id, [back.message])
    broker.topics.delete("Gone")
    for name in ("k", message.unique_key or ""):
        waiting = Cause.WAITS_FOR_RETRY if attempts else Cause.DEAD_LETTER
        assert cause(broker, name) is waiting
        assert broker.explain(name).cause is Cause.STORED
        assert cause(broker, name, "other") is Cause.NOT_FOUND
    clock.advance(seconds=11)
    assert cause(broker, "k") is (Cause.NOT_ASSIGNED if attempts else Cause.DEAD_LETTER)


def test_a_dead_letter_of_the_node_outlives_the_copy_that_waited(
    broker: Broker, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with broker.producer() as producer:
        sent = producer.send("Gone", b"", keys="k", delay_level=1)
        broker.topics.delete("Gone")
        clock.advance(seconds=5)
        monkeypatch.setattr(arrival, "OWN_TOPICS", ())  # as if retention had removed them
        for name in ("k", sent.message_id):
            assert cause(broker, name) is Cause.UNDELIVERABLE
            assert "topic Gone could not store it" in told(broker, name)
        broker.topics.ensure("Gone", 1)
        assert redrive(broker.node, producer, "CID_RMQ_SYS_SCHEDULE", EVERYTHING) == 1
    for name in ("k", sent.message_id, broker.stored(SCHEDULE_LETTERS)[0].offset_message_id):
        assert cause(broker, name, "new") is Cause.NO_GROUP
