"""Messages that are slices of their records: most parts are decoded when they are first read.

Body, topic and place are there at once, for a whole batch in a few passes. The rest is bytes of
the message's own, so one that is kept keeps no other one, and no file of the log.

Only records in which nothing is unusual are sliced: the topic of the queue, a body that is not
compressed, properties in whole pairs. Their lengths and CRCs were checked before.
"""

from __future__ import annotations

from collections import deque
from itertools import repeat

import numpy as np
import numpy.typing as npt

from rocketray.kernels.properties import end_pairs
from rocketray.kernels.spans import Field, gather_spans
from rocketray.message import StoredMessage
from rocketray.store.formats.arrow_spans import match_exactly
from rocketray.store.formats.record import decode_head
from rocketray.store.formats.sys_flag import COMPRESSED

_Int64s = npt.NDArray[np.int64]


def usual_records(
    segment: npt.NDArray[np.uint8], fields: _Int64s, topic: str
) -> tuple[npt.NDArray[np.bool_], _Int64s]:
    """Return which records can be sliced, bool[n], and where their pairs end, int64[n].

    ``fields`` int64[len(Field), n] are those of ``measure_spans``, with positions in *segment*.
    """
    ends = np.empty(fields.shape[1], np.int64)
    end_pairs(segment, fields[Field.PROPERTIES_START], fields[Field.PROPERTIES_SIZE], ends)
    usual = ends >= 0
    usual &= (fields[Field.SYS_FLAG] & COMPRESSED) == 0
    usual &= match_exactly(segment, fields[Field.TOPIC_START], fields[Field.TOPIC_SIZE], [topic])
    return usual, ends


def sliced_messages(
    segment: npt.NDArray[np.uint8], sizes: _Int64s, fields: _Int64s, ends: _Int64s, topic: str
) -> list[StoredMessage]:
    """Return *n* messages of *topic*, whose records are usual (:func:`usual_records`).

    ``sizes`` int64[n] are those of the records, ``ends`` int64[n] the ends of their pairs.
    """
    starts = fields[Field.PROPERTIES_START] + fields[Field.PROPERTIES_SIZE] - sizes
    bounds, data = np.empty(len(sizes) + 1, np.int32), np.empty(int(sizes.sum()), np.uint8)
    gather_spans(segment, starts, sizes, bounds, data)
    block = data.tobytes()
    records = bounds[:-1].astype(np.int64)
    shift = records - starts
    bodies = fields[Field.BODY_START] + shift
    values = {
        "topic": repeat(topic),
        "queue_id": fields[Field.QUEUE_ID].tolist(),
        "queue_offset": fields[Field.QUEUE_OFFSET].tolist(),
        "body": _slices(block, bodies, bodies + fields[Field.BODY_SIZE]),
        "store_timestamp_ms": fields[Field.STORE_TIMESTAMP].tolist(),
        "_head": _slices(block, records, bodies),
        "_pairs": _slices(block, fields[Field.PROPERTIES_START] + shift, ends + shift),
        "_decode_head": repeat(decode_head),
    }
    made = [*map(StoredMessage.__new__, repeat(StoredMessage, len(sizes)))]
    for name, column in values.items():
        # a slot takes its value from C, 1,000 of them in the time of one frozen attribute each
        deque(map(getattr(StoredMessage, name).__set__, made, column), maxlen=0)
    return made


def _slices(block: bytes, starts: _Int64s, ends: _Int64s) -> list[bytes]:
    return [block[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
