"""Topics of a real node: they are made, changed and deleted, also while their shards die."""

from __future__ import annotations

import logging
import os
import signal
from dataclasses import replace

import pytest
import ray
from support.harness.patience import patience

from rocketray.actors.client.connection import Connection
from rocketray.actors.client.ray_transport import WAITING_GROUP
from rocketray.actors.cluster.coordinator_actor import COORDINATOR_THREADS
from rocketray.actors.cluster.node import Node
from rocketray.base.cluster import DEFAULT_CLUSTER
from rocketray.client import Client
from rocketray.errors import StreamError, TopicNotFoundError
from rocketray.filters.subscription import Subscription
from rocketray.groups.heartbeat import Heartbeat
from rocketray.runtime.calls.endpoint import COORDINATOR_NAME, process_actor
from rocketray.runtime.files.paths import producer_rings_directory, shard_directory
from rocketray.runtime.ray_process.ray_runtime import namespace_of
from rocketray.store.retention import RetentionPolicy

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


def test_topics_change_and_go(connection: Connection) -> None:
    connection.topics.ensure("Short", 1)
    assert connection.topics.alter("Short", 2).queues == 2
    with connection.producer() as producer:
        producer.send("Short", b"x", queue_id=1)
        connection.topics.set_permission("Short", 4)
        with pytest.raises(StreamError, match="has no write permission"):
            producer.send("Short", b"x")
    connection.topics.delete("Short")
    assert "Short" not in connection.topics.all()
    with pytest.raises(TopicNotFoundError), connection.producer() as producer:
        producer.send("Short", b"x")


@pytest.mark.proves("filters", "A program is warned once of a filter that is probably a mistake")
def test_a_program_is_warned_once_of_a_filter_that_looks_like_a_slip(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    with Client(node.data) as client:
        client.topics.ensure("Slips", 1)
        with client.producer() as producer:
            producer.send("Slips", b"x", tags="pay", properties={"amount": "120"})
        for tags in ("pay|ship", "pay|ship", "pay || ship"):
            client.consumer("audit", "Slips", Subscription.tags(tags)).close()
        client.consumer("audit", "Slips", Subscription.sql("amont > 100")).close()
    told = [record for record in caplog.records if record.levelno == logging.WARNING]
    slip, typo = [one.getMessage() for one in told if "Slips" in one.getMessage()]
    assert slip.startswith("group audit: topic Slips, tags 'pay|ship': ")
    assert slip.endswith("write pay || ship")
    assert typo.endswith("amont is in none of 1 recent message; did you mean amount?")


def test_a_topic_keeps_what_it_is_told_to(connection: Connection) -> None:
    connection.topics.ensure("Brief", 1, retention=RetentionPolicy(max_bytes=1))
    with connection.producer() as producer:
        first = producer.send("Brief", b"0", keys=["first"])
        for number in range(1, 200):
            producer.send("Brief", b"%d" % number + b"." * 100_000)
    coordinator = ray.get_actor(COORDINATOR_NAME, namespace=namespace_of(DEFAULT_CLUSTER))
    ray.get(coordinator.expire.remote())
    [shard] = connection.shard_statistics("Brief")
    assert 100 < shard.min_queue_offset < shard.max_queue_offset == 200
    assert connection.messages.view(first.offset_message_id) is None
    assert connection.messages.query("Brief", "first") == []
    with connection.consumer("late", "Brief", Subscription.tags("*")) as member:
        assert member.poll(30.0)[0].queue_offsets[0] == shard.min_queue_offset


def test_a_topic_goes_whole_though_its_shard_was_killed_a_moment_ago(
    node: Node, connection: Connection
) -> None:
    connection.topics.create("Doomed", 2, queues_per_process=2)
    with connection.producer() as producer:
        producer.send("Doomed", b"gone", queue_id=0)
        shard = ray.get_actor(process_actor("Doomed:0"), namespace=namespace_of(DEFAULT_CLUSTER))
        os.kill(ray.get(shard.pid.remote()), signal.SIGKILL)
        connection.topics.delete("Doomed")
        assert not shard_directory(node.data, "Doomed", 0).parent.exists()
        assert not producer_rings_directory(node.data, "Doomed", 0).parent.exists()
    connection.topics.ensure("Doomed", 1)
    assert connection.shard_statistics("Doomed")[0].max_queue_offset == 0
    connection.topics.delete("Doomed")


def test_topics_that_are_slow_to_start_keep_no_heartbeat_waiting(connection: Connection) -> None:
    """As many calls as the coordinator has threads wait for shards that do not answer."""
    topics = [
        connection.topics.create(f"Slow{number}", 1, queues_per_process=1) for number in range(2)
    ]
    shards = [
        ray.get_actor(process_actor(topic.process_of(0)), namespace=namespace_of(DEFAULT_CLUSTER))
        for topic in topics
    ]
    pids = ray.get([shard.pid.remote() for shard in shards])
    coordinator = ray.get_actor(COORDINATOR_NAME, namespace=namespace_of(DEFAULT_CLUSTER))
    start = coordinator.call.options(concurrency_group=next(iter(WAITING_GROUP)))
    beat = Heartbeat("g", "Slow0", Subscription.tags("*"), "member", "instance", frozenset())
    connection.sessions.heartbeat(beat)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        starting = [
            start.remote(
                "TopicsApi", (), "start_queues", topic.name, topic.topic_id, range(1), patience(60)
            )
            for topic in topics * (COORDINATOR_THREADS // len(topics))
        ]
        connection.sessions.heartbeat(replace(beat, number=1))
        assert ray.wait(starting, num_returns=1, timeout=0)[0] == [], "it was heard after a start"
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    ray.get(starting)
