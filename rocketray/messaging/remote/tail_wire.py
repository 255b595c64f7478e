"""Steps of a tail on another machine's disk as bytes: what is asked, and what was read.

A request is JSON. It has the position of each queue, so the service keeps nothing between two
steps. An answer is u32 header bytes, little-endian, the header in JSON, and the frames that it
names, one for each queue with messages (packed_records.py). Both sides check lengths, names and
numbers before they use them.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from rocketray.base.names import check_topic
from rocketray.broker.filtering.seen_messages import SeenEntries
from rocketray.broker.filtering.tail import TailCounts, TailStart
from rocketray.errors import ConfigError, InvalidMessageError, StreamError
from rocketray.filters.counters import FilterCounters
from rocketray.filters.subscription import Subscription
from rocketray.store.reading.packed_records import pack_records, unpack_records

TAIL = "tail"
"""The name of the call at the fetch service."""
STEP_BYTES = 4 * 1024 * 1024
"""The bytes of records in an answer; a larger message comes alone."""
_REQUEST_MAX_BYTES = 1 << 20  # a queue takes some 50 bytes of it: enough for 20,000 queues
_NUMBER_MAX = (1 << 63) - 1  # offsets are i64 in RocketMQ's files
_QUEUE_MAX = (1 << 31) - 1  # and queue ids i32
_ROOM_MAX = 10_000  # messages; the console asks for 500 at most
_Kind = Literal["latest", "earliest", "offset", "time"]
_KINDS: tuple[_Kind, ...] = get_args(_Kind)
_SIZE = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class TailFetch:
    """One step: the queues to read, where each begins, and room for how many messages."""

    topic: str
    subscription: Subscription
    start: TailStart
    queues: tuple[int, ...]
    with_rejected: bool
    room: int | None

    def to_json(self) -> bytes:
        """Return it as text."""
        start = self.start
        request = {
            "topic": self.topic,
            "subscription": self.subscription.to_json(),
            "start": [start.kind, start.number],
            "queues": [
                [at, start.positions.get(at), start.stored.get(at, 0)] for at in self.queues
            ],
            "withRejected": self.with_rejected,
            "room": self.room,
        }
        return json.dumps(request).encode()

    @classmethod
    def from_json(cls, text: bytes) -> TailFetch:
        """Return the request of :meth:`to_json`.

        Raises:
            ConfigError: it is none, or a value is outside of its limits; or it has a predicate.
            FilterError: the filter does not parse.
        """
        if len(text) > _REQUEST_MAX_BYTES:
            raise ConfigError(
                f"a step of a tail of {len(text)} bytes; at most {_REQUEST_MAX_BYTES}"
            )
        try:
            return cls._of(json.loads(text))
        except StreamError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"this is no step of a tail: {error!r:.200}") from None

    @classmethod
    def _of(cls, given: dict[str, Any]) -> TailFetch:
        subscription = Subscription.from_json(given["subscription"])
        subscription.check_text()
        if subscription.expression_type == "CLASS":  # users' code, for which it has no thread
            raise ConfigError("the fetch service runs no predicates; filter by tags or sql")
        kind, number = given["start"]
        positions, stored = {}, {}
        for at, position, end in given["queues"]:
            queue_id = _number(at, _QUEUE_MAX)
            stored[queue_id] = _number(end)
            if position is not None:
                positions[queue_id] = _number(position)
        start = TailStart(_KINDS[_KINDS.index(kind)], _number(number), positions, stored)
        room = given["room"]
        return cls(
            check_topic(given["topic"]),
            subscription,
            start,
            tuple(stored),
            given["withRejected"] is True,
            None if room is None else _number(room, _ROOM_MAX),
        )


@dataclass(frozen=True, slots=True)
class TailStep:
    """What a step read: the entries to show, the counts of the step, and where each queue is.

    A queue that is not open on the disk is not in ``positions``.
    """

    blocks: list[SeenEntries]
    counts: TailCounts
    positions: Mapping[int, int]
    stored: Mapping[int, int]

    @classmethod
    def from_bytes(cls, answer: bytes) -> TailStep:
        """Return the step of :func:`packed`.

        Raises:
            InvalidMessageError: it is none.
        """
        try:
            return cls._of(answer)
        except StreamError:
            raise
        except (struct.error, KeyError, TypeError, ValueError) as error:
            raise InvalidMessageError(f"this is no step of a tail: {error!r:.200}") from None

    @classmethod
    def _of(cls, answer: bytes) -> TailStep:
        (size,) = _SIZE.unpack_from(answer)
        at = _SIZE.size + size
        header = json.loads(answer[_SIZE.size : at])
        blocks = []
        for length, matches, codes in header["frames"]:
            end = at + _number(length, len(answer) - at)
            blocks.append(_unpacked(memoryview(answer)[at:end], matches, codes))
            at = end
        numbers, skipped, unshown, error = header["counts"]
        counts = TailCounts(
            FilterCounters(*map(_number, numbers)), _number(skipped), _number(unshown), str(error)
        )
        queues = [[*map(_number, each)] for each in header["queues"]]
        positions = {queue_id: position for queue_id, position, _ in queues}
        return cls(blocks, counts, positions, {queue_id: end for queue_id, _, end in queues})


def packed(step: TailStep) -> bytes:
    """Return a step as bytes.

    Raises:
        OffsetOutOfRangeError: records were deleted since. CorruptRecordError: one is damaged.
    """
    frames, named = [], []
    for block in step.blocks:
        if not len(block.entries):
            continue
        behind = step.positions[block.reader.queue_id]
        frames.append(pack_records(block.reader, block.entries, behind))
        bits = base64.b64encode(np.packbits(block.matches).tobytes()).decode()
        codes = block.entries.tags_codes[~block.matches].tolist()
        named.append([len(frames[-1]), bits, codes])
    counts = step.counts
    header = {
        "frames": named,
        "counts": [counts.filter.numbers(), counts.skipped, counts.unshown, counts.error],
        "queues": [[at, step.positions[at], step.stored[at]] for at in step.positions],
    }
    text = json.dumps(header).encode()
    return b"".join((_SIZE.pack(len(text)), text, *frames))


def _unpacked(frame: memoryview, matches: str, codes: list[int]) -> SeenEntries:
    """Return a frame's entries; those that do not match have their tags codes."""
    found = unpack_records(frame)
    bits = np.frombuffer(base64.b64decode(matches, validate=True), np.uint8)
    are_matches = np.unpackbits(bits, count=len(found.entries)).astype(np.bool_)
    tags_codes = found.entries.tags_codes.copy()
    tags_codes[~are_matches] = np.array(codes, np.int64)
    return SeenEntries(found.reader, replace(found.entries, tags_codes=tags_codes), are_matches)


def _number(value: Any, most: int = _NUMBER_MAX) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{value!r:.60} is no number from 0 to {most}")
    return value
