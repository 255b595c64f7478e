"""The results of appends: where a batch, or each of its messages, was stored."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rocketray.message import PhysicalOffset, QueueOffset


@dataclass(frozen=True, slots=True)
class AppendResult:
    """The place of a batch, whose queue offsets are consecutive; the time is its last message's."""

    first_queue_offset: QueueOffset
    first_physical_offset: PhysicalOffset
    count: int
    store_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class PutResult:
    """The place of one message."""

    queue_id: int
    queue_offset: QueueOffset
    physical_offset: PhysicalOffset
    store_timestamp_ms: int


def put_results(
    done: AppendResult, queue_id: int, starts: npt.NDArray[np.int64]
) -> list[PutResult]:
    """Return the result of each message of a batch; ``starts`` int64[n] are relative to it."""
    return [
        PutResult(
            queue_id,
            QueueOffset(done.first_queue_offset + number),
            PhysicalOffset(done.first_physical_offset + start),
            done.store_timestamp_ms,
        )
        for number, start in enumerate(starts.tolist())
    ]
