"""Apps on a real node: in this process, and as Ray actors that are killed while messages flow."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import faust
import pytest
import ray
from support.harness.patience import patience, until, wait_until
from support.nodes.apps import collecting, running

from rocketray.actors.client.connection import Connection
from rocketray.actors.cluster.node import Node
from rocketray.base.cluster import DEFAULT_CLUSTER
from rocketray.errors import ConfigError
from rocketray.filters.subscription import Subscription
from rocketray.hosting.app_path import load_app
from rocketray.hosting.host_placement import plan_here
from rocketray.hosting.host_status import HostStatus
from rocketray.hosting.hosting import bring_up
from rocketray.message import SHARDING_KEY, Message
from rocketray.services.explaining.cause import Cause
from rocketray.topology.app.app import App

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
SUPPORT = Path(__file__).parent.parent / "support/programs"
KINDS = ("pay", "order", "logistics")


class Order(faust.Record):  # type: ignore[misc]  # Faust's types are not followed
    number: int
    kind: str


class Results:
    """Counts the bodies that arrive in a topic."""

    def __init__(self, connection: Connection, topic: str) -> None:
        connection.topics.ensure(topic, 2)
        self._member = connection.consumer(
            f"watch-{time.monotonic_ns()}", topic, Subscription.tags("*")
        )
        self.numbers: list[int] = []

    def wait(self, enough: Callable[[set[int]], bool]) -> set[int]:
        """Poll until what arrived is *enough*."""

        def are_there() -> bool:
            for batch in self._member.poll(0.2):
                self.numbers += map(int, batch.bodies())
            return enough(set(self.numbers))

        wait_until(are_there, lambda: f"only {len(set(self.numbers))} results came")
        return set(self.numbers)

    def close(self) -> None:
        self._member.close()


def test_a_message_that_fails_comes_again_and_one_that_never_succeeds_is_given_up(
    connection: Connection,
) -> None:
    async def scenario() -> None:
        app = App("failing", connection=connection)
        topic = app.topic("Failing", queues=1, value_serializer="raw")
        seen: list[tuple[bytes, int, str]] = []

        @app.agent(topic, max_attempts=1)
        async def reader(stream: Any) -> None:
            async for event in stream.events():
                if event.value == b"bad" or (event.value == b"late" and not event.reconsume_times):
                    raise ValueError("on purpose")
                seen.append((event.value, event.reconsume_times, event.message.topic))

        async with running(app):
            for value in (b"bad", b"late", b"good"):
                await topic.send(value=value)
            await until(lambda: len(seen) == 2 and reader.statistics().dead_lettered)
            assert reader.statistics().sent_back == 2
        assert seen == [(b"good", 0, "Failing"), (b"late", 1, "Failing")]

    asyncio.run(scenario())
    letter = connection.messages.at("%DLQ%failing-reader", 0, 0)
    assert letter is not None
    assert (letter.body, letter.reconsume_times) == (b"bad", 2)
    assert letter.unique_key
    assert connection.explain(letter.unique_key, "failing-reader").cause is Cause.DEAD_LETTER


def send_orders(connection: Connection, first: int, count: int) -> set[int]:
    """Send *count* orders of all kinds; the numbers of those that are payments."""
    connection.topics.ensure("Orders", 2)
    producer = connection.producer()
    numbers = range(first, first + count)
    messages = [
        Message(
            "Orders",
            Order(number=number, kind=KINDS[number % 3]).dumps(serializer="json"),
            tags=KINDS[number % 3],
        )
        for number in numbers
    ]
    producer.send_many("Orders", messages)
    return {number for number in numbers if KINDS[number % 3] == "pay"}


def statuses(hosts: list[Any]) -> list[HostStatus]:
    found: list[HostStatus] = ray.get(
        [host.status.remote() for host in hosts], timeout=patience(60)
    )
    return found


def started(node: Node, path: str) -> list[Any]:
    """Two instances of the app at *path*, which end with this process."""
    directory = SUPPORT.parent.parent
    plan = plan_here(path, DEFAULT_CLUSTER, str(directory))
    return bring_up(plan, 2, detached=False)[1]


def wait_until_shared(connection: Connection, group: str) -> None:
    """Return when the group has two members and each owns a queue."""

    def owned() -> list[list[int]]:
        entries = [entry for entry in connection.groups.all() if entry.group == group]
        return [[*map(len, entry.members.values())] for entry in entries]

    wait_until(lambda: owned() == [[1, 1]], f"the members of {group} do not share its queues")


def test_an_app_in_this_process(node: Node) -> None:
    async def scenario() -> None:
        app = App("here", data=node.data)
        topic = app.topic("Here", value_type=bytes, queues=2)
        seen: list[bytes] = []
        app.agent(topic, tags="x", name="reader")(collecting(seen))
        async with running(app):
            for number in range(200):
                await topic.send(value=b"%d" % number, tags="xy"[number % 2])
            await until(lambda: len(seen) == 100)
        assert sorted(map(int, seen)) == list(range(0, 200, 2))

    asyncio.run(scenario())


@pytest.mark.proves(
    "groups",
    "A queue that is added later is read from its first message, whatever `start=` says",
)
def test_an_agent_reads_a_queue_that_is_added_from_its_first_message(
    node: Node, connection: Connection
) -> None:
    async def scenario() -> None:
        app = App("grows", data=node.data)
        topic = app.topic("Grows", value_type=bytes, queues=1)
        seen: list[bytes] = []
        app.agent(topic, start="latest", name="reader")(collecting(seen))
        async with running(app):
            while not seen:  # its group begins with the agent's first heartbeat
                await topic.send(value=b"here")
                await asyncio.sleep(0.05)
            await asyncio.to_thread(connection.topics.alter, "Grows", 2)
            with connection.producer() as producer:
                await asyncio.to_thread(producer.send, "Grows", b"first", queue_id=1)
            await until(lambda: b"first" in seen)
        assert b"old" not in seen

    connection.topics.ensure("Grows", 1)
    with connection.producer() as producer:
        producer.send("Grows", b"old")
    asyncio.run(scenario())


def test_apps_as_actors_share_the_work_and_survive_kills(
    node: Node, connection: Connection
) -> None:
    for topic in ("Orders", "Commands"):
        connection.topics.ensure(topic, 2)
    results = Results(connection, "Results")
    hosts = started(node, "support.programs.trade_app:app")
    try:
        first = statuses(hosts)
        assert [status.is_running for status in first] == [True, True]
        assert first[0].pid != first[1].pid
        wait_until_shared(connection, "trade-pay")
        expected = send_orders(connection, 0, 9000)
        assert results.wait(lambda seen: seen >= expected) == expected
        counts = [
            agent.received for one in statuses(hosts) for agent in one.agents if agent.name == "pay"
        ]
        assert all(counts), "both instances take part"

        expected |= send_orders(connection, 9000, 9000)
        results.wait(lambda seen: len(seen) > 3500)
        os.kill(first[0].pid, signal.SIGKILL)
        assert results.wait(lambda seen: seen >= expected) == expected

        before = {one.pid for one in statuses(hosts)}
        connection.producer().send("Commands", b"crash")
        wait_until(
            lambda: {one.pid for one in statuses(hosts)} != before,
            "the app crashed and its actor did not end",
        )
        expected |= send_orders(connection, 18_010, 90)  # of which none fails
        assert results.wait(lambda seen: seen >= expected) == expected
    finally:
        ray.get([host.stop.remote() for host in hosts], timeout=patience(60))
        for host in hosts:
            ray.kill(host)
        results.close()


def test_tables_of_apps_survive_the_kill_of_an_instance(node: Node, connection: Connection) -> None:
    """No count is ever too low, and what was committed before the kill counts once."""
    half, keys = 3000, 20
    connection.topics.ensure("Words", 2)
    hosts = started(node, "support.programs.table_app:app")
    told = Counter[str]()
    messages = 0
    connection.topics.ensure("Counts", 2)
    member = connection.consumer("watch-counts", "Counts", Subscription.tags("*"))

    def poll_until(is_enough: Callable[[], bool]) -> None:
        def polled() -> bool:
            nonlocal messages
            for found in member.poll(0.2):
                for message in found.messages():
                    messages += 1
                    key, value = message.properties[SHARDING_KEY], int(message.body)
                    told[key] = max(told[key], value)
            return is_enough()

        wait_until(polled, lambda: f"the lowest count is {min(told.values(), default=0)}")

    def committed() -> int:
        (group,) = [one for one in connection.groups.all() if one.group == "words-count"]
        return sum(group.offsets.values())

    try:
        wait_until_shared(connection, "words-count")
        producer = connection.producer()
        batch = [
            Message("Words", b"1", properties={SHARDING_KEY: f"w{number % keys}"})
            for number in range(half)
        ]
        producer.send_many("Words", batch)
        poll_until(lambda: messages == committed() == half)
        assert set(told.values()) == {half // keys}
        producer.send_many("Words", batch)
        poll_until(lambda: messages > half + half // 4)
        os.kill(statuses(hosts)[0].pid, signal.SIGKILL)
        poll_until(lambda: min(told.values()) >= 2 * half // keys)
        assert sum(told.values()) <= half + 2 * half
        assert connection.topics.get("words-counts-changelog").internal
    finally:
        ray.get([host.stop.remote() for host in hosts], timeout=patience(60))
        for host in hosts:
            ray.kill(host)
        member.close()


def test_an_app_that_cannot_be_imported_says_so(node: Node) -> None:
    with pytest.raises(ConfigError, match="module:app"):
        load_app("trade")
    with pytest.raises(ConfigError, match="No module named 'no_such_module'"):
        load_app("no_such_module:app")
    with pytest.raises(
        ConfigError, match=r"no rocketray.App named 'Order'; it has support.programs.trade_app:app"
    ):
        load_app("support.programs.trade_app:Order")


class Program:
    """``python trade_app.py``, or another app, in a directory of its own."""

    def __init__(self, directory: Path, app: str = "trade_app") -> None:
        self.data = directory / "rocketray-data"
        self._output = directory / "output"
        self.mark = f"TRADE_APP={directory}"  # in the environment of all its processes
        name, _, value = self.mark.partition("=")
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # not as in a shell's "&"
        try:
            with self._output.open("wb") as output:
                self.process = subprocess.Popen(
                    [sys.executable, str(SUPPORT / f"{app}.py")],
                    cwd=directory,
                    env={**os.environ, name: value},
                    stdout=output,
                    stderr=output,
                )
        finally:
            signal.signal(signal.SIGINT, before)

    def wait_for(self, line: str) -> None:
        """Wait until a line of its output has that in it."""

        def is_there() -> bool:
            assert self.process.poll() is None, self.output()
            return line in self.output()

        wait_until(is_there, self.output)

    def output(self) -> str:
        """What it said so far."""
        return self._output.read_text()

    def end(self, number: int) -> int:
        """Send it a signal; its return code."""
        self.process.send_signal(number)
        return self.process.wait(patience(120))

    def processes(self) -> list[int]:
        """Its own process, and those that it started, as far as they live."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):  # it ended, or is another user's
                if self.mark.encode() in path.read_bytes().split(b"\0"):
                    found.append(int(path.parent.name))
        return found


@pytest.fixture
def program(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Program]:
    program = Program(tmp_path, getattr(request, "param", "trade_app"))
    yield program
    program.process.kill()
    program.process.wait()


@pytest.mark.proves(
    "spark",
    "`app.main()` runs agents and sinks, and ends without a traceback and without a JVM",
)
@pytest.mark.slow
@pytest.mark.parametrize("program", ["lake_app"], indirect=True)
def test_main_runs_a_node_agents_and_sinks_and_a_signal_ends_all_without_a_traceback(
    program: Program,
) -> None:
    program.wait_for("sink tell reads Clicks: first batch, ")
    program.wait_for("\nbatch 0 has ")
    assert program.end(signal.SIGTERM) == 0, program.output()
    node, report = "actors.cluster.ensured_node: ", "topology.app.start_report: "
    data = program.data
    log = iter([line.partition(" INFO rocketray.")[2] for line in program.output().splitlines()])
    for begin in (  # in this order; a slow start says more between them
        f"{node}no node runs on {data}: starting one",
        f"{node}the node on {data} is ready; its logs are in /",
        f"{report}app lakes uses the node on {data}",
        f"{report}app lakes logs to {data}/logs/app-lakes.",
        f"{report}agent note of app lakes is in group lakes-note: topic Clicks, tags '*'",
        f"{report}sink tell of app lakes: topic Clicks, tags '*'",
        f"{report}app lakes is ready; agents: note (group lakes-note); its sinks start on Spark: tell",
        "topology.app.running: app lakes is stopping",
    ):
        assert any(line.startswith(begin) for line in log), f"{begin}\n{program.output()}"
    traces = ("Traceback", "\tat ")
    assert not any(trace in program.output() for trace in traces), program.output()
    assert not (program.data / "node.json").exists()
    wait_until(lambda: not program.processes())


def test_ctrl_c_while_main_starts_its_node_ends_it_and_leaves_nothing(program: Program) -> None:
    program.wait_for("starting one")
    wait_until(lambda: len(program.processes()) > 4)  # the servers of its Ray, and their agents
    assert program.end(signal.SIGINT) == 128 + signal.SIGINT, program.output()
    assert "Traceback" not in program.output()
    assert "is ready" not in program.output()
    assert not (program.data / "node.json").exists()
    wait_until(lambda: not program.processes())
