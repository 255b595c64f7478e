"""Real disks that take nothing: one that is mounted to be read only, and some without room."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.harness.commands import COMMAND
from support.harness.patience import patience
from support.nodes.disk_cluster import Watch, cluster_of_two
from support.nodes.machines_apart import ELSEWHERE
from support.nodes.own_mounts import with_mounts

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]
SUPPORT = Path(__file__).parent.parent / "support/programs"
SMALL_DISK, FULL_DISK = (SUPPORT / f"{name}_disk.py" for name in ("small", "full"))


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=patience(150), check=False
    )


def test_a_node_on_a_disk_that_is_read_only_names_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(0o700)
    mount = 'mount --bind -o ro "$1" "$1"'
    read_only = with_mounts(mount, data)
    done = run([*read_only, COMMAND, "start", "--data", str(data)])
    assert done.returncode == 1
    lines = done.stderr.splitlines()  # also "still starting", where that takes long
    (said,) = [line for line in lines if line.startswith("rocketray: ")]
    assert said.startswith(f"rocketray: no node can run on {data}: Read-only file system: {data}/")
    assert said.endswith("; name a directory that this user can write to with --data")


def test_a_full_disk_is_named_in_one_line_and_the_node_ends_all_the_same(tmp_path: Path) -> None:
    mount = 'mount -t tmpfs -o size=1m,mode=700 none "$1"'
    small = with_mounts(mount, tmp_path)
    done = run([*small, sys.executable, str(SMALL_DISK), str(tmp_path)])
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    full = f"StoreError: {tmp_path}: No space left on device; see: df {tmp_path}"
    sent = found["said"].pop("send")
    assert sent.startswith("StoreFullError: shard Trade/0: the disk of ")
    assert f"see: df {tmp_path}" in sent
    stopped = found["said"].pop("stop")  # the coordinator cannot save, and stops its shards then
    assert stopped.startswith(f"StoreError: {tmp_path}/shards/Trade/0: flushing failed: ")
    assert len(stopped.splitlines()) == 1
    assert found["said"] == dict.fromkeys(("start", "create"), full)
    assert found["topics"] == ["Trade"]


@pytest.mark.proves(
    "durability",
    "A joined disk that is full refuses messages, the other disk takes those without a queue, and "
    "it takes messages again when it has room",
)
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_joined_disk_that_is_full_takes_messages_again_when_it_has_room() -> None:
    with cluster_of_two(room="200m") as cluster:
        second = cluster.machines.on_second
        ballast = str(cluster.data / "ballast")
        driver = Watch(cluster, program=[str(FULL_DISK)])
        try:
            driver.ask("begin")
            cluster.enter(second("fallocate", "--length=80M", ballast))
            filled, full = driver.ask("fill"), driver.ask("full")
            cluster.enter(second("rm", ballast))
            room, end = driver.ask("room"), driver.ask("end")
        finally:
            driver.kill()
    assert filled["sent"] > 0
    assert f"the disk of {cluster.data}, on the machine that rocketray status" in filled["refused"]
    assert full["refused"] == 20
    assert full["anywhere"] == [full["near"]]  # the disk is left out
    (problem,) = full["problems"]
    assert problem.startswith(f"disk {cluster.disk}, {cluster.data} on {ELSEWHERE}, is ")
    assert room["anywhere"] == [0, 1]
    assert room["problems"] == []
    assert (full["all read"], room["all read"]) == (True, True)
    assert (end["missing"], end["unknown"], end["in order"]) == (0, 0, True)
    assert end["read"] == end["sent"]
