"""Members, coordinator, filter and shards are killed while messages flow: none is lost."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
import ray

from rocketray.actors.client import Connection
from rocketray.actors.node import Node, NodeOptions
from rocketray.actors.ray_runtime import NAMESPACE
from rocketray.actors.shard_calls import shard_name

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
_LOG = logging.getLogger(__name__)
SUPPORT = Path(__file__).parent.parent / "support"
MESSAGES = int(os.environ.get("ROCKETRAY_TEST_CHAOS_MESSAGES", "100000"))
QUEUES = 3
KILLS = 8
PAUSE_S = 1.5
ACTORS = ("coordinator", "filter", *(shard_name("Chaos", queue) for queue in range(QUEUES)))


class Seen(NamedTuple):
    """What a member wrote down."""

    at_ns: int
    queue_id: int
    queue_offset: int
    number: int


class Members:
    """Two members of one group, each started again when it is killed."""

    def __init__(self, data: Path, directory: Path) -> None:
        self._data = data
        self._directory = directory
        self._running = [self._start(), self._start()]

    def kill(self, index: int) -> None:
        """End one as if its machine had died, and start another."""
        self._running[index].kill()
        self._running[index].wait(60)
        self._running[index] = self._start()

    def seen(self) -> list[Seen]:
        """All that was written down so far, by the time of it."""
        lines = [
            line for path in self._directory.iterdir() for line in path.read_bytes().split(b"\n")
        ]
        return sorted(Seen(*map(int, line.split())) for line in lines if line)

    def close(self) -> None:
        for process in self._running:
            process.kill()
            process.wait(60)

    def _start(self) -> subprocess.Popen[bytes]:
        output = self._directory / str(time.monotonic_ns())
        command = [sys.executable, str(SUPPORT / "witness_process.py")]
        return subprocess.Popen([*command, str(self._data), "Chaos", "witnesses", str(output)])


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path / "data", NodeOptions(num_cpus=2)) as node:
        yield node


def kill_actor(name: str) -> None:
    """End an actor's process; Ray starts it again."""
    try:
        actor = ray.get_actor(name, namespace=NAMESPACE)
        question = actor.statistics if name == "filter" else actor.pid
        answer = ray.get(question.remote(), timeout=60)
    except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
        return  # it is down already
    os.kill(answer.pid if name == "filter" else answer, signal.SIGKILL)


def send(data: Path, acknowledged: Path) -> subprocess.Popen[bytes]:
    """A producer of ``MESSAGES`` numbers that takes about as long as the kills."""
    pause_ms = int(KILLS * PAUSE_S * 1000 / (MESSAGES / 1000))
    arguments = [data, "Chaos", 0, MESSAGES, pause_ms]
    command = [sys.executable, str(SUPPORT / "producer_process.py"), *map(str, arguments)]
    with acknowledged.open("w") as file:
        return subprocess.Popen(command, stdout=file)


def test_nothing_is_lost_and_no_queue_loses_its_order(
    node: Node, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    seed = time.time_ns()
    random = Random(seed)
    (tmp_path / "seen").mkdir()
    with ExitStack() as stack:
        connection: Connection = stack.enter_context(node.connection())
        connection.create_topic("Chaos", QUEUES)
        members = Members(node.data, tmp_path / "seen")
        stack.callback(members.close)
        time.sleep(2)
        producer = send(node.data, tmp_path / "acknowledged")
        stack.callback(producer.kill)
        killed = [f"seed {seed}"]
        for number in range(KILLS):
            time.sleep(PAUSE_S)
            if number % 3 == 2:
                killed.append("member")
                members.kill(random.randrange(2))
            else:
                killed.append(random.choice(ACTORS))
                kill_actor(killed[-1])
        assert producer.wait(300) == 0, f"the producer fails after {killed}"
        acknowledged = (tmp_path / "acknowledged").read_text().split()
        assert sorted(map(int, acknowledged)) == list(range(MESSAGES))
        deadline = time.monotonic() + 180
        while len({one.number for one in members.seen()}) < MESSAGES:
            assert time.monotonic() < deadline, f"messages are lost after {killed}"
            time.sleep(1)
        seen = members.seen()
        stored = [one.max_queue_offset for one in connection.shard_statistics("Chaos")]
    assert sum(stored) == MESSAGES, "the log has each once"
    first = {(one.queue_id, one.queue_offset): one.at_ns for one in reversed(seen)}
    for queue_id, end in enumerate(stored):
        times = [first[queue_id, offset] for offset in range(end)]
        assert times == sorted(times), f"queue {queue_id} is out of order after {killed}"
    record_property("seed", seed)
    record_property("delivered twice", len(seen) - MESSAGES)
    _LOG.warning("%d of %d came twice; killed: %s", len(seen) - MESSAGES, MESSAGES, killed)
