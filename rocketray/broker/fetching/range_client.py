"""Ranges of queues on other machines, from the fetch services of their disks.

A call that breaks off is repeated from where it came to: a service that was killed is back within
a second or two. The secrets come with the place of the disk, in memory only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import pyarrow as pa
from pyarrow import flight

from rocketray.errors import ShardUnavailableError, StoreError

from .flight_client import BROKEN_OFF, call_options, error_of, open_client, open_stream, ticket_of
from .range_request import RANGE, BatchNote, RangeRequest
from .read_plan import DiskPlace, FetchService, Range, ReadPlan, Warn

_OPEN_SERVICES = 64  # one of each disk
_WAITS_S = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0)  # 7.8 s without a batch; each batch resets the count


def fetch_range(
    place: DiskPlace, plan: ReadPlan, part: Range, warn: Warn, *, is_first: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the matching messages of *part*, a queue on the disk at *place*, in queue order.

    Raises:
        StoreError: as ``read_range``; the disk's service says it.
        ShardUnavailableError: the service does not answer, or refuses the token.
    """
    assert place.service is not None
    position, failures = part.start, 0
    while True:
        request = RangeRequest(plan, replace(part, start=position), is_first)
        try:
            for batch, note in _call(place.service, request):
                for line in note.warnings:
                    warn(line)
                position, failures, is_first = note.next_queue_offset, 0, False
                if len(batch):
                    yield batch
        except flight.FlightServerError as error:
            raise StoreError(str(error_of(error) or error)) from None
        except flight.FlightUnauthenticatedError as error:
            raise _unavailable(place, part, "it refuses the token: it was started again") from error
        except BROKEN_OFF as error:
            if failures == len(_WAITS_S):
                raise _unavailable(place, part, str(error)) from error
            time.sleep(_WAITS_S[failures])
            failures += 1
        else:
            return


def _call(
    service: FetchService, request: RangeRequest
) -> Iterator[tuple[pa.RecordBatch, BatchNote]]:
    """Yield the batches of one call, with their notes."""
    ticket = ticket_of(RANGE, request.to_ticket())
    reader = open_stream(_client(service), ticket, call_options(service))
    for chunk in reader:
        yield chunk.data, BatchNote.from_metadata(chunk.app_metadata.to_pybytes())


@lru_cache(maxsize=_OPEN_SERVICES)
def _client(service: FetchService) -> flight.FlightClient:
    # Spark reads many ranges in one process, and a connection with TLS costs more than a small one.
    return open_client(service)


os.register_at_fork(after_in_child=_client.cache_clear)  # those in it are the parent's


def _unavailable(place: DiskPlace, part: Range, why: str) -> ShardUnavailableError:
    topic, queue_id = part.key
    assert place.service is not None
    return ShardUnavailableError(
        f"shard {topic}/{queue_id}",
        f"the fetch service of disk {place.uuid}, {place.data} on {place.machine}, at "
        f"{place.service.host} port {place.service.port}, does not answer: {why}",
    )
