"""What the fetch service of the first disk answers about staged batches."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rocketray.broker.fetching.flight_calls import FlightCalls, Served
from rocketray.broker.topics.topics import Topics
from rocketray.runtime.files.half_file import Half, HalfFile, read_frames
from rocketray.runtime.files.paths import staged_directory

from .half_upload import UPLOAD
from .staging_api import StagingApi, TargetsApi

# A half, of which each task of a batch has one, takes some 100 bytes of a decision: 600,000 tasks.
_REQUEST_MAX_BYTES = 64 * 1024 * 1024
_ADVICE = "; write with fewer tasks: .coalesce(…)"


def staging_calls(data: Path, service: StagingApi, topics: Topics) -> FlightCalls:
    """Return the calls that *service* answers, with the halves in the data directory."""

    def upload(name: bytes, values: Iterable[memoryview]) -> None:
        receive_half(staged_directory(data), name.decode(errors="replace"), values)

    served = (
        Served(StagingApi, service, _REQUEST_MAX_BYTES, _ADVICE),
        Served(TargetsApi, _TopicTargets(topics)),
    )
    return FlightCalls(served, uploads={UPLOAD: upload})


class _TopicTargets:
    """The object behind ``TargetsApi``."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def queues(self, topic: str) -> int:
        return self._topics.get(topic).queues


def receive_half(directory: Path, name: str, chunks: Iterable[memoryview]) -> None:
    """Write the file of a half, which is whole and on disk on return.

    Raises:
        CorruptRecordError: the chunks are not those of a whole half.
    """
    file, size = HalfFile(directory, name), 0
    try:
        for chunk in chunks:
            file.write(chunk)
            size += len(chunk)
        file.finish()
        read_frames(directory, Half(name, size, 0))
    except BaseException:
        file.discard()
        raise
