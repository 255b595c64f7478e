"""The GCS of a cluster's Ray is lost, with and without a store that keeps its state."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.harness.patience import patience, wait_until
from support.nodes.disk_cluster import Cluster, Watch, cluster_of_two, nothing_is_lost
from support.nodes.redis_server import redis_server

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(600),
    pytest.mark.slow,
    pytest.mark.proves(
        "durability",
        "While the GCS of a separate Ray is unavailable, programs on all machines send and "
        "consume; with its state in Redis it is used again, and without it the nodes and "
        "programs of all machines join the new Ray by themselves",
    ),
]
_AWAY_S, _BACK_S = 20.0, 5.0
_RAYLETS_WAIT = "RAY_gcs_rpc_server_reconnect_timeout_s"
"""How long raylets wait for the GCS, and somewhat less our programs; a minute by default."""
_GIVE_UP_S = 40.0  # a program waits so long for the GCS, and Ray a minute
_GOES_ON_S = 30.0
_QUIET_S = 5.0
_STOPPED_S = 100.0


@contextmanager
def watched(cluster: Cluster, *names: str) -> Iterator[dict[str, Watch]]:
    """Use the queues of both disks from these machines, or from both."""
    machines = cluster.machines
    prefixes = {"first": machines.on_first(), "second": machines.on_second()}
    sides = {side: Watch(cluster, prefixes[side]) for side in names or prefixes}
    try:
        for watch in sides.values():
            watch.ask("begin")
        yield sides
    finally:
        for watch in sides.values():
            watch.kill()


def show(capsys: pytest.CaptureFixture[str], **figures: Any) -> None:
    """Print figures for docs/reference/cluster.md."""
    with capsys.disabled():
        sys.stdout.write(json.dumps(figures, indent=1) + "\n")


def check(sides: dict[str, Watch]) -> dict[str, Any]:
    """Check the histories of the programs: nothing is lost, and the order is kept; return them."""
    outcome = {side: watch.end() for side, watch in sides.items()}
    for side in outcome.values():
        nothing_is_lost(side.values())
    return outcome


def silence_of(sides: dict[str, Watch]) -> dict[str, Any]:
    """Wait until all went on; return how long the queues were silent since the last time."""
    return {side: watch.ask("silence") for side, watch in sides.items()}


def test_programs_go_on_while_the_gcs_is_away_and_comes_back_with_its_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(_RAYLETS_WAIT, str(round(patience(60))))
    with (
        redis_server(tmp_path) as of_head,
        cluster_of_two(of_head=of_head) as cluster,
        watched(cluster) as sides,
    ):
        second = tuple(cluster.machines.on_second())
        again = cluster.machines.head.lose_gcs()
        time.sleep(_AWAY_S)
        silence = {"away": silence_of(sides)}  # all goes on before the GCS is back
        again()
        time.sleep(_BACK_S)
        silence["back"] = silence_of(sides)
        assert [node.poll() for node in cluster.nodes.values()] == [None, None]
        filled = cluster.drive("fill")
        consumed = cluster.drive("consume", second)
        killed = cluster.drive("kill", second)
        show(capsys, silence=silence, outcome=check(sides))
    assert filled["by key"] == 200
    assert (consumed["paid"], consumed["small"]) == (100, 10)
    assert set(killed["same machine"].values()) == {True}


def test_programs_go_on_without_a_gcs_until_they_take_ray_for_lost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The second machine is used from the first one: it ends with its raylet, after a minute."""
    with cluster_of_two(of_head={}) as cluster, watched(cluster, "first") as sides:
        cluster.machines.head.lose_gcs()
        begin_s = time.monotonic()
        stopped: dict[str, float] = {}

        def have_stopped() -> bool:
            """Note when each flow had its last message: one may only be slow, and go on."""
            over_s = time.monotonic() - begin_s
            for queue, flows in sides["first"].ask("quiet").items():
                for what, seconds in flows.items():
                    stopped[f"{queue}, {what}"] = round(over_s - seconds, 1)
            return over_s > _GIVE_UP_S and over_s - max(stopped.values()) > _QUIET_S

        wait_until(have_stopped, lambda: stopped)
        ended = {name: node.wait(patience(_STOPPED_S)) for name, node in cluster.nodes.items()}
        show(capsys, stopped=stopped)
    assert min(stopped.values()) > _GOES_ON_S
    assert ended["first"] == 1


def test_a_cluster_is_back_after_its_head_without_a_hand(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with cluster_of_two(is_supervised=True) as cluster, watched(cluster) as sides:
        cluster.machines.head.lose_gcs()
        begin_s = time.monotonic()
        after_s = {}
        for what, said, *logs in (
            ("head", "Ray runtime started", "r1"),
            ("nodes", "ready: pid", "r1", "r2"),
        ):
            cluster.await_said(said, 2, *logs)
            after_s[what] = round(time.monotonic() - begin_s, 1)
        silence = silence_of(sides)
        show(capsys, after=after_s, silence=silence, outcome=check(sides))
