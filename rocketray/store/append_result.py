"""Where what was appended went."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rocketray.message import PhysicalOffset, QueueOffset

__all__ = ["AppendResult", "PutResult", "put_results"]


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Where a batch went: its messages have consecutive queue offsets, and this is the last one's store time."""

    first_queue_offset: QueueOffset
    first_physical_offset: PhysicalOffset
    count: int
    store_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class PutResult:
    """Where one message went."""

    queue_id: int
    queue_offset: QueueOffset
    physical_offset: PhysicalOffset
    store_timestamp_ms: int


def put_results(
    done: AppendResult, queue_id: int, starts: npt.NDArray[np.int64]
) -> list[PutResult]:
    """The result of each message of a batch; ``starts`` int64[n] count from the batch's first."""
    return [
        PutResult(
            queue_id,
            QueueOffset(done.first_queue_offset + number),
            PhysicalOffset(done.first_physical_offset + start),
            done.store_timestamp_ms,
        )
        for number, start in enumerate(starts.tolist())
    ]
