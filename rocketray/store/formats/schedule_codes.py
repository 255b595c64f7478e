"""The third field of entries in SCHEDULE_TOPIC_XXXX: the due time of a message, not its tags code.

It is the store time plus the delay of the level in the property ``DELAY``. A message there
without a level has the code of its tag, as everywhere. Source: RocketMQ 5.3.3,
``CommitLog.checkMessageAndReturnSize``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rocketray.delay import DELAY_LEVEL, DELAY_LEVELS_MS

from .arrow_spans import find_values

__all__ = ["entry_codes"]

_LEVEL_DIGITS_MAX = 10  # of an int32; a longer text is not a level
_END_OF_TIME = 2**63 - 1  # no checksum covers a store time: a damaged one may be any number
_Int64s = npt.NDArray[np.int64]


def entry_codes(
    tags_codes: _Int64s,
    data: npt.NDArray[np.uint8],
    property_starts: _Int64s,
    property_sizes: _Int64s,
    store_timestamps_ms: _Int64s,
) -> _Int64s:
    """Return the codes int64[n] for the entries of records of that topic.

    ``tags_codes``, ``store_timestamps_ms`` and the spans of the property strings in *data* are
    int64[n].
    """
    starts, sizes = find_values(data, property_starts, property_sizes, [DELAY_LEVEL])
    codes = tags_codes.copy()
    for row, (start, size) in enumerate(zip(starts[0].tolist(), sizes[0].tolist(), strict=True)):
        level = _level(data[start : start + size].tobytes()) if size > 0 else 0
        if level > 0:
            delay = DELAY_LEVELS_MS[min(level, len(DELAY_LEVELS_MS)) - 1]
            codes[row] = min(max(int(store_timestamps_ms[row]) + delay, 0), _END_OF_TIME)
    return codes


def _level(text: bytes) -> int:
    return int(text) if text.isdigit() and len(text) <= _LEVEL_DIGITS_MAX else 0
