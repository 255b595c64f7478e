"""A cluster of two disks on two machines: queues on both, each machine used from the other, faults."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from support.harness.commands import COMMAND, ONE_PROCESS
from support.harness.patience import patience, wait_until
from support.harness.source_tree import ROOT
from support.nodes.disk_cluster import NAME, Cluster, Watch, cluster_of_two, nothing_is_lost
from support.nodes.machines_apart import ELSEWHERE
from support.programs.joined_apps import FILES

from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.runtime.files.home import identity_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(360)]
EACH = 50


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with cluster_of_two() as found:
        yield found


@pytest.fixture(scope="module")
def filled(cluster: Cluster) -> dict[str, Any]:
    """What the driver found that sent the messages of most tests, from the first machine."""
    return cluster.drive("fill")


@pytest.fixture(scope="module")
def consumed(cluster: Cluster, filled: dict[str, Any]) -> dict[str, Any]:
    """What the groups got that read those messages, on the second machine."""
    return cluster.drive("consume", tuple(cluster.machines.on_second()))


@pytest.fixture(scope="module")
def later(cluster: Cluster) -> dict[str, Any]:
    """What became of messages with a delay and in transactions, in a topic of their own."""
    return cluster.drive("later", tuple(cluster.machines.on_second()))


def test_queues_are_spread_over_both_disks_and_each_machine_uses_both(
    cluster: Cluster, filled: dict[str, Any], consumed: dict[str, Any]
) -> None:
    assert f"joined: cluster {NAME}, whose coordinator is on {cluster.data} of" in cluster.said(
        "second"
    )
    spread = ["", cluster.disk, "", cluster.disk]
    assert sorted(filled["places"]["Trade"]) == sorted(spread)
    assert sorted(filled["places"]["Small"]) == sorted(spread[:2])
    assert filled["by key"] == 4 * EACH
    shards = {
        disk: {
            path.parent.name
            for path in (cluster.directory / disk).glob("shards/Trade/*/store.json")
        }
        for disk in ("data", "second")
    }
    assert sorted(map(len, shards.values())) == [2, 2]
    assert not shards["data"] & shards["second"]
    assert (consumed["paid"], consumed["dear"], consumed["small"]) == (2 * EACH, 40, 10)
    assert consumed["lag"] == {"audit": 0, "dear": 0}
    disks = {each["disk"]: each for each in cluster.topology() if "disk" in each}
    assert disks[cluster.disk]["machine"] == ELSEWHERE
    picture = cluster.directory / "cluster.svg"
    assert cluster.ask("topology", "--svg", str(picture)).code == 0
    assert all(f">{uuid}</text>" in picture.read_text() for uuid in disks)
    assert {(each["state"], each["isCoordinator"]) for each in disks.values()} == {
        ("answers", True),
        ("answers", False),
    }


@pytest.mark.proves(
    "durability",
    "Delayed messages, transactions and retries are on the disk of their queue, also while the "
    "machine of the first disk is down, and on another disk while that of the queue is",
)
def test_messages_wait_for_their_delay_and_their_decision_on_the_disk_of_their_queue(
    later: dict[str, Any],
) -> None:
    assert later["beside"] == [[True] * 3] * 2
    assert later["arrived"] == [0, 0, 0, 1, 1, 1]


def test_actors_that_were_killed_return_to_their_disk_with_all_that_they_had(
    cluster: Cluster,
) -> None:
    killed = cluster.drive("kill", tuple(cluster.machines.on_second()))
    assert set(killed["same machine"].values()) == {True}
    assert {name.partition("@")[0] for name in killed["same machine"]} >= {
        "filter",
        "shards:shared",
    }
    assert killed["machines"] == 2
    assert killed["offsets"] == [EACH] * 4


@pytest.mark.proves("spark", "Spark on another machine writes into queues of several disks")
@pytest.mark.proves("spark", "The options `cluster` and `rayAddress`")
@pytest.mark.proves("ray-data", "With `cluster`, tasks read any disk from any machine")
@pytest.mark.slow
@pytest.mark.usefixtures("filled")
def test_spark_and_ray_data_use_the_queues_of_both_disks_from_the_second_machine(
    cluster: Cluster,
) -> None:
    read = cluster.drive("spark", tuple(cluster.machines.on_second()))
    stored = [(queue, offset) for queue in range(4) for offset in range(EACH)]
    assert read["dear"] == [[q, at, f"{q}-{at}"] for q, at in stored if at >= 40]
    assert read["paid"] == [[q, at, f"{q}-{at}"] for q, at in stored if at % 2]
    assert read["dataset"] == read["dear"]
    assert read["copied"] == sorted([q, f"{q}-{at}"] for q, at in stored if at % 2)
    assert read["copied to"] == 2


@pytest.mark.slow
@pytest.mark.usefixtures("filled")
def test_a_tail_and_a_console_show_the_queues_of_both_disks(cluster: Cluster) -> None:
    address = "--ray-address", cluster.machines.address
    tail = "tail", "Trade", "--sql", "amount >= 48", "--from", "earliest", "--max", "8"
    expected = [[queue, offset] for queue in range(4) for offset in (48, 49)]
    second = tuple(cluster.machines.on_second())
    lines = cluster.ask(*tail, "--json").lines()
    assert sorted([one["queueId"], one["queueOffset"]] for one in lines) == expected
    printed = cluster.run("--cluster", NAME, *address, *tail, prefix=second)
    assert "scanned 200, 192 rejected by SQL, matched 8" in printed
    command = [COMMAND, "--cluster", NAME, *address, "console", "--port", "0", "--until-eof"]
    console = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=dict(cluster.machines.environ),
    )
    assert console.stdin is not None
    assert console.stdout is not None
    try:
        link = console.stdout.readline().split()[-1]
        base, _, token = link.partition("/?token=")
        shown = f"{base}/tail.json?topic=Trade&kind=SQL92&filter=amount%3E%3D48"
        asked = Request(shown, headers={"Authorization": f"Bearer {token}"})
        with urlopen(asked, timeout=patience(60)) as answer:
            record = json.load(answer)
    finally:
        console.communicate(timeout=patience(60))
    places = sorted([one["queueId"], one["queueOffset"]] for one in record["messages"])
    assert (places, record["complete"], record["unread"]) == (expected, True, [])


@pytest.mark.slow
def test_a_table_of_an_app_is_rebuilt_on_the_machine_without_its_changelog(
    cluster: Cluster,
) -> None:
    counted = cluster.drive("count", tuple(cluster.machines.on_second()))
    assert counted == {"first": {"blue": 1, "red": 2}, "second": {"blue": 2, "red": 4}}


@pytest.mark.proves(
    "stock-faust",
    "The URL names a cluster, and an app on any machine reads the queues of all disks, also of "
    "those that move",
)
@pytest.mark.slow
@pytest.mark.usefixtures("filled")
def test_a_stock_app_reads_the_queues_of_both_disks_from_the_second_machine(
    cluster: Cluster,
) -> None:
    read = cluster.drive("stock", tuple(cluster.machines.on_second()))
    assert read["got"] == [[queue, offset] for queue in range(4) for offset in range(EACH)]


@pytest.mark.slow
def test_a_broker_s_messages_are_imported_from_a_machine_without_all_the_disks(
    cluster: Cluster,
) -> None:
    second = tuple(cluster.machines.on_second())
    address = "--ray-address", cluster.machines.address
    source = str(ROOT / "tests" / "data" / "rocketmq" / "store-v1")
    run = ("--cluster", NAME, *address, "store", "import", source, "--all", "--json")
    report = json.loads(cluster.run(*run, prefix=second).splitlines()[-1])
    assert report["complete"]
    assert report["imported"] > 0
    topics = {each["topic"] for each in report["queues"]}
    disks = {each["topic"]: each["queues"] for each in cluster.topology() if "topic" in each}
    assert any(len(disks[topic]) == 2 for topic in topics)
    again = json.loads(cluster.run(*run, prefix=second).splitlines()[-1])
    assert (again["imported"], again["alreadyThere"]) == (0, report["imported"])


@pytest.mark.parametrize(
    ("machine", "phase"),
    [pytest.param("first", "move", marks=pytest.mark.slow), ("second", "move_in_shared_process")],
)
def test_a_queue_moves_to_the_other_disk_and_back_while_it_is_used(
    cluster: Cluster, machine: str, phase: str
) -> None:
    prefix = tuple(cluster.machines.on_second()) if machine == "second" else ()
    moved = cluster.drive(phase, prefix)
    assert moved["errors"] == moved["lost"] == []
    assert moved["repeated"] == 0
    assert moved["in order"]
    assert moved["by id"]
    assert moved["end"] == moved["sent"]


@pytest.mark.slow
@pytest.mark.usefixtures("consumed")
def test_the_backups_of_both_disks_are_restored_as_a_cluster_beside_the_original(
    cluster: Cluster,
) -> None:
    second = tuple(cluster.machines.on_second())
    address = "--ray-address", cluster.machines.address
    for machine, prefix in (("first", ()), ("second", second)):
        backup, data = (
            cluster.directory / f"{what} {machine}" for what in ("backup of", "copy of")
        )
        cluster.run("backup", str(backup), "--data", str(cluster.data), prefix=prefix)
        restore = ("restore", str(backup), "--cluster", "copy", "--data", str(data))
        said = cluster.run(*restore, prefix=prefix)
        joins = "--join " if prefix else ""
        assert f"rocketray start --cluster copy {joins}--ray-address HOST:PORT --data" in said
    cluster.start("copy", *ONE_PROCESS, name="copy", data=cluster.directory / "copy of first")
    status = " ".join(cluster.ask("status", name="copy").out.split())
    assert f"restored from a backup of {cluster.data}, has not joined yet" in status
    data = cluster.directory / "copy of second"
    kept = TopicCatalog.load(data)
    queue_id = kept.get("Trade").by_disk()[""][0]
    kept.with_disk("Trade", queue_id, identity_of(data)).save(data)  # as if it was moved meanwhile
    joining = "start", "--join", "--cluster", "copy", *address, "--data", str(data)
    refused = " ".join(cluster.run(*joining, code=1, prefix=second).split())
    assert f"and not by that of the first disk: Trade/{queue_id}. Restore backups" in refused
    kept.save(data)
    cluster.start("second copy", "--join", prefix=second, name="copy", data=data)
    copy = cluster.drive("state", second, name="copy")
    cluster.stop("second copy", data, prefix=second)
    cluster.stop("copy", cluster.directory / "copy of first")
    assert len(copy["messages"]) == sum(copy["offsets"]) == 4 * EACH
    assert copy["groups"].keys() >= {"audit", "dear"}
    assert copy == cluster.drive("state")


@pytest.mark.slow
def test_one_program_on_each_machine_handles_each_reading_once(cluster: Cluster) -> None:
    example = str(ROOT / "examples" / "several_machines.py")
    address = cluster.machines.address
    environ = {**cluster.machines.environ, "ROCKETRAY_CLUSTER": NAME, "RAY_ADDRESS": address}
    logs = [cluster.directory / f"{machine} program" for machine in ("first", "second")]
    programs = []
    for log, prefix in zip(logs, ([], cluster.machines.on_second()), strict=True):
        with log.open("w") as output:
            command = [*prefix, sys.executable, example]
            programs.append(subprocess.Popen(command, stdout=output, stderr=output, env=environ))
    try:
        wait_until(lambda: len(_handled(logs)) >= 40, lambda: [log.read_text() for log in logs])
        handled = _handled(logs)
    finally:
        for program in programs:
            program.terminate()
        for program in programs:
            program.wait(patience(60))
    assert handled == _handled(logs)
    assert sorted(set(handled)) == sorted(handled)
    machines = {socket.gethostname(), ELSEWHERE}
    assert set(handled) == {(machine, n) for machine in machines for n in range(20)}


def _handled(logs: list[Path]) -> list[tuple[str, int]]:
    """The readings that the example's instances printed: the machine that sent it, the number."""
    lines = [line.split() for log in logs for line in log.read_text().splitlines()]
    return [(line[4].rstrip(","), int(line[2])) for line in lines if line[1:2] == ["handles"]]


@pytest.mark.slow
def test_how_long_queues_are_silent_after_each_fault(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """It prints the table of docs/reference/cluster.md, and checks that nothing is lost."""
    watch = Watch(cluster)
    try:
        silence = _silence(cluster, watch)
        outcome = watch.end()
    finally:
        watch.kill()
    with capsys.disabled():
        sys.stdout.write(json.dumps({**silence, **outcome}, indent=1))
    nothing_is_lost(outcome.values())


def _silence(cluster: Cluster, watch: Watch) -> dict[str, Any]:
    """Make each fault, and return how long both queues were silent."""
    second = cluster.machines.on_second
    watch.ask("begin")
    time.sleep(5)
    silence = {"nothing": watch.ask("silence")}
    for what in ("shards:Watched", "filter", "gateway@"):  # the spare one stays
        pids = [pid for name, pid in watch.ask("actors").items() if name.startswith(what)]
        assert pids, what
        cluster.enter(second("kill", "-KILL", *map(str, pids)))
        silence[f"{what} killed"] = watch.ask("silence")
    for what, stopped_s in (("shards:Watched", 5), ("shards:Watched", 15), ("filter", 15)):
        pids = [pid for name, pid in watch.ask("actors").items() if name.startswith(what)]
        for signal_name in ("-STOP", "-CONT"):
            cluster.enter(second("kill", signal_name, *map(str, pids)))
            time.sleep(stopped_s if signal_name == "-STOP" else 0)
        silence[f"{what} stopped for {stopped_s} s"] = watch.ask("silence")
    coordinator = watch.ask("coordinator")["coordinator"]
    os.kill(coordinator, signal.SIGSTOP)
    time.sleep(15)
    os.kill(coordinator, signal.SIGCONT)
    silence["coordinator stopped for 15 s"] = watch.ask("silence")
    cluster.machines.lose_second()
    cluster.nodes["second"].wait(patience(60))
    time.sleep(10)
    cluster.machines.start_second()
    cluster.start_second()
    silence["machine away for 10 s and its start"] = watch.ask("silence")
    return silence


@pytest.mark.slow
def test_an_app_that_one_machine_has_is_run_by_hosts_on_both(cluster: Cluster) -> None:
    """The hosts that are left are those of the next test, in which one's machine is lost."""
    second = cluster.machines.on_second
    there = "/dev/shm/parcels"
    for name, text in FILES.items():
        write = f'mkdir -p {there} && printf %s "$1" > {there}/{name}'
        cluster.enter(second("sh", "-c", write, "sh", text))
    address = "--ray-address", cluster.machines.address
    command = "--cluster", NAME, *address
    in_directory = tuple(second("sh", "-c", f'cd {there} && exec "$@"', "sh"))
    said = cluster.run(
        *(*command, "up", "parcels:app", "--consumers", "2", "--detach", "--json"),
        prefix=in_directory,
    )
    up = _hosts(said)
    both = sorted([socket.gethostname(), ELSEWHERE])
    assert sorted(host["machine"] for host in up) == both
    handled = cluster.drive("parcels")
    assert handled["queues"] == 4
    assert handled["machines"] == both
    assert set(map(tuple, handled["counts"].values())) == {(1,)}
    said = cluster.ask("scale", "parcels", "3", "--json").out
    assert [(host["host"], host["state"]) for host in _hosts(said)] == [
        (n, "running") for n in range(3)
    ]


def _hosts(said: str) -> list[dict[str, Any]]:
    """The lines of hosts, among which may be lines of progress."""
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


@pytest.mark.proves(
    "durability",
    "Delayed messages, transactions and retries are on the disk of their queue, also while the "
    "machine of the first disk is down, and on another disk while that of the queue is",
)
@pytest.mark.slow
@pytest.mark.usefixtures("consumed", "later")
def test_while_a_machine_is_away_the_other_disk_serves_and_status_says_so(cluster: Cluster) -> None:
    (queues,) = (each["queues"] for each in cluster.topology() if each.get("disk") == cluster.disk)
    cluster.machines.lose_second()
    cluster.nodes["second"].wait(patience(60))
    away = cluster.drive("away")
    assert (away["sent"], away["taken"]) == (2, 2)
    assert len(away["problems"]) == 1
    assert away["problems"][0].startswith(
        f"disk {cluster.disk}, {cluster.data} on {ELSEWHERE}, does not answer; its {queues} queues "
        "are unavailable: start its node there again"
    )
    assert away["anywhere"]
    assert "does not answer" in away["refused"]
    assert away["waiting"] == [True, True], "also for the queue that is away, until it is back"
    assert away["unknown"] == [cluster.disk]
    assert away["created"] == []
    assert away["hosts"] == [["running", socket.gethostname()]] * 3
    cluster.machines.start_second()
    cluster.start_second()
    back = cluster.drive("back")
    assert back["problems"] == []
    offsets = sorted(back["offsets"])
    assert offsets[:2] == [EACH + 1] * 2
    assert sum(offsets[2:]) == 2 * (EACH + 1) + 6  # those that could go anywhere
    assert back["taken"] == ["back", "back"]
    assert back["parcels"]["machines"] == [socket.gethostname()]
    assert set(map(tuple, back["parcels"]["counts"].values())) == {(2,)}, "tables are rebuilt"
    assert "parcels is down" in cluster.ask("down", "parcels").out


@pytest.mark.slow
def test_mistakes_with_a_disk_are_named_and_change_nothing(cluster: Cluster) -> None:
    second = tuple(cluster.machines.on_second())
    cluster.stop("second", cluster.data, prefix=second)
    address = "--ray-address", cluster.machines.address
    of_disk = "--data", str(cluster.data)
    alone = cluster.run("start", *of_disk, code=1, prefix=second)
    assert f"is a disk of cluster '{NAME}'; start it with: --cluster {NAME}" in alone
    other = cluster.run("start", "--cluster", "other", *address, *of_disk, code=1, prefix=second)
    assert f"is a disk of cluster '{NAME}'" in other
    options = "--join", "--cluster", NAME, *address, *of_disk, "--no-property-filter"
    given = cluster.run("start", *options, code=1, prefix=second)
    assert "--property-filter: a disk that joins cluster 'trade' takes the cluster's" in given
    with_topics = cluster.directory / "own"
    config = with_topics / "config"
    config.mkdir(parents=True)
    (config / "topics.json").write_bytes((cluster.data / "config" / "topics.json").read_bytes())
    full = cluster.run("start", "--cluster", NAME, *address, "--data", str(with_topics), code=1)
    assert "has topics of its own (" in full
