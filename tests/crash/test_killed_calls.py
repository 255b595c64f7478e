"""A node is killed at each system call that changes a file: it is as it was before a step, or after.

The lives are those of support/programs/killed_life.py. What a whole life leaves after each of its steps is
what a life that is killed in the next one has to show: topics, messages and offsets, and what
groups get from then on. No other file is left of it.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from support.harness.amounts import ALL
from support.harness.machine import require
from support.programs.killed_life import LATER_MS, STEPS, TOPICS

from rocketray.broker.topics.catalog import TopicConfig
from rocketray.message import Message
from rocketray.runtime.files.home import settle_identity
from rocketray.runtime.files.paths import runtime_directory
from rocketray.store.message_store import MessageStore
from rocketray.testing import Broker, Clock

pytestmark = pytest.mark.proves(
    "durability",
    "A node that is killed at any system call, and again at any of its next start, is as "
    "before its last step or as after, and leaves no file behind",
)

FILES = "files", ""
OF_CONTENT = re.compile(
    r"(recovered|stopped)\.json|groupJournal|commitlog|consumequeue|index|broken"
)
"""Names of files that depend on a recovery, or on how many messages there are."""
Found = Mapping[tuple[str, str], Any]


class Server:
    """A process of support/programs/killed_life.py."""

    def __init__(self, directory: Path, process: subprocess.Popen[str]) -> None:
        self._directory = directory
        self._process = process
        assert self._said() == "ready"

    def live(self, data: Path, inject: str = "", copies: str = "") -> tuple[int, list[str]]:
        """Let a child live; return how many of its steps were answered, and its system calls."""
        trace = self._directory / "trace"
        asked = {"data": str(data), "inject": inject, "trace": str(trace), "copies": copies}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return int(self._said()), trace.read_text().splitlines()

    def _said(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def serving(directory: Path) -> Iterator[Server]:
    command = [sys.executable, "-m", "support.programs.killed_life", str(directory)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Server(directory, process)
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture(scope="module")
def server(memory: Path | None) -> Iterator[Server]:
    require("strace")
    with tempfile.TemporaryDirectory(dir=memory) as scratch, serving(Path(scratch)) as server:
        yield server


def kills(calls: Sequence[str]) -> list[str]:
    """What strace injects to kill at each of the calls, in their order."""
    found, counts = [], Counter[str]()
    for call in calls:
        name = call.split()[1].split("(")[0]
        counts[name] += 1
        if name != "openat" or re.search("O_CREAT|O_TRUNC", call):
            found.append(f"{name}:signal=KILL:when={counts[name]}")
    return found


def chosen(kills: Sequence[str], few: int, rng: Random) -> Sequence[str]:
    """All of them in ``make test-slow``, else *few*, spread over the life."""
    if ALL:
        return kills
    stride = len(kills) // few
    return kills[rng.randrange(stride) :: stride]


def observed(data: Path) -> Found:
    """What a node on *data* has and what it delivers from now on, by kind and name."""
    data.mkdir(exist_ok=True)  # it was killed before that
    settle_identity(data)
    with Broker(data, clock=Clock(LATER_MS)) as broker:
        found: dict[tuple[str, str], Any] = {("problems", ""): broker.node.problems()}
        members = {}
        for one in broker.groups.all():
            found["group", one.group] = one.topic, str(one.subscription), len(one.offsets)
            for queue_id, offset in one.offsets.items():
                found["offset", f"{one.group} {queue_id}"] = offset
            members[one.group] = broker.consumer(one.group, one.topic, one.subscription)
        topics = [one for name, one in broker.topics.all().items() if name in TOPICS]
        send_to_all(broker, topics)
        for _ in range(3):
            broker.clock.advance(seconds=40)  # so the members before are gone
            for group, member in members.items():
                for batch in member.poll():
                    got = found.setdefault(("got", f"{group} {batch.queue_id}"), [])
                    got += zip(batch.queue_offsets.tolist(), numbers(batch.bodies()), strict=True)
                    member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)
        for topic in topics:
            found["topic", topic.name] = topic.queues, topic.perm, topic.retention
            stored = broker.stored(topic.name)
            places = [(one.queue_id, one.queue_offset) for one in stored]
            found["stored", topic.name] = places, numbers([one.body for one in stored])
    assert not runtime_directory(data).exists()
    for store in data.glob("shards/*/*"):
        with MessageStore(store, clock_ms=lambda: LATER_MS) as opened:
            assert opened.verify().problems == (), store
    files = {path.relative_to(data).as_posix() for path in data.rglob("*")}
    return {**found, FILES: {one for one in files if not OF_CONTENT.search(one)}}


def send_to_all(broker: Broker, topics: Sequence[TopicConfig]) -> None:
    """Send to each queue what each group wants."""
    with broker.producer() as producer:
        for topic in topics:
            for queue_id in range(topic.queues if topic.writable else 0):
                wanted = Message(topic.name, b"99", "even", (), {"amount": "99"})
                producer.send_many(topic.name, [wanted], queue_id=queue_id)


def numbers(bodies: Sequence[bytes]) -> list[int]:
    return [int(body.rstrip(b".")) for body in bodies]


def differences(found: Found, before: Found, after: Found) -> list[object]:
    """What is neither as before a step nor as after it.

    A step may save offsets several times, and create topics of the node.
    """
    wrong: list[object] = [
        (key, found.get(key), before.get(key), after.get(key))
        for key in sorted((found.keys() | before.keys() | after.keys()) - {FILES})
        if found.get(key) not in (before.get(key), after.get(key))
        and not (key[0] == "offset" and before[key] <= found[key] <= after[key])
    ]
    left = found[FILES] - before[FILES] - after[FILES]
    return [*wrong, *left, *(before[FILES] & after[FILES] - found[FILES])]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_killed_node_is_as_before_a_step_or_after(
    server: Server, tmp_path: Path, rng: Random
) -> None:
    copies = tmp_path / "copies"
    server.live(tmp_path / "copied", copies=str(copies))
    steps, calls = server.live(tmp_path / "whole")
    assert steps == len(STEPS)
    points = chosen(kills(calls), 10, rng)

    @cache
    def after(steps: int) -> Found:
        return observed(copies / str(steps) if steps else tmp_path / "nothing")

    wrong = []
    for number, inject in enumerate(points):
        data = tmp_path / str(number)
        steps, calls = server.live(data, inject)
        if found := differences(observed(data), after(steps), after(min(steps + 1, len(STEPS)))):
            wrong.append((steps, calls[-1], found))
        shutil.rmtree(data)
    sys.stdout.write(f"{len(points)} kills\n")
    assert wrong == []
    _, stored = observed(tmp_path / "whole")["stored", "Kept"]
    assert sorted(stored) == [*range(4, 9), 10, *range(22, 26), 99, 99, 99]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_node_that_is_killed_again_while_it_starts_is_the_same(
    server: Server, tmp_path: Path, rng: Random
) -> None:
    _, calls = server.live(tmp_path / "whole")
    dead, started = tmp_path / "dead", tmp_path / "started"
    server.live(dead, kills(calls)[-200])
    shutil.copytree(dead, started)
    steps, calls = server.live(started)
    assert steps == 1
    points, expected = chosen(kills(calls), 4, rng), observed(started)
    wrong = []
    for number, inject in enumerate(points):
        data = shutil.copytree(dead, tmp_path / str(number))
        _, calls = server.live(data, inject)
        if found := differences(observed(data), expected, expected):
            wrong.append((calls[-1], found))
        shutil.rmtree(data)
    sys.stdout.write(f"{len(points)} kills\n")
    assert wrong == []
