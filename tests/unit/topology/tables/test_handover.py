"""Tables while queues change hands, and what they say beside the committed offsets."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from support.harness.patience import until
from support.nodes.apps import committed, running
from support.nodes.changelogs import changes_in
from support.nodes.local_node import LocalNode

from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.topology.app.app import App

QUEUES = 4


class Instance:
    """One instance of an app that counts messages by key; every count it saw, in order."""

    def __init__(self, node: LocalNode, commit_interval: float = 0.05) -> None:
        self.app = App("app", connection=node, broker_commit_interval=commit_interval)
        self.topic = self.app.topic("T", key_type=str, value_type=int, queues=QUEUES)
        self.counts = self.app.Table("counts", default=int)
        self.handled = 0

        @self.app.agent(self.topic, name="reader")
        async def reader(stream: Any) -> None:
            async for event in stream.events():
                self.counts[event.key] += 1
                self.handled += 1

    def owned(self) -> list[int]:
        return self.app.tables.owned_queues()  # type: ignore[no-any-return]

    async def send(self, first: int, count: int) -> Counter[str]:
        sent: Counter[str] = Counter()
        for number in range(first, first + count):
            key = f"k{number % 23}"
            await self.topic.send(key=key, value=number)
            sent[key] += 1
        return sent


def all_of(*instances: Instance) -> dict[str, int]:
    """What the tables of *instances* say; a key that two of them have is counted twice."""
    counts: Counter[str] = Counter()
    for instance in instances:
        counts.update(dict(instance.counts.items()))
    return counts


@pytest.mark.proves("faust", "Counts are exact after a rebalance")
@pytest.mark.proves("faust", "Keys of a revoked queue leave memory")
def test_parts_of_a_table_move_with_their_queues_and_every_message_counts_once(
    node: LocalNode,
) -> None:
    async def scenario() -> None:
        one, two = (Instance(node, commit_interval=60.0) for _ in range(2))
        async with running(one.app):
            sent = await one.send(0, 300)
            await until(lambda: all_of(one) == sent)
            async with running(two.app):
                sent += await one.send(300, 300)
                await until(lambda: len(one.owned()) == len(two.owned()) == QUEUES // 2)
                assert set(one.owned()).isdisjoint(two.owned())
                sent += await one.send(600, 300)
                await until(lambda: all_of(one, two) == sent)
                assert two.handled
            await until(lambda: len(one.owned()) == QUEUES)
            sent += await one.send(900, 100)
            await until(lambda: all_of(one) == sent)
        assert one.handled + two.handled == 1000

    asyncio.run(scenario())


def test_what_is_committed_is_in_the_changelog(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = GroupConsumer.commit
    seen: list[tuple[int, int]] = []

    def watched(member: GroupConsumer, topic: str, queue_id: int, offset: int) -> None:
        changes = changes_in(node.data, "app-last-changelog", queue_id)
        seen.append((offset, int(changes[-1].body) if changes else 0))
        commit(member, topic, queue_id, offset)

    async def scenario() -> None:
        app = App("app", connection=node, broker_commit_interval=0.01)
        topic = app.topic("T", value_type=int, queues=2)
        last = app.Table("last", default=int)
        handled = 0

        @app.agent(topic, name="reader")
        async def reader(stream: Any) -> None:
            nonlocal handled
            async for event in stream.events():
                last["next offset"] = event.message.offset + 1
                handled += 1
                await asyncio.sleep(0.0001)

        async with running(app):
            for number in range(500):
                await topic.send(value=number)
            await until(lambda: handled == 500)

    monkeypatch.setattr(GroupConsumer, "commit", watched)
    asyncio.run(scenario())
    assert committed(node, "app-reader", "T") == 500
    assert len(seen) > 2
    assert all(offset <= changed for offset, changed in seen)


def test_a_crash_before_the_commit_counts_again_what_was_not_committed(node: LocalNode) -> None:
    async def life(expected: int, *, to_send: int) -> int:
        instance = Instance(node)
        async with running(instance.app):
            await instance.send(0, to_send)
            await until(lambda: instance.handled == expected)
            return sum(dict(instance.counts.items()).values())

    assert asyncio.run(life(100, to_send=100)) == 100
    for queue_id in range(QUEUES):  # as if the coordinator had not heard of the last commits
        offset = node.state.registry.offsets.get("app-reader", "T", queue_id)
        node.state.registry.offsets.commit("app-reader", "T", queue_id, max(offset - 5, 0))
    again = 100 - committed(node, "app-reader", "T")
    assert again == 5 * QUEUES
    assert asyncio.run(life(again, to_send=0)) == 100 + again


def test_changes_that_cannot_be_stored_stop_the_commit(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        instance = Instance(node)
        await instance.app.start()

        async def fail() -> None:
            raise OSError("on purpose")

        monkeypatch.setattr(instance.app.tables, "flush", fail)
        await instance.send(0, 10)
        await until(lambda: instance.app.crashed)
        monkeypatch.undo()
        assert committed(node, "app-reader", "T") == 0
        await instance.app.stop()

    asyncio.run(scenario())
