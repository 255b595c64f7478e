"""We write, RocketMQ reads: a real broker over a directory of ours, and RocketMQ's own client.

The broker is told the sizes of our files, as an operator would, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from support.rocketmq.interop import (
    LONG_TOPIC,
    SQL,
    Queues,
    RocketMQ,
    packed_batch,
    read_directory,
    read_matching,
    small_files,
    write_store,
)
from support.rocketmq.rocketmq_client import RocketMQClient

from rocketray.base.ack_mode import Durability
from rocketray.base.config import StoreConfig
from rocketray.broker.shards.shard_writer import ShardWriter
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.filters.consumer_filter_data import decode_filters
from rocketray.filters.subscription import Subscription
from rocketray.groups.group_descriptions import LiveSubscription
from rocketray.runtime.clock import system_clock_ms
from rocketray.runtime.files.paths import filters_file

pytestmark = pytest.mark.timeout(300)
TAG_EXPRESSIONS = ("pay", "Aa", "BB || größe", "absent")


@dataclass(frozen=True, slots=True)
class Scene:
    """A broker's client, the directory, and what we wrote there before the broker started."""

    client: RocketMQClient
    directory: Path
    config: StoreConfig
    written: Queues


@pytest.fixture(scope="module")
def scene(rocketmq: RocketMQ) -> Iterator[Scene]:
    directory, config = rocketmq.work / "ours", small_files()
    write_store(directory, config)
    written = read_directory(directory, config)
    with (
        rocketmq.broker("reads", directory, config),
        rocketmq.client("reads") as client,
    ):
        for topic, _ in written:
            client.wait_for(topic)
        yield Scene(client, directory, config, written)


def test_every_message_of_every_queue_is_served(scene: Scene) -> None:
    assert sum(map(len, scene.written.values())) == 840
    assert (LONG_TOPIC, 0) in scene.written
    for queue, messages in scene.written.items():
        assert scene.client.offsets(*queue) == (0, len(messages))
        assert scene.client.pull(*queue) == messages


@pytest.mark.parametrize("expression", TAG_EXPRESSIONS)
def test_a_tag_consumer_gets_what_our_filter_gives(scene: Scene, expression: str) -> None:
    subscription = Subscription.tags(expression)
    for queue in scene.written:
        ours = read_matching(scene.directory, scene.config, queue, subscription)
        assert scene.client.pull(*queue, tags=expression) == ours
        assert bool(ours) == (expression != "absent")


def test_an_sql_consumer_gets_what_our_filter_gives(scene: Scene) -> None:
    found = 0
    for queue in scene.written:
        ours = read_matching(
            scene.directory, scene.config, queue, Subscription.sql(SQL, "rocketmq")
        )
        assert scene.client.pull(*queue, sql=SQL) == ours
        found += len(ours)
    assert 0 < found < 840


def test_the_broker_finds_by_key_by_unique_id_and_by_offset_id(scene: Scene) -> None:
    for messages in scene.written.values():
        for message in messages[::50]:
            topic, properties = message.topic, message.properties
            assert scene.client.view(topic, message.offset_id) == message
            assert scene.client.view(topic, properties["UNIQ_KEY"]) == message
            for key in properties.get("KEYS", "").split():
                expected = [
                    one
                    for queue, others in scene.written.items()
                    if queue[0] == topic
                    for one in others
                    if key in one.properties.get("KEYS", "").split()
                ]
                found = scene.client.query(topic, key)
                assert found
                assert all(one in expected for one in found)
                assert len(found) == min(len(expected), 64)


def test_the_broker_finds_by_time(scene: Scene) -> None:
    for queue, messages in scene.written.items():
        for message in messages[::40]:
            first = next(i for i, one in enumerate(messages) if one.store_ms == message.store_ms)
            assert scene.client.offset_by_time(*queue, message.store_ms) == first


def test_the_broker_kept_our_description_of_the_store(scene: Scene) -> None:
    settings = json.loads((scene.directory / "store.json").read_text())
    assert settings["commit_log_segment_bytes"] == scene.config.commit_log_segment_bytes


def test_a_shard_that_kept_filter_bitmaps_at_times_is_served(rocketmq: RocketMQ) -> None:
    """The broker reads units beside some of the entries, and our file of registered filters."""
    directory, config = rocketmq.work / "bitmaps", small_files()
    TopicCatalog().with_topic("Trade", 1).save(directory)
    writer = ShardWriter(directory, "Trade", 0, config, clock_ms=system_clock_ms)
    wanted = [LiveSubscription("CID_sql", "Trade", Subscription.sql(SQL, "rocketmq"), 1)]
    for order in (None, wanted, None, wanted):
        writer.keep_bitmaps(order)
        for first in range(0, 140, 7):
            writer.append(packed_batch("Trade", first), Durability.MEMORY)
    writer.close()
    filters = filters_file(directory).read_bytes()
    written = read_directory(directory, config := replace(config, consume_queue_ext=True))
    sizes = {"mappedFileSizeConsumeQueueExt": config.consume_queue_ext_segment_bytes}
    with (
        rocketmq.broker("bitmaps", directory, config, enableConsumeQueueExt="true", **sizes),
        rocketmq.client("bitmaps") as client,
    ):
        client.wait_for("Trade")
        assert client.pull("Trade", 0) == written["Trade", 0]
        for options in ({"sql": SQL}, {"tags": "pay || größe"}):
            subscription = (
                Subscription.sql(SQL, "rocketmq")
                if "sql" in options
                else Subscription.tags(options["tags"])
            )
            ours = read_matching(directory, config, ("Trade", 0), subscription)
            assert client.pull("Trade", 0, **options) == ours
            assert 0 < len(ours) < len(written["Trade", 0])
    kept = decode_filters(filters_file(directory).read_bytes())["Trade"]["CID_sql"]
    known = decode_filters(filters)["Trade"]["CID_sql"]
    assert replace(kept, dead_time_ms=0) == replace(known, dead_time_ms=0)
