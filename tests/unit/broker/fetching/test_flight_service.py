"""The port of a disk: when a process opens it again that was started after one that was killed."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from rocketray.broker.disks.disk_agent import DiskAgent
from rocketray.broker.fetching.flight_calls import NO_CALLS
from rocketray.broker.fetching.flight_service import FlightService
from rocketray.broker.fetching.service_identity import choose_port
from rocketray.broker.fetching.serving_turn import ServingTurn
from rocketray.errors import ShardUnavailableError
from rocketray.runtime.files.home import Home
from rocketray.runtime.files.paths import fetch_service_file

HOST = "127.0.0.1"
NOT_HERE = "192.0.2.1"
"""An address for documentation, which no machine has."""


def test_a_service_that_nobody_asked_for_opens_no_port(home: Home) -> None:
    service = FlightService(home, HOST, NO_CALLS)
    service.open_again()
    assert service._server is None
    assert not fetch_service_file(Path(home.data)).exists()


def test_a_service_that_was_open_opens_its_port_by_itself(home: Home) -> None:
    before = FlightService(home, HOST, NO_CALLS)
    place = before.open()
    before.close()
    service = FlightService(home, HOST, NO_CALLS)
    service.open_again()
    assert service._server is not None
    assert service.open() == place
    service.close()


def test_a_service_whose_port_was_taken_meanwhile_gets_another_one(home: Home) -> None:
    before = FlightService(home, HOST, NO_CALLS)
    kept = before.open().service
    before.close()
    assert kept is not None
    with socket.create_server((HOST, kept.port)):
        service = FlightService(home, HOST, NO_CALLS)
        service.open_again()
        found = service.open().service
        assert found is not None
        assert found.port != kept.port
        assert found == replace(kept, port=found.port)
    service.close()


def test_a_service_listens_on_the_port_that_its_operator_chose_or_not_at_all(home: Home) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        choose_port(Path(home.data), port)
        service = FlightService(home, HOST, NO_CALLS)
        with pytest.raises(OSError, match=f"cannot listen on {HOST} port {port}.*--fetch-port"):
            service.open()
    assert f"port {port}" in DiskAgent(Path(home.data)).report().unserved
    for _ in range(2):
        found = service.open().service
        assert DiskAgent(Path(home.data)).report().unserved == ""
        assert found is not None
        assert found.port == port
        service.close()
        service = FlightService(home, HOST, NO_CALLS)


def test_a_service_that_cannot_listen_now_says_so_and_raises_when_it_is_asked_for(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    before = FlightService(home, HOST, NO_CALLS)
    before.open()
    before.close()
    service = FlightService(home, NOT_HERE, NO_CALLS)
    service.open_again()
    assert "cannot listen again yet" in caplog.text
    with pytest.raises(OSError, match=f"cannot listen on {NOT_HERE} port of any number"):
        service.open()


def listens(service: FlightService) -> bool:
    return service._server is not None


def test_the_spare_has_the_port_as_soon_as_the_other_process_has_ended(home: Home) -> None:
    data = Path(home.data)
    turn, its_turn = ServingTurn(data), ServingTurn(data)
    serving = FlightService(home, HOST, NO_CALLS, turn=turn)
    spare = FlightService(home, HOST, NO_CALLS, turn=its_turn)
    assert turn.take()
    with pytest.raises(ShardUnavailableError, match=r"the fetch service of .*: it starts"):
        spare.open()
    place = serving.open()
    assert spare.open() == place
    assert not listens(spare)
    serving.close()
    os.close(turn._descriptor)  # as the kernel does
    its_turn.wait()
    spare.open_again()
    assert listens(spare)
    assert spare.open() == place
    again = FlightService(home, HOST, NO_CALLS, turn=ServingTurn(data))
    assert again.open() == place
    assert not listens(again)
    spare.close()
