"""Explaining a message that its group gave back: the newest copy says where it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketray.base.delay import DELAY_LEVELS_MS
from rocketray.base.system_topics import SCHEDULE_TOPIC
from rocketray.broker.retries.retry_records import (
    RETRY_QUEUES,
    retry_topic,
    sent_back,
)
from rocketray.filters.subscription import Subscription
from rocketray.message import StoredMessage
from rocketray.services.admin.dead_letters import redrive
from rocketray.services.admin.seeking import carry_out, plan_moves
from rocketray.services.explaining.cause import Cause
from rocketray.testing import Broker, Clock

ALL = Subscription.tags("*")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def broker(tmp_path: Path, clock: Clock) -> Iterator[Broker]:
    with Broker(tmp_path, clock=clock) as node:
        node.topics.ensure("Trade", 1)
        yield node


def send(broker: Broker, *keys: str) -> StoredMessage:
    with broker.producer() as producer:
        result = producer.send("Trade", b"body", keys=keys)
    stored = broker.messages.view(result.offset_message_id)
    assert stored is not None
    return stored


def consume(broker: Broker, topic: str, group: str = "g") -> StoredMessage:
    """A member of *group* takes and finishes what the topic has; the last message of it."""
    found: list[StoredMessage] = []
    with broker.consumer(group, topic, ALL) as member:
        for batch in member.poll():
            found += batch.messages()
            member.commit(topic, batch.queue_id, batch.next_queue_offset)
    return found[-1]


def give_back(
    broker: Broker,
    message: StoredMessage,
    max_attempts: int = 16,
    dead_letters: str = "%DLQ%g",
    group: str = "g",
) -> None:
    back = sent_back(message, group, max_attempts, dead_letters)
    for topic, queues in (
        (SCHEDULE_TOPIC, len(DELAY_LEVELS_MS)),
        (retry_topic(group), RETRY_QUEUES),
        (dead_letters, 1),
    ):
        broker.topics.ensure(topic, queues, internal=True)
    with broker.producer() as producer:
        producer.forward(back.message.topic, back.queue_id, [back.message])


def test_the_way_up_the_ladder_and_back(broker: Broker, clock: Clock) -> None:
    message = send(broker, "k")
    assert consume(broker, "Trade") == message
    assert broker.explain("k", "g").cause is Cause.DELIVERED
    give_back(broker, message)
    found = broker.explain("k", "g")
    assert (found.cause, found.message_id) == (Cause.WAITS_FOR_RETRY, message.offset_message_id)
    assert "failed on it once; it is redelivered at" in found.steps[-1].detail
    clock.advance(seconds=10)
    found = broker.explain("k", "g")
    assert found.cause is Cause.NOT_ASSIGNED  # nobody reads the retry topic yet
    again = consume(broker, retry_topic("g"))
    found = broker.explain("k", "g")
    assert found.cause is Cause.DELIVERED
    assert "failed on it once; it came back to %RETRY%g" in str(found.steps)
    give_back(broker, again)
    for wanted in ("k", message.offset_message_id, again.offset_message_id):
        found = broker.explain(wanted, "g")
        assert found.cause is Cause.WAITS_FOR_RETRY
        assert found.message_id == message.offset_message_id
        assert "failed on it twice" in found.steps[-1].detail


@pytest.mark.parametrize("dead_letters", ["%DLQ%g", "Broken"])
def test_a_dead_letter_and_one_that_is_redriven(
    broker: Broker, clock: Clock, dead_letters: str
) -> None:
    message = send(broker)
    assert message.unique_key
    consume(broker, "Trade")
    give_back(broker, message, 0, dead_letters)
    found = broker.explain(message.unique_key, "g")
    assert found.cause is Cause.DEAD_LETTER
    assert dead_letters in found.steps[-1].detail
    clock.advance(seconds=1)
    topic = None if dead_letters == "%DLQ%g" else dead_letters
    with broker.producer() as producer:
        assert redrive(broker.node, producer, "g", ALL, topic=topic) == 1
    assert consume(broker, retry_topic("g")).body == b"body"
    assert broker.explain(message.unique_key, "g").cause is Cause.DELIVERED


def test_the_newest_copy_is_the_newest_wherever_the_clock_was_set(
    broker: Broker, clock: Clock
) -> None:
    message = send(broker, "k")
    consume(broker, "Trade")
    give_back(broker, message)
    clock.advance(seconds=10)
    again = consume(broker, retry_topic("g"))
    clock.jump(seconds=-86_400)
    give_back(broker, again, 1)
    assert broker.explain("k", "g").cause is Cause.DEAD_LETTER


@pytest.mark.parametrize("attempts", [0, 16])
def test_a_message_that_fails_again_after_the_group_was_moved_back_waits_again(
    broker: Broker, clock: Clock, attempts: int
) -> None:
    """Its earlier retry, or dead letter, is older though it had come back as often, or more."""
    message = send(broker, "k")
    consume(broker, "Trade")
    give_back(broker, message, attempts)
    clock.advance(seconds=10)
    if attempts:
        consume(broker, retry_topic("g"))
        clock.advance(seconds=1)
    described = [each for each in broker.groups.all() if each.topic == "Trade"]
    carry_out(broker.groups, plan_moves(broker.node, described, to="earliest"), 1)
    clock.advance(seconds=1)
    again = consume(broker, "Trade")
    assert broker.explain("k", "g").cause is Cause.DELIVERED
    give_back(broker, again)
    found = broker.explain("k", "g")
    assert found.cause is Cause.WAITS_FOR_RETRY
    assert "failed on it twice" in found.steps[-1].detail


def test_what_one_group_gave_back_is_no_matter_of_another(broker: Broker) -> None:
    message = send(broker, "k")
    for group in ("g", "other"):
        consume(broker, "Trade", group)
    give_back(broker, message, 0, "Broken")
    assert broker.explain("k", "g").cause is Cause.DEAD_LETTER
    assert broker.explain(message.offset_message_id, "other").cause is Cause.DELIVERED


@pytest.mark.parametrize("dead_letters", ["%DLQ%g", "Broken"])
def test_a_group_that_reads_dead_letters_fails_on_letters(
    broker: Broker, clock: Clock, dead_letters: str
) -> None:
    message = send(broker, "k")
    consume(broker, "Trade")
    give_back(broker, message, 0, dead_letters)
    letter = consume(broker, dead_letters, "h")
    assert broker.explain(letter.offset_message_id, "h").cause is Cause.DELIVERED
    give_back(broker, letter, 16, "%DLQ%h", "h")
    found = broker.explain(letter.offset_message_id, "h")
    assert (found.cause, found.message_id) == (Cause.WAITS_FOR_RETRY, letter.offset_message_id)
    assert "failed on it once" in found.steps[-1].detail
    clock.advance(seconds=10)
    give_back(broker, consume(broker, retry_topic("h"), "h"), 0, "%DLQ%h", "h")
    assert broker.explain(letter.offset_message_id, "h").cause is Cause.DEAD_LETTER
    found = broker.explain(message.offset_message_id, "g")
    assert (found.cause, found.message_id) == (Cause.DEAD_LETTER, message.offset_message_id)
    assert dead_letters in found.steps[-1].detail
