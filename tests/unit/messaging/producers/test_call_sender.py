"""Sends by calls that take long, get lost or fail: order, nothing twice, and what waits meanwhile."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.harness.patience import patience, wait_until
from support.nodes import local_node
from support.nodes.local_node import LocalNode
from support.nodes.lossy_calls import LossyCalls

from rocketray.broker.shards.owned_shard import OwnedShard
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.errors import ShardUnavailableError, StoreError
from rocketray.message import ForwardedMessage, Message
from rocketray.messaging.producers import batcher
from rocketray.messaging.producers.async_producer import NodeAsyncProducer
from rocketray.messaging.producers.call_sender import WAITING_BYTES
from rocketray.messaging.producers.parts import BATCH_MAX
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.runtime.ipc.acknowledgement import Ack

LARGE = bytes(400_000)


class FarNode(LocalNode):
    """A node whose shards are reached by calls: each waits for the gate, and may be lost."""

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        self.calls.shares_memory = False
        self.gate = threading.Event()
        self.gate.set()
        self.begun = 0
        """How many batches a call came with, also those that were lost."""
        self.lossy = LossyCalls(lambda: self.shard("T", 0))

    def shard_calls(self, topic: TopicConfig, queue_id: int) -> Any:
        return self if topic.name == "T" else super().shard_calls(topic, queue_id)

    def append(self, *call: Any, **options: Any) -> Ack:
        self.begun += 1
        assert self.gate.wait(patience(60))
        ack: Ack = self.lossy.append(*call, **options)
        return ack

    def bodies(self) -> list[bytes]:
        return [one.body for one in self.stored("T")]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[FarNode]:
    with FarNode(tmp_path / "data") as node:
        node.topics.ensure("T", 1)
        yield node
        node.gate.set()


def test_what_is_sent_during_a_call_goes_in_the_fewest_batches_and_in_order(node: FarNode) -> None:
    count = 3 * BATCH_MAX + 10
    with node.producer() as producer:
        node.gate.clear()
        pending = [producer.send_async("T", b"%d" % number) for number in range(count)]
        wait_until(lambda: node.begun == 1)
        time.sleep(0.02)  # longer than the linger time
        assert node.begun == 1
        assert not any(sent.done() for sent in pending)
        node.gate.set()
        assert [sent.result().queue_offset for sent in pending] == [*range(count)]
    assert node.bodies() == [b"%d" % number for number in range(count)]
    assert node.shard_statistics("T")[0].batches == 5


@pytest.mark.proves(
    "producers",
    "What is sent during a call is collected, and goes when the call ends",
)
def test_what_was_collected_during_a_call_goes_when_it_ends(
    node: FarNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batcher.Batcher, "_flush_lingering", lambda _: None)
    with node.producer() as producer:
        for _ in range(3):
            node.gate.clear()
            pending = [producer.send_async("T", b"x") for _ in range(5)]
            node.gate.set()
            wait_until(pending[-1].done, "no thread that polls has sent it")


def test_what_no_thread_could_be_started_for_is_not_sent_and_the_link_sends_on(
    node: FarNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    with node.producer() as producer:
        producer.send("T", b"before")
        (link,) = producer.links.opened()
        in_background = link._calls._in_background

        def fail(_: Callable[[], None]) -> None:
            raise RuntimeError("can't start new thread")

        wait_until(lambda: not link._calls._is_running)
        monkeypatch.setattr(link._calls, "_in_background", fail)
        said = "can't start new thread; nothing of this batch was sent"
        with pytest.raises(ShardUnavailableError, match=said):
            producer.send("T", b"refused")
        producer.send_oneway("T", b"counted")
        producer.flush()
        assert producer.one_way_lost == 1
        monkeypatch.setattr(link._calls, "_in_background", in_background)
        producer.send("T", b"after")
    assert node.bodies() == [b"before", b"after"]


def test_a_second_thread_sends_nothing_that_the_first_one_sends(
    node: FarNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt (Ctrl-C) may come while the first is started, which runs all the same."""
    with node.producer() as producer:
        producer.send("T", b"before")
        (link,) = producer.links.opened()
        wait_until(lambda: not link._calls._is_running)
        in_background = link._calls._in_background

        def start_and_interrupt(run: Callable[[], None]) -> None:
            in_background(run)
            monkeypatch.setattr(link._calls, "_in_background", in_background)
            raise KeyboardInterrupt

        monkeypatch.setattr(link._calls, "_in_background", start_and_interrupt)
        node.gate.clear()
        with pytest.raises(KeyboardInterrupt):
            producer.send("T", b"first")
        second = producer.send_async("T", LARGE)
        link._calls.publish()
        wait_until(lambda: node.begun == 2)
        time.sleep(0.02)
        assert node.begun == 2, "one call at a time"
        node.gate.set()
        assert second.result(patience(60)).queue_offset == 2
    assert node.bodies() == [b"before", b"first", LARGE]


def test_a_link_sends_on_when_what_was_collected_could_not_be_sent(
    node: FarNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures = iter([MemoryError("full")])

    def fail() -> None:
        for failure in failures:
            raise failure

    with node.producer() as producer:
        producer.send("T", b"before")
        (link,) = producer.links.opened()
        wait_until(lambda: not link._calls._is_running)
        monkeypatch.setattr(link._calls, "_on_idle", fail)
        producer.send("T", b"at the failure")
        producer.send("T", b"after")
    assert node.bodies() == [b"before", b"at the failure", b"after"]
    assert "messages that were collected are sent later" in caplog.text


def test_callers_that_wait_share_the_next_call(node: FarNode) -> None:
    with node.producer() as producer:
        node.gate.clear()
        producer.send_async("T", b"first")
        threads = [threading.Thread(target=producer.send, args=("T", b"x")) for _ in range(20)]
        for thread in threads:
            thread.start()
        (link,) = producer.links.opened()
        wait_until(lambda: link.collecting is not None and len(link.collecting.columns) == 20)
        node.gate.set()
        for thread in threads:
            thread.join(patience(60))
    assert node.shard_statistics("T")[0].batches == 2


def test_tasks_send_by_calls_without_a_thread_that_waits(node: FarNode) -> None:
    async def send() -> None:
        async with NodeAsyncProducer(node.producer) as producer:
            await producer.send("T", b"first")
            node.gate.clear()
            futures = [await producer.send_async("T", b"%d" % number) for number in range(500)]
            assert not any(future.done() for future in futures)
            node.gate.set()
            assert [(await one).queue_offset for one in futures] == [*range(1, 501)]

    asyncio.run(send())
    assert node.shard_statistics("T")[0].batches <= 4


@pytest.mark.proves("producers", "A producer on another Ray node holds 4 MiB of batches at most")
def test_a_link_holds_a_bounded_number_of_bytes_and_then_sends_block(node: FarNode) -> None:
    with NodeProducer(node, timeout_s=0.1) as producer:
        node.gate.clear()
        pending = [producer.send_async("T", LARGE) for _ in range(20)]
        (link,) = producer.links.opened()
        assert 0.8 * WAITING_BYTES < link._calls._unfinished_bytes <= WAITING_BYTES
        refused = [one for one in pending if one.done()]
        assert refused
        for one in refused:
            with pytest.raises(ShardUnavailableError, match="nothing of this batch was sent"):
                one.result()
        node.gate.set()
        stored = len([one for one in pending if not failed(one)])
    assert node.shard_statistics("T")[0].messages == stored


def failed(sent: Any) -> bool:
    try:
        sent.result(patience(60))
    except ShardUnavailableError:
        return True
    return False


def test_a_send_waits_no_longer_than_its_timeout_and_its_result_may_be_asked_for_later(
    node: FarNode,
) -> None:
    with NodeProducer(node, timeout_s=0.1) as producer:
        node.gate.clear()
        pending = producer.send_async("T", b"x")
        with pytest.raises(ShardUnavailableError, match="may still store what was sent"):
            pending.result()
        with pytest.raises(ShardUnavailableError, match="may still store what was sent"):
            producer.flush()
        node.gate.set()
        assert pending.result(patience(60)).queue_offset == 0
    assert node.bodies() == [b"x"]


def test_a_producer_that_closes_during_a_call_leaves_nothing_unsent(node: FarNode) -> None:
    producer = NodeProducer(node, timeout_s=0.1)
    node.gate.clear()
    pending = [producer.send_async("T", LARGE) for _ in range(3)]
    with pytest.raises(ShardUnavailableError):
        producer.close()
    with pytest.raises(StoreError, match="closed"):
        producer.send("T", b"y")
    node.gate.set()
    assert [sent.result(patience(60)).queue_offset for sent in pending] == [0, 1, 2]


def test_a_shard_that_is_gone_gets_nothing_that_waits(node: FarNode) -> None:
    with node.producer() as producer:
        node.gate.clear()
        pending = [producer.send_async("T", LARGE, ack="memory") for _ in range(5)]
        for _ in range(3):
            producer.send_oneway("T", LARGE)
        wait_until(lambda: node.begun == 1)
        producer.lose(StoreError("it is gone"))
        for sent in pending:
            with pytest.raises(StoreError, match="it is gone"):
                sent.result()
        assert producer.one_way_lost == 3
        node.gate.set()
    wait_until(lambda: bool(node.bodies()))
    time.sleep(0.02)
    assert len(node.bodies()) <= 2, "those of the call in flight"
    assert node.begun == 1


@pytest.mark.parametrize("loss", ["request", "answer", "twice"])
def test_a_batch_whose_call_is_lost_is_stored_once_and_in_order(node: FarNode, loss: Any) -> None:
    with node.producer() as producer:
        for number in range(10):
            node.lossy.losses["append"] = [loss, loss]
            producer.send_async("T", b"%d" % number)
            producer.send_async("T", b"%d and" % number)
            producer.flush()
    assert node.bodies() == [
        body for number in range(10) for body in (b"%d" % number, b"%d and" % number)
    ]


@pytest.mark.parametrize("loss", ["request", "answer"])
def test_a_batch_that_stays_unknown_is_asked_for_and_the_next_ones_go_on(
    node: FarNode, loss: Any
) -> None:
    with node.producer() as producer:
        node.lossy.losses["append"] = [loss] * 3
        first = producer.send_async("T", b"first")
        second = producer.send_async("T", b"second")
        assert second.result().message_id
        with pytest.raises(ShardUnavailableError, match="was lost by the test"):
            first.result()
        assert first.result().message_id
    assert sorted(node.bodies()) == [b"first", b"second"]


def test_a_list_keeps_its_order_when_a_batch_in_its_middle_fails(node: FarNode) -> None:
    """The batches behind it wait packed by then, and are not sent."""
    messages = [Message("T", b"%d" % number) for number in range(4 * BATCH_MAX)]
    with node.producer() as producer:
        node.gate.clear()
        producer.send_async("T", b"before")
        sent = producer.begin_many("T", messages)
        after = producer.send_async("T", b"after")
        node.lossy.losses["append"] = ["twice", "twice", "request", "answer", "request"]
        node.gate.set()
        with pytest.raises(ShardUnavailableError, match="was lost by the test"):
            sent.result()
        assert len(after.result().message_id) > 0
        results = sent.result()
        assert len({one.queue_offset for one in results}) == len(messages)
    found = node.bodies()
    assert len(found) == len(messages) + 2
    assert [body for body in found if body.isdigit()] == [one.body for one in messages]


def test_a_forwarded_batch_is_sent_once(node: FarNode) -> None:
    messages = [ForwardedMessage("T", b"x", {}, 1, ("192.0.2.1", 1))]
    with node.producer() as producer:
        node.lossy.losses["append"] = ["answer"]
        with pytest.raises(ShardUnavailableError, match="was lost by the test"):
            producer.forward("T", 0, messages)
    assert node.bodies() == [b"x"]
    assert node.begun == 1


@pytest.mark.proves("producers", "A batch too large for the ring is stored in its turn")
def test_a_batch_too_large_for_the_ring_goes_in_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(local_node.SIZES, "commit_log_segment_bytes", 8 << 20)
    append = OwnedShard.append

    def slow(shard: OwnedShard, *call: Any, **options: Any) -> Ack:
        time.sleep(0.05)
        return append(shard, *call, **options)

    monkeypatch.setattr(OwnedShard, "append", slow)
    bodies = [b"%d" % number * (3 << 20 if number % 7 == 3 else 1) for number in range(10)]
    with LocalNode(tmp_path / "data") as node:
        node.topics.ensure("T", 1)
        with node.producer() as producer:
            pending = [producer.send_async("T", body) for body in bodies]
            assert [sent.result().queue_offset for sent in pending] == [*range(10)]
        assert [one.body for one in node.stored("T")] == bodies
