"""The committed and the start offsets of each consumer group, by queue.

Saved as two tables of the groups' snapshot, in the form of RocketMQ's ``consumerOffset.json``.
RocketMQ has the table of the committed offsets only.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any

from rocketray.errors import ConfigError, OffsetOutOfRangeError

LONG_MAX = 2**63 - 1  # an offset is an i64 on disk

_OFFSETS, _STARTS = "offsetTable", "startTable"
_Table = dict[tuple[str, str], dict[int, int]]


class GroupOffsets:
    """Next queue offsets by group, topic and queue; ``changed``: they have to be saved."""

    def __init__(self) -> None:
        self._offsets: _Table = {}
        self._starts: _Table = {}
        self.changed = False

    def begin(self, group: str, topic: str, queue: int, offset: int) -> None:
        """Note where a group without an offset begins; an offset noted before stays.

        It is the group's offset until the first commit. Members repeat it, so a coordinator that
        lost it learns it again.
        """
        if self.start(group, topic, queue) < 0:
            self._starts.setdefault((group, topic), {})[queue] = offset
            self.changed = True
        if self.get(group, topic, queue) < 0:
            self.commit(group, topic, queue, offset)

    def commit(self, group: str, topic: str, queue: int, offset: int) -> None:
        """Set the group's next queue offset, which may be a lower one: see ``EntryKind.BACK``."""
        if self.get(group, topic, queue) != offset:
            self._offsets.setdefault((group, topic), {})[queue] = offset
            self.changed = True

    def get(self, group: str, topic: str, queue: int) -> int:
        """Return the group's next queue offset, or -1."""
        return self._offsets.get((group, topic), {}).get(queue, -1)

    def of(self, group: str, topic: str) -> dict[int, int]:
        """Return the group's next queue offset in each queue in which it has one."""
        return dict(self._offsets.get((group, topic), {}))

    def start(self, group: str, topic: str, queue: int) -> int:
        """Return the group's start offset, or -1."""
        return self._starts.get((group, topic), {}).get(queue, -1)

    def drop(self, doomed: Callable[[tuple[str, str]], bool]) -> None:
        """Remove the (group, topic) pairs for which *doomed* is true."""
        for table in (self._offsets, self._starts):
            for key in [key for key in table if doomed(key)]:
                del table[key]
        self.changed = True

    def to_json(self) -> dict[str, Any]:
        """Return both tables: ``{"offsetTable": {"topic@group": {"0": 17}}, "startTable": …}``."""
        return {_OFFSETS: to_table(self._offsets), _STARTS: to_table(self._starts)}

    def load(self, value: Mapping[str, Any]) -> None:
        """Load the result of :meth:`to_json`."""
        self._offsets = _offsets(value.get(_OFFSETS, {}))
        self._starts = _offsets(value.get(_STARTS, {}))


def check_member_topic(own: str, topic: object) -> None:
    """Raise :class:`ConfigError` if a member of topic *own* commits for another topic."""
    if topic != own:
        raise ConfigError(
            f"this member reads topic {own!r}, so it cannot commit for {topic!r:.140}; commit with "
            "the topic of the batch"
        )


def check_known_queue(topic: str, queue_id: object, known: Collection[int]) -> None:
    """Raise :class:`ConfigError` if a member commits for a queue that it never read."""
    if queue_id not in known:
        read = ", ".join(map(str, sorted(known))) or "none yet"
        raise ConfigError(
            f"this member never read queue {queue_id!r:.40} of topic {topic!r} (it read: {read}); "
            "commit with the queue_id of a batch"
        )


def check_next_offset(topic: str, queue_id: int, next_queue_offset: object, end: int) -> int:
    """Return *next_queue_offset* if a group can resume there: from 0 up to and including *end*.

    Raises:
        ConfigError: it is not a whole number.
        OffsetOutOfRangeError: it is negative, or beyond *end*.
    """
    try:
        offset = operator.index(next_queue_offset)  # type: ignore[arg-type]  # checked here
    except TypeError:
        raise ConfigError(
            f"the offset to commit for queue {topic}/{queue_id} is {next_queue_offset!r:.60}; give "
            "a whole number, such as a batch's next_queue_offset"
        ) from None
    if not 0 <= offset <= end:
        # The error names an exclusive end, and a group may wait at *end* for the next message.
        raise OffsetOutOfRangeError(f"queue {topic}/{queue_id}", offset, 0, end + 1)
    return offset


def to_table(queues_of: Mapping[tuple[str, str], Mapping[int, Any]]) -> dict[str, dict[str, Any]]:
    """Return values by group, topic and queue in the form in which RocketMQ writes such a table."""
    return {
        f"{topic}@{group}": {str(queue): value for queue, value in queues.items()}
        for (group, topic), queues in queues_of.items()
    }


def from_table(value: Mapping[str, Mapping[str, Any]]) -> dict[tuple[str, str], dict[int, Any]]:
    """Return the argument of :func:`to_table` from its result."""
    table = {}
    for name, queues in value.items():
        topic, _, group = name.rpartition("@")
        table[group, topic] = {int(queue): each for queue, each in queues.items()}
    return table


def _offsets(value: Mapping[str, Mapping[str, Any]]) -> _Table:
    return {
        key: {queue: int(offset) for queue, offset in queues.items()}
        for key, queues in from_table(value).items()
    }
