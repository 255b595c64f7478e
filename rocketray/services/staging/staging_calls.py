"""The calls about staged batches at the fetch service of the first disk, and their answers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from rocketray.broker.fetching.flight_server import FlightCalls
from rocketray.broker.topics.topics import Topics
from rocketray.runtime.files.half_file import Half, HalfFile, read_frames
from rocketray.runtime.files.paths import staged_directory

from .staging_api import StagingApi
from .staging_wire import (
    DECIDE,
    DROP,
    IS_APPLIED,
    OVERVIEW,
    PUBLISH,
    QUEUES,
    UPLOAD,
    batch_from_json,
    halves_from_json,
    name_from_json,
    overview_to_json,
    parse,
)

_SHOWN_MAX = 1000  # batches in an overview, whatever a client asks for


def staging_calls(data: Path, service: StagingApi, topics: Topics) -> FlightCalls:
    """Return the calls that *service* answers, with the halves in the data directory."""

    def decide(text: bytes) -> bytes:
        return service.decide(parse(text, batch_from_json)).encode()

    def publish(text: bytes) -> bytes:
        service.publish(*parse(text, lambda it: (name_from_json(it[0]), halves_from_json(it[1]))))
        return b""

    def is_applied(text: bytes) -> bytes:
        return json.dumps(service.is_applied(parse(text, name_from_json))).encode()

    def drop(text: bytes) -> bytes:
        service.drop(*parse(text, lambda it: (name_from_json(it[0]), [*map(str, it[1])])))
        return b""

    def overview(text: bytes) -> bytes:
        return overview_to_json(service.overview(min(parse(text, int), _SHOWN_MAX)))

    def queues(text: bytes) -> bytes:
        return str(topics.get(parse(text, str)).queues).encode()

    def upload(name: bytes, values: Iterable[memoryview]) -> None:
        receive_half(staged_directory(data), name.decode(errors="replace"), values)

    return FlightCalls(
        actions={
            DECIDE: decide,
            PUBLISH: publish,
            IS_APPLIED: is_applied,
            DROP: drop,
            OVERVIEW: overview,
            QUEUES: queues,
        },
        uploads={UPLOAD: upload},
    )


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
