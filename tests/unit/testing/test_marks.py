"""What a node notes about a message stays with that message: no other topic has it, or believes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from support.harness.patience import until

import rocketray as rr
from rocketray.base.marks import LEFT_BEHIND
from rocketray.broker.retries.retry_records import origin_of, queue_of, topic_of
from rocketray.broker.topics.ownership_record import epoch_of
from rocketray.filters.subscription import Subscription
from rocketray.message import ForwardedMessage, StoredMessage
from rocketray.services.explaining.cause import Cause
from rocketray.testing import Broker, Clock

NOTED = sorted(LEFT_BEHIND - {"__CRC32#"})
OF_USER = {"region": "eu", "traceparent": "00-1-2-01", "TAGS": "pay"}
RETRIED = {"RETRY_TOPIC", "RETRY_QID", "ORIGIN_MESSAGE_ID", "DELAY", "REAL_TOPIC", "REAL_QID"}
Place = tuple[str, int]


async def passing(clock: Clock, is_so: Callable[[], bool]) -> None:
    """Let time pass, a second at once, until *is_so*."""

    def look() -> bool:
        clock.advance(seconds=1)
        return is_so()

    await until(look)


@pytest.mark.proves(
    "delivery",
    "A retried message that is forwarded, or goes through `group_by`, is a message of its new "
    "topic",
)
def test_a_retried_message_that_is_forwarded_is_a_message_of_its_new_topic(
    broker: Broker, clock: Clock
) -> None:
    async def scenario() -> list[Place]:
        app = rr.App("fw", connection=broker)
        first = app.topic("X", queues=1, value_type=int)
        second = app.topic("Y", queues=1, value_type=int)
        places: list[Place] = []

        @app.agent(first)
        async def ax(stream: Any) -> None:
            async for event in stream.events():
                if event.reconsume_times == 0:
                    raise ValueError("on purpose")
                await event.forward(second)

        @app.agent(second, max_attempts=1)
        async def ay(stream: Any) -> None:
            async for event in stream.events():
                places.append((event.message.topic, event.message.partition))
                raise ValueError("on purpose, too")

        async with broker.running(app):
            await first.send(value=1, headers={"user": b"own"}, properties={"region": "eu"})
            await passing(clock, lambda: len(places) == 2)
            await broker.settle()
        return places

    assert asyncio.run(scenario()) == [("Y", 0), ("Y", 0)]
    [sent], [forwarded] = broker.stored("X"), broker.stored("Y")
    assert RETRIED.isdisjoint(forwarded.properties)
    assert (forwarded.properties["user"], forwarded.properties["region"]) == ("own", "eu")
    [letter] = broker.stored("%DLQ%fw-ay")
    assert letter.properties["RETRY_TOPIC"] == "Y"
    assert letter.properties["ORIGIN_MESSAGE_ID"] == forwarded.offset_message_id
    found = broker.explain(forwarded.offset_message_id, "fw-ay")
    assert (found.cause, found.message_id) == (Cause.DEAD_LETTER, forwarded.offset_message_id)
    assert broker.explain(sent.offset_message_id, "fw-ax").message_id == sent.offset_message_id
    events = [event.event for event in broker.explain(forwarded.offset_message_id).timeline]
    assert events == ["stored", "came back", "redelivered", "dead letter", "now"]
    copies = [copy for topic in ("X", "Y") for copy in broker.stored(topic)]
    plain = Subscription.sql("RETRY_TOPIC IS NULL AND DELAY IS NULL")
    with broker.consumer("plain", "Y", plain) as member:
        assert sum(len(batch) for batch in member.poll()) == len(copies) // 2


@pytest.mark.proves(
    "delivery",
    "A retried message that is forwarded, or goes through `group_by`, is a message of its new "
    "topic",
)
def test_a_key_function_that_fails_once_does_not_take_its_topic_along(
    broker: Broker, clock: Clock
) -> None:
    failed: list[int] = []

    def key_of(value: int) -> str:
        if not failed:
            failed.append(value)
            raise ValueError("on purpose")
        return str(value)

    async def scenario() -> list[Place]:
        app = rr.App("app", connection=broker)
        topic = app.topic("X", queues=4, value_type=int)
        places: list[Place] = []

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for event in stream.group_by(key_of, name="k").events():
                places.append((event.message.topic, event.message.partition))
                if len(places) == 1:
                    raise ValueError("on purpose, too")

        async with broker.running(app):
            await topic.send(value=1, partition=2)
            await passing(clock, lambda: len(places) == 2)
        return places

    first, second = asyncio.run(scenario())
    assert first[0] == "reader-X-k-repartition"
    assert first == second


@pytest.mark.proves(
    "delivery",
    "A table behind a forward of a retried message counts in the right part",
)
def test_a_table_counts_right_behind_a_forward_of_a_retried_message(
    broker: Broker, clock: Clock
) -> None:
    """As the count of one key in one part: a restart would show what is in another."""

    def instance() -> tuple[Any, Any, Any]:
        app = rr.App("app", connection=broker)
        first = app.topic("X", key_type=str, value_type=str, queues=4)
        second = app.topic("Y", key_type=str, value_type=str, queues=4)
        counts = app.Table("counts", default=int)

        @app.agent(first, name="ax", ordered=False)
        async def ax(stream: Any) -> None:
            async for event in stream.events():
                if event.reconsume_times == 0:
                    raise ValueError("on purpose")
                await event.forward(second)

        @app.agent(second, name="ay", ordered=False)
        async def ay(stream: Any) -> None:
            async for event in stream.events():
                if event.value == "fails" and event.reconsume_times == 0:
                    raise ValueError("on purpose")
                counts[event.key] += 1

        return app, (first, second), counts

    async def scenario() -> None:
        app, (first, second), counts = instance()
        async with broker.running(app):
            await second.send(key="k", value="1")
            await first.send(key="k", value="fails", partition=2)
            await passing(clock, lambda: counts["k"] == 2)
            await second.send(key="k", value="3")
            await passing(clock, lambda: counts["k"] == 3)
        again, _, counts = instance()
        async with broker.running(again):
            await passing(clock, lambda: len(again.tables.owned_queues()) == 4)
            assert counts["k"] == 3

    asyncio.run(scenario())
    changes = [each for each in broker.stored("app-counts-changelog") if epoch_of(each) is None]
    parts = {each.queue_id for each in changes}
    assert parts == {each.queue_id for each in broker.stored("Y")}


WAYS = {
    "forward": "Forwarded",
    "send": "Sent",
    "group_by": "grouper-X-k-repartition",
    "through": "Passed",
    "echo": "Echoed",
}


async def _events(stream: Any) -> None:
    async for event in stream.events():
        await event.forward("Forwarded")
        await event.send("Sent")


async def _groups(stream: Any) -> None:
    async for _ in stream.group_by(lambda value: f"k{value}", name="k"):
        pass


async def _passes(stream: Any) -> None:
    async for _ in stream.through("Passed"):
        pass


async def _echoes(stream: Any) -> None:
    async for _ in stream.echo("Echoed"):
        pass


async def _fails(stream: Any) -> None:
    async for _ in stream:
        raise ValueError("on purpose")


@pytest.fixture(scope="module")
def taken_on() -> dict[str, StoredMessage]:
    """What a message with all marks becomes on each way on, and as a dead letter."""
    noted = dict.fromkeys(NOTED, "7")

    async def scenario(broker: Broker) -> None:
        app = rr.App("app", connection=broker)
        topic = app.topic("X", value_type=int)
        for name, handler in (("sender", _events), ("grouper", _groups), ("passer", _passes)):
            app.agent(topic, name=name)(handler)
        app.agent(topic, name="echoer")(_echoes)
        app.agent(topic, name="failing", max_attempts=0)(_fails)
        async with broker.running(app):
            with broker.producer() as producer:
                message = ForwardedMessage("X", b"1", {**OF_USER, **noted}, 1, ("127.0.0.1", 9))
                producer.forward("X", 0, [message])
            await broker.settle()

    with Broker() as broker:
        broker.topics.ensure("X", 1)
        asyncio.run(scenario(broker))
        found = {way: broker.stored(topic) for way, topic in WAYS.items()}
        found["dead letter"] = broker.stored("%DLQ%app-failing")
    assert {len(messages) for messages in found.values()} == {1}
    return {way: messages[0] for way, messages in found.items()}


@pytest.mark.proves(
    "delivery",
    "No way on takes a [mark](../reference/marks.md) along, and no program gives one",
)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NOTED)
def test_no_way_on_takes_a_mark_along(
    taken_on: dict[str, StoredMessage], name: str, way: str
) -> None:
    assert taken_on[way].properties.get(name) != "7"


@pytest.mark.parametrize("way", WAYS)
def test_each_way_on_takes_the_users_along(taken_on: dict[str, StoredMessage], way: str) -> None:
    expected = {} if way == "echo" else OF_USER  # Faust's echo sends the value alone
    assert expected.items() <= taken_on[way].properties.items()


def test_a_letter_believes_none_of_what_its_message_brought(
    taken_on: dict[str, StoredMessage],
) -> None:
    letter = taken_on["dead letter"]
    assert (topic_of(letter), queue_of(letter)) == ("X", 0)
    assert origin_of(letter) != "7"
    assert letter.properties["FAILURE_REASON"] == "ValueError: on purpose"
    assert {"GIVEN_UP_BY", "REDRIVEN_FROM"}.isdisjoint(letter.properties)
