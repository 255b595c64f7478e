"""A node whose Ray dies ends soon, says why, and leaves the directory to the next one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.harness.command_server import CommandServer
from support.harness.commands import COMMAND, ONE_PROCESS, printed, rocketray, start_node, stop_node
from support.harness.patience import patience, wait_until
from support.harness.process_tree import children_of
from support.nodes.another_ray import AnotherRay, another_ray, runs

from rocketray.runtime.files.paths import identity_file
from rocketray.runtime.ray_process.ray_runtime import DISK_LABEL

EMBEDDING = Path(__file__).parent.parent / "support/programs" / "embedding.py"
STAYING = """
import logging, sys, time
from rocketray.actors.client.connection import Connection

logging.basicConfig(level=logging.INFO)
with Connection.open(sys.argv[1]) as client:
    client.topics.all()
    print("ready", flush=True)
    time.sleep(600)
"""
AWAY = "does not answer: what needs it has to wait"
BACK = "Ray's GCS answers again"
ONE_OR_BOTH = pytest.mark.parametrize(
    "server", ["gcs_server", pytest.param("raylet", marks=pytest.mark.slow)]
)
pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


def children(pid: int) -> dict[str, int]:
    """The processes below *pid*, by the name of their program or the title that they gave it."""
    return {name: each for each, name in children_of(pid).items()}


def lines_of_others(log: Path) -> list[str]:
    """What stands in the terminal of ``rocketray start`` and is not of ours, as Ray's C++ lines."""
    ours = (
        *("starting a node on ", "still starting ", "ready: ", "logs: ", "try: "),
        *("the actors depend on ", "the node on "),
    )
    return [line for line in log.read_text().splitlines() if not line.startswith(ours)]


def check_is_told(errors: str) -> None:
    """What a command prints for which there is no node: one line, which names what to do."""
    (line,) = (each for each in errors.splitlines() if not each.startswith("still "))
    assert line.startswith("rocketray: ")
    assert "rocketray start" in line


@pytest.mark.proves("durability", "The node ends with its Ray and the next one starts")
@ONE_OR_BOTH
def test_a_node_ends_with_its_ray_and_the_next_one_starts(tmp_path: Path, server: str) -> None:
    data, log = tmp_path / "data", tmp_path / "log"
    node = start_node(data, log, *ONE_PROCESS)
    try:
        with CommandServer(os.environ) as run:
            for command in (
                ("topics", "create", "Trade", "--queues", "2"),
                ("send", "Trade", "kept", "--ack", "disk"),
            ):
                done = run(*command, "--data", data)
                assert done.code == 0, done.err
        servers = children(node.pid)
        workers = children(servers["raylet"])
        assert any("Shard" in name for name in workers), workers
        stderr_of_ray = Path(f"/proc/{node.pid}/fd/2").readlink()
        assert (stderr_of_ray.parent.name, stderr_of_ray.name) == ("logs", "commands.err")
        os.kill(servers[server], signal.SIGKILL)
        during = subprocess.Popen(
            [COMMAND, "topics", "list", "--data", str(data)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert node.wait(patience(60)) == 1
        answer, told = during.communicate(timeout=patience(60))
    finally:
        if node.poll() is None:
            node.kill()
    if during.returncode == 0:  # the node answered before it knew
        assert b"Trade" in answer
    else:
        check_is_told(told.decode())
    after = rocketray("topics", "list", "--data", data)
    assert after.returncode == 1
    check_is_told(after.stderr)
    said = [line for line in log.read_text().splitlines() if "Ray is lost" in line]
    assert len(said) == 1
    assert str(data) in said[0]
    assert said[0].endswith(f"start it again with: rocketray start --data {data}")
    (own_log,) = (data / "logs").glob("node.*.log")
    assert said[0] in own_log.read_text()
    assert lines_of_others(log) == []
    assert [pid for pid in (*servers.values(), *workers.values()) if runs(pid)] == []
    assert not (data / "node.json").exists()
    again = start_node(data, tmp_path / "again")
    try:
        found = printed(rocketray("query", "Trade", "--from", "0", "--json", "--data", data))
        assert len(found) == 1
    finally:
        stop_node(again)


@pytest.mark.proves(
    "durability",
    "A Ray that the node did not start is left alone, and left actors are ended by the next start",
)
@pytest.mark.slow
@pytest.mark.parametrize("server", ["gcs_server", "raylet"])
def test_a_node_ends_with_another_s_ray_and_leaves_that_alone(tmp_path: Path, server: str) -> None:
    data, log = tmp_path / "data", tmp_path / "log"
    with another_ray() as joined:
        options = "--ray-address", joined.address, *ONE_PROCESS
        soon = {**joined.environ, "RAY_gcs_rpc_server_reconnect_timeout_s": "10"}
        node = start_node(data, log, *options, environ=soon)
        try:
            done = rocketray(
                *("topics", "create", "Trade", "--queues", "1", "--data", data),
                environ=joined.environ,
            )
            assert done.returncode == 0, done.stderr
            servers = joined.servers()
            workers = children(servers["raylet"])
            os.kill(servers.pop(server), signal.SIGKILL)
            assert node.wait(patience(60)) == 1, log.read_text()
            left = [pid for pid in (*servers.values(), *workers.values()) if runs(pid)]
        finally:
            if node.poll() is None:
                node.kill()
        assert "the actors depend on the raylet that runs on" in log.read_text()
        assert "they and the node end with it; then start the node again" in log.read_text()
        (said,) = [line for line in log.read_text().splitlines() if "Ray is lost" in line]
        assert f"the node on {data} ends: " in said
        assert "start it again when its Ray runs again" in said
        assert [line for line in lines_of_others(log) if AWAY not in line] == []
        if server == "gcs_server":  # its raylet waits a minute for it, and so do its actors
            assert servers["raylet"] in left
            for actor in ("CoordinatorActor", "FilterActor", "ShardProcessActor"):
                (pid,) = [
                    pid for name, pid in workers.items() if name.startswith(f"ray::{actor}"[:15])
                ]
                assert f"{actor} {pid}" in said
                assert pid in left
        else:
            assert servers["gcs_server"] in left
        assert not (data / "node.json").exists()
        if server == "raylet":
            uuid = json.loads(identity_file(data).read_bytes())["uuid"]
            joined.start_raylet(f"--labels={DISK_LABEL}={uuid}")
            assert "depend on the raylet" not in start_again(data, tmp_path / "2.log", joined)
    if server == "gcs_server":
        with another_ray() as joined:
            assert "depend on the raylet" in start_again(data, tmp_path / "2.log", joined)


@pytest.mark.slow
def test_a_node_ends_when_its_ray_dies_while_it_stops(tmp_path: Path) -> None:
    data, log = tmp_path / "data", tmp_path / "log"
    node = start_node(data, log, *ONE_PROCESS)
    try:
        gcs = children(node.pid)["gcs_server"]
        os.kill(gcs, signal.SIGSTOP)  # so the node waits for it in the middle of stopping
        node.send_signal(signal.SIGTERM)
        wait_until(lambda: "stopping" in log.read_text(), log.read_text)
        time.sleep(3.0)  # it would have stopped
        assert node.poll() is None
        os.kill(gcs, signal.SIGKILL)
        assert node.wait(patience(60)) == 1, log.read_text()
    finally:
        if node.poll() is None:
            node.kill()
    assert "Ray is lost" in log.read_text()


@pytest.mark.slow
def test_a_gcs_that_stands_still_is_told_by_node_and_client_which_wait_for_it(
    tmp_path: Path,
) -> None:
    """Its kernel takes connections for it, as on a machine that is too busy."""
    data, log, said = tmp_path / "data", tmp_path / "log", tmp_path / "said"
    node = start_node(data, log, *ONE_PROCESS)
    with said.open("w") as output:
        client = subprocess.Popen(
            [sys.executable, "-c", STAYING, str(data)], stdout=output, stderr=output
        )
    try:
        wait_until(lambda: "ready" in said.read_text(), said.read_text)
        gcs = children(node.pid)["gcs_server"]
        os.kill(gcs, signal.SIGSTOP)
        (own_log,) = (data / "logs").glob("node.*.log")
        for told in (own_log, said):
            wait_until(lambda told=told: AWAY in told.read_text(), told.read_text)  # type: ignore[misc]
        time.sleep(75)  # Ray waits for a minute where no connection is left
        assert (node.poll(), client.poll()) == (None, None)
        os.kill(gcs, signal.SIGCONT)
        for told in (own_log, said):
            wait_until(lambda told=told: BACK in told.read_text(), told.read_text)  # type: ignore[misc]
        assert "Trade" in rocketray("topics", "create", "Trade", "--data", data).stdout
    finally:
        for process in (client, node):
            process.terminate()
            process.wait(patience(60))


@pytest.mark.slow
def test_a_node_whose_process_is_killed_has_a_last_word(tmp_path: Path) -> None:
    data, log = tmp_path / "data", tmp_path / "log"
    node = start_node(data, log, *ONE_PROCESS)
    node.kill()
    node.wait()
    told = f"the node on {data} has ended without a report, pid {node.pid}: "
    (own_log,) = (data / "logs").glob("node.*.log")
    for path in (log, own_log):
        wait_until(lambda path=path: told in path.read_text(), path.read_text)  # type: ignore[misc]


def start_again(data: Path, log: Path, joined: AnotherRay) -> str:
    """What a node says that starts once more, has its topic, and stops."""
    node = start_node(data, log, "--ray-address", joined.address, environ=joined.environ)
    done = rocketray("topics", "list", "--data", data, environ=joined.environ)
    assert "Trade" in done.stdout
    stop_node(node)
    return log.read_text()


@pytest.mark.proves(
    "durability",
    "A program with a node gets a `NodeNotRunningError` when Ray is lost",
)
@pytest.mark.slow
@ONE_OR_BOTH
def test_a_node_in_a_program_says_that_its_ray_is_lost_and_gives_the_directory_back(
    tmp_path: Path, server: str
) -> None:
    data = tmp_path / "data"
    done = subprocess.run(
        [sys.executable, str(EMBEDDING), str(data), server],
        capture_output=True,
        text=True,
        timeout=patience(200),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    (said,) = set(found["said"])
    assert said.startswith(f"NodeNotRunningError: the node on {data} ends: Ray is lost, its ")
    assert said.endswith(f"start it again with: rocketray start --data {data}")
    assert found["stored"] == 1
