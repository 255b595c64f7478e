"""The machine of the first disk is lost: the node of the other disk starts the coordinator."""

from __future__ import annotations

import json
import sys
import time
from functools import partial

import pytest
from support.harness.commands import ONE_PROCESS
from support.harness.patience import patience
from support.nodes.disk_cluster import Watch, nothing_is_lost, two_machines
from support.nodes.machines_apart import ELSEWHERE

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(400),
    pytest.mark.slow,
    pytest.mark.proves(
        "durability",
        "When the coordinator's machine is lost, a standby starts it with all that was saved, "
        "and gives it back; nothing acknowledged is missing",
    ),
    pytest.mark.proves(
        "durability",
        "Delayed messages, transactions and retries are on the disk of their queue, also "
        "while the machine of the first disk is down, and on another disk while that of the "
        "queue is",
    ),
]


def test_the_cluster_continues_without_the_machine_of_its_first_disk(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It prints two rows of the table in docs/reference/cluster.md."""
    with two_machines() as cluster:
        register = cluster.directory / "register"
        register.mkdir()
        with_register = "--register", register.as_uri()
        start_first_disk = partial(cluster.start, "second", *ONE_PROCESS, *with_register)
        start_first_disk(prefix=tuple(cluster.machines.on_second()))
        cluster.start("first", "--join", *with_register)
        (here,) = (
            d["machine"] for d in cluster.topology() if "disk" in d and d["machine"] != ELSEWHERE
        )
        assert cluster.coordinator() == ELSEWHERE
        watch = Watch(cluster)
        try:
            watch.ask("begin")
            cluster.machines.lose_second()
            lost_s = time.monotonic()
            cluster.await_coordinator(here)
            silence = {"taken over": time.monotonic() - lost_s, "machine lost": watch.ask("far")}
            meanwhile = cluster.drive("without_the_first")
            cluster.nodes["second"].wait(patience(60))
            cluster.machines.start_second()
            start_first_disk(prefix=tuple(cluster.machines.on_second()))
            cluster.await_coordinator(ELSEWHERE)
            silence["machine back"] = watch.ask("silence")
            outcome = watch.end()
        finally:
            watch.kill()
        with capsys.disabled():
            sys.stdout.write(json.dumps({**silence, **outcome}, indent=1))
        assert (meanwhile["taken"], meanwhile["disks"]) == (10, 1)
        assert (meanwhile["redelivered"], meanwhile["unknown"]) == (2, [])
        (problem,) = meanwhile["problems"]
        assert problem.startswith(f"the first disk, {cluster.data} on {ELSEWHERE}, does not answer")
        nothing_is_lost(outcome.values())
        status = cluster.ask("status", "--over", "0", "--json")
        assert status.code == 0
        assert "does not answer" not in status.out
