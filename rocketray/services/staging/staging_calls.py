"""What the fetch service of the first disk answers about staged batches."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rocketray.broker.fetching.flight_calls import FlightCalls, Served
from rocketray.broker.topics.topics import Topics
from rocketray.runtime.files.fragment_file import Fragment, FragmentFile, read_frames
from rocketray.runtime.files.paths import staged_directory

from .fragment_upload import UPLOAD
from .staging_api import StagingApi, TargetsApi

# A fragment, of which each task of a batch has one, takes some 100 bytes of a decision: this is
# enough for 600,000 tasks.
_REQUEST_MAX_BYTES = 64 * 1024 * 1024
_ADVICE = "; write with fewer tasks: .coalesce(…)"


def staging_calls(data: Path, service: StagingApi, topics: Topics) -> FlightCalls:
    """Return the calls that *service* answers, with the fragments in the data directory."""

    def upload(name: bytes, values: Iterable[memoryview]) -> None:
        receive_fragment(staged_directory(data), name.decode(errors="replace"), values)

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


def receive_fragment(directory: Path, name: str, chunks: Iterable[memoryview]) -> None:
    """Write the file of a fragment, which is whole and on disk on return.

    Raises:
        CorruptRecordError: the chunks are not those of a whole fragment.
    """
    file, size = FragmentFile(directory, name), 0
    try:
        for chunk in chunks:
            file.write(chunk)
            size += len(chunk)
        file.finish()
        read_frames(directory, Fragment(name, size, 0))
    except BaseException:
        file.discard()
        raise
