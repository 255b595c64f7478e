"""The ranks of queue offsets among those in no gap (queue_gaps.py)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .queue_gaps import QueueGaps


def ranks_of(offsets: npt.NDArray[np.int64], gaps: QueueGaps) -> npt.NDArray[np.int64]:
    """Return how many offsets in no gap there are before each of *offsets*, none in a gap."""
    pairs = np.array([(0, 0), *gaps.pairs], np.int64)
    before = np.cumsum(pairs[:, 1] - pairs[:, 0])
    ranks: npt.NDArray[np.int64] = (
        offsets - before[np.searchsorted(pairs[:, 0], offsets, side="right") - 1]
    )
    return ranks
