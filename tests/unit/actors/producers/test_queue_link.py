"""How long a producer collects messages, and what it leaves of a ring that no shard reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.local_node import LocalNode

from rocketray.actors.files.paths import producer_rings_directory
from rocketray.actors.producers.queue_link import collecting_s
from rocketray.actors.shards.shard_api import ShardApi
from rocketray.actors.topics.catalog import TopicConfig
from rocketray.errors import ShardUnavailableError


def test_a_producer_collects_for_four_times_as_long_as_it_hands_over_within_bounds() -> None:
    assert collecting_s(0.00005) == pytest.approx(0.0002)
    assert collecting_s(0.0) == pytest.approx(0.0001)
    assert collecting_s(1.0) == pytest.approx(0.0005)


class SilentShard:
    """A shard that never says that it reads a ring; perhaps it does."""

    def __init__(self, shard: ShardApi, *, attaches: bool) -> None:
        self._shard = shard
        self._attaches = attaches

    def attach(self, path: str) -> None:
        if self._attaches:
            self._shard.attach(path)
        raise ShardUnavailableError("T/0", 1000, "there was no answer")


class SilentNode(LocalNode):
    """A node whose shards are silent at times."""

    is_silent = False
    attaches = False

    def shard_calls(self, topic: TopicConfig, queue_id: int) -> Any:
        shard = super().shard_calls(topic, queue_id)
        return SilentShard(shard, attaches=self.attaches) if self.is_silent else shard


@pytest.fixture
def node(tmp_path: Path) -> Iterator[SilentNode]:
    with SilentNode(tmp_path) as node:
        node.topics.ensure("T", 1)
        yield node


@pytest.mark.parametrize("attaches", [False, True])
def test_a_ring_that_no_shard_was_heard_to_read_is_given_back(
    node: SilentNode, *, attaches: bool
) -> None:
    rings = producer_rings_directory(node.data, "T", 0)
    node.attaches, node.is_silent = attaches, True
    with node.producer() as producer:
        for _ in range(3):
            with pytest.raises(ShardUnavailableError):
                producer.send("T", b"x")
        assert not [*rings.iterdir()]
        node.is_silent = False
        assert producer.send("T", b"x").queue_offset == 0
        assert len([*rings.iterdir()]) == 1
        node.shard("T", 0).flush()
        assert node.shard_statistics("T")[0].rings == 1
