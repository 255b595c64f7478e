"""A node over a real Ray: its parts are killed while messages flow, and nothing acknowledged is lost."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
import ray
from ray.core.generated import gcs_pb2
from support.harness.patience import patience, wait_until
from support.nodes.transactions import begin

from rocketray.actors.client.actor_names import find_actor
from rocketray.actors.client.connection import Connection
from rocketray.actors.client.ray_transport import RayTransport
from rocketray.actors.cluster.ensured_node import ensure_node
from rocketray.actors.cluster.node import Node
from rocketray.base.cluster import DEFAULT_CLUSTER
from rocketray.base.delay import Delay
from rocketray.errors import NodeNotRunningError, ShardUnavailableError, StoreLockedError
from rocketray.filters.consumer_filter_data import read_filters
from rocketray.filters.counters import FilterCounters
from rocketray.filters.subscription import Subscription
from rocketray.message import Message
from rocketray.messaging.api.system_api import services_of
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.messaging.remote.disk_streams import DiskStreams
from rocketray.messaging.remote.fetched_streams import FetchedStreams
from rocketray.runtime.calls.endpoint import COORDINATOR_NAME, process_actor
from rocketray.runtime.files.paths import config_directory, filters_file, node_file, shard_directory
from rocketray.runtime.ray_process.ray_runtime import DISK_LABEL, RayError, namespace_of
from rocketray.services.admin.seeking import carry_out, plan_moves
from rocketray.services.explaining.cause import Cause

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
SUPPORT = Path(__file__).parent.parent / "support/programs"
KILLS = pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.slow)])
"""How often a process is killed."""


class Helper:
    """A process that prints numbers, to a file, because nobody reads while it runs."""

    def __init__(self, output: Path, script: str, *arguments: object) -> None:
        self._output = output
        with output.open("w") as file:
            command = [sys.executable, str(SUPPORT / script), *map(str, arguments)]
            self.process = subprocess.Popen(command, stdout=file)

    def kill(self) -> list[int]:
        """End it at once; the numbers that it had printed in whole lines."""
        self.process.send_signal(signal.SIGKILL)
        return self.wait()

    def wait(self) -> list[int]:
        """Wait for its end; the numbers that it printed in whole lines."""
        self.process.wait(patience(120))
        return self.printed()

    def printed(self) -> list[int]:
        """The numbers that it printed in whole lines so far."""
        return [int(line) for line in self._output.read_text().split("\n")[:-1]]


def read_all(
    connection: Connection, topic: str, tags: str, enough: Callable[[set[int]], bool]
) -> list[int]:
    """Every body that a new group gets until *enough*."""
    group = f"reader-{time.monotonic_ns()}"
    with connection.consumer(group, topic, Subscription.tags(tags)) as member:
        return read_until(member, lambda bodies: enough(set(bodies)))


def read_until(member: GroupConsumer, enough: Callable[[list[int]], bool]) -> list[int]:
    """Every body that a member gets until *enough*."""
    bodies: list[int] = []

    def read() -> bool:
        for batch in member.poll(0.5):
            bodies.extend(map(int, batch.bodies()))
        return enough(bodies)

    wait_until(read, lambda: f"{len(bodies)} messages came")
    return bodies


def test_send_consume_and_look_up(connection: Connection) -> None:
    connection.topics.create("Trade", 2)
    with connection.producer() as producer:
        sent = producer.send("Trade", b"17", tags="pay", keys=["order-17"])
        producer.send("Trade", b"18", tags="order")
    assert read_all(connection, "Trade", "pay", lambda found: 17 in found) == [17]
    viewed = connection.messages.view(sent.offset_message_id)
    assert viewed is not None
    assert (viewed.body, viewed.unique_key) == (b"17", sent.message_id)
    for key in ("order-17", sent.message_id):
        assert [message.body for message in connection.messages.query("Trade", key)] == [b"17"]
    stored = viewed.store_timestamp_ms
    found = connection.messages.query_by_time("Trade", stored, stored + 10_000)
    assert [message.body for message in found] == [b"17", b"18"]
    assert connection.messages.query_by_time("Trade", 0, stored - 1) == []
    assert connection.messages.view(sent.offset_message_id[:-4] + "FFFF") is None


def test_a_second_node_on_the_directory_is_refused_and_a_connection_is_not(node: Node) -> None:
    with pytest.raises(StoreLockedError, match="another process runs a node"):
        Node(node.data)
    with ensure_node(node.data) as connection:
        assert isinstance(connection.topics.all(), dict)


def test_the_nodes_own_ray_has_no_process_that_nothing_uses(node: Node) -> None:
    assert node.connection().topics.all() is not None
    programs = [
        (path / "cmdline").read_bytes()
        for path in Path("/proc").glob("[0-9]*")
        if _parent(path) == os.getpid()
    ]
    assert any(b"gcs_server" in program for program in programs)
    idle = (b"autoscaler/_private/monitor.py", b"log_monitor.py", b"dashboard/dashboard.py")
    assert [program for program in programs if any(name in program for name in idle)] == []


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0  # it has ended


def test_actors_run_at_the_priority_of_the_program_that_started_the_node(
    connection: Connection,
) -> None:
    """Ray's default is nice 15: a program that computes would take nearly all of the processor."""
    connection.topics.ensure("Nice", 1)
    actors = [
        find_actor(DEFAULT_CLUSTER, services_of("")),
        find_actor(DEFAULT_CLUSTER, COORDINATOR_NAME),
    ]
    pids = [*ray.get([actor.pid.remote() for actor in actors]), connection.filters.statistics().pid]
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert [os.getpriority(os.PRIO_PROCESS, pid) for pid in pids] == [own] * 3
    victims = {Path(f"/proc/{pid}/oom_score_adj").read_text() for pid in pids}
    assert victims == {"0\n"}  # Ray's default is 1000: the kernel kills them before all others


def test_the_nodes_own_ray_kills_no_actor_for_the_memory_of_other_programs(node: Node) -> None:
    """With Ray's monitor, a machine that is 95 % full has no node: each actor is killed at once."""
    raylet = Path(node.description()["logs"]) / "raylet.out"
    [said] = re.findall(r"ThresholdMemoryMonitor (\w+)", raylet.read_text())
    assert said == "disabled"


def test_no_node_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(NodeNotRunningError, match="rocketray start --data"):
        Connection.open(tmp_path)


@pytest.mark.proves("durability", "A message acknowledged to a producer that is killed is kept")
def test_what_a_killed_producer_was_told_is_stored(
    node: Node, connection: Connection, tmp_path: Path
) -> None:
    connection.topics.ensure("Killed", 2)
    process = Helper(tmp_path / "out", "producer_process.py", node.data, "Killed", 0, 10_000_000)
    wait_until(lambda: sum(s.messages for s in connection.shard_statistics("Killed")) >= 5_000)
    acknowledged = set(process.kill())
    bodies = read_all(connection, "Killed", "*", lambda found: found >= acknowledged)
    assert len(acknowledged) > 1_000
    assert len(bodies) == len(set(bodies))


@pytest.mark.proves("durability", "The death of a shard's process loses no message")
@pytest.mark.proves(
    "producers",
    "A shard that is killed during a batch completes the batch, and does not repeat it",
)
@KILLS
def test_a_killed_shard_loses_and_repeats_nothing(
    node: Node, connection: Connection, tmp_path: Path, kills: int
) -> None:
    topic, count = f"Crash{kills}", 20_000 * kills
    connection.topics.create(topic, 1, queues_per_process=1)
    process = Helper(tmp_path / "out", "producer_process.py", node.data, topic, 0, count)
    shard = ray.get_actor(process_actor(f"{topic}:0"), namespace=namespace_of(DEFAULT_CLUSTER))
    for target in range(5_000, count, 20_000):
        wait_until(partial(has_come_to, connection, topic, target))
        before = ray.get(shard.pid.remote())
        os.kill(before, signal.SIGKILL)
        _wait_for_new_pid(shard, before)
    acknowledged = process.wait()
    assert process.process.returncode == 0
    assert acknowledged == list(range(count))
    bodies = read_all(connection, topic, "even", lambda found: len(found) >= count // 2)
    assert bodies == list(range(0, count, 2))


def has_come_to(connection: Connection, topic: str, count: int) -> bool:
    """Whether so many messages of a topic are stored."""
    return sum(each.max_queue_offset for each in connection.shard_statistics(topic)) >= count


@KILLS
def test_a_killed_process_loses_and_repeats_nothing_of_any_of_its_topics(
    node: Node, connection: Connection, kills: int
) -> None:
    group = f"killed{kills}"
    topics = [f"%RETRY%{group}", f"%DLQ%{group}", "Changelog"]
    for topic in topics:
        connection.topics.ensure(topic, 1, internal=True)
    host = ray.get_actor(services_of(""), namespace=namespace_of(DEFAULT_CLUSTER))
    with connection.producer() as producer:
        for block in range(kills):
            for topic in topics:
                messages = [Message(topic, b"%d" % (block * 500 + n), "even") for n in range(500)]
                producer.send_many(topic, messages)
            before = ray.get(host.pid.remote())
            os.kill(before, signal.SIGKILL)
            _wait_for_new_pid(host, before)
    for topic in topics:
        bodies = read_all(connection, topic, "even", lambda found: len(found) >= 500 * kills)
        assert bodies == list(range(500 * kills))
    [message] = connection.messages.query_by_time("Changelog", 0, 2**62, 1)
    assert connection.messages.view(message.offset_message_id) == message
    connection.topics.delete("Changelog")
    assert connection.shard_statistics(f"%DLQ%{group}")[0].max_queue_offset == 500 * kills


@KILLS
def test_a_killed_process_of_system_topics_delivers_every_delayed_message_once(
    connection: Connection, kills: int
) -> None:
    """The process is killed while it delivers them."""
    topic = f"Later{kills}"
    connection.topics.ensure(topic, 2)
    count = 2_000
    with connection.producer() as producer:
        recalled = producer.send(topic, b"-1", delay=3600)  # it is not due in this test
        assert recalled.recall_handle is not None
        delays = [Delay(delay_ms=1_000 + number * 3) for number in range(count)]
        messages = [Message(topic, b"%d" % number, "even") for number in range(count)]
        producer.begin_many(topic, messages, delays=delays).result()
        assert producer.recall(recalled.recall_handle)
    host = find_actor(DEFAULT_CLUSTER, services_of(""))
    for block in range(kills):
        some = count * (block + 1) // (kills + 2)
        wait_until(partial(has_come_to, connection, topic, some))
        before = ray.get(host.pid.remote())
        os.kill(before, signal.SIGKILL)
        _wait_for_new_pid(host, before)
    bodies = read_all(connection, topic, "even", lambda found: len(found) >= count)
    assert sorted(bodies) == list(range(count))
    assert not connection.delays.recall(recalled.recall_handle), "it was recalled before the kills"


def _wait_for_new_pid(actor: ray.actor.ActorHandle, before: int) -> None:
    """Wait until another process answers for *actor*."""

    def is_back() -> bool:
        try:
            return bool(ray.get(actor.pid.remote(), timeout=patience(10)) != before)
        except RayError:  # it has ended, or does not answer yet
            return False

    wait_until(is_back, "the actor does not come back")


@pytest.mark.proves(
    "durability",
    "The death of a consumer, the filter actor or the coordinator loses no message",
)
def test_a_killed_member_is_replaced_and_nothing_is_missed(
    node: Node, connection: Connection, tmp_path: Path
) -> None:
    connection.topics.ensure("Members", 2)
    with connection.producer() as producer:
        messages = [
            Message("Members", b"%d" % n, "even" if n % 2 == 0 else "odd") for n in range(20_000)
        ]
        producer.send_many("Members", messages)
    first = Helper(tmp_path / "out", "member_process.py", node.data, "Members", "survivors", "even")
    wait_until(first.printed, "the first member gets nothing")
    got = first.kill()
    wanted = set(range(0, 20_000, 2))
    with connection.consumer("survivors", "Members", Subscription.tags("even")) as second:
        bodies = read_until(second, lambda bodies: set(got) | set(bodies) >= wanted)
    assert set(got) | set(bodies) == wanted


def test_the_filter_and_the_coordinator_come_back(node: Node, connection: Connection) -> None:
    connection.topics.ensure("Back", 1)
    with (
        connection.producer() as producer,
        connection.consumer("back", "Back", Subscription.sql("n >= 10")) as member,
    ):
        for name in ("filter", "coordinator"):
            actor = ray.get_actor(name, namespace=namespace_of(DEFAULT_CLUSTER))
            os.kill(ray.get(actor.pid.remote()), signal.SIGKILL)
        for number in range(20):
            producer.send("Back", b"%d" % number, properties={"n": str(number)})
        found = read_until(member, lambda bodies: len(bodies) >= 10)
    assert found == [*range(10, 20)]
    filters = read_filters(config_directory(node.data) / "consumerFilter.json")
    assert filters["Back"]["back"].subscription.expression == "n >= 10"


def test_a_killed_shard_keeps_filter_bitmaps_again(node: Node, connection: Connection) -> None:
    connection.topics.create("Bits", 1, queues_per_process=1)
    filters = filters_file(shard_directory(node.data, "Bits", 0))
    shard = ray.get_actor(process_actor("Bits:0"), namespace=namespace_of(DEFAULT_CLUSTER))
    found: list[int] = []
    with (
        connection.producer() as producer,
        connection.consumer("bits", "Bits", Subscription.sql("n < 5")) as member,
    ):
        assert isinstance(member, GroupConsumer)
        for round_ in range(2):
            assert connection.topics.set_bitmaps("Bits", "on").bitmaps == "on"
            wait_until(
                filters.exists
            )  # a member that was silent for long is told of a little later
            assert connection.shard_statistics("Bits")[0].keeps_bitmaps
            assert "bits" in read_filters(filters)["Bits"]
            time.sleep(0.01)  # what is stored in the millisecond in which a filter is born passes
            before = member.counters()
            messages = [
                Message("Bits", b"%d" % (1000 * round_ + n), properties={"n": str(n)})
                for n in range(1000)
            ]
            producer.send_many("Bits", messages)
            found += read_until(member, lambda bodies: len(bodies) >= 5)
            wait_until(partial(has_scanned, member, before))
            assert (member.counters() - before).bloom_rejected == 995
            if round_:
                break
            old = connection.shard_statistics("Bits")[0].epoch
            pid = ray.get(shard.pid.remote())
            os.kill(pid, signal.SIGKILL)
            _wait_for_new_pid(shard, pid)
            assert connection.shard_statistics("Bits")[0].epoch > old
    assert found == [*range(5), *range(1000, 1005)]
    connection.topics.delete("Bits")


def has_scanned(member: GroupConsumer, before: FilterCounters) -> bool:
    """Whether it has read all of the thousand messages since then; it reads as it polls."""
    member.poll(0.1)
    return (member.counters() - before).scanned >= 1000


def test_tables_and_calls_reach_the_same_log(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.topics.ensure("Remote", 2)
    table = pa.table({"body": [str(n) for n in range(5_000)], "tags": ["t"] * 5_000})
    monkeypatch.setattr(RayTransport, "is_local", lambda *_: False)
    with connection.producer() as producer:
        assert len(producer.send_many("Remote", table, ack="disk")) == 5_000
    bodies = read_all(connection, "Remote", "t", lambda found: len(found) >= 5_000)
    assert sorted(bodies) == list(range(5_000))


def test_a_member_of_another_node_reads_through_the_gateway(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.topics.ensure("Far", 2)
    with connection.producer() as producer:
        for number in range(100):
            producer.send_async("Far", b"%d" % number, tags=("a", "b")[number % 2])
    monkeypatch.setattr(RayTransport, "is_local", lambda *_: False)
    found = read_all(connection, "Far", "a", lambda found: len(found) == 50)
    assert sorted(found) == list(range(0, 100, 2))
    with connection.consumer("far", "Far", Subscription.tags("a")) as member:
        sources = cast("DiskStreams", member._streams)._sources
        assert {disk: type(source) for disk, source in sources.items()} == {"": FetchedStreams}


def test_a_hard_label_selector_binds_every_actor_to_the_disk(connection: Connection) -> None:
    """Ray never runs one where no raylet has the label, and so the directory."""
    connection.topics.ensure("Labels", 1)
    connection.topics.ensure("HostedLabels", 1, internal=True)
    coordinator = find_actor(DEFAULT_CLUSTER, COORDINATOR_NAME)
    ray.get(coordinator.open_gateway.remote(""))
    home = ray.get(coordinator.home.remote())
    assert home.ray_node == ""
    wanted = {DISK_LABEL: home.uuid}
    (raylet,) = ray.nodes()
    assert wanted.items() <= raylet["Labels"].items()
    state: Any = ray._private.state.state
    rows = state._connect_and_get_accessor().get_actor_table(None, None)
    actors: list[Any] = [gcs_pb2.ActorTableData.FromString(row) for row in rows]
    bound = {each.class_name for each in actors if dict(each.label_selector) == wanted}
    kinds = {"Coordinator", "Filter", "Gateway", "ShardProcess"}
    assert bound >= {f"{kind}Actor" for kind in kinds}
    ours = [each for each in actors if each.class_name in bound]
    assert all(dict(each.label_selector) == wanted for each in ours)
    assert not any(each.fallback_strategy.options for each in ours)


def test_a_transaction_survives_the_death_of_its_process(connection: Connection) -> None:
    connection.topics.ensure("Paid", 1)
    with NodeProducer(connection, group="payments", check=lambda _: "unknown") as producer:
        first, second = begin(producer, "Paid", b"1"), begin(producer, "Paid", b"2")
        with begin(producer, "Paid", b"3"):
            pass
        assert read_all(connection, "Paid", "*", lambda found: 3 in found) == [3]
        os.kill(ray.get(find_actor(DEFAULT_CLUSTER, services_of("")).pid.remote()), signal.SIGKILL)
        second.commit()
        first.rollback()
    assert read_all(connection, "Paid", "*", lambda found: 2 in found) == [3, 2]


def test_explain_finds_what_is_not_in_its_topic_yet_and_knows_after_a_restart(
    connection: Connection,
) -> None:
    connection.topics.ensure("Why", 1)
    everything = Subscription.tags("*")
    with connection.consumer("why", "Why", everything) as member:
        member.poll(0.1)
    with NodeProducer(connection, group="deciders", check=lambda _: "unknown") as transactions:
        half = begin(transactions, "Why", b"half")
        back = begin(transactions, "Why", b"back")
        back.rollback()
        with connection.producer() as producer:
            sent = [producer.send("Why", b"", delay=delay) for delay in (60, 60, 0.1)]
            assert sent[1].recall_handle is not None
            assert producer.recall(sent[1].recall_handle)
        expected = {
            half.message_id: Cause.HALF_MESSAGE,
            back.message_id: Cause.ROLLED_BACK,
            sent[0].offset_message_id: Cause.DELAYED,
            sent[1].offset_message_id: Cause.RECALLED,
        }
        found = {wanted: connection.explain(wanted, "why").cause for wanted in expected}
        assert found == expected
    with connection.consumer("why", "Why", everything) as member:
        while not (batches := member.poll(1.0)):
            pass
        member.commit("Why", 0, batches[-1].next_queue_offset)
    with connection.producer() as producer:
        skipped = producer.send("Why", b"")
    [group] = [each for each in connection.groups.all() if each.group == "why"]
    moves = plan_moves(connection, [group], to="latest")
    carry_out(connection.groups, moves, patience(30), who="a test")
    os.kill(ray.get(find_actor(DEFAULT_CLUSTER, COORDINATOR_NAME).pid.remote()), signal.SIGKILL)
    wait_until(partial(has_journal, connection, "why"))
    assert connection.explain(sent[2].offset_message_id, "why").cause is Cause.DELIVERED
    told = connection.explain(skipped.message_id, "why")
    assert told.cause is Cause.SKIPPED
    assert told.steps[-1].detail.endswith("by a test")


def has_journal(connection: Connection, group: str) -> bool:
    """Whether the coordinator, which may be starting again, knows the group's past."""
    with contextlib.suppress(ShardUnavailableError):
        return bool(connection.groups.journal(group))
    return False


@pytest.mark.proves("producers", "A node's acknowledgement is kept for the next start")
def test_a_node_that_was_stopped_starts_with_all_it_had_and_another_process_joins(
    tmp_path: Path,
) -> None:
    """In processes of their own, as this one's Ray belongs to the module's node, with nothing set.

    They have Ray's own defaults: authentication on, and Ray imported before rocketray.
    """
    environment = {name: text for name, text in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, str(SUPPORT / "restart_node.py"), str(tmp_path / "data")],
        capture_output=True,
        text=True,
        timeout=patience(200),
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[-3:-1] == [
        "hello from Guests",
        "100 messages, offset 60, 40 left, ack disk",
    ]
    assert not node_file(tmp_path / "data").exists()
