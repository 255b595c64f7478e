"""Members of real groups under load: stopped, leaving, moved, changed, and in broadcast mode."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from random import Random
from subprocess import Popen
from typing import Any

import pytest
from support.harness.command_server import run_here
from support.harness.patience import patience, wait_until
from support.models.history import violations
from support.models.journal import Journals
from support.nodes.fleet import TOPIC, Fleet, start

from rocketray.actors.client.actor_names import find_actor
from rocketray.actors.client.connection import Connection
from rocketray.actors.client.ray_transport import RayTransport
from rocketray.base.cluster import DEFAULT_CLUSTER
from rocketray.errors import ShardUnavailableError
from rocketray.filters.subscription import Subscription
from rocketray.groups.lease import SESSION_TIMEOUT_MS
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.runtime.calls.endpoint import GATEWAY_NAME
from rocketray.runtime.ray_process.ray_runtime import ray

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


class Readers:
    """Members of one group in this process; a thread polls them all, unless it is held up."""

    def __init__(self, connection: Connection, group: str, topic: str) -> None:
        self._connection, self._group, self._topic = connection, group, topic
        self.members: list[GroupConsumer] = []
        self.seen: list[tuple[int, int, int]] = []
        """Queue, queue offset and number of each message."""
        self.held_up = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def join(self, tags: str = "*") -> None:
        """One more member."""
        subscription = Subscription.tags(tags)
        member = self._connection.consumer(self._group, self._topic, subscription)
        with self.held_up:
            self.members.append(member)

    def leave(self) -> None:
        """The oldest member leaves."""
        with self.held_up:
            self.members.pop(0).close()

    def wait(self, numbers: Counter[int]) -> None:
        """Wait until so many messages came, each number as often as it should, and forget them."""
        wait_until(lambda: len(self.seen) >= numbers.total(), lambda: f"{len(self.seen)} came")
        with self.held_up:
            seen, self.seen = self.seen, []
        assert Counter(number for _, _, number in seen) == numbers

    def close(self) -> None:
        """All leave."""
        self._is_over.set()
        self._thread.join()
        for member in self.members:
            member.close()

    def _read(self) -> None:
        while not self._is_over.wait(0.01):
            with self.held_up:
                for member in self.members:
                    with suppress(ShardUnavailableError):
                        self._take(member)

    def _take(self, member: GroupConsumer) -> None:
        for batch in member.poll(0):
            for message in batch.messages():
                self.seen.append((message.queue_id, message.queue_offset, int(message.body)))
            member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def send(connection: Connection, topic: str, numbers: Iterable[int]) -> None:
    """Even numbers to queue 0 with the tag "even", odd ones to queue 1 with the tag "odd"."""
    with connection.producer() as producer:
        for number in numbers:
            parity = number % 2
            tag = ("even", "odd")[parity]
            producer.send(topic, b"%d" % number, tags=tag, queue_id=parity)


def groups(connection: Connection, *arguments: str) -> list[dict[str, Any]]:
    """Run a command about groups beside the node."""
    return run_here("groups", *arguments, "--json", "--data", connection.data).lines()


@pytest.mark.slow
def test_who_was_stopped_hands_out_nothing_that_others_own_and_who_leaves_repeats_nothing(
    connection: Connection, stack: ExitStack, rng: Random
) -> None:
    count = 26_000
    fleet = Fleet(connection, rng)
    stack.callback(connection.topics.delete, TOPIC)
    stack.callback(fleet.close)
    for _ in range(3):
        fleet.start_member()
    fleet.start_app()
    wait_until(lambda: len(fleet.owners()) == 3, lambda: f"only {fleet.owners()} came")
    producer = fleet.start_producer(count, 700)
    wait_until(lambda: fleet.finished() > 0, lambda: "nothing comes")
    go_on = fleet.stop_some()
    wait_until(lambda: len(fleet.owners()) == 2, lambda: "the stopped member keeps its queues")
    wait_until(fleet.is_taken_over, lambda: f"nobody took over: {fleet.missing()}")
    go_on()
    wait_until(lambda: len(fleet.owners()) == 3, lambda: "it does not come back")
    time.sleep(SESSION_TIMEOUT_MS / 5000)  # it reads again while others leave
    assert fleet.leave_member() == 0
    fleet.leave_host()
    assert producer.wait(patience(120)) == 0
    wait_until(lambda: not any(fleet.missing().values()), lambda: f"lost: {fleet.missing()}")
    assert violations(fleet.history()) == [], "\n".join(map(fleet.chronicle, fleet.groups))


def test_every_broadcast_member_gets_everything_and_goes_on_where_it_was(
    connection: Connection, tmp_path: Path, stack: ExitStack
) -> None:
    connection.topics.ensure("Everywhere", 2)
    journals = Journals(tmp_path)

    def begin(name: str) -> Popen[bytes]:
        place = connection.data, "Everywhere", "everyone", tmp_path
        process = start("witness_process.py", *place, name, "*", "broadcast")
        stack.callback(process.wait)
        stack.callback(process.kill)
        return process

    def got(name: str) -> list[int]:
        journals.read()
        found = journals.entries.get("everyone", {}).items()
        return [one.number for client, entries in found for one in entries if name in client]

    def has(name: str, count: int) -> bool:
        return len(got(name)) >= count

    first, _second = begin("first"), begin("second")
    send(connection, "Everywhere", range(200))
    for name in ("first", "second"):
        wait_until(partial(has, name, 200), lambda: "not all came to each")
    first.terminate()
    assert first.wait(patience(60)) == 0
    send(connection, "Everywhere", range(200, 300))
    begin("first")
    for name in ("first", "second"):
        wait_until(partial(has, name, 300), lambda: "not all came to each")
        assert sorted(got(name)) == list(range(300)), "each once, also over the restart"


@pytest.mark.proves("groups", "Offsets move while members run")
def test_offsets_move_under_a_group_that_runs(connection: Connection, stack: ExitStack) -> None:
    connection.topics.ensure("Moved", 2)
    readers = Readers(connection, "moved", "Moved")
    stack.callback(readers.close)
    readers.join()
    readers.join()
    send(connection, "Moved", range(100))
    readers.wait(Counter(range(100)))

    groups(connection, "reset", "moved", "--to", "earliest")
    readers.wait(Counter(range(100)))

    groups(connection, "seek", "moved", "Moved", "--offset", "40", "--queue", "1")
    readers.wait(Counter(range(81, 100, 2)))

    with ThreadPoolExecutor() as threads:
        with readers.held_up:
            send(connection, "Moved", range(100, 150))
            skipping = threads.submit(groups, connection, "skip", "moved")
            wait_until(
                lambda: (
                    skipping.done() or all(member.needs_rebalance for member in readers.members)
                ),
                lambda: "the members do not hear of it",
            )
            assert not skipping.done(), skipping.result()
        assert [move["to"] for move in skipping.result(patience(60))] == [75, 75]
    send(connection, "Moved", range(150, 160))
    readers.wait(Counter(range(150, 160)))

    for _ in range(2):
        readers.leave()  # with its last commits
    cloned = groups(connection, "clone", "moved", "moved-next")
    assert [(move["from"], move["to"]) for move in cloned] == [(-1, 80), (-1, 80)]
    following = Readers(connection, "moved-next", "Moved")
    stack.callback(following.close)
    following.join()
    send(connection, "Moved", range(160, 170))
    following.wait(Counter(range(160, 170)))


def test_a_group_changes_what_it_subscribes_to_while_it_runs(
    connection: Connection, stack: ExitStack
) -> None:
    connection.topics.ensure("Changed", 2)
    readers = Readers(connection, "changed", "Changed")
    stack.callback(readers.close)
    readers.join("even")
    readers.join("even")
    is_over = threading.Event()
    sent = 0

    def keep_sending() -> None:
        nonlocal sent
        with connection.producer() as producer:
            while not is_over.is_set():
                tag = ("even", "odd")[sent // 2 % 2]  # of both in each queue
                producer.send("Changed", b"%d" % sent, tags=tag, queue_id=sent % 2)
                sent += 1

    with ThreadPoolExecutor() as threads:
        sending = threads.submit(keep_sending)
        try:
            wait_until(lambda: len(readers.seen) > 50, lambda: "nothing comes")
            [change] = groups(connection, "migrate", "changed", "Changed", "--tags", "odd")
            assert (change["complete"], len(change["outdated"])) == (False, 2)
            for _ in range(2):
                readers.join("odd")
                readers.leave()
            wait_until(
                lambda: (
                    [one.subscription for one in connection.groups.all() if one.group == "changed"]
                    == [Subscription.tags("odd")]
                ),
                lambda: "the change does not end",
            )
        finally:
            is_over.set()
        sending.result(patience(60))
    switches = [change["switches"][str(queue)] for queue in range(2)]
    wanted = [
        (queue, offset, number)
        for number in range(sent)
        for queue, offset in [(number % 2, number // 2)]
        if (number // 2 % 2 == 1) == (offset >= switches[queue])
    ]
    wait_until(lambda: len(readers.seen) >= len(wanted), lambda: "not all came")
    assert sorted(readers.seen) == sorted(wanted), "below the switch the old filter, then the new"
    assert 0 < min(switches) < sent // 2


@pytest.mark.proves("groups", "A gateway that dies loses no message and delivers none twice")
def test_a_gateway_that_dies_costs_no_message_and_no_second_delivery(
    connection: Connection, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.topics.ensure("Away", 2)
    readers = Readers(connection, "away", "Away")
    stack.callback(readers.close)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(RayTransport, "is_local", lambda *_: False)
        readers.join()
    revoked: list[frozenset[tuple[str, int]]] = []
    readers.members[0].on_revoke = revoked.append

    send(connection, "Away", range(100))
    wait_until(lambda: len(readers.seen) == 100, lambda: f"{len(readers.seen)} came")
    with readers.held_up:
        send(connection, "Away", range(100, 400))
        ray.kill(
            find_actor(DEFAULT_CLUSTER, GATEWAY_NAME), no_restart=False
        )  # with a fetch that waits
        send(connection, "Away", range(400, 500))
    readers.wait(Counter(range(500)))
    assert not revoked
    wait_until(
        lambda: (
            [one.offsets for one in connection.groups.all() if one.group == "away"]
            == [{0: 250, 1: 250}]
        ),
        lambda: "not all is committed",
    )
    readers.members[0].on_revoke = None
