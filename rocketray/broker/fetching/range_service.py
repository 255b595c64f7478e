"""Ranges of a disk's queues for other machines: Arrow batches from the fetch service of the disk.

It reads the files of its disk, filters there, and sends Arrow batches. Bounds of queues and single
records are small, and returned by calls over Ray.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa
from pyarrow import flight

from rocketray.broker.topics.log_reader import LogReader
from rocketray.errors import ShardUnavailableError, StoreError, StreamError
from rocketray.runtime.files.home import Home
from rocketray.runtime.files.paths import shard_directory
from rocketray.store.reading.columns import column_schema
from rocketray.store.reading.reader import QueueReader

from .bounds import QueuePages
from .flight_calls import NO_CALLS, FlightCalls
from .flight_server import told
from .flight_service import FlightService
from .range_api import REPLY_BYTES, DiskQueues, QueueRecords
from .range_reader import read_range, tell_doubts
from .range_request import RANGE, BatchNote, RangeRequest
from .read_plan import Bounds, DiskPlace, QueueKey
from .serving_turn import ServingTurn


class RangeService:
    """The ranges of the disk with that *home*, and its fetch service; any thread may call."""

    def __init__(
        self,
        home: Home,
        host: str,
        *,
        has_tls: bool | None = None,
        others: FlightCalls = NO_CALLS,
        turn: ServingTurn | None = None,
    ) -> None:
        """Open nothing yet; the service answers *others*, too. See ``FlightService``."""
        self._home = home
        calls = FlightCalls(streams={RANGE: self._answer}).beside(others)
        self.service = FlightService(home, host, calls, has_tls=has_tls, turn=turn)

    def place(self) -> DiskPlace:
        return self.service.open()

    def look(self, queues: Sequence[QueueKey]) -> DiskQueues:
        place = self.place()
        pages = QueuePages(place.data)
        return DiskQueues(place, {key: self._held(pages, key) for key in queues})

    def records(
        self, positions: Mapping[QueueKey, int], max_count: int
    ) -> dict[QueueKey, QueueRecords]:
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

    def close(self) -> None:
        """End the service, and the calls that it answers."""
        self.service.close()

    def _held(self, pages: QueuePages, key: QueueKey) -> Bounds:
        held = pages.find(key)
        if held is None:  # not 0 to 0: the messages of a queue that was moved here are not gone
            topic, queue_id = key
            reason = f"it is not open on disk {self._home.data} of {self._home.machine} yet"
            raise ShardUnavailableError(f"shard {topic}/{queue_id}", reason)
        return held

    def _answer(self, ticket: bytes) -> flight.GeneratorStream:
        request = RangeRequest.from_ticket(ticket)
        schema = column_schema(request.plan.columns)
        batches = _batches(Path(self._home.data), request, schema)
        return flight.GeneratorStream(schema, batches)


def _batches(
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
        raise told(error) from None
    last = pa.RecordBatch.from_pylist([], schema=schema)
    yield last, BatchNote(request.part.stop, warnings).to_metadata()
