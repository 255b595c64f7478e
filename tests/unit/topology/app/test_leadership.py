"""What runs on the leader alone: one instance at a time, and another when it stops."""

from __future__ import annotations

import asyncio

import pytest
from support.harness.patience import until
from support.nodes.apps import running
from support.nodes.local_node import LocalNode

from rocketray.topology.app.app import App


class Instance:
    """An app that counts its ticks on the leader, and says whether its task ran."""

    def __init__(self, node: LocalNode) -> None:
        self.app = App("app", connection=node)
        self.ticks = 0
        self.ran: list[str] = []

        @self.app.timer(0.02, True)
        async def tick() -> None:
            self.ticks += 1

        @self.app.task(on_leader=True)
        async def once() -> None:
            self.ran.append("task")


@pytest.mark.proves("faust", "`on_leader=`, `app.is_leader()`: works")
def test_one_instance_leads_and_the_next_one_when_it_stops(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketray.messaging.consumers.app_member.HEARTBEAT_INTERVAL_S", 0.1)

    async def scenario() -> None:
        one, two = Instance(node), Instance(node)
        async with running(two.app), running(one.app):
            await until(lambda: two.ticks > 5)
            assert (one.ticks, one.ran, two.ran) == (0, [], ["task"])
            assert (one.app.is_leader(), two.app.is_leader()) == (False, True)
            await two.app.stop()
            await until(lambda: one.ticks > 5)
            assert one.app.is_leader()
            ticks = two.ticks
            await asyncio.sleep(0.1)
            assert two.ticks == ticks

    asyncio.run(scenario())


def test_without_anything_for_a_leader_nobody_leads(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        async with running(app):
            assert not app.is_leader()
        assert not node.topics.all()

    asyncio.run(scenario())
