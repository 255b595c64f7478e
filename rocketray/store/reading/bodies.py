"""The bodies of many records at once: checked against their CRCs, and inflated.

Most blocks have no compressed body, as one test of their flags shows. Then the bodies are copied
out of the segment without an object for each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketray.errors import ConfigError, CorruptRecordError
from rocketray.kernels.hashing import crc32_spans
from rocketray.kernels.spans import Field
from rocketray.store.formats.arrow_spans import ARROW_BYTES_MAX, binary_array
from rocketray.store.formats.compression import inflate
from rocketray.store.formats.sys_flag import COMPRESSED

__all__ = ["read_bodies"]


def read_bodies(
    segment: npt.NDArray[np.uint8],
    fields: npt.NDArray[np.int64],
    path: str,
    physical_offsets: npt.NDArray[np.int64],
) -> Any:
    """Return the bodies of the records that ``measure_spans`` described in *fields*, as ``binary``.

    Raises:
        CorruptRecordError: a body does not match its CRC, or does not inflate.
        MessageTooLargeError: a body inflates to more than its limit.
        ConfigError: together they exceed one Arrow column.
    """
    starts, sizes = fields[Field.BODY_START], fields[Field.BODY_SIZE]
    crcs = np.empty(len(starts), np.int32)
    crc32_spans(segment, starts, sizes, crcs)
    wrong = (crcs != fields[Field.BODY_CRC]) & (sizes > 0)
    if wrong.any():
        raise CorruptRecordError(
            path, int(physical_offsets[wrong.argmax()]), "its body does not match its CRC"
        )
    flags = fields[Field.SYS_FLAG]
    if not (flags & COMPRESSED).any():
        return binary_array(segment, starts, sizes)
    bodies = []
    total = 0
    for row, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
        stored = segment[start : start + size].tobytes()
        bodies.append(inflate(stored, int(flags[row]), path, int(physical_offsets[row])))
        total += len(bodies[-1])
        if total > ARROW_BYTES_MAX:
            raise ConfigError(
                f"{len(starts)} bodies have over {ARROW_BYTES_MAX} bytes when inflated, more than "
                "an Arrow column can hold; read fewer messages at a time"
            )
    return pa.array(bodies, pa.binary())
