"""Columns of properties that were read from a topic, for messages that are made of these rows.

What does not travel is left out, as with ``marks.taken_on``: a row becomes another message.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from rocketray.marks import LEFT_BEHIND

__all__ = ["taken_on_column"]


def taken_on_column(properties: Any) -> Any:
    """Return a ``map<string, string>`` array without what does not travel; null rows stay null."""
    from pyarrow.compute import is_in  # noqa: PLC0415 - its import takes 0.1 s

    if not len(properties):
        return properties
    offsets = properties.offsets.to_numpy()
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    names = properties.keys.slice(first, count)
    is_left = is_in(names, value_set=pa.array(sorted(LEFT_BEHIND), names.type))
    stays = ~is_left.to_numpy(zero_copy_only=False)
    is_null = properties.is_null().to_numpy(zero_copy_only=False)
    if stays.all() and not is_null.any():
        return properties
    stays &= ~np.repeat(is_null, np.diff(offsets))  # a null row may have pairs that no reader sees
    kept = np.concatenate(([0], np.cumsum(stays)))[offsets - first].astype(np.int32)
    return pa.MapArray.from_arrays(
        pa.array(kept, mask=np.append(is_null, False)),  # a null offset marks a null row
        names.filter(pa.array(stays)),
        properties.items.slice(first, count).filter(pa.array(stays)),
        properties.type,
    )
