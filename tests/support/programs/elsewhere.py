"""A driver that asks both of two machines apart (machines_apart.py), and prints what it found.

Its arguments are the Ray's address, and the data directory of the node that runs on this machine.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from support.harness.commands import COMMAND
from support.harness.patience import extended, patience, wait_until, wait_until_answered
from support.harness.source_tree import ROOT

from rocketray.actors.client.actor_names import find_actor
from rocketray.actors.client.connection import Connection
from rocketray.actors.client.ray_transport import WAITING_GROUP
from rocketray.actors.cluster.coordinator_actor import CoordinatorActor
from rocketray.actors.cluster.ensured_node import ensure_node
from rocketray.actors.cluster.filter_actor import FilterActor
from rocketray.actors.cluster.gateway_actor import GatewayActor
from rocketray.actors.cluster.shard_process_actor import ShardProcessActor
from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.broker.retries.retry_records import dead_letter_topic, dead_lettered
from rocketray.client import Client
from rocketray.errors import ShardUnavailableError, StreamError
from rocketray.filters.subscription import Subscription
from rocketray.hosting.host_placement import plan_here
from rocketray.hosting.hosting import bring_up
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.runtime.calls.endpoint import COORDINATOR_NAME
from rocketray.runtime.files.home import Home
from rocketray.runtime.files.paths import node_file
from rocketray.runtime.ray_process.ray_runtime import RayError, join_ray
from rocketray.services.admin.dead_letters import letter_boxes, letters, redrive

CLUSTER = "trade"
_TOPIC, _HOSTED, _FAR, _QUEUES = "Trade", "Hosted", "Far", 4
_APP = "support.programs.least_app:app"
_HOSTS = 2  # they stay on this machine


def main(address: str, data: str) -> None:
    """Join, do, look, and print one object."""
    join_ray(address)
    here = ray.get_runtime_context().get_node_id()
    (other,) = {each["NodeID"] for each in ray.nodes() if each["Alive"]} - {here}
    connection = Connection.open(data)
    connection.topics.ensure(_TOPIC, _QUEUES, queues_per_process=_QUEUES)
    connection.topics.ensure(_HOSTED, 1, internal=True)
    with connection.producer(timeout_s=extended(10)) as producer:
        for queue_id in range(_QUEUES):
            producer.send(_TOPIC, b"before", queue_id=queue_id)
    ray.get(find_actor(CLUSTER, COORDINATOR_NAME).open_gateway.remote(""))
    tests = ROOT / "tests"
    bring_up(plan_here(_APP, CLUSTER, str(tests)), _HOSTS)
    node_json = node_file(Path(data)).read_text()
    found = {
        "machine": _there(other, socket.gethostname),
        "here": {name: node == here for name, (_, node) in _actors().items()},
        "refused": _refused(other),
        "connections": [
            _there(other, _connect, opener, data, text)
            for opener in (Connection.open, _ensured)
            for text in ("", node_json)
        ],
        "used": _there(other, _use, address),
    }
    _kill_and_await()
    found |= {
        "here again": {name: node == here for name, (_, node) in _actors().items()},
        "topics again": sorted(connection.topics.all()),
        "messages again": _count(connection),
        "files": _there(other, _files, data),
    }
    sys.stdout.write(json.dumps(found) + "\n")


def _there(node: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """What *function* says on another node of the Ray."""
    strategy = NodeAffinitySchedulingStrategy(node, soft=False)
    run: Any = ray.remote(num_cpus=0, scheduling_strategy=strategy)(_call)
    return ray.get(run.remote(function, *arguments))


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def _actors() -> dict[str, tuple[int, str]]:
    """The process and the Ray node of each named actor that lives."""
    return {
        each["Name"]: (each["Pid"], each["Address"]["NodeID"])
        for each in ray._private.state.actors().values()
        if each["State"] == "ALIVE" and each["Name"]
    }


def _refused(other: str) -> list[str]:
    """What each actor that touches files says when it is started where they are not."""
    home: Home = ray.get(find_actor(CLUSTER, COORDINATOR_NAME).home.remote())
    tries: list[tuple[type, str, tuple[Any, ...]]] = [
        (CoordinatorActor, "pid", (None,)),
        (FilterActor, "pid", (FilterRules(),)),
        (GatewayActor, "ready", ()),
        (ShardProcessActor, "pid", (f"{_TOPIC}:0", {}, 0)),
    ]
    strategy = NodeAffinitySchedulingStrategy(other, soft=False)
    asked = []
    for actor, question, rest in tries:
        groups = WAITING_GROUP if actor is CoordinatorActor else None
        options = {"num_cpus": 0, "scheduling_strategy": strategy, "concurrency_groups": groups}
        start = ray.remote(**options)(actor)
        asked.append(getattr(start.remote(home, *rest), question).remote())
    return [_error_of(reference) for reference in asked]


def _error_of(reference: Any) -> str:
    try:
        return f"answered {ray.get(reference)}"
    except RayError as error:
        return str(error)


def _files(data: str) -> list[str]:
    return [str(path) for path in Path(data).rglob("*")]


def _connect(opener: Callable[[str], object], data: str, node_json: str) -> str:
    """What a program hears that is started there, with a copy of node.json or without."""
    if node_json:
        node_file(Path(data)).write_text(node_json)
    try:
        opener(data)
    except StreamError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        node_file(Path(data)).unlink(missing_ok=True)
    return "connected"


def _use(address: str) -> dict[str, Any]:
    """What a program does there that knows the name of the cluster alone."""
    with (
        Client(cluster=CLUSTER, ray_address=address) as client,
        client.producer(timeout_s=extended(10)) as producer,
    ):
        client.topics.create(_FAR, 2)
        for number in range(20):
            producer.send(_FAR, b"%d" % number, keys="far", tags="pay" if number % 2 else "order")
        futures = [producer.send_async(_FAR, b"async") for _ in range(200)]
        stored = {future.result(patience(30)).offset_message_id for future in futures}
        with client.consumer("far", _FAR, Subscription.tags("pay")) as member:
            bodies: list[bytes] = []

            def are_there() -> bool:
                bodies.extend(body for batch in member.poll(1.0) for body in batch.bodies())
                return len(bodies) >= 10

            wait_until(are_there)
        return {
            "stored": len(stored),
            "paid": sorted(map(int, bodies)),
            "by key": len(client.messages.query(_FAR, "far")),
            "letters": _letters(client, producer),
            "refused": [
                _error(lambda: Client(cluster="none", ray_address=address)),
                _error(lambda: Client(cluster=CLUSTER, ray_address="127.0.0.9:1")),
                _error(lambda: Client("/data", cluster=CLUSTER)),
            ],
            "status": subprocess.run(
                [COMMAND, "--cluster", CLUSTER, "--ray-address", address, "topics", "list"],
                capture_output=True,
                text=True,
                timeout=patience(120),
                check=False,
            ).stdout,
        }


def _letters(client: Client, producer: NodeProducer) -> dict[str, Any]:
    """What a program does there with dead letters."""
    group, topic = "far", dead_letter_topic("far")
    client.topics.ensure(topic, 1, internal=True)
    for failed in client.messages.query(_FAR, "far")[:3]:
        producer.forward(topic, 0, [dead_lettered(failed, group, topic, 16, reason="why").message])
    every = Subscription.tags("*")
    sent = [redrive(client, producer, group, every, limit=limit) for limit in (2, None, None)]
    return {
        "sent": sent,
        "boxes": [asdict(box) for box in letter_boxes(client)],
        "shown": [is_redriven for _, is_redriven in letters(client, group, every)],
    }


def _error(call: Callable[[], object]) -> str:
    try:
        call()
    except StreamError as error:
        return f"{type(error).__name__}: {error}"
    return "done"


def _ensured(data: str) -> None:
    """As an app that begins a node where none runs."""
    with ensure_node(data):
        pass


def _kill_and_await() -> None:
    """Kill every actor of the node; returns when each of them lives again."""
    killed = _actors()
    for pid, _ in killed.values():
        os.kill(pid, signal.SIGKILL)
    wait_until(
        lambda: all(_actors().get(name, (pid,))[0] != pid for name, (pid, _) in killed.items()),
        lambda: (killed, _actors()),
    )


def _count(connection: Connection) -> int:
    """How many messages the node has in the end: each queue is asked until it answers."""
    return wait_until_answered(
        lambda: len(connection.messages.query_by_time(_TOPIC, 0, 2**62)),
        ShardUnavailableError,
    )


main(*sys.argv[1:])
