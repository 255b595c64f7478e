"""Tables of agents whose messages come again through the ladder, out of the queue's order."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from support.harness.patience import until

from rocketray.base.marks import RETRY_QUEUE_ID, RETRY_TOPIC
from rocketray.broker.topics.ownership_record import epoch_of
from rocketray.testing import Broker, Clock
from rocketray.testing.fixtures import broker, clock
from rocketray.topology.app.app import App

__all__ = ["broker", "clock"]

QUEUES = 4


class Instance:
    """One instance of an app that counts by key, and fails on each message the first time."""

    def __init__(self, broker: Broker) -> None:
        self.app = App("app", connection=broker)
        self.topic = self.app.topic("T", key_type=str, value_type=int, queues=QUEUES)
        self.counts = self.app.Table("counts", default=int)
        self.places: list[tuple[str, str, int]] = []

        @self.app.agent(self.topic, name="reader", ordered=False)
        async def reader(stream: Any) -> None:
            async for event in stream.events():
                if event.reconsume_times == 0:
                    raise ValueError("on purpose")
                self.places.append((event.key, event.message.topic, event.message.partition))
                self.counts[event.key] += 1

        self.reader = reader

    def owned(self) -> list[int]:
        return self.app.tables.owned_queues()  # type: ignore[no-any-return]


async def passing(clock: Clock, is_so: Callable[[], bool]) -> None:
    """Let time pass, a second at once, until *is_so*."""

    def look() -> bool:
        clock.advance(seconds=1)
        return is_so()

    await until(look)


@pytest.mark.parametrize("retry_queues", [0, 1])
def test_a_retried_message_changes_the_part_of_the_queue_that_it_came_from(
    broker: Broker, clock: Clock, retry_queues: int
) -> None:
    sent: Counter[str] = Counter()

    async def scenario() -> None:
        one, two = Instance(broker), Instance(broker)
        async with broker.running(one.app), broker.running(two.app):
            await passing(clock, lambda: len(one.owned()) == len(two.owned()) == QUEUES // 2)
            for number in range(60):
                key = f"k{number % 11}"
                await (await one.topic.send(key=key, value=number))
                sent[key] += 1
            await broker.settle()
            assert not one.places
            assert not two.places
            await passing(clock, lambda: len(one.places) + len(two.places) == 60)
            await broker.settle()
            queue_of = {one.properties["__SHARDINGKEY"]: one.queue_id for one in broker.stored("T")}
            for instance in (one, two):
                assert instance.places
                assert {queue for _, _, queue in instance.places} <= set(instance.owned())
                for key, topic, partition in instance.places:
                    assert (topic, partition) == ("T", queue_of[key])
            assert Counter(dict(one.counts.items())) + Counter(dict(two.counts.items())) == sent
            changes = {
                (message.queue_id, message.properties["__SHARDINGKEY"])
                for message in broker.stored("app-counts-changelog")
                if epoch_of(message) is None
            }
            assert changes == {(queue_of[key], f'"{key}"') for key in sent}
        again = Instance(broker)  # every part is made again by whoever gets its queue
        async with broker.running(again.app):
            await passing(clock, lambda: len(again.owned()) == QUEUES)
            assert Counter(dict(again.counts.items())) == sent

    broker.topics.ensure("T", QUEUES)
    if retry_queues:  # from a time when the app had no tables
        broker.topics.ensure("%RETRY%app-reader", retry_queues, internal=True)
    asyncio.run(scenario())
    [retry, *_] = broker.stored("%RETRY%app-reader")
    assert retry.properties[RETRY_TOPIC] == "T"
    assert int(retry.properties[RETRY_QUEUE_ID]) in range(QUEUES)
