"""Queries over stored messages: by message id, by key, by time; each timed and checked."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rocketray.actors.client.connected_client import ConnectedClient
from rocketray.message import StoredMessage

from .data import TOPIC, message_table
from .expected import count_flight_key, count_tail_number

if TYPE_CHECKING:
    import pandas as pd

_REPEATS = 5  # the first one warms caches, so the median does not count it
_MAX_COUNT = 10_000  # what one queue returns at most; no aircraft has as many flights
_MAX_COUNT_BY_TIME = 100  # a millisecond may hold thousands


@dataclass(frozen=True, slots=True)
class Lookup:
    """One query: *ms* is a median; *expected* is None where the data does not determine it."""

    by: str
    argument: str
    found: int
    expected: int | None
    is_right: bool
    ms: float


def look_up(connection: ConnectedClient, frame: pd.DataFrame) -> list[Lookup]:
    """Query for the first flight of *frame* in every way."""
    first = message_table(frame.head(1)).to_pylist()[0]
    flight = first["keys"][-1]
    by_flight, sample = _by_key(connection, flight, count_flight_key(frame, 0))
    lookups = [by_flight]
    tails = frame["tailnum"].dropna()
    if len(tails):
        tail = str(tails.iloc[0])
        lookups.append(_by_key(connection, tail, count_tail_number(frame, tail))[0])
    if sample is not None:
        lookups.insert(0, _by_id(connection, sample.offset_message_id, first["body"]))
        lookups.append(_by_time(connection, sample))
    return lookups


def _by_id(connection: ConnectedClient, message_id: str, body: bytes) -> Lookup:
    message, ms = _timed(lambda: connection.messages.view(message_id))
    is_right = message is not None and message.body == body
    return Lookup("id", message_id, int(message is not None), 1, is_right, ms)


def _by_key(
    connection: ConnectedClient, key: str, expected: int
) -> tuple[Lookup, StoredMessage | None]:
    """Return the lookup, and the first message that it found."""
    found, ms = _timed(lambda: connection.messages.query(TOPIC, key, _MAX_COUNT))
    is_right = len(found) == expected and all(key in message.keys for message in found)
    return Lookup("key", key, len(found), expected, is_right, ms), next(iter(found), None)


def _by_time(connection: ConnectedClient, sample: StoredMessage) -> Lookup:
    """Look up the first messages of the millisecond in which *sample*, the first, was stored."""
    at = sample.store_timestamp_ms
    found, ms = _timed(lambda: connection.messages.query_by_time(TOPIC, at, at, _MAX_COUNT_BY_TIME))
    ids = {message.offset_message_id for message in found}
    is_right = sample.offset_message_id in ids and {m.store_timestamp_ms for m in found} == {at}
    moment = datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")
    return Lookup("time", moment, len(found), None, is_right, ms)


def _timed(query: Callable[[], Any]) -> tuple[Any, float]:
    times = []
    for _ in range(_REPEATS):
        begun = time.perf_counter()
        answer = query()
        times.append(1000 * (time.perf_counter() - begun))
    return answer, statistics.median(times)
