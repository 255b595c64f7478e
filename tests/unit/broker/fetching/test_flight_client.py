"""A stream whose machine vanishes: no packet comes any more, and none says that it is gone."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pyarrow as pa
import pytest
from pyarrow import flight
from support.harness.forking import in_fork
from support.harness.patience import patience

from rocketray.broker.fetching import flight_client
from rocketray.broker.fetching.flight_calls import FlightCalls
from rocketray.broker.fetching.flight_client import (
    BROKEN_OFF,
    call_options,
    open_client,
    open_stream,
    ticket_of,
)
from rocketray.broker.fetching.flight_service import FlightService
from rocketray.runtime.files.home import Home

HOST = "127.0.0.1"


class Road:
    """Passes the bytes of one connection on, until it is cut; both ends stay open."""

    def __init__(self, port: int) -> None:
        self.is_cut = threading.Event()
        self._listening = socket.create_server((HOST, 0))
        self.port = self._listening.getsockname()[1]
        self._there = port
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._take, daemon=True).start()

    def close(self) -> None:
        for end in (self._listening, *self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _take(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection((HOST, self._there))
                self._ends += near, far
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while (content := source.recv(65536)) and not self.is_cut.is_set():
                target.sendall(content)
            self.is_cut.wait()


@contextmanager
def road_to(port: int) -> Iterator[Road]:
    road = Road(port)
    try:
        yield road
    finally:
        road.is_cut.set()
        road.close()


def test_a_stream_from_a_machine_that_vanished_ends(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = {"grpc.keepalive_time_ms": 500, "grpc.http2.ping_timeout_ms": 500}
    options = [(name, quick.get(name, value)) for name, value in flight_client._OPTIONS]
    monkeypatch.setattr(flight_client, "_OPTIONS", options)
    vanishes, ends = threading.Event(), threading.Event()
    schema = pa.schema([("n", pa.int64())])

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"n": [1]}, schema)
        vanishes.set()
        ends.wait(patience(60))

    streams = {"some": lambda _: flight.GeneratorStream(schema, batches())}
    serving = FlightService(home, HOST, FlightCalls(streams=streams))
    try:
        service = serving.open().service
        assert service is not None
        with road_to(service.port) as road:
            client = open_client(replace(service, port=road.port))
            reader = open_stream(client, ticket_of("some", b""), call_options(service))
            assert reader.read_chunk().data.column(0).to_pylist() == [1]
            assert vanishes.wait(patience(60))
            road.is_cut.set()
            with pytest.raises(BROKEN_OFF):
                reader.read_chunk()
            client.close()
    finally:
        ends.set()
        serving.close()


@pytest.mark.proves(
    "durability",
    "A fork may free the connections to other machines that it inherited: it waits for nothing, and "
    "the parent's calls continue",
)
def test_a_fork_frees_no_connection_of_its_parent(home: Home) -> None:
    schema = pa.schema([("n", pa.int64())])
    goes_on = threading.Event()

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"n": [1]}, schema)
        goes_on.wait(patience(60))
        yield pa.RecordBatch.from_pydict({"n": [2]}, schema)

    streams = {"some": lambda _: flight.GeneratorStream(schema, batches())}
    serving = FlightService(home, HOST, FlightCalls(streams=streams))
    try:
        service = serving.open().service
        assert service is not None
        client = open_client(service)
        held = [open_stream(client, ticket_of("some", b""), call_options(service)), client]
        del client
        assert held[0].read_chunk().data.column(0).to_pylist() == [1]
        in_fork(held.clear)
        goes_on.set()
        assert held[0].read_chunk().data.column(0).to_pylist() == [2]
        held.pop().close()
    finally:
        goes_on.set()
        serving.close()
