"""A producer's batches: what waits for room, what an error says, and topics that change."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pytest
from support.harness.patience import patience, wait_until
from support.nodes.local_node import LocalNode

from rocketray.broker.shards.owned_shard import OwnedShard
from rocketray.broker.shards.shard_rings import ShardRings
from rocketray.errors import (
    InvalidMessageError,
    ShardUnavailableError,
    StoreError,
    TopicNotFoundError,
)
from rocketray.message import ForwardedMessage, Message
from rocketray.messaging.producers import batcher
from rocketray.messaging.producers.batch import Batch, SendResult
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.messaging.producers.queue_link import QueueLink
from rocketray.runtime.files.node_lock import lock_node
from rocketray.runtime.files.paths import producer_rings_directory
from rocketray.runtime.ipc.acknowledgement import Ack

LARGE = bytes(300_000)  # of a segment of 1 MiB


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path / "data") as node:
        node.topics.ensure("Trade", 1)
        node.topics.ensure("Dead", 1)
        yield node


@pytest.fixture
def revive(node: LocalNode, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The shard of topic Dead takes nothing from its rings until this event."""
    dead, alive = node.shard("Dead", 0).writer.rings, threading.Event()
    drain = ShardRings.drain
    monkeypatch.setattr(
        ShardRings,
        "drain",
        lambda rings: drain(rings) if rings is not dead or alive.is_set() else 0,
    )
    yield alive
    alive.set()


@pytest.mark.proves(
    "producers",
    "A batch waits 2 ms at most once earlier batches are acknowledged; an unavailable shard "
    "blocks only sends to its queue",
)
def test_a_shard_that_takes_nothing_holds_up_nobody_else(
    node: LocalNode, revive: threading.Event
) -> None:
    results: list[SendResult] = []

    def fill(producer: NodeProducer) -> None:
        pending = [producer.send_async("Dead", LARGE) for _ in range(40)]
        results.extend(sent.result() for sent in pending)

    with NodeProducer(node, timeout_s=patience(60)) as producer:
        thread = threading.Thread(target=fill, args=(producer,))
        thread.start()
        thread.join(2.0)
        assert thread.is_alive(), "the ring has room for all of it"
        assert producer.send("Trade", b"a").queue_offset == 0
        lingering = producer.send_async("Trade", b"b")
        wait_until(lambda: node.shard_statistics("Trade")[0].messages == 2, "nobody handed it over")
        assert lingering.result().queue_offset == 1
        assert thread.is_alive()
        revive.set()
        thread.join(patience(60))
        assert [sent.queue_offset for sent in results] == list(range(40))


def test_a_call_that_takes_long_holds_up_no_collected_messages_of_others(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.calls.shares_memory = False
    monkeypatch.setattr(batcher, "collecting_s", lambda _: 60.0)
    is_called, may_answer = threading.Event(), threading.Event()
    append = OwnedShard.append

    def slow(shard: OwnedShard, payload: bytes, durability: int, **options: Any) -> Ack:
        if shard is node.shard("Dead", 0) and shard.statistics().messages == 1:
            is_called.set()
            may_answer.wait(patience(300))
        return append(shard, payload, durability, **options)

    monkeypatch.setattr(OwnedShard, "append", slow)
    with NodeProducer(node) as producer:
        for topic in ("Dead", "Trade"):
            producer.send_async(topic, b"handed over")
        producer.send_async("Dead", b"collected")
        assert is_called.wait(patience(60))
        collected = producer.send_async("Trade", b"collected")
        try:
            wait_until(collected.done)
        finally:
            may_answer.set()
    assert node.shard_statistics("Dead")[0].messages == 2


@pytest.mark.proves("producers", "Batches of large messages fit a segment of the log")
def test_large_messages_go_in_batches_that_fit_into_a_segment(node: LocalNode) -> None:
    """Collected, listed or in a table: 100 of them are 34 segments."""
    table = pa.table({"body": pa.array([LARGE] * 100, pa.binary())})
    with node.producer() as producer:
        pending = [producer.send_async("Trade", LARGE) for _ in range(100)]
        assert [sent.result().queue_offset for sent in pending] == list(range(100))
        stored = producer.send_many("Trade", [Message("Trade", LARGE)] * 100)
        assert [sent.queue_offset for sent in stored] == list(range(100, 200))
        assert len(producer.send_many("Trade", table)) == 100
    assert node.shard_statistics("Trade")[0].messages == 300


@pytest.mark.proves("producers", "Properties count toward the size of a batch")
def test_large_properties_count_for_the_size_of_a_batch(node: LocalNode) -> None:
    message = Message("Trade", b"", properties={"p": "x" * 30_000})
    with node.producer() as producer:
        stored = producer.send_many("Trade", [message] * 100)
        assert [sent.queue_offset for sent in stored] == list(range(100))


@pytest.mark.proves(
    "producers",
    "`done()` is true once the shard has acknowledged the message, without a call of `result`",
)
def test_a_send_is_done_once_the_shard_has_acknowledged_it_without_being_asked_for(
    node: LocalNode, revive: threading.Event
) -> None:
    with node.producer() as producer:
        pending = [producer.send_async("Dead", b"x") for _ in range(3)]
        assert not any(sent.done() for sent in pending)
        revive.set()
        wait_until(lambda: all(sent.done() for sent in pending))
        assert [sent.result(0).queue_offset for sent in pending] == [0, 1, 2]


@pytest.mark.proves("producers", "A send without an answer says that no node runs, if none does")
def test_a_send_without_an_answer_says_that_no_node_runs_if_none_does(
    node: LocalNode, revive: threading.Event
) -> None:
    with NodeProducer(node, timeout_s=0.2) as producer:
        said = f"may still store what was sent: no node runs on {node.data}; start it with"
        with pytest.raises(ShardUnavailableError, match=said):
            producer.send("Dead", b"first")
        lock = lock_node(node.data)
        with pytest.raises(ShardUnavailableError, match="may still store what was sent; try again"):
            producer.send("Dead", b"second")
        os.close(lock)
        revive.set()
        assert wait_until(lambda: node.messages.at("Dead", 0, 1)).body == b"second"


@pytest.mark.proves("producers", "An error says whether the message may still be stored")
def test_an_error_of_a_shard_says_whether_the_message_may_still_be_stored(
    node: LocalNode, revive: threading.Event
) -> None:
    with NodeProducer(node, timeout_s=0.2) as producer:
        with pytest.raises(ShardUnavailableError, match="may still store what was sent"):
            producer.send("Dead", b"first")
        sent = [producer.send_async("Dead", LARGE) for _ in range(20)]
        with pytest.raises(ShardUnavailableError, match="nothing of this batch was sent"):
            sent[-1].result()
        revive.set()
        assert wait_until(lambda: node.messages.at("Dead", 0, 0)).body == b"first"


def test_many_messages_wait_for_room_as_long_as_their_send_says(
    node: LocalNode, revive: threading.Event
) -> None:
    bodies = [bytes(500_000)] * 10  # of which the ring has room for eight
    with NodeProducer(node, timeout_s=3600.0) as producer:
        with pytest.raises(ShardUnavailableError):
            producer.send_many("Dead", bodies=bodies, timeout_s=0.1)
        producer.send_many_oneway("Dead", bodies=bodies[:2], timeout_s=0.1)
        with pytest.raises(ShardUnavailableError, match="nothing of this batch was sent"):
            producer.begin_many("Dead", [Message("Dead", LARGE)] * 2, timeout_s=0.1).result(0.1)
        assert producer.one_way_lost == 2
        revive.set()
    with NodeProducer(node, timeout_s=0.01) as hasty:
        assert len(hasty.send_many("Dead", bodies=bodies * 4, timeout_s=patience(60))) == 40


def test_threads_that_forward_the_same_messages_forget_no_later_batch(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, later = (
        [ForwardedMessage("Dead", body, {}, 1, ("192.0.2.1", 1))] for body in (b"first", b"later")
    )
    settled, may_end = threading.Event(), threading.Event()

    with node.producer() as producer, ThreadPoolExecutor(1) as threads:
        producer.send("Dead", b"the shard knows the ring by now")
        settle = producer._batcher.settle

        def settle_slowly(link: QueueLink, batch: Batch) -> None:
            settle(link, batch, patience(60))
            settled.set()
            assert may_end.wait(patience(60))

        with monkeypatch.context() as patch:
            patch.setattr(producer._batcher, "settle", settle_slowly)
            slow = threads.submit(producer.forward, "Dead", 0, first)
            assert settled.wait(patience(60))
        assert producer.forward("Dead", 0, first)[0].queue_offset == 1
        node.stall("Dead", 0)
        with monkeypatch.context() as patch:
            hasty = replace(producer._batcher.settings, timeout_s=0.2)
            patch.setattr(producer._batcher, "settings", hasty)
            with pytest.raises(ShardUnavailableError, match="may still store"):
                producer.forward("Dead", 0, later)
        may_end.set()
        assert slow.result()[0].queue_offset == 1
        node.shard("Dead", 0).drain()
        assert producer.forward("Dead", 0, later)[0].queue_offset == 2
        node.shard("Dead", 0).drain()
    assert node.shard_statistics("Dead")[0].messages == 3


def test_threads_that_send_first_at_one_time_share_a_link(node: LocalNode) -> None:
    begin = threading.Barrier(8)

    def send(producer: NodeProducer) -> None:
        begin.wait()
        producer.send("Trade", b"x")

    with node.producer() as producer:
        threads = [threading.Thread(target=send, args=(producer,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(patience(60))
        node.shard("Trade", 0).writer.rings.forget_closed()
        assert len(list(producer_rings_directory(node.data, "Trade", 0).iterdir())) == 1
    assert node.shard_statistics("Trade")[0].messages == 8


@pytest.mark.proves("producers", "`close()` closes the producer even if a shard does not answer")
def test_a_producer_closes_also_when_a_shard_does_not_answer(
    node: LocalNode, revive: threading.Event
) -> None:
    producer = NodeProducer(node, timeout_s=0.2)
    pending = producer.send_async("Dead", b"x")
    with pytest.raises(ShardUnavailableError):
        producer.close()
    with pytest.raises(StoreError, match="closed"):
        producer.send("Dead", b"y")
    revive.set()
    assert pending.result(patience(60)).queue_offset == 0, (
        "what was handed over is stored nevertheless"
    )


@pytest.mark.proves("producers", "A producer sends to new queues of a topic")
def test_a_producer_learns_of_more_queues(node: LocalNode) -> None:
    with node.producer() as producer:
        assert producer.send("Trade", b"x").queue_id == 0
        node.topics.alter("Trade", 3)
        producer.refresh_topics()
        lists = [producer.send_many("Trade", bodies=[b"x"]) for _ in range(6)]
        assert {sent[0].queue_id for sent in lists} == {0, 1, 2}


def test_a_producer_hands_over_what_it_collected_also_when_it_cannot_ask_for_topics(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Event()

    def fail(_: str) -> NoReturn:
        asked.set()
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(batcher, "_REFRESH_S", 0.01)
    with node.producer() as producer, monkeypatch.context() as patch:
        producer.send("Trade", b"x")
        patch.setattr(node.topics, "get", fail)
        assert asked.wait(patience(60))
        pending = [producer.send_async("Trade", b"x") for _ in range(10)]
        wait_until(pending[-1].done, "nobody handed it over")


@pytest.mark.proves(
    "producers",
    "A producer drops a deleted topic, and finds a new one of that name",
)
def test_a_producer_leaves_a_topic_that_is_gone_and_finds_the_new_one(node: LocalNode) -> None:
    with node.producer() as producer:
        producer.send("Trade", b"old")
        producer.send_oneway("Trade", b"old")
        node.topics.delete("Trade")
        producer.refresh_topics()
        with pytest.raises(TopicNotFoundError):
            producer.send("Trade", b"nowhere")
        node.topics.ensure("Trade", 2)
        assert producer.send("Trade", b"new", queue_id=1).queue_offset == 0
        node.topics.delete("Trade")
        node.topics.ensure("Trade", 1)
        producer.refresh_topics()
        sent = producer.send("Trade", b"newer")
        assert (sent.queue_id, sent.queue_offset) == (0, 0)
        found = node.messages.at("Trade", 0, 0)
    assert found
    assert found.body == b"newer"


def test_a_message_that_is_refused_leaves_nothing_that_has_to_go(node: LocalNode) -> None:
    """Its batch is empty then; to look at it again and again would keep a core busy."""
    with node.producer() as producer:
        producer.send("Trade", b"x")
        with pytest.raises(InvalidMessageError):
            producer.send_async("Trade", b"x", tags="a || b")
        (link,) = producer.links.opened()
        assert link.collecting is not None
        assert producer._batcher.hand_over_lingering(link)


def test_a_topic_may_be_made_again_with_more_queues_while_a_message_is_sent(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    with node.producer() as producer:
        producer.send("Trade", b"x")
        choose = producer.links.choose_queue

        def choose_queue(topic: str, queue_id: int | None, sharding_key: str | None) -> int:
            monkeypatch.undo()
            node.topics.delete("Trade")
            node.topics.ensure("Trade", 4)
            producer.refresh_topics()
            return choose(topic, queue_id, sharding_key)

        monkeypatch.setattr(producer.links, "choose_queue", choose_queue)
        assert producer.send("Trade", b"y", queue_id=3).queue_offset == 0
