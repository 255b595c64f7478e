"""Staged batches of a real node, whose gateway and shards are killed while it stores them."""

from __future__ import annotations

import os
import signal
import uuid
from functools import partial

import pyarrow as pa
import pytest
import ray
from support.harness.patience import wait_until, wait_until_answered
from support.nodes.staging import stored_bodies

from rocketray.actors.client.actor_names import find_actor
from rocketray.actors.client.connection import Connection
from rocketray.actors.cluster.node import Node
from rocketray.base.cluster import DEFAULT_CLUSTER
from rocketray.errors import ShardUnavailableError
from rocketray.runtime.calls.endpoint import (
    COORDINATOR_NAME,
    GATEWAY_NAME,
    SPARE_GATEWAY_NAME,
    process_actor,
)
from rocketray.runtime.clock import system_clock_ms
from rocketray.runtime.files.fragment_file import BatchName, Fragment
from rocketray.runtime.files.paths import staged_directory
from rocketray.services.staging.message_rows import MessageRows
from rocketray.services.staging.staging_api import StagedBatch
from rocketray.services.staging.staging_client import StagingClient

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

ROWS, BATCH_ROWS = 20_000, 2_000


def stage(client: StagingClient, topic: str, batch: BatchName) -> Fragment:
    """Stage ROWS rows, numbered, as one task."""
    fragment = client.new_fragment(batch)
    rows = MessageRows(client.queues_of, topic, clock_ms=system_clock_ms)
    for first in range(0, ROWS, BATCH_ROWS):
        bodies = [f"{batch.number}-{row}" for row in range(first, first + BATCH_ROWS)]
        for frame in rows.frames(pa.RecordBatch.from_pydict({"body": bodies})):
            fragment.add(frame.topic, frame.queue_id, frame.content, frame.messages)
    return fragment.finish()


def kill(name: str) -> None:
    os.kill(ray.get(find_actor(DEFAULT_CLUSTER, name).pid.remote()), signal.SIGKILL)


def problem_of(client: StagingClient, batch: BatchName) -> str:
    return next(work.problem for work in client.calls.overview(100).work if work.batch == batch)


@pytest.mark.proves(
    "spark",
    "A driver, a worker, a gateway, a shard or a group's member that is killed: each row is once "
    "in the topic and in the table that is made of it; the same kills repeat rows without "
    "ledgers. All of it in `make test-slow`, also an app's hosts, the coordinator, the filter "
    "actor and the whole node",
)
def test_batches_are_stored_once_though_gateways_and_shards_are_killed(
    node: Node, connection: Connection
) -> None:
    topic = f"Staged{uuid.uuid4().hex[:8]}"
    config = connection.topics.create(topic, 2, queues_per_process=1)
    place = connection.ranges.look([]).place
    client, writer = StagingClient(place), uuid.uuid4().hex
    shards = [process_actor(config.process_of(queue)) for queue in range(2)]
    plan: tuple[list[str], ...] = ([], [shards[1]], [GATEWAY_NAME], [shards[0], GATEWAY_NAME])
    for number, victims in enumerate(plan):
        name = BatchName(writer, number)
        batch = StagedBatch(name, "run", (stage(client, topic, name),))
        assert client.calls.decide(batch) == "decided"
        for victim in victims:
            kill(victim)
        applied = partial(client.wait_applied, name, 60)
        assert wait_until_answered(applied, ShardUnavailableError)
        assert client.calls.decide(batch) == "repeated"
    found = stored_bodies(connection, topic)
    assert found == {f"{number}-{row}": 1 for number in range(4) for row in range(ROWS)}
    assert not [path for path in staged_directory(node.data).iterdir() if writer in path.name]


@pytest.mark.proves(
    "spark",
    "A driver, a worker, a gateway, a shard or a group's member that is killed: each row is once "
    "in the topic and in the table that is made of it; the same kills repeat rows without "
    "ledgers. All of it in `make test-slow`, also an app's hosts, the coordinator, the filter "
    "actor and the whole node",
)
@pytest.mark.proves("spark", "`rocketray staged`, and problems in `rocketray status`")
def test_a_batch_that_was_decided_before_both_gateways_ended_is_stored(
    node: Node, connection: Connection
) -> None:
    """The coordinator starts a gateway for what is staged, which stores it without being called."""
    topic = f"Staged{uuid.uuid4().hex[:8]}"
    connection.topics.create(topic, 1)
    place = connection.ranges.look([]).place
    client, name = StagingClient(place), BatchName(uuid.uuid4().hex, 0)
    connection.topics.set_permission(topic, 4)
    client.calls.decide(StagedBatch(name, "run", (stage(client, topic, name),)))
    wait_until(lambda: "has no write permission" in problem_of(client, name))
    assert not client.calls.is_applied(name)
    wait_until(
        lambda: any(f"writer {name.writer} is decided" in line for line in connection.problems())
    )
    for gateway in (SPARE_GATEWAY_NAME, GATEWAY_NAME):
        ray.kill(find_actor(DEFAULT_CLUSTER, gateway))  # Ray does not start it again
    connection.topics.set_permission(topic, 6)
    kill(COORDINATOR_NAME)  # which looks when it starts
    wait_until(lambda: not [*staged_directory(node.data).glob(f"{name.writer}.*")])
    assert sum(stored_bodies(connection, topic).values()) == ROWS
    wait_until(lambda: not any(name.writer in line for line in connection.problems()))
