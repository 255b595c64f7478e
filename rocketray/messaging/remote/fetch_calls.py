"""The calls of members at the fetch service of a disk, and the answers of its fetch sessions."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyarrow import flight

from rocketray.broker.fetching.flight_link import SentBatch
from rocketray.broker.fetching.flight_server import FlightCalls

from .fetch_api import FetchApi
from .fetch_wire import (
    FRAMES,
    FetchRequest,
    bounds_to_json,
    queue_from_json,
    reply_batches,
    wake_from_json,
)

FETCH = "fetch"
BOUNDS, ATTACH, WAKE, LEAVE = "bounds", "attach", "wake", "leave"


def calls_of(sessions: FetchApi) -> FlightCalls:
    """Return the calls that *sessions* answer."""

    def fetch(text: bytes) -> flight.FlightDataStream:
        batches, options = answer_fetch(sessions, text)
        return flight.GeneratorStream(FRAMES, batches, options=options)

    def bounds(text: bytes) -> bytes:
        return bounds_to_json(sessions.bounds(*queue_from_json(text)))

    def attach(text: bytes) -> bytes:
        sessions.attach(FetchRequest.from_json(text).fetch)
        return b""

    def wake(text: bytes) -> bytes:
        sessions.wake(*wake_from_json(text))
        return b""

    def leave(text: bytes) -> bytes:
        session, _ = wake_from_json(text)
        sessions.leave(session)
        return b""

    return FlightCalls({FETCH: fetch}, {BOUNDS: bounds, ATTACH: attach, WAKE: wake, LEAVE: leave})


def answer_fetch(
    sessions: FetchApi, text: bytes
) -> tuple[Iterator[SentBatch], pa.ipc.IpcWriteOptions]:
    """Return the batches of a reply, and how to write them; raises as ``FetchSessions.fetch``."""
    request = FetchRequest.from_json(text)
    reply = sessions.fetch(request.fetch, request.timeout_s)
    return reply_batches(reply), pa.ipc.IpcWriteOptions(compression=request.compression)
