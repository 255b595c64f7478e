"""The calls and values of a tail whose queues are on another machine's disk.

A tail asks for one step after the other, from the position of each queue, so the service keeps
nothing between two steps. The records of a step are frames, one for each queue with messages
(packed_records.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Protocol

import numpy as np

from rocketray.base.limits import Limit, SentOffset, SentQueueId, SentTopic
from rocketray.broker.fetching.sent_filters import SentTextFilter
from rocketray.broker.filtering.seen_messages import SeenEntries
from rocketray.broker.filtering.tail import TailCounts, TailStart
from rocketray.errors import InvalidMessageError
from rocketray.runtime.calls.endpoint import GATEWAY_NAME, Endpoint, bulk
from rocketray.store.reading.packed_records import pack_records, unpack_records

STEP_BYTES = 4 * 1024 * 1024
"""The bytes of records in an answer; a larger message comes alone."""
_STEP_S = 10.0  # a step scans at once: some 30 ms of a queue
_ROOM_MAX = 10_000  # messages; the console asks for 500 at most


@dataclass(frozen=True, slots=True)
class TailQuery:
    """What a tail reads: *topic* through *subscription*; also what that rejects, if so.

    The limits are those of a query to another machine: beside the files predicates run, too.
    """

    topic: SentTopic
    subscription: SentTextFilter
    start: TailStart = field(default_factory=TailStart)
    with_rejected: bool = False


@dataclass(frozen=True, slots=True)
class SeenFrame:
    """The records of a queue to show: which of them match, a bit each; tags codes of the others."""

    frame: memoryview
    matches: bytes
    codes: Sequence[int]

    @classmethod
    def of(cls, block: SeenEntries, behind: int) -> SeenFrame:
        """Pack the entries of a block; *behind* is the position after them.

        Raises:
            OffsetOutOfRangeError: records were deleted since. CorruptRecordError: one is damaged.
        """
        frame = pack_records(block.reader, block.entries, behind)
        codes = block.entries.tags_codes[~block.matches].tolist()
        return cls(memoryview(frame), np.packbits(block.matches).tobytes(), codes)

    def entries(self) -> SeenEntries:
        """Return the entries, which keep the frame.

        Raises:
            InvalidMessageError: these are none. CorruptRecordError: a record is damaged.
        """
        found = unpack_records(self.frame)
        bits = np.frombuffer(self.matches, np.uint8)
        are_matches = np.unpackbits(bits, count=len(found.entries)).astype(np.bool_)
        tags_codes = found.entries.tags_codes.copy()
        try:
            tags_codes[~are_matches] = np.array(self.codes, np.int64)
        except (ValueError, OverflowError) as error:  # of another number, or too large
            raise InvalidMessageError(f"this is no step of a tail: {error!r:.200}") from None
        return SeenEntries(found.reader, replace(found.entries, tags_codes=tags_codes), are_matches)


@dataclass(frozen=True, slots=True)
class TailStep:
    """What a step read: the records to show, the counts of the step, and where each queue is.

    A queue that is not open on the disk is not in ``positions``.
    """

    frames: Sequence[SeenFrame]
    counts: TailCounts
    positions: Mapping[SentQueueId, SentOffset]
    stored: Mapping[SentQueueId, SentOffset]


class TailApi(Protocol):
    """The call of tails; see ``TailService``."""

    @bulk(_STEP_S)
    def step(
        self,
        query: TailQuery,
        queues: Sequence[SentQueueId],
        room: Annotated[int, Limit(_ROOM_MAX)] | None,
    ) -> TailStep:
        """Read what is new in *queues*, which begin where the query says.

        *room* is for how many messages, None for all.

        Raises:
            FilterError: the filter cannot be used.
            OffsetOutOfRangeError: messages were deleted while they were packed: ask again.
        """


TAILS: Endpoint[TailApi] = Endpoint(GATEWAY_NAME, TailApi)
"""The tails of a gateway; the link to its fetch service says of which disk."""
