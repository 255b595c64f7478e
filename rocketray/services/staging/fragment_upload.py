"""Uploads of fragments to the first disk of a node, from tasks on other machines."""

from __future__ import annotations

from collections.abc import Callable
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
from rocketray.runtime.one_process import not_freed_in_forks

UPLOAD = "fragment"
"""The name of the uploads at the fetch service; the request is the name of a fragment."""
CHUNKS = pa.schema({"chunk": pa.large_binary()})
"""The schema of an upload: the bytes of a fragment, in order."""
_CHUNK_BYTES = 1024 * 1024  # a frame may be small, and each batch of a stream has a header


class FragmentUpload:
    """The upload of a fragment to a disk on another machine: a ``FragmentSink``.

    It is not repeated: if it breaks off, the task fails, and is run again.
    """

    def __init__(self, service: FetchService, name: str) -> None:
        self._service = service
        self._collected: list[bytes | memoryview] = []
        self._size = 0
        self._client = open_client(service)
        descriptor, options = upload_of(UPLOAD, name.encode()), call_options(service)
        begin = partial(self._client.do_put, descriptor, CHUNKS, options)
        self._writer, self._reader = map(not_freed_in_forks, self._call(begin))

    def write(self, content: bytes | memoryview) -> None:
        self._collected.append(bytes(content))
        self._size += len(content)
        if self._size >= _CHUNK_BYTES:
            self._send()

    def finish(self) -> None:
        self._send()

        def end() -> None:
            self._writer.done_writing()
            self._reader.read()
            self._writer.close()

        self._call(end)
        self._client.close()

    def discard(self) -> None:
        """See ``FragmentSink``; the service removes an upload that breaks off."""
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
                f"the fetch service at {self._service.host} port {self._service.port}",
                f"it broke an upload off: {error}",
            ) from error
