"""RocketMQ writes, we read: beside the running broker, after its crash, after its clean stop.

The broker goes on in a directory that we began; at the end we write to it again.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.nodes.local_node import LocalNode
from support.rocketmq.interop import (
    LONG_TOPIC,
    Queues,
    RocketMQ,
    read_directory,
    read_matching,
    small_files,
    write_store,
)
from support.rocketmq.rocketmq_client import RocketMQClient, Seen, seen

from rocketray.base.config import StoreConfig
from rocketray.filters.subscription import Subscription
from rocketray.hashing import tags_code
from rocketray.message import Message
from rocketray.runtime.clock import system_clock_ms
from rocketray.services.admin.importer import Importer
from rocketray.store.importing.import_source import ImportSource
from rocketray.store.message_store import MessageStore

pytestmark = pytest.mark.timeout(300)
TAGS = (None, "Aa", "BB", "größe")
COMPRESSIBLE = b"0123456789abcdef" * 500  # RocketMQ's client deflates from 4 KiB on
WITH_EXTENSION = {"enableConsumeQueueExt": "true", "enableCalcFilterBitMap": "true"}
OWN = {("Trade", 0), ("Trade", 1), ("Trade", 2), ("Refund", 0), (LONG_TOPIC, 0)}


@dataclass(frozen=True, slots=True)
class Scene:
    """What the client saw and where the directory's state of that moment lies."""

    config: StoreConfig
    before: Queues  # what we wrote
    served: Queues  # what the running broker served
    beside: Queues  # what we read at that moment
    killed: Path  # the directory after kill -9
    stopped: Path  # the directory after a restart, more messages, and a clean stop
    served_at_last: Queues
    keys: dict[tuple[str, str], list[Seen]]  # what the broker found by some keys


def send_all_kinds(client: RocketMQClient, name: str) -> None:
    """Single messages, batches, deflated and large bodies, a delayed one."""
    producer = client.producer
    for number in range(60):
        body = f"{name} {number}".encode()
        properties = {"kind": "single", "number": str(number)}
        tag = TAGS[number % len(TAGS)]
        producer.send(client.message("Trade", body, tag, f"{name}-{number} all", properties))
    for first in range(0, 60, 20):
        batch = client.new_list()
        for number in range(first, first + 20):
            properties = {"kind": "batch", "number": str(number)}
            tag = TAGS[number % len(TAGS)]
            batch.add(client.message("Refund", b"in a batch", tag, f"{name}-b{number}", properties))
        producer.send(batch)
    producer.send(client.message("Refund", COMPRESSIBLE, "deflated"))
    producer.send(client.message("Refund", random.Random(1).randbytes(20_000), "large"))
    delayed = client.message("Refund", b"a second later", "delayed", f"{name}-delayed")
    delayed.setDelayTimeLevel(1)
    producer.send(delayed)


def served_by(client: RocketMQClient, queues: Queues) -> Queues:
    return {queue: client.pull(*queue) for queue in queues}


@pytest.fixture(scope="module")
def scene(rocketmq: RocketMQ) -> Iterator[Scene]:
    directory, config = rocketmq.work / "theirs", small_files()
    write_store(directory, config)
    before = read_directory(directory, config)
    with rocketmq.client("writes") as client:
        with rocketmq.broker("writes", directory, config, **WITH_EXTENSION) as broker:
            for topic in ("Trade", "Refund", LONG_TOPIC):
                client.wait_for(topic)
            send_all_kinds(client, "first")
            client.wait_for_message("Refund", "first-delayed")
            beside = read_directory(directory, config)
            served = served_by(client, beside)
            broker.kill()
        killed = Path(shutil.copytree(directory, rocketmq.work / "killed"))
        with rocketmq.broker("writes", directory, config, **WITH_EXTENSION) as broker:
            client.wait_for("Trade")
            send_all_kinds(client, "second")
            client.wait_for_message("Refund", "second-delayed")
            at_last = served_by(client, beside)
            keys = {
                (topic, key): client.query(topic, key)
                for topic, key in (
                    ("Trade", "first-7"),
                    ("Trade", "second-7"),
                    ("Trade", "key-22"),
                    ("Refund", "first-b7"),
                    ("Refund", "second-delayed"),
                )
            }
            broker.stop()
        yield Scene(config, before, served, beside, killed, directory, at_last, keys)


def test_what_lies_there_is_read_beside_the_running_broker(scene: Scene) -> None:
    assert scene.beside.keys() >= OWN
    assert ("SCHEDULE_TOPIC_XXXX", 0) in scene.beside
    assert scene.beside == scene.served
    for queue, messages in scene.before.items():
        assert scene.beside[queue][: len(messages)] == messages


def test_tags_codes_are_found_in_the_queue_extensions_that_the_broker_began(scene: Scene) -> None:
    with MessageStore(
        scene.stopped, scene.config, read_only=True, clock_ms=system_clock_ms
    ) as store:
        for topic, queue_id in OWN - {(LONG_TOPIC, 0)}:
            extension = scene.stopped / "consumequeue_ext" / topic / str(queue_id)
            assert any(extension.iterdir())
            for message in scene.served_at_last[topic, queue_id]:
                entry = store.reads.queue_entry(topic, queue_id, message.queue_offset)
                assert entry.tags_code == tags_code(message.properties.get("TAGS"))


def test_deflated_and_large_bodies_come_out_as_they_went_in(scene: Scene) -> None:
    by_tag: dict[str, bytes] = {
        m.properties.get("TAGS", ""): m.body for m in scene.served["Refund", 0]
    }
    assert by_tag["deflated"] == COMPRESSIBLE
    assert by_tag["large"] == random.Random(1).randbytes(20_000)


def test_after_a_crash_of_the_broker_the_same_is_read(scene: Scene) -> None:
    assert (scene.killed / "abort").exists()
    assert read_directory(scene.killed, scene.config) == scene.served


def test_after_a_clean_stop_everything_is_read(scene: Scene) -> None:
    assert not (scene.stopped / "abort").exists()
    assert read_directory(scene.stopped, scene.config) == scene.served_at_last
    for queue, messages in scene.served.items():
        assert scene.served_at_last[queue][: len(messages)] == messages


@pytest.mark.parametrize("expression", ["Aa", "BB || größe", "deflated"])
def test_our_filters_choose_what_is_to_be_chosen(scene: Scene, expression: str) -> None:
    wanted = {tag.strip() for tag in expression.split("||")}
    for queue in OWN:
        found = read_matching(scene.stopped, scene.config, queue, Subscription.tags(expression))
        messages = scene.served_at_last[queue]
        assert found == [one for one in messages if one.properties.get("TAGS") in wanted]


def test_our_index_finds_what_the_broker_found(scene: Scene) -> None:
    with MessageStore(
        scene.stopped, scene.config, read_only=True, clock_ms=system_clock_ms
    ) as store:
        for (topic, key), theirs in scene.keys.items():
            assert [seen(message) for message in store.reads.query(topic, key)] == theirs
            assert len(theirs) >= 1


@pytest.mark.parametrize("state", ["killed", "stopped"])
def test_we_go_on_writing_where_the_broker_left_off(
    scene: Scene, state: str, tmp_path: Path
) -> None:
    directory = Path(shutil.copytree(getattr(scene, state), tmp_path / "copy"))
    expected = scene.served if state == "killed" else scene.served_at_last
    with MessageStore(directory, clock_ms=system_clock_ms) as store:
        report = store.recovery
        assert report is not None
        assert not report.was_clean, "it is not as we closed it"
        assert report.bytes_kept_aside == 0
        put = store.put([Message("Trade", b"ours again", keys=("again",))], 1)
        assert put[0].queue_offset == len(expected["Trade", 1])
        [found] = store.reads.query("Trade", "again")
        assert found.body == b"ours again"
        for (topic, key), theirs in scene.keys.items():
            if state == "stopped" or not key.startswith("second"):
                assert [seen(message) for message in store.reads.query(topic, key)] == theirs
    after = read_directory(directory, scene.config)
    assert after.pop(("Trade", 1))[:-1] == expected["Trade", 1]
    assert after == {queue: m for queue, m in expected.items() if queue != ("Trade", 1)}


@pytest.mark.parametrize("state", ["killed", "stopped"])
def test_what_the_broker_left_is_imported_into_a_node(
    scene: Scene, state: str, tmp_path: Path
) -> None:
    source = getattr(scene, state)
    expected = scene.served if state == "killed" else scene.served_at_last
    with (
        LocalNode(tmp_path) as node,
        ImportSource(source, scene.config, clock_ms=system_clock_ms) as opened,
    ):
        importer = Importer(opened, node)
        importer.prepare(None, {})
        report = importer.run()
        assert report.imported == sum(len(expected[queue]) for queue in OWN)
        assert report.read == report.imported + sum(report.skipped.values())
        assert set(report.skipped) == {"system topic"}
        topics = node.topics.all().values()
        assert {(topic.name, queue) for topic in topics for queue in range(topic.queues)} == OWN
        for queue in OWN:
            shard = node.shard(*queue)
            ours = [seen(message) for message in shard.writer.store.reads.scan()]
            assert [old.offset_id for old in expected[queue]] == [
                new.properties["IMPORTED_OFFSET_ID"] for new in ours
            ]
            for new, old in zip(ours, expected[queue], strict=True):
                kept = {name: new.properties[name] for name in old.properties}
                assert (kept, new.body, new.born_ms, new.born_host, new.store_ms, new.flag) == (
                    *(old.properties, old.body, old.born_ms, old.born_host, old.store_ms, old.flag),
                )
