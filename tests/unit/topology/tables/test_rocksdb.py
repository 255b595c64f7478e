"""Tables on disk: skipped where the extra ``rocketray[rocksdb]`` is not installed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from faust.types.tuples import TP
from support.harness.patience import until
from support.nodes.apps import running
from support.nodes.local_node import LocalNode
from support.nodes.part_holders import PartHolder

from rocketray.topology.app.app import App

pytest.importorskip("rocksdict")


class Life:
    """An app whose table is on disk below *directory*; it counts messages by key."""

    def __init__(self, node: LocalNode, directory: Path) -> None:
        self.app = App(
            "app", connection=node, store="rocksdb://", datadir=directory,
            broker_commit_interval=0.05,
        )  # fmt: skip
        self.topic = self.app.topic("T", key_type=str, value_type=int, queues=2)
        self.read: list[Any] = []
        self.counts = self.app.Table(
            "counts", default=int, key_type=str, value_type=int, on_changelog_event=self._note
        )
        self.handled = 0

        @self.app.agent(self.topic, name="reader")
        async def reader(stream: Any) -> None:
            async for key, value in stream.items():
                if value:
                    self.counts[key] += value
                else:
                    del self.counts[key]
                self.handled += 1

    async def _note(self, event: Any) -> None:
        self.read.append(event.key)

    async def send(self, **values: int) -> None:
        expected = self.handled + len(values)
        for key, value in values.items():
            await self.topic.send(key=key, value=value)
        await until(lambda: self.handled == expected)


@pytest.mark.proves("faust", '`store="rocksdb://"`: works')
def test_a_table_on_disk_reads_only_what_it_has_not(node: LocalNode, tmp_path: Path) -> None:
    async def first() -> None:
        life = Life(node, tmp_path / "one")
        async with running(life.app):
            await life.send(a=1, b=2, c=3)
            await life.send(a=1, c=0)
            assert dict(life.counts.items()) == {"a": 2, "b": 2}

    async def second() -> None:
        life = Life(node, tmp_path / "one")
        async with running(life.app):
            assert dict(life.counts.items()) == {"a": 2, "b": 2}
            assert life.read == []
            await life.send(b=5)
            assert dict(life.counts.items()) == {"a": 2, "b": 7}

    async def elsewhere() -> None:
        life = Life(node, tmp_path / "two")
        async with running(life.app):
            assert dict(life.counts.items()) == {"a": 2, "b": 7}
            assert "a" in life.read

    asyncio.run(first())
    asyncio.run(second())
    asyncio.run(elsewhere())


def test_what_is_on_disk_is_made_again_where_its_changelog_is_another(
    node: LocalNode, tmp_path: Path
) -> None:
    async def life(**values: int) -> dict[str, int]:
        one = Life(node, tmp_path)
        async with running(one.app):
            await one.send(**values)
            return dict(one.counts.items())

    assert asyncio.run(life(a=1, b=2)) == {"a": 1, "b": 2}
    node.topics.delete("app-counts-changelog")
    assert asyncio.run(life()) == {}
    assert asyncio.run(life(a=5)) == {"a": 5}


def test_a_change_that_was_dropped_with_its_lease_is_not_on_disk(
    node: LocalNode, tmp_path: Path
) -> None:
    async def scenario() -> None:
        app = App("app", connection=node, store="rocksdb://", datadir=tmp_path)
        table = app.Table("counts", default=int, key_type=str, value_type=int, partitions=2)
        node.topics.ensure(table.changelog_topic_name, 2)
        owner, tp = PartHolder(), TP(table.changelog_topic_name, 1)
        await table.data.maybe_start()
        await app.tables.gain(owner, {1})
        for value in (1, 2):
            key = table.encode_key("a")
            app.tables.note_change(table, 1, key, b"%d" % value)
            table.data._db_for_partition(1).put(key, b"%d" % value)
            if value == 1:
                await app.flush_sends()
        await until(lambda: table.data.persisted_offset(tp) is not None)
        owner.is_leased = False
        await app.tables.lose(owner, {1})
        owner.is_leased = True
        await app.tables.gain(owner, {1})
        assert dict(table.items()) == {"a": 1}

    asyncio.run(scenario())
