"""The offset at which a member begins to read a queue.

An illegal offset (RocketMQ's ``PullStatus.OFFSET_ILLEGAL``) is corrected to the queue's minimum.

- Below the minimum (``OFFSET_TOO_SMALL``), retention removed the messages. RocketMQ does the same.
- Beyond the end (``OFFSET_OVERFLOW_BADLY``), the log is not the one that the group read: the queue
  was created again, or its files are an older copy. RocketMQ resumes at the end, and so skips what
  was stored meanwhile. A log whose end was lost is no such case: it continues behind a gap
  (queue_gaps.py).

The corrected offset is the group's from then on, so the messages between are counted once.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from rocketray.base.quantity import counted
from rocketray.store.reading.pull import GetMessageStatus

_LOG = logging.getLogger(__name__)


class NextBegin(NamedTuple):
    """The next offset, the fault of the group's, and the number of messages removed before it."""

    queue_offset: int
    illegal: GetMessageStatus | None = None
    missed: int = 0

    def log(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        if self.illegal is not None:
            _LOG.warning(
                "%s/%d: offset %d of group %s is out of range (%s); continuing at %d, %s missed",
                topic, queue_id, offset, group, self.illegal.name, self.queue_offset,
                counted(self.missed, "message"),
            )  # fmt: skip


def next_begin(offset: int, minimum: int, maximum: int) -> NextBegin:
    """Return where a group at *offset* resumes in a queue of [*minimum*, *maximum*)."""
    if offset < minimum:
        return NextBegin(minimum, GetMessageStatus.OFFSET_TOO_SMALL, minimum - offset)
    if offset > maximum:
        return NextBegin(minimum, GetMessageStatus.OFFSET_OVERFLOW_BADLY)
    return NextBegin(offset)
