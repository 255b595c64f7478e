"""The network between the two machines of a cluster is cut while programs on both use both disks."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from functools import partial
from typing import Any

import pytest
from support.harness.commands import ONE_PROCESS
from support.harness.patience import patience
from support.nodes.disk_cluster import Cluster, Watch, cluster_of_two, nothing_is_lost, two_machines
from support.nodes.hosted_app import processes_here, start_app
from support.nodes.machines_apart import Lost

from rocketray.actors.cluster.coordinator_silence import TAKE_OVER_S

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900), pytest.mark.slow]
_DEAD_S = 30.0  # so long, Ray may declare the second machine dead: what runs there ends
_ENDS_S = 40.0


def test_how_long_each_side_is_silent_while_the_network_is_cut(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It prints the figures of docs/reference/cluster.md, and checks that nothing is lost."""
    with cluster_of_two(has_network=True) as cluster:
        sides = {"first": Watch(cluster), "second": Watch(cluster, cluster.machines.on_second())}
        try:
            for watch in sides.values():
                watch.ask("begin")
            silence = {f"{seconds} s": _cut(cluster, sides, seconds) for seconds in (5, 12)}
            outcome = {"second": sides.pop("second").end()}
            silence["30 s"] = _cut(cluster, sides, 30)
            outcome["first"] = sides["first"].end()
        finally:
            for watch in sides.values():
                watch.kill()
    with capsys.disabled():
        sys.stdout.write(json.dumps({"silence": silence, "outcome": outcome}, indent=1))
    for side in outcome.values():
        nothing_is_lost(side.values())


@pytest.mark.proves(
    "durability",
    "A standby takes over from no coordinator that runs: not when its own network was cut or its "
    "process stood still, nor when no packet of its machine reaches the coordinator, nor again "
    "and again",
)
def test_a_standby_that_was_cut_off_takes_nothing_over(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The first machine, with the coordinator and an app, is well. It prints rows of that table."""
    cuts: list[tuple[Lost, float]] = [
        ("both ways", 12),
        ("both ways", 25),
        ("to the second", 25),
        ("from the second", 25),
        ("both ways", 30),
        ("both ways", 30),
    ]
    with two_machines(has_network=True) as cluster:
        register = cluster.directory / "register"
        register.mkdir()
        with_register = "--register", register.as_uri()  # also there while the network is cut
        cluster.start("first", *ONE_PROCESS, *with_register)
        start_standby = partial(cluster.start, "second", "--join", *with_register)
        start_standby(prefix=tuple(cluster.machines.on_second()))
        here = cluster.coordinator()
        before = start_app(cluster)
        watch = Watch(cluster)
        silence: dict[str, Any] = {}
        try:
            watch.ask("begin")
            for lost, seconds in cuts:
                with cluster.machines.partition(lost):
                    time.sleep(seconds)
                if _ends(cluster.nodes["second"]):  # Ray has declared its machine dead
                    cluster.machines.lose_second()
                    cluster.machines.start_second()
                    start_standby(prefix=tuple(cluster.machines.on_second()))
                time.sleep(TAKE_OVER_S)
                name = f"{lost}, {seconds} s, the {len(silence) + 1}. time"
                silence[name] = watch.ask("silence")
                assert cluster.coordinator() == here, name
                assert cluster.nodes["first"].poll() is None, cluster.said("first")
                assert before.items() <= processes_here(cluster).items(), name
            outcome = watch.end()
        finally:
            watch.kill()
    with capsys.disabled():
        sys.stdout.write(json.dumps({"silence": silence, "outcome": outcome}, indent=1))
    nothing_is_lost(outcome.values())


def _cut(cluster: Cluster, sides: dict[str, Watch], seconds: float) -> dict[str, Any]:
    """Cut the network for some time, and return how long the queues were silent on each side."""
    time.sleep(5)
    with cluster.machines.partition():
        time.sleep(seconds)
    has_ended = seconds >= _DEAD_S and _ends(cluster.nodes["second"])
    if has_ended:
        cluster.machines.lose_second()
        cluster.machines.start_second()
        cluster.start_second()
    found = {side: watch.ask("silence") for side, watch in sides.items()}
    return {"its node ended": has_ended, **found}


def _ends(node: subprocess.Popen[bytes]) -> bool:
    """Return whether the node on the second machine ends, as when Ray has declared that dead."""
    try:
        node.wait(patience(_ENDS_S))
    except subprocess.TimeoutExpired:
        return False
    return True
