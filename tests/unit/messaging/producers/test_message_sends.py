"""Sends of single messages: what is stored of their options, by every way to send."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest
from support.harness.patience import wait_until
from support.nodes.local_node import LocalNode

from rocketray.base.ack_mode import Durability
from rocketray.errors import ConfigError, InvalidMessageError
from rocketray.message import SHARDING_KEY
from rocketray.messaging.producers.async_producer import NodeAsyncProducer
from rocketray.messaging.producers.batcher import Handling
from rocketray.messaging.producers.message_sends import MessageSends, _handling
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.topology.values.wire import key_of


def test_a_sharding_key_is_stored_and_is_the_key_of_the_event(tmp_path: Path) -> None:
    own = {"a": "b", SHARDING_KEY: "own"}

    async def send_awaited(node: LocalNode) -> None:
        async with NodeAsyncProducer(partial(NodeProducer, node)) as producer:
            for _ in range(2):  # the first in a thread, as it opens the queue; then on the loop
                await producer.send("T", b"x", keys=["first"], sharding_key="k")
                await producer.send("T", b"x", properties=own, sharding_key="k")
            await producer.send("T", b"x", sharding_key="k", delay=0.01)

    with LocalNode(tmp_path / "data") as node:
        node.topics.ensure("T", 4)
        with node.producer() as producer:
            producer.send("T", b"x", keys=["first"], sharding_key="k")
            producer.send("T", b"x", properties=own, sharding_key="k")
            producer.send("T", b"x", unique_key="0" * 32, sharding_key="k")
            producer.send("T", b"x", queue_id=3, sharding_key="k")
            producer.send_oneway("T", b"x", sharding_key="k")
            producer.send_async("T", b"x", tags="t", sharding_key="k").result()
            expected = {producer.links.choose_queue("T", sharding_key="k"), 3}
            asyncio.run(send_awaited(node))
            producer.flush()
        wait_until(lambda: len(node.stored("T")) >= 11)
        stored = node.stored("T")
    assert {key_of(one.properties) for one in stored} == {b"k"}
    assert {one.queue_id for one in stored} == expected
    assert sum(one.properties.get("a") == "b" for one in stored) == 3
    assert own[SHARDING_KEY] == "own", "the caller's properties stay as they are"


@pytest.mark.parametrize("mode", Durability)
def test_an_ack_mode_changes_nothing_else_about_a_send(tmp_path: Path, mode: Durability) -> None:
    with LocalNode(tmp_path / "data") as node, node.producer() as producer:
        sends = producer.singles
        assert isinstance(sends, MessageSends)
        for known, handling in (
            (sends._in_time, Handling(mode)),
            (sends._at_once, Handling(mode, at_once=True)),
            (sends._one_way, Handling(mode, one_way=True)),
        ):
            assert _handling(known, mode.text) == handling
            with pytest.raises(ConfigError, match="ack 'replicas' is not"):
                _handling(known, "replicas")


def test_a_sharding_key_that_cannot_be_stored(tmp_path: Path) -> None:
    with LocalNode(tmp_path / "data") as node, node.producer() as producer:
        node.topics.ensure("T", 2)
        for place in ({}, {"queue_id": 1}, {"keys": ["k"]}):
            with pytest.raises(InvalidMessageError, match="sharding_key is empty"):
                producer.send("T", b"x", sharding_key="", **place)
        assert not node.stored("T")
        with pytest.raises(InvalidMessageError, match=SHARDING_KEY):
            producer.send("T", b"x", sharding_key="a\1b")
        for wrong in ({"delay": 1}, {"keys": ["k"]}, {}):
            with pytest.raises((ConfigError, InvalidMessageError), match=r"5|is a int"):
                producer.send("T", b"x", sharding_key=5, **wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidMessageError, match="mapping"):
            producer.send("T", b"x", sharding_key="k", properties=["a"])  # type: ignore[arg-type]
