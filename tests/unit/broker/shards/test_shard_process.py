"""A process of many shards behind one doorbell: each fails alone, and outlives the process."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest
from support.harness.patience import patience
from support.harness.source_tree import ROOT
from support.nodes.local_node import LocalNode

from rocketray.base.ack_mode import Durability
from rocketray.base.system_topics import HALF_TOPIC, OP_TOPIC
from rocketray.broker.shards.compaction import Compaction
from rocketray.broker.shards.owned_shard import OwnedShard
from rocketray.broker.shards.shard_api import ExpiryOrder
from rocketray.broker.shards.shard_process import ShardProcess, remove_old_files
from rocketray.broker.shards.shard_writer import ShardWriter
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.broker.topics.process_names import SHARED_PROCESS
from rocketray.errors import ShardUnavailableError, StoreError, TopicNotFoundError
from rocketray.filters.subscription import Subscription
from rocketray.message import ForwardedMessage, Message
from rocketray.runtime.files.paths import producer_rings_directory, shard_directory
from rocketray.runtime.ipc.acknowledgement import AppendStatus
from rocketray.runtime.ipc.ring import ProducerRing
from rocketray.runtime.processes import owned_name
from rocketray.services.system.system_log import SystemLog
from rocketray.store.batches.encoded_batch import pack_batch
from rocketray.store.batches.forward import encode_forwarded
from rocketray.store.retention import RetentionPolicy

SUPPORT = ROOT / "tests/support"
LATER_S = 1e12


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path / "data") as node:
        yield node


def test_a_topic_of_the_shared_process_is_written_filtered_read_and_asked_as_any_other(
    node: LocalNode,
) -> None:
    node.topics.ensure("Log", 2, internal=True)
    with node.producer() as producer:
        results = [
            producer.send("Log", b"%d" % n, tags="ab"[n % 2], keys=[f"k{n}"], queue_id=n // 4)
            for n in range(8)
        ]
    with node.consumer("group", "Log", Subscription.tags("a")) as member:
        bodies: set[bytes] = set()
        while len(bodies) < 4:
            for batch in member.poll(10.0):
                bodies |= {*batch.bodies()}
    assert bodies == {b"0", b"2", b"4", b"6"}
    assert [found.body for found in node.messages.query("Log", "k5")] == [b"5"]
    found = node.messages.view(results[3].offset_message_id)
    assert found is not None
    assert (found.body, node.messages.facts(found).is_dispatched) == (b"3", True)
    assert [one.messages for one in node.shard_statistics("Log")] == [4, 4]


def test_old_files_of_a_shared_topic_go(node: LocalNode) -> None:
    node.topics.ensure("%DLQ%g", 1, retention=RetentionPolicy(max_bytes=100_000))
    with node.producer() as producer:
        for _ in range(4):
            producer.send_many("%DLQ%g", [Message("%DLQ%g", bytes(1000))] * 900)
    assert node.expire()
    assert node.shard_statistics("%DLQ%g")[0].min_queue_offset > 0


def test_a_batch_that_is_too_large_for_a_ring_goes_by_call(node: LocalNode) -> None:
    node.topics.ensure("%DLQ%g", 1)
    node.calls.shares_memory = False
    with node.producer() as producer:
        assert producer.send("%DLQ%g", bytes(500_000)).queue_offset == 0


def test_all_shards_are_open_before_the_process_answers(data: Path) -> None:
    with LocalNode(data) as node:
        node.topics.ensure("%RETRY%g", 1)
        with node.producer() as producer:
            producer.send("%RETRY%g", b"kept")
    process = ShardProcess(data, SHARED_PROCESS, {}, clock_ms=lambda: 0)
    [epoch] = {process.shard("%RETRY%g", 0).statistics().epoch}
    assert epoch == 2
    process.remove("%RETRY%g")
    TopicCatalog().save(data)
    with pytest.raises(TopicNotFoundError):
        process.shard("%RETRY%g", 0)
    process.close()


def test_a_shard_that_cannot_be_opened_does_not_keep_the_others_closed(data: Path) -> None:
    with LocalNode(data) as node:
        node.topics.ensure("%RETRY%a", 1)
        node.topics.ensure("%RETRY%b", 1)
    other = ShardProcess(data, SHARED_PROCESS, {}, clock_ms=lambda: 0)
    other.remove("%RETRY%b")
    process = ShardProcess(data, SHARED_PROCESS, {}, clock_ms=lambda: 0)
    assert process.shard("%RETRY%b", 0).statistics().max_queue_offset == 0
    with pytest.raises(StoreError, match="is open for writing by process"):
        process.shard("%RETRY%a", 0)
    process.close()
    other.close()


def test_a_shard_that_cannot_remove_old_files_keeps_no_other_from_it(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = (catalog := TopicCatalog().with_topic("%RETRY%a", 3)).get("%RETRY%a")
    catalog.save(data)
    process = ShardProcess(data, SHARED_PROCESS, {}, clock_ms=lambda: 0)
    orders = [ExpiryOrder(topic, queue_id, RetentionPolicy(), None) for queue_id in range(3)]
    done: list[int] = []

    def expire(shard: OwnedShard, *_: object) -> None:
        if shard.place[1] == 1:
            raise ValueError("odd")
        done.append(shard.place[1])

    monkeypatch.setattr(OwnedShard, "expire", expire)
    assert remove_old_files(process, orders) == {"%RETRY%a/1": "odd"}
    assert done == [0, 2]
    process.close()


def test_several_shards_are_opened_and_closed_at_once(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = TopicCatalog().with_topic("%RETRY%a", 9)
    catalog.save(data)
    (damaged := shard_directory(data, "%RETRY%a", 4)).mkdir(parents=True)
    (damaged / "store.json").write_text("{half")
    together, close = threading.Barrier(4), OwnedShard.close

    def close_together(shard: OwnedShard) -> None:
        together.wait(patience(10))
        close(shard)
        if shard.place[1] == 7:
            raise StoreError("the disk failed")

    monkeypatch.setattr(OwnedShard, "close", close_together)
    process = ShardProcess(data, SHARED_PROCESS, {}, clock_ms=lambda: 0, at_once=4)
    assert [*process.closed()] == ["%RETRY%a/4"]
    assert process.queues_of("%RETRY%a") == [*range(9)]
    again = process.open([(catalog.get("%RETRY%a"), range(9))])
    assert (again.new, [*again.closed]) == ((), ["%RETRY%a/4"])
    with pytest.raises(StoreError, match="the disk failed"):
        process.close()
    damaged.joinpath("store.json").unlink()
    monkeypatch.setattr(OwnedShard, "close", close)
    process = ShardProcess(data, SHARED_PROCESS, {}, clock_ms=lambda: 0, at_once=4)
    assert process.closed() == {}, "all are free again"
    process.close()


def test_a_process_that_ended_opens_no_shard_for_a_late_call(data: Path) -> None:
    with LocalNode(data) as node:
        topic = node.topics.ensure("%RETRY%a", 1)
    ended = ShardProcess(data, SHARED_PROCESS, {}, clock_ms=lambda: 0)
    ended.close()
    with pytest.raises(ShardUnavailableError, match="its process ends"):
        ended.shard("%RETRY%a", 0)
    assert "its process ends" in str(ended.open([(topic, [0])]).closed["%RETRY%a/0"])
    process = ShardProcess(data, SHARED_PROCESS, {}, clock_ms=lambda: 0)
    assert process.closed() == {}
    process.close()


def test_who_asks_for_a_shard_whose_directory_cannot_be_made_is_told_in_our_words(
    data: Path,
) -> None:
    TopicCatalog().with_topic("%RETRY%a", 1).save(data)
    in_the_way = shard_directory(data, "%RETRY%a", 0)
    in_the_way.parent.mkdir(parents=True)
    in_the_way.touch()
    process = ShardProcess(data, SHARED_PROCESS, {}, clock_ms=lambda: 0)
    with pytest.raises(StoreError, match=r"queue %RETRY%a/0 stays closed: .*Not a directory"):
        process.shard("%RETRY%a", 0)
    in_the_way.unlink()
    assert process.shard("%RETRY%a", 0).statistics().max_queue_offset == 0
    process.close()


def test_a_shard_that_fails_unexpectedly_closes_no_other(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = TopicCatalog().with_topic("%RETRY%a", 1).with_topic("%RETRY%b", 1)
    topics.save(data)

    def fail(writer: ShardWriter, topic: str, queue_id: int) -> Compaction:
        if topic == "%RETRY%a":
            raise ValueError("odd")
        return Compaction(writer, topic, queue_id)

    with monkeypatch.context() as patch:
        patch.setattr("rocketray.broker.shards.owned_shard.Compaction", fail)
        process = ShardProcess(data, SHARED_PROCESS, {}, clock_ms=lambda: 0)
        assert process.find("%RETRY%b", 0) is not None
        with pytest.raises(StoreError, match=r"queue %RETRY%a/0 stays closed: ValueError\('odd'\)"):
            process.shard("%RETRY%a", 0)
        process.open_closed(LATER_S)
        assert [*process.closed()] == ["%RETRY%a/0"]
    process.open_closed(LATER_S)
    assert not process.closed()
    assert process.find("%RETRY%a", 0) is not None
    process.close()


def test_a_shard_that_was_closed_opens_when_what_kept_it_closed_is_over(data: Path) -> None:
    TopicCatalog().with_topic("%RETRY%a", 1).save(data)
    other = ShardProcess(data, SHARED_PROCESS, {}, clock_ms=lambda: 0)
    process = ShardProcess(data, SHARED_PROCESS, {}, clock_ms=lambda: 0)
    ring = ProducerRing(producer_rings_directory(data, "%RETRY%a", 0) / owned_name("r"))
    other.close()
    message = ForwardedMessage("%RETRY%a", b"", {}, 0, ("127.0.0.1", 0))
    ring.try_write(pack_batch(encode_forwarded([message])), Durability.MEMORY)
    ring.publish()
    assert process.find("%RETRY%a", 0) is None
    process.open_closed()
    assert process.find("%RETRY%a", 0) is None, "it is tried again after a pause"
    process.open_closed(LATER_S)
    assert process.find("%RETRY%a", 0) is not None
    assert ring.acknowledged() == 1
    process.close()


def test_a_killed_process_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    data = tmp_path / "data"
    command = [sys.executable, str(SUPPORT / "programs/host_process.py"), str(data)]
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT.parent)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as helper:
        assert helper.stdout is not None
        acknowledged = [int(helper.stdout.readline()) for _ in range(300)]
        helper.kill()
        acknowledged += map(int, helper.stdout.read().split(b"\n")[:-1])
    with LocalNode(data) as node:
        for topic in ("%RETRY%g", "%DLQ%g"):
            end = node.shard_statistics(topic)[0].max_queue_offset
            found = [node.messages.at(topic, 0, offset) for offset in range(end)]
            bodies = [int(one.body) for one in found if one is not None]
            assert bodies == list(range(len(bodies)))
            assert len(bodies) >= len(acknowledged)


def test_a_shard_at_rest_is_not_flushed(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    TopicCatalog().with_topic("%RETRY%g", 1).save(data)
    process = ShardProcess(data, SHARED_PROCESS, {}, clock_ms=lambda: 0)
    flushed: list[int] = []
    with monkeypatch.context() as patch:
        writer = process.shard("%RETRY%g", 0).writer
        patch.setattr(writer, "flush", lambda **_: flushed.append(1))
        process.flush()
        assert not flushed, "nothing was stored yet"
        message = ForwardedMessage("%RETRY%g", b"", {}, 0, ("127.0.0.1", 0))
        process.shard("%RETRY%g", 0).append(pack_batch(encode_forwarded([message])), 0)
        flushed.clear()
        process.flush()
        assert flushed
    process.close()


def message_to(topic: str) -> bytes:
    return pack_batch(encode_forwarded([ForwardedMessage(topic, b"", {}, 0, ("127.0.0.1", 0))]))


def fail(*_: object, **__: object) -> NoReturn:
    raise OSError(errno.EIO, "the disk failed")


def test_a_shard_whose_store_failed_while_nothing_came_is_closed_and_opened_again(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TopicCatalog().with_topic("%RETRY%g", 1).save(data)
    process = ShardProcess(data, SHARED_PROCESS, {}, clock_ms=lambda: 0)
    for _ in range(20):
        process.flush()
    with monkeypatch.context() as patch:
        patch.setattr(process.shard("%RETRY%g", 0).writer.store._log, "reserve", fail)
        ack = process.shard("%RETRY%g", 0).append(message_to("%RETRY%g"), Durability.MEMORY)
    assert ack.status is AppendStatus.FAILED
    process.flush()
    assert "the disk failed" in process.closed()["%RETRY%g/0"]
    process.open_closed(LATER_S)
    ack = process.shard("%RETRY%g", 0).append(message_to("%RETRY%g"), Durability.MEMORY)
    assert ack.status is AppendStatus.OK
    process.close()


def test_a_shard_that_fails_while_its_topic_is_removed_does_not_close_its_successor(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = TopicCatalog().with_topic("%RETRY%g", 2)
    catalog.save(data)
    process = ShardProcess(data, SHARED_PROCESS, {}, clock_ms=lambda: 0)
    failing = process.shard("%RETRY%g", 0)
    abandon = failing.abandon

    def recreate() -> None:
        abandon()
        process.remove("%RETRY%g")
        process.open([(catalog.get("%RETRY%g"), range(2))])

    failing.append(message_to("%RETRY%g"), Durability.MEMORY)
    monkeypatch.setattr(failing, "abandon", recreate)
    monkeypatch.setattr(failing.writer.store, "flush", fail)
    process.flush()
    assert not process.closed()
    successor = process.find("%RETRY%g", 0)
    assert successor is not None
    assert successor is not failing
    process.close()


def test_a_system_topic_whose_shard_is_closed_is_not_taken_for_an_empty_one(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TopicCatalog().with_topic(OP_TOPIC, 1).save(data)
    process = ShardProcess(data, SHARED_PROCESS, {}, clock_ms=lambda: 0)
    log = SystemLog(process, lambda: 0)
    process.shard(OP_TOPIC, 0).append(message_to(OP_TOPIC), Durability.MEMORY)
    assert len(log.read(OP_TOPIC, 0, 9)) == 1
    assert log.read(HALF_TOPIC, 0, 9) == []
    monkeypatch.setattr(process.shard(OP_TOPIC, 0).writer.store, "flush", fail)
    process.flush()
    assert not log.exists(OP_TOPIC)
    reading = partial(log.read, OP_TOPIC, 0, 9), partial(log.find, OP_TOPIC, "k", 9)
    for use in (*reading, partial(log.flush, OP_TOPIC)):
        with pytest.raises(ShardUnavailableError, match="the disk failed"):
            use()
    process.open_closed(LATER_S)
    assert len(log.read(OP_TOPIC, 0, 9)) == 1
    process.close()


def test_the_shared_process_calls_its_services_when_messages_came(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.topics.ensure("%RETRY%g", 1)
    called = threading.Event()
    monkeypatch.setattr(node.services.schedule, "step", lambda _now_ms: called.set())
    with node.producer() as producer:
        producer.send("%RETRY%g", b"")
    assert called.wait(patience(30))
