"""One Ray that a program keeps, and the nodes that it starts there: one after another, never two."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from rocketray.actors.client.standalone import Client
from rocketray.actors.cluster.node import Node
from rocketray.actors.cluster.node_options import NodeOptions
from rocketray.actors.ray_process.ray_runtime import RayError, namespace_of, ray
from rocketray.cluster import DEFAULT_CLUSTER
from rocketray.errors import ActorError, NodeNotRunningError

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

ONE_PROCESS = NodeOptions(queues_per_process="shared")
SECOND = NodeOptions(queues_per_process="shared", cluster="second")


@pytest.fixture(scope="module", autouse=True)
def _own_ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Without a token, in a process that had a node whose Ray asked for one."""
    Node(tmp_path_factory.mktemp("before") / "data").stop()
    with mock.patch.dict(os.environ):  # Ray sets RAY_AUTH_MODE for good
        ray.init(address="local", num_cpus=1, include_dashboard=False, logging_level=logging.ERROR)
        yield
        ray.shutdown()


def actors() -> list[str]:
    found = ray.util.list_named_actors(all_namespaces=True)
    return sorted(
        each["name"] for each in found if each["namespace"] == namespace_of(DEFAULT_CLUSTER)
    )


def send_one(node: Node) -> int:
    """How many messages there are, with the one that was sent now."""
    with node.connection() as connection, connection.producer() as producer:
        connection.topics.ensure("Trade", 1)
        producer.send("Trade", b"one")
        return len(connection.messages.query_by_time("Trade", 0, 2**62))


def test_what_a_killed_node_left_is_ended_by_the_next_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    killed = Node(data, ONE_PROCESS)
    assert send_one(killed) == 1
    killed._stopped.set()  # as by SIGKILL: nothing is stopped, and the kernel gives the lock back
    killed._let_go_of_memory()
    killed._let_go_of_directory()
    with Node(data, SECOND) as node:  # also when it has another name now
        assert send_one(node) == 2
    assert f"ending actors that an earlier node on {data} left on this Ray: " in caplog.text


def test_a_node_that_is_refused_or_fails_harms_no_other_and_starts_later(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Node(tmp_path / "first", ONE_PROCESS) as first:
        assert send_one(first) == 1
        with pytest.raises(ActorError) as caught:
            Node(data)
        told = str(caught.value)
        assert told.startswith(
            f"cluster 'default' on this Ray is the node on {tmp_path / 'first'} of "
        )
        assert "to join it with this directory as a further disk, give its name" in told
        assert len(told.splitlines()) == 1
        assert send_one(first) == 2
    assert actors() == []
    with pytest.raises(
        RayError, match="no_such_size"
    ):  # told by the coordinator that did not start
        Node(data, NodeOptions(shard_sizes=(("no_such_size", 1),)))
    assert actors() == []
    with Node(data, ONE_PROCESS) as node, Node(tmp_path / "first", SECOND) as second:
        assert send_one(node) == 1
        assert send_one(second) == 3, "each cluster has its own topics"
        with Client(cluster="second") as client:
            assert client.data == second.data
        with pytest.raises(NodeNotRunningError, match="there is 'default', 'second'; start it"):
            Client(cluster="third")
