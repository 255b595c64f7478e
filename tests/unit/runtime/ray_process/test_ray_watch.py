"""A server of Ray counts as lost when nobody listens there, and not for one failed connection."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rocketray.runtime.ray_process import ray_watch
from rocketray.runtime.ray_process.ray_watch import RayWatch, end_processes, gcs_away_s

pytestmark = [
    pytest.mark.proves(
        "durability",
        "A node whose process is killed has said so in its terminal and its log; a GCS that "
        "takes connections and says nothing is away, which is said, and not lost",
    ),
    pytest.mark.proves(
        "durability",
        "While the GCS of a separate Ray is unavailable, programs on all machines send and "
        "consume; with its state in Redis it is used again, and without it the nodes and "
        "programs of all machines join the new Ray by themselves",
    ),
]

_LOOPBACK = "127.0.0.1"


@pytest.fixture(autouse=True)
def _short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_watch, "_CONNECT_TIMEOUT_S", 0.1)


@pytest.fixture
def raylet() -> Iterator[str]:
    """The address of a server that answers."""
    with socket.create_server((_LOOPBACK, 0), backlog=100) as listening:
        yield address_of(listening)


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """A server that listens, and accepts nothing by itself."""
    with socket.create_server((_LOOPBACK, 0), backlog=0) as listening:
        yield listening


def address_of(listening: socket.socket) -> str:
    return f"{_LOOPBACK}:{listening.getsockname()[1]}"


def nobody() -> str:
    """An address at which nobody listens."""
    with socket.create_server((_LOOPBACK, 0)) as listening:
        return address_of(listening)


def fill(listening: socket.socket, clients: ExitStack) -> None:
    """Let further connections wait, as behind a lost packet: the server has no room for them."""
    for _ in range(3):
        client = clients.enter_context(socket.socket())
        client.setblocking(False)
        client.connect_ex(listening.getsockname())


def test_a_server_that_refuses_is_lost_at_once(server: socket.socket) -> None:
    gone = nobody()
    watch = RayWatch(address_of(server), gone, os.getpid())
    lost = watch.lost()
    assert lost is not None
    assert lost.startswith(f"its raylet at {gone} does not answer (")


def test_the_gcs_of_another_s_ray_may_be_away_for_some_time(raylet: str) -> None:
    now_s = 0.0
    gone = nobody()
    watch = RayWatch(gone, raylet, os.getpid(), gcs_away_s=30.0, clock_s=lambda: now_s)
    assert not watch.is_gcs_away
    for now_s in (0.0, 1.0, 29.0):  # noqa: B007 - the watch reads it
        assert watch.lost() is None
        assert watch.is_gcs_away
    with socket.create_server((_LOOPBACK, int(gone.rpartition(":")[2]))):
        now_s = 29.5
        assert watch.lost() is None
        assert not watch.is_gcs_away
    for now_s in (31.0, 60.9):  # noqa: B007 - the watch reads it
        assert watch.lost() is None
    now_s = 61.0
    lost = watch.lost()
    assert lost is not None
    assert lost.startswith(f"its GCS at {gone} does not answer (")


def test_a_gcs_that_cannot_be_reached_may_be_away_as_long_as_one_that_refuses(
    server: socket.socket, raylet: str
) -> None:
    now_s = 0.0
    with ExitStack() as clients:
        watch = RayWatch(
            *(address_of(server), raylet, os.getpid()),
            gcs_away_s=30.0,
            clock_s=lambda: now_s,
        )
        fill(server, clients)
        for now_s in (0.0, 29.9):  # noqa: B007 - the watch reads it
            assert watch.lost() is None
        now_s = 30.0
        assert watch.lost() is not None


def test_a_gcs_that_comes_back_without_its_state_is_another_ray(raylet: str) -> None:
    answers: list[bool | None] = [None, True, False]
    gone = nobody()
    watch = RayWatch(gone, raylet, os.getpid(), gcs_away_s=30.0, knows_us=lambda: answers.pop(0))
    for lost in (None, f"its GCS at {gone} was started again, without its state"):
        assert watch.lost() is None  # it is away
        with socket.create_server((_LOOPBACK, int(gone.rpartition(":")[2]))):
            if lost is None:
                assert [watch.lost() for _ in range(3)] == [None] * 3  # asked until it says so
                assert answers == [False]
            else:
                assert watch.lost() == lost


@pytest.mark.parametrize(
    ("waits", "away_s"), [(None, 40.0), ("600", 580.0), ("25.5", 5.5), ("5", 3.0), ("", 40.0)]
)
def test_a_gcs_may_be_away_for_less_than_ray_waits_for_it(
    waits: str | None, away_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "RAY_gcs_rpc_server_reconnect_timeout_s"
    monkeypatch.delenv(name, raising=False)
    if waits is not None:
        monkeypatch.setenv(name, waits)
    assert gcs_away_s() == away_s


def test_the_gcs_of_the_node_s_own_ray_is_lost_at_once(server: socket.socket) -> None:
    lost = RayWatch(nobody(), address_of(server), os.getpid()).lost()
    assert lost is not None
    assert "its GCS at" in lost


def test_a_server_that_cannot_be_reached_is_lost_when_that_lasts(server: socket.socket) -> None:
    now_s = 0.0
    with socket.create_server((_LOOPBACK, 0)) as raylet, ExitStack() as clients:
        watch = RayWatch(address_of(server), address_of(raylet), os.getpid(), clock_s=lambda: now_s)
        fill(server, clients)
        for now_s in (0.0, 9.9):  # noqa: B007 - the watch reads it
            assert watch.lost() is None
        now_s = 10.0
        lost = watch.lost()
        assert lost is not None
        assert lost.startswith(f"its GCS at {address_of(server)} does not answer (timed out")


@pytest.mark.parametrize("away_s", [0.0, 40.0])
def test_a_gcs_that_takes_connections_and_says_nothing_is_away_and_not_lost(
    raylet: str, monkeypatch: pytest.MonkeyPatch, away_s: float
) -> None:
    """That of the node's own Ray, too: a machine that is too busy, and not for some seconds."""
    now_s = 0
    monkeypatch.delenv("RAY_gcs_rpc_server_reconnect_timeout_s", raising=False)
    with socket.create_server((_LOOPBACK, 0), backlog=100) as silent:
        watch = RayWatch(
            *(address_of(silent), raylet, os.getpid()),
            gcs_away_s=away_s,
            clock_s=lambda: now_s,
        )
        for now_s in range(10):  # noqa: B007 - the watch reads it
            assert watch.lost() is None
            assert not watch.is_gcs_away
        for now_s in range(10, 90):  # noqa: B007 - the watch reads it
            assert watch.lost() is None
            assert watch.is_gcs_away, "nodes and clients say so"


def test_a_connection_between_two_failures_begins_the_time_anew(server: socket.socket) -> None:
    now_s = 0.0
    with socket.create_server((_LOOPBACK, 0)) as raylet:
        watch = RayWatch(address_of(server), address_of(raylet), os.getpid(), clock_s=lambda: now_s)
        with ExitStack() as clients:
            fill(server, clients)
            assert watch.lost() is None
        server.settimeout(0.1)
        accept_all(server)
        now_s = 9.0
        assert watch.lost() is None
        with ExitStack() as clients:
            fill(server, clients)
            now_s = 18.0
            assert watch.lost() is None
            now_s = 28.0
            assert watch.lost() is not None


def accept_all(listening: socket.socket) -> None:
    """Take the connections that wait, so that there is room for the next one."""
    while True:
        try:
            listening.accept()[0].close()
        except TimeoutError:
            return


@pytest.mark.parametrize("outlives", [False, True])
def test_a_process_whose_environment_is_overwritten_is_still_the_raylet_s(
    tmp_path: Path, *, outlives: bool
) -> None:
    (tmp_path / "raylet").symlink_to(sys.executable)
    program = "import subprocess; print(subprocess.Popen(['sleep', '60'], env={}).pid, flush=True)"
    raylet = subprocess.Popen(
        [tmp_path / "raylet", "-c", f"{program}; import time; time.sleep(60)"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert raylet.stdout is not None
    child = int(raylet.stdout.readline())
    watch = RayWatch(nobody(), nobody(), child)
    if outlives:
        raylet.kill()
        raylet.wait()
    found = [worker.pid for worker in watch.workers()]
    assert end_processes([*found, raylet.pid]) == []
    raylet.wait()
    raylet.stdout.close()
    assert found == [child]


def test_where_no_raylet_is_known_nothing_is_its_own() -> None:
    sleeping = subprocess.Popen(["sleep", "60"], env={})
    try:
        assert RayWatch(nobody(), nobody(), sleeping.pid).workers() == []
    finally:
        sleeping.kill()
        sleeping.wait()
