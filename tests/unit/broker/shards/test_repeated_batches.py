"""Batches that are sent again because nobody knows what became of them: each is stored once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.harness.patience import patience
from support.nodes.ladder import stored_in
from support.nodes.local_node import LocalNode

from rocketray.base.ack_mode import Durability
from rocketray.broker.shards import repeated_batches
from rocketray.broker.shards.disk_shards import DiskShards
from rocketray.broker.shards.shard_api import ShardApi
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.errors import ShardUnavailableError
from rocketray.message import ForwardedMessage, Message
from rocketray.messaging.producers.batch import SendResult
from rocketray.messaging.producers.batcher import Handling
from rocketray.messaging.producers.message_sends import MessageSends
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.messaging.producers.send_future import SendFuture
from rocketray.runtime.ipc.acknowledgement import Ack

TOPIC = "%DLQ%group"


class UnsureShard:
    """A shard that does not answer for some calls, before they are stored or after."""

    def __init__(self, shard: ShardApi, plan: list[str]) -> None:
        self._shard = shard
        self._plan = plan
        self.held_back: list[tuple[bytes, int, int]] = []

    def attach_ring(self, path: str) -> None:
        self._shard.attach_ring(path)

    def append(
        self, payload: bytes, durability: int, *, attempt: int = 0, not_after_ms: int | None = None
    ) -> Ack:
        what = self._plan.pop(0) if self._plan else "answer"
        if what == "late":
            self.held_back.append((payload, durability, attempt))
        if what in {"answer", "lost answer"}:
            ack = self._shard.append(payload, durability, attempt=attempt)
            if what == "answer":
                return ack
        raise ShardUnavailableError(TOPIC, what, 1)

    def deliver_late(self) -> None:
        for payload, durability, attempt in self.held_back:
            self._shard.append(payload, durability, attempt=attempt)


class FarNode(LocalNode):
    """A node whose shards are reached by calls."""

    gates: dict[int, UnsureShard]
    plan: list[str]

    def shard_calls(self, topic: TopicConfig, queue_id: int) -> Any:
        shard = super().shard_calls(topic, queue_id)
        return self.gates.setdefault(queue_id, UnsureShard(shard, self.plan))

    def is_local(self) -> bool:
        return False


@pytest.fixture
def node(tmp_path: Path) -> Iterator[FarNode]:
    with FarNode(tmp_path / "data") as node:
        node.gates, node.plan = {}, []
        node.topics.ensure(TOPIC, 1)
        yield node


def stored(node: FarNode) -> list[bytes]:
    end = node.shard_statistics(TOPIC)[0].max_queue_offset
    found = [node.messages.at(TOPIC, 0, offset) for offset in range(end)]
    return [message.body for message in found if message]


@pytest.mark.proves("producers", "A batch without an answer is sent again and stored once")
@pytest.mark.parametrize(
    "plan", [["lost"], ["lost answer"], ["lost answer", "lost answer"], ["late"], ["lost", "late"]]
)
def test_a_batch_without_an_answer_is_sent_again_and_stored_once(
    node: FarNode, plan: list[str]
) -> None:
    node.plan += plan
    messages = [Message(TOPIC, b"%d" % number) for number in range(10)]
    with NodeProducer(node) as producer:
        results = producer.send_many(TOPIC, messages)
        assert [one.queue_offset for one in results] == list(range(10))
        node.gates[0].deliver_late()
        after = producer.send(TOPIC, b"after")
    assert stored(node) == [*(b"%d" % number for number in range(10)), b"after"]
    assert after.queue_offset == 10
    ids = [one.offset_message_id for one in results]
    assert [found and found.unique_key for found in map(node.messages.view, ids)] == [
        one.message_id for one in results
    ]


@pytest.mark.proves("producers", "A restarted shard finds in its key index what it stored before")
def test_what_a_shard_stored_before_it_died_is_found_in_its_index(tmp_path: Path) -> None:
    with FarNode(tmp_path / "data") as node:
        node.gates, node.plan = {}, ["late"]
        node.topics.ensure(TOPIC, 1)
        with NodeProducer(node) as producer:
            first = producer.send(TOPIC, b"1")
        payload = node.gates[0].held_back[0]
    with FarNode(tmp_path / "data") as node:
        node.gates, node.plan = {}, []
        ack = node.shard(TOPIC, 0).append(*payload[:2], attempt=2)
        assert ack.first_queue_offset == first.queue_offset
        assert stored(node) == [b"1"]


@pytest.mark.proves(
    "producers",
    "A repeated batch that the shard no longer remembers is found in the key index",
)
def test_a_repeat_of_a_batch_that_is_not_remembered_is_found_in_the_index(
    node: FarNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeated_batches, "_REMEMBERED", 2)
    node.plan += ["late"]
    with NodeProducer(node) as producer:
        for number in range(10):
            producer.send(TOPIC, b"%d" % number)
    payload, durability, _ = node.gates[0].held_back[0]
    ack = node.shard(TOPIC, 0).append(payload, durability, attempt=2)
    assert ack.first_queue_offset == 0
    assert stored(node) == [b"%d" % number for number in range(10)]


@pytest.mark.proves(
    "durability",
    "A message is no repetition of an earlier one with its unique key",
)
def test_a_message_whose_key_was_created_before_is_no_repetition(node: FarNode) -> None:
    """A month later the same millisecond of the month has the same keys."""
    month_ms = 31 * 24 * 3_600_000  # January's
    now_ms = 1_800_000_000_000  # in January
    node.plan += ["answer", "lost answer"]
    with NodeProducer(node, clock_ms=lambda: now_ms) as producer:
        first = producer.send(TOPIC, b"January")
        now_ms += month_ms
        second = producer.send(TOPIC, b"February")
        assert second.message_id == first.message_id
    assert stored(node) == [b"January", b"February"]


@pytest.mark.proves(
    "producers",
    "After three calls without an answer, the producer reports that the outcome is unknown",
)
def test_after_three_calls_the_producer_says_that_it_does_not_know(node: FarNode) -> None:
    node.plan += ["lost"] * 3
    with NodeProducer(node) as producer, pytest.raises(ShardUnavailableError):
        producer.send(TOPIC, b"1")
    assert stored(node) == []


@pytest.mark.proves("producers", "A batch with a unique key given by the caller is not sent again")
def test_messages_that_bring_their_ids_are_not_sent_again(node: FarNode) -> None:
    """They may be there for another reason: a message that is retried twice has one id."""
    again = ForwardedMessage(TOPIC, b"1", {"UNIQ_KEY": "id"}, 1, ("192.0.2.1", 1))
    with NodeProducer(node) as producer:
        producer.forward(TOPIC, 0, [again])
        producer.forward(TOPIC, 0, [again])
        node.plan += ["lost answer"]
        with pytest.raises(ShardUnavailableError):
            producer.forward(TOPIC, 0, [again])
    assert stored(node) == [b"1"] * 3


def test_forwarded_messages_that_are_in_the_ring_still_are_waited_for_and_not_stored_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = ForwardedMessage(TOPIC, b"1", {"UNIQ_KEY": "id"}, 1, ("192.0.2.1", 1))
    with LocalNode(tmp_path) as node:
        node.topics.ensure(TOPIC, 1, internal=True)
        with NodeProducer(node, timeout_s=0.1) as producer:
            with monkeypatch.context() as patch:
                patch.setattr(DiskShards, "drain", lambda _, everything: 0)
                for _ in range(2):
                    with pytest.raises(ShardUnavailableError, match="did not acknowledge"):
                        producer.forward(TOPIC, 0, [again])
            batcher = producer._batcher
            batcher.settings = replace(batcher.settings, timeout_s=patience(60))
            producer.forward(TOPIC, 0, [again])
            assert [one.body for one in stored_in(node, TOPIC)] == [b"1"]
            producer.forward(TOPIC, 0, [again])
            assert [one.body for one in stored_in(node, TOPIC)] == [b"1"] * 2


def send_of_node(producer: NodeProducer, body: bytes) -> SendFuture[SendResult]:
    """Send as the node's own parts do, which do not wait."""
    link = producer.links.link(TOPIC, 0, None)
    handling = Handling(Durability.MEMORY, of_node=True)
    assert isinstance(producer.singles, MessageSends)
    return producer.singles._add(link, Message(TOPIC, body), handling)


def test_a_failure_of_any_kind_is_the_batchs_own_and_the_next_message_goes(node: FarNode) -> None:
    class FullDisk(UnsureShard):
        def append(
            self,
            payload: bytes,
            durability: int,
            *,
            attempt: int = 0,
            not_after_ms: int | None = None,
        ) -> Ack:
            if self._plan and self._plan.pop(0) == "fail":
                raise OSError(28, "no room in the test")
            return super().append(payload, durability, attempt=attempt)

    with node.producer() as producer:
        producer.links.choose_queue(TOPIC)
        node.gates[0] = FullDisk(node.shard(TOPIC, 0), ["fail", "fail", "fail"])
        first = send_of_node(producer, b"refused")
        with pytest.raises(OSError, match="no room"):
            first.result()
        for _ in range(2):  # the second is collected, and goes with the lingering thread
            send_of_node(producer, b"refused")
        node.gates[0]._plan.clear()
        producer.flush()
        assert send_of_node(producer, b"stored").result().queue_offset >= 0
    assert stored(node)[-1] == b"stored"
