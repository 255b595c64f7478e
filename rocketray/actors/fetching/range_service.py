"""The fetch service of a disk: ranges of its queues for other machines, over Arrow Flight.

It reads the files of its disk, filters there, and sends Arrow batches. It listens on the address
that Ray has for its machine: with TLS, or without on loopback. Each call needs the service's token.
The service opens its port with the first call of ``look``.
"""

from __future__ import annotations

import hmac
import json
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import flight

from rocketray.actors.files.home import Home
from rocketray.actors.files.paths import shard_directory
from rocketray.actors.topics.log_reader import LogReader
from rocketray.errors import ShardUnavailableError, StoreError, StreamError
from rocketray.store.reading.columns import column_schema
from rocketray.store.reading.reader import QueueReader

from .bounds import QueuePages
from .range_api import REPLY_BYTES, DiskQueues, QueueRecords
from .range_reader import read_range, tell_doubts
from .range_request import BatchNote, RangeRequest
from .read_plan import Bounds, DiskPlace, FetchService, QueueKey
from .service_identity import ServiceIdentity, keep_service, settle_service

__all__ = ["RangeService"]

_LOG = logging.getLogger(__name__)
_RETRY_AFTER_MS = 1000


class RangeService:
    """The service of the disk with that *home*; any thread may call."""

    def __init__(self, home: Home, host: str, *, has_tls: bool | None = None) -> None:
        """Open nothing yet; *host* is the IP address to listen on: without TLS only on loopback."""
        self._home = home
        self._host = host
        self._has_tls = not ip_address(host).is_loopback if has_tls is None else has_tls
        self._lock = threading.Lock()
        self._server: _RangeServer | None = None
        self._place: DiskPlace | None = None

    def look(self, queues: Sequence[QueueKey]) -> DiskQueues:
        """See ``RangeApi``."""
        with self._lock:
            place = self._place = self._place or self._open()
        pages = QueuePages(place.data)
        return DiskQueues(place, {key: self._held(pages, key) for key in queues})

    def records(
        self, positions: Mapping[QueueKey, int], max_count: int
    ) -> dict[QueueKey, QueueRecords]:
        """See ``RangeApi``."""
        data, room = Path(self._home.data), REPLY_BYTES
        pages = QueuePages(data)
        found: dict[QueueKey, QueueRecords] = {}
        with closing(LogReader(data)) as log:
            for key, position in positions.items():
                held, frame = self._held(pages, key), b""
                if position < held.visible and max_count > 0 and room > 0:
                    frame = log.pack(key, position, max_count)
                    held = self._held(pages, key)  # after it, so that it says what was deleted
                room -= len(frame)
                found[key] = QueueRecords(held, frame)
        return found

    def _held(self, pages: QueuePages, key: QueueKey) -> Bounds:
        held = pages.find(key)
        if held is None:  # not 0 to 0: the messages of a queue that was moved here are not gone
            topic, queue_id = key
            reason = f"it is not open on disk {self._home.data} of {self._home.machine} yet"
            raise ShardUnavailableError(f"{topic}/{queue_id}", _RETRY_AFTER_MS, reason)
        return held

    def close(self) -> None:
        """End the service, and the calls that it answers."""
        with self._lock:
            if self._server is not None:
                self._server.shutdown()
            self._server = self._place = None

    def _open(self) -> DiskPlace:
        data = self._home.directory()
        identity = settle_service(data, self._host, has_tls=self._has_tls)
        try:
            self._server = _RangeServer(data, identity)
        except OSError:  # another process has taken the port since
            identity = replace(identity, port=0)
            self._server = _RangeServer(data, identity)
        identity = replace(identity, port=self._server.port)
        try:
            keep_service(data, identity)
        except OSError as error:
            _LOG.warning(
                "the fetch service of %s will have another address and token when its process is "
                "started again, as this cannot be kept: %s",
                data, error,
            )  # fmt: skip
        service = FetchService(
            self._host, identity.port, identity.token, identity.certificate.encode()
        )
        _LOG.info("the fetch service of %s listens on %s port %d", data, self._host, identity.port)
        return DiskPlace(data, self._home.uuid, self._home.machine, service)


class _RangeServer(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Serves a stream of batches for each ticket; it listens from its creation on."""

    def __init__(self, data: Path, identity: ServiceIdentity) -> None:
        self._data = data
        host = f"[{identity.host}]" if ":" in identity.host else identity.host
        scheme = "grpc+tls" if identity.certificate else "grpc"
        secrets = [(identity.certificate.encode(), identity.key.encode())]
        super().__init__(
            f"{scheme}://{host}:{identity.port}",
            middleware={"token": _TokenCheck(identity.token)},
            tls_certificates=secrets if identity.certificate else None,
        )

    def do_get(self, _: Any, ticket: flight.Ticket) -> flight.GeneratorStream:
        """Answer one call; errors of ours go to the client with their text."""
        try:
            request = RangeRequest.from_ticket(ticket.ticket)
        except StreamError as error:
            raise _told(error) from None
        schema = column_schema(request.plan.columns)
        return flight.GeneratorStream(schema, _answer(self._data, request, schema))


class _TokenCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # as above
    """Refuses calls without the token."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._wanted = f"Bearer {token}".encode()

    def start_call(self, _: Any, headers: Mapping[str, Sequence[Any]]) -> None:
        """Check the header of one call."""
        shown = headers.get("authorization", [])
        if len(shown) != 1 or not hmac.compare_digest(str(shown[0]).encode(), self._wanted):
            raise flight.FlightUnauthenticatedError("the token is not that of this service")


def _answer(
    data: Path, request: RangeRequest, schema: pa.Schema
) -> Iterator[tuple[pa.RecordBatch, bytes]]:
    """Yield the batches of a range, and the last one, which is empty, each with its note."""
    warnings: list[str] = []
    directory = shard_directory(data, *request.part.key)
    try:
        if not directory.is_dir():
            topic, queue_id = request.part.key
            raise StoreError(
                f"topic {topic!r} queue {queue_id} is not on disk {data} any more: it was moved or "
                "deleted after this query had looked it up; run the query again"
            )
        if request.is_first:
            tell_doubts(data, request.plan, request.part, warnings.append)
        reader = QueueReader(directory, *request.part.key)
        try:
            for read in read_range(
                data, request.plan, request.part, warnings.append, reader=reader
            ):
                yield read.batch, BatchNote(read.next_queue_offset, warnings).to_metadata()
                warnings.clear()
        finally:
            reader.close()
    except (StreamError, OSError) as error:
        raise _told(error) from None
    last = pa.RecordBatch.from_pylist([], schema=schema)
    yield last, BatchNote(request.part.stop, warnings).to_metadata()


def _told(error: StreamError | OSError) -> flight.FlightServerError:
    """Return the error that tells the client of *error*: Flight adds to the text of its own."""
    return flight.FlightServerError(str(error), json.dumps(str(error)).encode())
