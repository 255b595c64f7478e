"""A Ray of two machines that do not see each other's files: the node stays where its directory is.

All slow: test_joined_disk.py kills actors on two machines, and uses both, in each run of the tests.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.harness.commands import COMMAND, ONE_PROCESS, await_ready
from support.harness.patience import patience
from support.nodes.another_ray import SHORT
from support.nodes.machines_apart import ELSEWHERE, MachinesApart, machines_apart

pytestmark = [pytest.mark.integration, pytest.mark.timeout(360), pytest.mark.slow]
ASK = Path(__file__).parent.parent / "support/programs" / "elsewhere.py"
SHARDS = {"shards:shared", "shards:Trade:0"}
HOSTS = {f"app:least:{number}" for number in range(2)}
ACTORS = {"coordinator", "filter", "gateway", "gateway-spare", *SHARDS, *HOSTS}


class Running:
    """A node on the first of two machines."""

    def __init__(self, machines: MachinesApart, data: Path, log: Path) -> None:
        self.machines = machines
        self.data = data
        self._log = log
        with log.open("w") as output:
            command = [COMMAND, "start", "--cluster", "trade", "--ray-address", machines.address]
            command += ["--data", str(data), *ONE_PROCESS]
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, env=dict(machines.environ)
            )
        await_ready(self.process, self.said)

    def said(self) -> str:
        """What it printed so far."""
        return self._log.read_text()


@pytest.fixture(scope="module")
def node() -> Iterator[Running]:
    with (
        # Ray puts sockets there, whose paths have at most 107 characters.
        tempfile.TemporaryDirectory(prefix="two-", dir=SHORT, ignore_cleanup_errors=True) as name,
        machines_apart(Path(name), Path(name) / "data") as machines,
    ):
        directory, data = Path(name), Path(name) / "data"
        running = Running(machines, data, directory / "node.log")
        try:
            yield running
            running.process.send_signal(signal.SIGTERM)
            assert running.process.wait(patience(60)) == 0, running.said()
        finally:
            running.process.kill()
            running.process.wait()


@pytest.fixture(scope="module")
def found(node: Running) -> dict[str, Any]:
    command = [sys.executable, str(ASK), node.machines.address, str(node.data)]
    environ = dict(node.machines.environ)
    limit_s = patience(200)
    done = subprocess.run(
        command, capture_output=True, text=True, env=environ, timeout=limit_s, check=False
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert answer["machine"] == ELSEWHERE
    return answer


def test_every_actor_runs_where_the_directory_is(found: dict[str, Any]) -> None:
    assert found["here"] == dict.fromkeys(ACTORS, True)


def test_actors_that_were_killed_return_there_with_all_that_they_had(found: dict[str, Any]) -> None:
    assert found["here again"] == dict.fromkeys(ACTORS, True)
    assert {"Hosted", "Trade"} <= set(found["topics again"])
    assert found["messages again"] == 4


def test_no_actor_starts_without_the_directory_or_makes_one(
    node: Running, found: dict[str, Any]
) -> None:
    assert len(found["refused"]) == 4
    for text in found["refused"]:
        assert f"{node.data} on {ELSEWHERE} is not data directory" in text
    assert found["files"] == []


def test_who_uses_the_directory_from_the_other_machine_is_told_to_use_the_cluster(
    found: dict[str, Any],
) -> None:
    assert len(found["connections"]) == 4  # without node.json, and with a copy of it
    for text in found["connections"]:
        assert text.startswith("NodeElsewhereError: the node runs on ")
        assert f"and this is {ELSEWHERE}: " in text
        assert "use it by the name of its cluster" in text
        assert len(text.splitlines()) == 1


def test_the_node_is_used_from_the_other_machine_by_the_name_of_its_cluster(
    node: Running, found: dict[str, Any]
) -> None:
    used = found["used"]
    assert used["stored"] == 200
    assert used["paid"] == [*range(1, 20, 2)]
    assert used["by key"] == 20
    assert "Trade" in used["status"]
    assert used["letters"]["sent"] == [2, 1, 0]
    assert used["letters"]["shown"] == [True] * 3
    [box] = used["letters"]["boxes"]
    assert (box["group"], box["letters"], box["redriven"]) == ("far", 3, 3)
    no_cluster, no_ray, two = used["refused"]
    assert (
        f"no cluster 'none' runs on the Ray at {node.machines.address}: there is 'trade'"
        in no_cluster
    )
    assert no_ray.startswith("ConfigError: this process has joined the Ray at ")
    assert two.startswith("ConfigError: data directory '/data' and cluster 'trade' are both given")


def test_who_starts_the_node_is_told_what_the_actors_are_bound_to(node: Running) -> None:
    assert "depend on the raylet that runs on" in node.said()
