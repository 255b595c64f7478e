"""The calls of a task and of a driver about staged batches, as they are sent; and uploads."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyarrow import flight

from rocketray.broker.fetching.flight_client import (
    BROKEN_OFF,
    call_options,
    error_of,
    open_client,
    upload_of,
)
from rocketray.broker.fetching.read_plan import FetchService
from rocketray.errors import ShardUnavailableError, StreamError
from rocketray.runtime.files.half_file import BatchName, Half

from .staging_api import StagedBatch, StagedOverview, StagingVerdict
from .staging_wire import (
    CHUNKS,
    DECIDE,
    DROP,
    IS_APPLIED,
    OVERVIEW,
    PUBLISH,
    QUEUES,
    UPLOAD,
    batch_to_json,
    overview_from_json,
)

_CHUNK_BYTES = 1024 * 1024  # a frame may be small, and each batch of a stream has a header
_RETRY_AFTER_MS = 1000  # Ray starts a gateway that ended again; the spare answers before


class SentStaging:
    """The calls of ``StagingApi`` to a fetch service, over *act*: see ``FlightLink.act``."""

    def __init__(self, act: Callable[[str, bytes], bytes]) -> None:
        self._act = act

    def decide(self, wanted: StagedBatch) -> StagingVerdict:
        """See ``StagingApi``."""
        is_first = self._act(DECIDE, batch_to_json(wanted)) == b"decided"
        return "decided" if is_first else "repeated"

    def publish(self, name: BatchName, halves: Sequence[Half]) -> None:
        """See ``StagingApi``."""
        self._act(PUBLISH, _json([name, halves]))

    def is_applied(self, batch: BatchName) -> bool:
        """See ``StagingApi``."""
        return self._act(IS_APPLIED, _json(batch)) == b"true"

    def drop(self, batch: BatchName, names: Sequence[str]) -> None:
        """See ``StagingApi``."""
        self._act(DROP, _json([batch, names]))

    def overview(self, most: int) -> StagedOverview:
        """See ``StagingApi``."""
        return overview_from_json(json.loads(self._act(OVERVIEW, _json(most))))

    def queues(self, topic: str) -> int:
        """Return the number of queues of a topic.

        Raises:
            TopicNotFoundError: there is no such topic.
        """
        return int(self._act(QUEUES, _json(topic)))


class HalfUpload:
    """The upload of a half to a disk on another machine: a ``HalfSink``.

    It is not repeated: if it breaks off, the task fails, and is run again.
    """

    def __init__(self, service: FetchService, name: str) -> None:
        self._service = service
        self._collected: list[bytes | memoryview] = []
        self._size = 0
        self._client = open_client(service)
        descriptor, options = upload_of(UPLOAD, name.encode()), call_options(service)
        begin = partial(self._client.do_put, descriptor, CHUNKS, options)
        self._writer, self._reader = self._call(begin)

    def write(self, content: bytes | memoryview) -> None:
        """See ``HalfSink``."""
        self._collected.append(bytes(content))
        self._size += len(content)
        if self._size >= _CHUNK_BYTES:
            self._send()

    def finish(self) -> None:
        """See ``HalfSink``."""
        self._send()

        def end() -> None:
            self._writer.done_writing()
            self._reader.read()
            self._writer.close()

        self._call(end)
        self._client.close()

    def discard(self) -> None:
        """See ``HalfSink``; the service removes an upload that breaks off."""
        self._client.close()

    def _send(self) -> None:
        chunk = pa.array([b"".join(self._collected)], pa.large_binary())
        self._collected, self._size = [], 0
        batch = pa.RecordBatch.from_arrays([chunk], schema=CHUNKS)
        self._call(lambda: self._writer.write_batch(batch))

    def _call(self, run: Callable[[], Any]) -> Any:
        try:
            return run()
        except flight.FlightServerError as error:
            raise error_of(error) or StreamError(f"an upload failed: {error}") from None
        except (*BROKEN_OFF, flight.FlightUnauthenticatedError, pa.ArrowInvalid) as error:
            raise ShardUnavailableError(
                "gateway",
                _RETRY_AFTER_MS,
                f"the fetch service at {self._service.host} port {self._service.port} broke an "
                f"upload off: {error}",
            ) from error


def _json(value: object) -> bytes:
    return json.dumps(value).encode()
