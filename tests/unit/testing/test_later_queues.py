"""``start=`` says where a group begins, and not where a queue does that its topic gets later."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.harness.patience import until
from support.nodes.apps import collecting, numbers

import rocketray as rr
from rocketray.filters.subscription import Subscription
from rocketray.groups.member_options import StartFrom
from rocketray.testing import Broker, Member

ALL = Subscription.tags("*")


def join(broker: Broker, group: str = "g", start: StartFrom = "latest") -> Member:
    return broker.consumer(group, "T", ALL, start=start)


def send(broker: Broker, bodies: list[bytes], queue_id: int = 0) -> None:
    with broker.producer() as producer:
        for body in bodies:
            producer.send("T", body, queue_id=queue_id)


def taken(broker: Broker, member: Member) -> list[bytes]:
    """What the member gets, which it commits."""
    found: list[bytes] = []
    for _ in range(4):
        broker.clock.advance(seconds=1)
        for batch in member.poll():
            found += batch.bodies()
            member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)
    return sorted(found)


@pytest.fixture
def topic(broker: Broker) -> Broker:
    """A node whose topic T has a message in its only queue."""
    broker.topics.ensure("T", 1)
    send(broker, [b"old"])
    return broker


def test_a_living_group_reads_a_later_queue_from_its_first_message(topic: Broker) -> None:
    member = join(topic)
    assert taken(topic, member) == []
    topic.topics.alter("T", 3)
    send(topic, numbers(2), queue_id=1)
    send(topic, numbers(1, 2), queue_id=2)
    assert taken(topic, member) == numbers(3)
    newcomer = join(topic, "other")
    assert taken(topic, newcomer) == [], "a group that begins now is asked where"


@pytest.mark.proves(
    "groups",
    "A queue that is added later is read from its first message, whatever `start=` says",
)
def test_a_group_whose_members_are_stopped_meanwhile_does_so(topic: Broker) -> None:
    member = join(topic)
    assert taken(topic, member) == []
    member.close()
    topic.topics.alter("T", 2)
    send(topic, numbers(2), queue_id=1)
    topic.node.load_state()  # as a coordinator does that starts after a crash: nothing was saved
    again = join(topic)
    assert taken(topic, again) == numbers(2)
    assert topic.lag_of("g") == 0


@pytest.mark.proves(
    "groups",
    "A queue that is added later is read from its first message, whatever `start=` says",
)
def test_an_agent_does_so_that_lives_or_is_stopped_meanwhile(topic: Broker) -> None:
    seen: list[bytes] = []

    def app() -> rr.App:
        made = rr.App("app", connection=topic)
        read = made.agent(made.topic("T", value_type=bytes), name="read", start="latest")
        read(collecting(seen))
        return made

    async def read_until(count: int, queues: int) -> None:
        async with topic.running(app()):
            if queues > topic.topics.get("T").queues:
                topic.topics.alter("T", queues)
                send(topic, numbers(2), queue_id=1)
                topic.clock.advance(seconds=1)
            await until(lambda: len(seen) >= count)
            await topic.settle()
        assert sorted(seen) == numbers(count)

    asyncio.run(read_until(2, queues=2))
    topic.topics.alter("T", 3)
    send(topic, numbers(1, 2), queue_id=2)
    asyncio.run(read_until(3, queues=3))


def test_the_explanation_says_that_it_is_delivered(topic: Broker) -> None:
    member = join(topic)
    topic.topics.alter("T", 2)
    send(topic, [b"new"], queue_id=1)
    (new,) = [each for each in topic.stored("T") if each.body == b"new"]
    assert "started after" not in str(topic.explain(new.offset_message_id, "g"))
    assert taken(topic, member) == [b"new"]
    assert topic.explain(new.offset_message_id, "g").cause.value == "delivered"
    (old,) = [each for each in topic.stored("T") if each.body == b"old"]
    assert topic.explain(old.offset_message_id, "g").cause.value == "before_start"


@pytest.mark.proves("groups", "A topic that is created again is read from its beginning")
def test_a_topic_that_is_created_again_is_read_from_its_beginning(topic: Broker) -> None:
    join(topic).close()
    topic.topics.delete("T")
    topic.topics.ensure("T", 2)
    send(topic, numbers(1))
    send(topic, numbers(1, 1), queue_id=1)
    assert taken(topic, join(topic)) == numbers(2)


def test_a_group_that_was_deleted_begins_anew(topic: Broker) -> None:
    join(topic).close()
    topic.groups.delete("g")
    topic.topics.alter("T", 2)
    send(topic, numbers(1), queue_id=1)
    assert taken(topic, join(topic)) == []


def test_a_living_broadcast_client_reads_a_later_queue_from_its_first_message(
    topic: Broker, tmp_path: Path
) -> None:
    options = {"broadcast": True, "client_id": "one", "offsets_directory": tmp_path / "own"}
    member = topic.consumer("g", "T", ALL, start="latest", **options)  # type: ignore[arg-type]
    assert taken(topic, member) == []
    topic.topics.alter("T", 2)
    send(topic, numbers(2), queue_id=1)
    assert taken(topic, member) == numbers(2)


@pytest.mark.proves(
    "groups",
    "A queue that is added later is read from its first message, whatever `start=` says",
)
def test_a_stopped_broadcast_client_reads_a_later_queue_from_its_first_message(
    topic: Broker, tmp_path: Path
) -> None:
    options = {"broadcast": True, "client_id": "one", "offsets_directory": tmp_path / "own"}
    member = topic.consumer("g", "T", ALL, start="latest", **options)  # type: ignore[arg-type]
    assert taken(topic, member) == []
    member.close()
    send(topic, numbers(1))
    topic.topics.alter("T", 2)
    send(topic, numbers(2, 1), queue_id=1)
    again = topic.consumer("g", "T", ALL, start="latest", **options)  # type: ignore[arg-type]
    assert taken(topic, again) == numbers(3)
    newcomer = {**options, "client_id": "two"}
    assert taken(topic, topic.consumer("g", "T", ALL, start="latest", **newcomer)) == []  # type: ignore[arg-type]
