"""A server that takes connections and says nothing, as one that stands still."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pytest
from support.harness.patience import wait_until

from rocketray.runtime.ray_process.server_probe import ServerProbe

pytestmark = pytest.mark.proves(
    "durability",
    "A node whose process is killed has said so in its terminal and its log; a GCS that "
    "takes connections and says nothing is away, which is said, and not lost",
)


@dataclass
class Clock:
    now_s: float = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def probe(server: socket.socket, clock: Clock) -> Iterator[ServerProbe]:
    found = ServerProbe(f"127.0.0.1:{server.getsockname()[1]}", clock)
    yield found
    found.close()


def has_heard(probe: ServerProbe) -> bool:
    probe.silent_s()
    return probe._connection is None


def test_the_silence_lasts_from_the_connection_until_a_byte_comes(
    server: socket.socket, clock: Clock, probe: ServerProbe
) -> None:
    assert probe.silent_s() == 0
    for second in range(1, 31):
        clock.now_s += 1
        assert probe.silent_s() == second
    with server.accept()[0] as connection:
        assert connection.recv(3) == b"PRI"
        connection.send(b"\0")
        wait_until(lambda: probe.silent_s() == 0)
    assert probe.silent_s() == 0, "by a new connection"
    clock.now_s += 1
    assert probe.silent_s() == 1


def test_the_time_in_which_this_process_stood_still_is_no_silence_of_the_server(
    clock: Clock, probe: ServerProbe
) -> None:
    """Both are stopped as a container is paused, and this one looks first."""
    assert probe.silent_s() == 0
    clock.now_s += 3600
    assert probe.silent_s() == 10
    clock.now_s += 1
    assert probe.silent_s() == 11


def test_a_server_that_answers_is_asked_every_five_seconds(
    server: socket.socket, clock: Clock, probe: ServerProbe
) -> None:
    for _ in range(2):
        probe.silent_s()
        with server.accept()[0] as connection:
            connection.send(b"\0")
            wait_until(partial(has_heard, probe))
        for _ in range(4):
            clock.now_s += 1
            assert probe.silent_s() == 0
        clock.now_s += 1


@pytest.mark.parametrize("with_reset", [True, False])
def test_a_connection_that_the_server_ends_is_no_silence(
    server: socket.socket, clock: Clock, probe: ServerProbe, *, with_reset: bool
) -> None:
    """Such as one with TLS, or one that ended: those who connect find out more."""
    probe.silent_s()
    clock.now_s += 30
    connection = server.accept()[0]
    if not with_reset:
        connection.recv(100)
    connection.close()
    wait_until(lambda: probe.silent_s() == 0)


def test_a_server_that_takes_no_connection_is_not_silent(
    server: socket.socket, clock: Clock, probe: ServerProbe
) -> None:
    server.close()
    for _ in range(3):
        assert probe.silent_s() == 0
        clock.now_s += 30
