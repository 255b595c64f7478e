"""One Ray that a program keeps, and the nodes that it starts there: one after another, never two."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from support.harness.patience import patience, wait_until
from support.nodes.another_ray import runs

from rocketray.actors.client.connection import Connection
from rocketray.actors.cluster import coordinator_silence, standby, superseded
from rocketray.actors.cluster import node as node_module
from rocketray.actors.cluster.coordinator_silence import CoordinatorSilence
from rocketray.actors.cluster.node import Node
from rocketray.actors.cluster.node_options import NodeOptions
from rocketray.actors.cluster.one_node import coordinator_id
from rocketray.actors.cluster.registered_documents import RegisterOfStart, take_over
from rocketray.base.cluster import DEFAULT_CLUSTER
from rocketray.client import Client
from rocketray.errors import (
    ActorError,
    ConfigError,
    NodeNotRunningError,
    RegisterUnavailableError,
    ShardUnavailableError,
)
from rocketray.filters.subscription import Subscription
from rocketray.hosting.host_status import APP_PREFIX, actor_name
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.runtime.calls.endpoint import COORDINATOR_NAME, disk_in
from rocketray.runtime.files.home import Home, settle_identity
from rocketray.runtime.ray_process.ray_runtime import (
    RayError,
    leave_ray,
    namespace_of,
    ray,
    start_ray,
)

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(240),
    pytest.mark.proves(
        "durability",
        "The hosts of an app stay the same processes, and continue, when the node of the "
        "first disk stops, is killed, starts again, or loses the coordinator to a standby and "
        "takes it back",
    ),
]

ONE_PROCESS = NodeOptions(queues_per_process="shared")
JOINING = NodeOptions(cluster=DEFAULT_CLUSTER, joins=True, ray_address="local")
SECOND = NodeOptions(queues_per_process="shared", cluster="second")
HOST = actor_name("trade", 0)


@pytest.fixture(scope="module", autouse=True)
def _own_ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Without a token, in a process that had a node whose Ray asked for one."""
    start_ray(1, tmp_path_factory.mktemp("before") / "token", "of the disk")
    leave_ray()
    with mock.patch.dict(os.environ):  # Ray sets RAY_AUTH_MODE for good
        ray.init(address="local", num_cpus=1, include_dashboard=False, logging_level=logging.ERROR)
        yield
        ray.shutdown()


@pytest.fixture(autouse=True)
def _ends_what_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test that failed leaves no node, and no actor, to the next one."""
    begun: list[Node] = []
    start = Node._start

    def noted_start(node: Node) -> None:
        start(node)
        begun.append(node)

    monkeypatch.setattr(Node, "_start", noted_start)
    yield
    for node in begun:
        with node._ending:
            if not node._stopped.is_set() and node.lost() is None:
                kill(node)
    wait_until(lambda: not [ray.kill(each) for each in named_actors()], lambda: "actors are left")


def kill(node: Node) -> None:
    """As by SIGKILL: nothing is stopped, and the kernel gives the lock back."""
    node._stopped.set()
    node._let_go_of_memory()
    node._let_go_of_directory()


def named_actors() -> list[Any]:
    """All of the Ray, whatever their cluster."""
    found = []
    for each in ray.util.list_named_actors(all_namespaces=True):
        with suppress(ValueError):  # it has ended in the meantime
            found.append(ray.get_actor(each["name"], namespace=each["namespace"]))
    return found


def actors() -> list[str]:
    """Those of nodes."""
    found = ray.util.list_named_actors(all_namespaces=True)
    namespace = namespace_of(DEFAULT_CLUSTER)
    return sorted(
        each["name"]
        for each in found
        if each["namespace"] == namespace and not each["name"].startswith(APP_PREFIX)
    )


def start_host() -> int:
    """An actor like those of `rocketray up`, with the name of a host; the id of its process."""

    class Host:
        def pid(self) -> int:
            return os.getpid()

    options = {"name": HOST, "namespace": namespace_of(DEFAULT_CLUSTER), "lifetime": "detached"}
    actor = ray.remote(Host).options(num_cpus=0, **options).remote()
    return int(ray.get(actor.pid.remote()))


def send_one(node: Node) -> int:
    """How many messages there are, with the one that was sent now."""
    with node.connection() as connection, connection.producer() as producer:
        connection.topics.ensure("Trade", 1)
        producer.send("Trade", b"one")
        return len(connection.messages.query_by_time("Trade", 0, 2**62))


def read_all(connection: Connection) -> None:
    """A member of a group comes to the end of its queue, and leaves."""
    member = connection.consumer("audit", "Trade", Subscription.tags("*"))
    wait_until(lambda: [*committed(member)] == [1], lambda: "the message did not come")
    member.close()


def committed(member: GroupConsumer) -> Iterator[int]:
    for batch in member.poll(100):
        member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)
        yield batch.next_queue_offset


def offsets(connection: Connection) -> dict[int, int]:
    (group,) = connection.groups.all()
    return group.offsets


def told_of(connection: Connection, begin: str) -> bool:
    """Whether a problem of the node begins like that."""
    return any(line.startswith(begin) for line in connection.problems())


@pytest.mark.proves(
    "durability",
    "A Ray that the node did not start is left alone, and left actors are ended by the next start",
)
@pytest.mark.slow
def test_what_a_killed_node_left_is_ended_by_the_next_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, data = tmp_path / "first", tmp_path / "data"
    with pytest.raises(
        RayError, match="no_such_size"
    ):  # told by the coordinator that did not start
        Node(data, NodeOptions(shard_sizes=(("no_such_size", 1),)))
    assert actors() == []
    killed = Node(first, ONE_PROCESS)
    assert send_one(killed) == 1
    with pytest.raises(ActorError) as caught:
        Node(data)
    told = str(caught.value)
    assert told.startswith(f"cluster 'default' on this Ray is the node on {first} of ")
    assert "to join it with this directory as a further disk, give its name" in told
    assert len(told.splitlines()) == 1
    assert send_one(killed) == 2
    host = start_host()
    kill(killed)
    with Node(first, SECOND) as second:  # also when it has another name now
        assert f"ending actors that an earlier node on {first} left on this Ray: " in caplog.text
        assert actors() == []
        with Node(data, ONE_PROCESS) as node:
            assert send_one(node) == 1
            assert send_one(second) == 3, "each cluster has its own topics"
            with Client(cluster="second") as client:
                assert client.data == second.data
            with pytest.raises(NodeNotRunningError, match="there is 'default', 'second'; start it"):
                Client(cluster="third")
        assert actors() == []
        assert send_one(second) == 4
    assert pid_of(HOST) == host, "a node ended the host of an app"


@pytest.mark.slow
def test_a_cluster_continues_on_an_empty_directory_with_its_register(
    tmp_path: Path, rng: Random
) -> None:
    """The first disk is lost; then a coordinator elsewhere takes over from the second one.

    That one finds out when it looks, or when Ray has started it again in another process.
    """
    (tmp_path / "register").mkdir()
    url = (tmp_path / "register").as_uri()
    options = NodeOptions(queues_per_process="shared", register=url)
    first, second = tmp_path / "first", tmp_path / "second"
    begin = replace(options, ack="disk")
    with Node(first, begin) as node, node.connection() as connection:
        assert send_one(node) == 1
        read_all(connection)
        assert offsets(connection) == {0: 1}
        joined = Node(tmp_path / "joined", JOINING)
        queues = connection.topics.ensure("Far", 2)
        far = queues.disks.index(settle_identity(tmp_path / "joined"))
    with pytest.raises(ConfigError, match=f"start it with --register {url}$"):
        Node(first, ONE_PROCESS)
    first.rename(tmp_path / "lost")
    node = Node(second, options)
    with node.connection() as connection:
        assert offsets(connection) == {0: 1}
        assert told_of(
            connection, f"queue Trade/0 stays closed: {second}/shards/Trade/0 is missing"
        )
        connection.topics.ensure("Audit", 1)
        with connection.producer() as producer:
            producer.send("Audit", b"after")
            producer.send("Far", b"to the joined disk", queue_id=far)
        assert {each.default_ack for each in connection.topics.all().values()} == {"disk"}
        (tmp_path / "register").rename(tmp_path / "away")
        with pytest.raises(RegisterUnavailableError, match=f"the register {url} is unavailable"):
            connection.topics.ensure("New", 1)
        wait_until(lambda: told_of(connection, "the register "), lambda: "no problem is noted")
        (tmp_path / "away").rename(tmp_path / "register")
        wait_until(lambda: not told_of(connection, "the register "), lambda: "it is still noted")
        connection.topics.ensure("New", 1)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    there = Home(str(elsewhere), settle_identity(elsewhere), "elsewhere")
    coordinator = ray.get_actor(COORDINATOR_NAME, namespace=namespace_of(DEFAULT_CLUSTER))
    pid = ray.get(coordinator.pid.remote())
    kept = take_over(there, RegisterOfStart(url, "another"))
    if rng.random() < 0.5:
        os.kill(pid, signal.SIGKILL)
    assert kept.load("topics", lambda value: {*value["topicConfigTable"]}) == {
        "Trade",
        "Far",
        "Audit",
        "New",
    }
    said = wait_until(node.lost, "the node does not end") or ""
    told = "another coordinator has taken over, and the cluster continues with"
    assert said.startswith(f"the node on {second} ends: {told} {elsewhere} of elsewhere as its ")
    with pytest.raises(NodeNotRunningError, match="another coordinator has taken over"):
        node.connection()
    joined.stop()
    assert actors() == []


def waits_no_longer(node: Node) -> None:
    """The standby of a node takes a coordinator that does not answer now for lost."""
    assert node._standby is not None
    waited_for = coordinator_id(DEFAULT_CLUSTER)
    node._standby._silence = CoordinatorSilence(waited_for=waited_for)


def pid_of(name: str) -> int:
    actor = ray.get_actor(name, namespace=namespace_of(DEFAULT_CLUSTER))
    return int(ray.get(actor.pid.remote()))


def actors_of(disk: str) -> list[str]:
    return [name for name in actors() if disk_in(name) == disk]


@pytest.mark.proves(
    "durability",
    "When the coordinator's machine is lost, a standby starts it with all that was saved, and "
    "gives it back; nothing acknowledged is missing",
)
def test_a_standby_continues_the_cluster_and_gives_the_coordinator_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator stops to answer; then the node of its disk starts again, and stops."""
    for name in ("TAKE_OVER_S", "START_S"):  # a coordinator that is only slow stays
        limit_s = patience(getattr(coordinator_silence, name))
        monkeypatch.setattr(coordinator_silence, name, limit_s)
    for module in (standby, superseded):
        monkeypatch.setattr(module, "START_S", coordinator_silence.START_S)
    (tmp_path / "register").mkdir()
    url = (tmp_path / "register").as_uri()
    options = NodeOptions(queues_per_process="shared", register=url)
    first, joined = tmp_path / "first", tmp_path / "joined"
    node = Node(first, options)
    assert send_one(node) == 1  # before another disk joins, which may have more room at the moment
    other = Node(joined, replace(JOINING, register=url))
    here = settle_identity(joined)
    host = start_host()
    with node.connection() as connection:
        read_all(connection)
        far = connection.topics.ensure("Far", 2).disks.index(here)
        with monkeypatch.context() as unheard:  # the standby hears an answer in the register only
            waits = SimpleNamespace(wait=lambda calls, **_: ([], calls), get=ray.get)
            unheard.setattr(standby, "ray", waits)
            waits_no_longer(other)
            wait_until(partial(told_of, connection, f"the standby on {joined} of "))
    pids = {name: pid_of(name) for name in actors_of("")}
    stopped = coordinator_id(DEFAULT_CLUSTER)
    os.kill(pids[COORDINATOR_NAME], signal.SIGSTOP)

    def lost() -> str | None:
        """Why the first node ended; an answer that was on its way has the standby wait again."""
        assert other._standby is not None
        silence = other._standby._silence
        if silence.actor == stopped and not silence.has_waited:
            waits_no_longer(other)
        return node.lost()

    said = wait_until(lost, "the first node does not end") or ""
    told = f"its coordinator did not answer for some time, and runs on {joined} of "
    assert said.startswith(f"the node on {first} ends: {told}")
    assert actors_of("") == [COORDINATOR_NAME]
    left = partial(filter, runs, pids.values())  # Ray ends the processes a moment later
    wait_until(lambda: not [*left()], lambda: f"processes stay: {[*left()]} of {pids}")
    with other.connection() as connection:
        assert connection.disks.coordinator_place().uuid == here
        assert offsets(connection) == {0: 1}
        assert told_of(connection, f"the first disk, {first} on ")
        assert {*connection.topics.ensure("New", 2).by_disk()} == {here}
        with connection.producer() as producer:
            producer.send("New", b"meanwhile")
            producer.send("Far", b"to the joined disk", queue_id=far)
            with pytest.raises(ShardUnavailableError):
                producer.send("Trade", b"to the first disk", queue_id=0)
    with Node(first, options) as node, node.connection() as connection:
        assert connection.disks.coordinator_place().uuid == settle_identity(first)
        assert send_one(node) == 2
        assert len(connection.messages.query_by_time("New", 0, 2**62)) == 1
        assert len(connection.messages.query_by_time("Far", 0, 2**62)) == 1
        assert not connection.problems()
    wait_until(lambda: other._standby and not other._standby._silence.actor, "no standby misses it")
    waits_no_longer(other)
    wait_until(lambda: COORDINATOR_NAME in actors(), "no standby starts a coordinator")
    other.stop()
    assert actors() == []
    assert pid_of(HOST) == host, "a node ended the host of an app"
    monkeypatch.setattr(node_module, "_AWAIT_S", 1.0)
    with Node(joined, replace(JOINING, register=url)) as alone, alone.connection() as connection:
        assert connection.disks.coordinator_place().uuid == here
        assert len(connection.messages.query_by_time("New", 0, 2**62)) == 1
    assert actors() == []
