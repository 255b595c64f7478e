"""Fetches that pass as bytes, as over the network: for members and sessions in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa
from pyarrow import flight

from rocketray.broker.fetching.flight_client import error_of
from rocketray.broker.fetching.flight_link import ResultT, SentBatch
from rocketray.broker.fetching.flight_server import told
from rocketray.errors import StreamError
from rocketray.messaging.remote.fetch_api import FetchApi
from rocketray.messaging.remote.fetch_calls import answer_fetch, calls_of
from rocketray.messaging.remote.fetch_wire import FRAMES
from rocketray.messaging.remote.sent_fetches import SentFetches


class WiredLink:
    """A link to sessions of this process, which may be others at each call; see ``FetchLink``."""

    def __init__(self, find: Callable[[], FetchApi]) -> None:
        self._find = find

    def act(self, name: str, request: bytes) -> bytes:
        return _told(lambda: calls_of(self._find()).actions[name](request))

    def stream(
        self,
        name: str,
        request: bytes,
        timeout_s: float,
        read: Callable[[Iterable[SentBatch]], ResultT],
    ) -> ResultT:
        del name, timeout_s  # in the request
        batches, _ = _told(lambda: answer_fetch(self._find(), request))
        return read((_sent(batch), metadata) for batch, metadata in batches)


def wired(find: Callable[[], FetchApi]) -> SentFetches:
    """The calls of a member to those sessions."""
    return SentFetches(WiredLink(find))


def _sent(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(batch.serialize(), FRAMES)


def _told(call: Callable[[], ResultT]) -> ResultT:
    try:
        return call()
    except (StreamError, OSError) as error:
        sent: flight.FlightServerError = told(error)
        again = error_of(sent)
        assert again is not None
        raise again from None
