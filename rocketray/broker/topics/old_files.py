"""The part of a queue in old files of its log: all files but the newest one."""

from __future__ import annotations

from typing import NamedTuple

from rocketray.store.reading.reader import QueueReader


class Spot(NamedTuple):
    """A message's position in its queue, and in the log."""

    queue_offset: int
    physical_offset: int


def old_files(
    reader: QueueReader, minimum: int, end: int, segment_bytes: int
) -> tuple[Spot, Spot | None]:
    """Return the first message from *minimum* on, and the first in the newest file before *end*.

    The second is None if no file is old. It is at the beginning of its file.
    """
    gaps = reader.gaps
    minimum = gaps.after(minimum)
    if minimum >= end:
        return Spot(end, 0), None
    first, newest = _physical(reader, minimum), _physical(reader, gaps.before(end) - 1)
    newest_file = newest - newest % segment_bytes
    if first >= newest_file:
        return Spot(minimum, first), None
    begins = gaps.find(lambda at: _physical(reader, at) >= newest_file, minimum, end)
    return Spot(minimum, first), Spot(begins, newest_file)


def _physical(reader: QueueReader, queue_offset: int) -> int:
    return int(reader.entries(queue_offset, queue_offset + 1).physical_offsets[0])
