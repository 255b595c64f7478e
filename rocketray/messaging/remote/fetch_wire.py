"""Fetches of members and their replies as bytes, for Arrow Flight.

A request is JSON. A reply has a batch of one row for each frame: the queue id, and the frame. Its
last batch has no rows, and metadata in JSON: the rest of ``FetchedQueue`` by queue id. A reply
without it broke off. Both sides check lengths, names and numbers before they use them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, get_args

import numpy as np
import pyarrow as pa

from rocketray.base.names import check_group, check_topic
from rocketray.broker.fetching.flight_link import SentBatch
from rocketray.errors import ConfigError, InvalidMessageError, StreamError
from rocketray.filters.counters import FilterCounters
from rocketray.filters.subscription import Subscription
from rocketray.groups.filter_plan import QueuePart
from rocketray.groups.member_options import FetchCompression
from rocketray.messaging.consumers.stream_source import QueueBounds
from rocketray.runtime.calls.sent_errors import error_from_json, error_to_json

from .fetch_api import POLL_MAX_S, Fetch, FetchedQueue, QueueFetch

FRAMES = pa.schema([("queueId", pa.int32()), ("frame", pa.large_binary())])
"""The schema of a reply."""
_REQUEST_MAX_BYTES = 1 << 20  # a queue takes some 50 bytes of it: enough for 20,000 queues
_NUMBER_MAX = (1 << 63) - 1  # offsets are i64 in RocketMQ's files
_QUEUE_MAX = (1 << 31) - 1  # and queue ids i32
# One, or two while the group changes its filter; each is parsed before anything else is checked.
_SUBSCRIPTIONS_MAX = 16
_SESSION = re.compile(r"[0-9a-f]{32}", re.ASCII)  # as ``uuid4().hex``
_COUNTERS = len(FilterCounters().numbers())


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """A fetch, how long to wait for messages, and how to compress the reply."""

    fetch: Fetch
    timeout_s: float = 0.0
    compression: FetchCompression | None = None

    def to_json(self) -> bytes:
        """Return it as text; a subscription of several queues is written once."""
        fetch = self.fetch
        subscriptions = [*{one.part.subscription: 0 for one in fetch.queues.values()}]
        queues = [
            [
                at,
                subscriptions.index(one.part.subscription),
                one.part.stop,
                one.position,
                one.credit_bytes,
            ]
            for at, one in fetch.queues.items()
        ]
        request = {
            "session": fetch.session,
            "number": fetch.number,
            "group": fetch.group,
            "topic": fetch.topic,
            "subscriptions": [each.to_json() for each in subscriptions],
            "queues": queues,
            "timeoutS": self.timeout_s,
            "compression": self.compression,
        }
        return json.dumps(request).encode()

    @classmethod
    def from_json(cls, text: bytes) -> FetchRequest:
        """Return the request of :meth:`to_json`.

        Raises:
            ConfigError: it is none, or a value is outside of its limits.
            FilterError: a subscription does not parse.
        """
        given = _parsed(text)
        try:
            return cls._of(given)
        except StreamError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"this is no fetch: {error!r:.200}") from None

    @classmethod
    def _of(cls, given: dict[str, Any]) -> FetchRequest:
        if len(given["subscriptions"]) > _SUBSCRIPTIONS_MAX:
            raise ConfigError(f"{len(given['subscriptions'])} subscriptions in one fetch")
        subscriptions = [*map(Subscription.from_json, given["subscriptions"])]
        for each in subscriptions:
            each.check_text()
        queues: dict[int, QueueFetch] = {}
        for at, which, stop, position, credit_bytes in given["queues"]:
            subscription = subscriptions[_number(which, len(subscriptions) - 1)]
            part = QueuePart(subscription, None if stop is None else _number(stop))
            queue_id = _number(at, _QUEUE_MAX)
            queues[queue_id] = QueueFetch(part, _number(position), _number(credit_bytes))
        names = check_group(given["group"]), check_topic(given["topic"])
        fetch = Fetch(_session(given), _number(given["number"]), *names, queues)
        timeout_s, compression = given["timeoutS"], given["compression"]
        if type(timeout_s) not in (int, float) or not 0 <= timeout_s <= POLL_MAX_S:
            raise ConfigError(f"a fetch that waits for {timeout_s!r:.40} seconds")
        if compression not in (None, *get_args(FetchCompression)):
            raise ConfigError(f"there is no compression {compression!r:.40} of a reply")
        return cls(fetch, float(timeout_s), compression)


def reply_batches(reply: Mapping[int, FetchedQueue]) -> Iterator[SentBatch]:
    """Yield the batches of a reply, each with its metadata; no frame is copied."""
    for queue_id, found in reply.items():
        for frame in found.frames:
            yield _batch([queue_id], frame), None
    rest = {
        queue_id: [
            found.next_position,
            found.end,
            found.stream,
            list(found.counters.numbers()),
            None if found.error is None else error_to_json(found.error),
        ]
        for queue_id, found in reply.items()
    }
    yield _batch([], b""), json.dumps(rest).encode()


def read_reply(fetch: Fetch, batches: Iterable[SentBatch]) -> dict[int, FetchedQueue]:
    """Return the reply to *fetch* of :func:`reply_batches`; its frames are views of the batches.

    Raises:
        InvalidMessageError: it broke off, or is none.
    """
    frames: dict[int, list[bytes | memoryview]] = {queue_id: [] for queue_id in fetch.queues}
    rest: bytes | None = None
    for batch, metadata in batches:
        rest = metadata
        for queue_id, frame in _frames(batch):
            if queue_id not in frames:
                raise _bad(f"it has a frame of queue {queue_id}")
            frames[queue_id].append(frame)
    if rest is None:
        raise _bad("it broke off")
    try:
        given = {int(at): value for at, value in json.loads(rest).items()}
        return {at: _queue(frames[at], value) for at, value in given.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _bad(f"{error!r:.200}") from None


def queue_to_json(topic: str, queue_id: int) -> bytes:
    """Return the name of a queue as text."""
    return json.dumps({"topic": topic, "queueId": queue_id}).encode()


def queue_from_json(text: bytes) -> tuple[str, int]:
    """Return the topic and the queue id of :func:`queue_to_json`; raise ConfigError otherwise."""
    given = _parsed(text)
    return check_topic(str(given.get("topic"))), _number(given.get("queueId"), _QUEUE_MAX)


def bounds_to_json(bounds: QueueBounds) -> bytes:
    """Return the bounds of a queue as text."""
    return json.dumps([*bounds]).encode()


def bounds_from_json(text: bytes) -> QueueBounds:
    """Return what :func:`bounds_to_json` wrote; raise InvalidMessageError for anything else."""
    try:
        minimum, end = map(_number, json.loads(text))
        return QueueBounds(minimum, end)
    except (ValueError, TypeError) as error:
        raise _bad(f"{error!r:.200}") from None


def wake_to_json(session: str, number: int = 0) -> bytes:
    """Return a session, and the number of a fetch, as text."""
    return json.dumps({"session": session, "number": number}).encode()


def wake_from_json(text: bytes) -> tuple[str, int]:
    """Return what :func:`wake_to_json` wrote; raise ConfigError for anything else."""
    given = _parsed(text)
    return _session(given), _number(given.get("number"))


def _batch(queue_ids: list[int], frame: bytes | memoryview) -> pa.RecordBatch:
    """Return a batch of one frame, or of none; pyarrow's ``array`` would import pandas."""
    count = len(queue_ids)
    of_queue = pa.py_buffer(np.array(queue_ids, np.int32))
    ends = pa.py_buffer(np.array([0, len(frame)][: count + 1], np.int64))
    columns = [
        pa.Array.from_buffers(pa.int32(), count, [None, of_queue]),
        pa.Array.from_buffers(pa.large_binary(), count, [None, ends, pa.py_buffer(frame)]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=FRAMES)


def _frames(batch: pa.RecordBatch) -> list[tuple[int, memoryview]]:
    """Return the queue ids and the frames of a batch, as views of it."""
    if batch.schema != FRAMES:
        raise _bad(f"it has the columns {batch.schema.names!r:.200}")
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise _bad(str(error)) from None
    queue_ids, column = batch.columns
    if queue_ids.null_count or column.null_count:
        raise _bad("it has a frame of queue null, or a frame that is null")
    if not len(batch):
        return []
    _, ends, data = column.buffers()
    positions = np.frombuffer(ends, np.int64, len(batch) + 1, 8 * column.offset).tolist()
    frames = [memoryview(data)[start:end] for start, end in pairwise(positions)]
    return [*zip(queue_ids.to_pylist(), frames, strict=True)]


def _queue(frames: list[bytes | memoryview], given: Any) -> FetchedQueue:
    next_position, end, stream, counters, error = given
    if not isinstance(stream, str) or len(counters) != _COUNTERS:
        raise ValueError(f"{stream!r:.40} with {len(counters)} counters")
    return FetchedQueue(
        frames,
        _number(next_position),
        _number(end),
        stream,
        FilterCounters(*map(_number, counters)),
        None if error is None else error_from_json(error),
    )


def _parsed(text: bytes) -> dict[str, Any]:
    if len(text) > _REQUEST_MAX_BYTES:
        raise ConfigError(f"a request of {len(text)} bytes; at most {_REQUEST_MAX_BYTES}")
    try:
        given = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"this is no request: {error!r:.200}") from None
    if not isinstance(given, dict):
        raise ConfigError(f"this is no request: {given!r:.200}")
    return given


def _session(given: dict[str, Any]) -> str:
    name = given.get("session")
    if not isinstance(name, str) or not _SESSION.fullmatch(name):
        raise ConfigError(f"this is no name of a session: {name!r:.80}")
    return name


def _number(value: Any, most: int = _NUMBER_MAX) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ConfigError(f"{value!r:.80} is no number from 0 to {most}")
    return value


def _bad(reason: str) -> InvalidMessageError:
    return InvalidMessageError(f"a reply from another machine: {reason}")
