"""An app on another machine outlives whatever happens to the node of the first disk."""

from __future__ import annotations

import json
import signal
import socket
import sys
from functools import partial
from typing import Any

import pytest
from support.harness.commands import ONE_PROCESS
from support.harness.patience import patience
from support.nodes.disk_cluster import Cluster, Watch, nothing_is_lost, two_machines
from support.nodes.hosted_app import processes_here, start_app
from support.nodes.machines_apart import ELSEWHERE

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(900),
    pytest.mark.slow,
    pytest.mark.proves(
        "durability",
        "The hosts of an app stay the same processes, and continue, when the node of the "
        "first disk stops, is killed, starts again, or loses the coordinator to a standby and "
        "takes it back",
    ),
]


def end_node(cluster: Cluster, how: int) -> None:
    """Send the node of the first disk a signal, and wait for its end."""
    sent = f"kill -{how} $(grep -o '[0-9]*' '{cluster.data}/node.lock')"
    cluster.enter(cluster.machines.on_second("sh", "-c", sent))
    cluster.nodes.pop("second").wait(patience(60))


def test_the_hosts_of_an_app_are_the_same_processes_and_go_on_handling(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The first disk's node restarts in order, is killed, loses its machine, and comes back.

    It prints rows of the table in docs/reference/cluster.md.
    """
    with two_machines() as cluster:
        register = cluster.directory / "register"
        register.mkdir()
        with_register = "--register", register.as_uri()
        start = partial(cluster.start, "second", *ONE_PROCESS, *with_register)
        start(prefix=tuple(cluster.machines.on_second()))
        cluster.start("first", "--join", *with_register)
        (here,) = {d["machine"] for d in cluster.topology() if "disk" in d} - {ELSEWHERE}
        before = start_app(cluster)
        silence: dict[str, Any] = {}

        def check(when: str) -> None:
            """The host that had nothing to do with it still runs, and handles what is sent."""
            silence[when] = watch.ask("silence")
            found = processes_here(cluster)
            assert {number: found.get(number) for number in before} == before, when
            assert socket.gethostname() in cluster.drive("parcels")["machines"], when

        watch = Watch(cluster)
        try:
            watch.ask("begin")
            check("nothing")
            for how in (signal.SIGTERM, signal.SIGKILL):
                end_node(cluster, how)
                start(prefix=tuple(cluster.machines.on_second()))
                check(f"its node ends by {how.name}, and starts again")
            cluster.machines.lose_second()
            cluster.await_coordinator(here)
            cluster.nodes["second"].wait(patience(60))
            silence["its machine is lost"] = watch.ask("far")
            assert before.items() <= processes_here(cluster).items(), "the standby has taken over"
            cluster.machines.start_second()
            start(prefix=tuple(cluster.machines.on_second()))
            cluster.await_coordinator(ELSEWHERE)
            check("its machine is back")
            outcome = watch.end()
        finally:
            watch.kill()
    with capsys.disabled():
        sys.stdout.write(json.dumps({"silence": silence, "outcome": outcome}, indent=1))
    nothing_is_lost(outcome.values())
