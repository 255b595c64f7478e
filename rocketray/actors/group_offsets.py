"""How far each consumer group has come in each queue, and where it began.

Kept as JSON in the form of RocketMQ's ``consumerOffset.json``, with a table of its own for the
places where groups began, which RocketMQ does not keep and passes over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["GroupOffsets", "from_table", "to_table"]

_OFFSETS, _STARTS = "offsetTable", "startTable"
_Table = dict[tuple[str, str], dict[int, int]]


class GroupOffsets:
    """Next queue offsets by group, topic and queue; ``changed`` says that they are to be saved."""

    def __init__(self) -> None:
        self._offsets: _Table = {}
        self._starts: _Table = {}
        self.changed = False

    def begin(self, group: str, topic: str, queue: int, offset: int) -> None:
        """Note where a group that had no offset begins; what was noted before stays.

        It is the group's offset until something is committed. Members repeat it, so a coordinator
        that forgot it hears of it again.
        """
        if self.start(group, topic, queue) < 0:
            self._starts.setdefault((group, topic), {})[queue] = offset
            self.changed = True
        if self.get(group, topic, queue) < 0:
            self.commit(group, topic, queue, offset)

    def commit(self, group: str, topic: str, queue: int, offset: int) -> None:
        """Set the group's next queue offset."""
        if self.get(group, topic, queue) != offset:
            self._offsets.setdefault((group, topic), {})[queue] = offset
            self.changed = True

    def get(self, group: str, topic: str, queue: int) -> int:
        """The group's next queue offset, or -1."""
        return self._offsets.get((group, topic), {}).get(queue, -1)

    def start(self, group: str, topic: str, queue: int) -> int:
        """Where the group began, or -1."""
        return self._starts.get((group, topic), {}).get(queue, -1)

    def drop(self, doomed: Callable[[tuple[str, str]], bool]) -> None:
        """Forget the (group, topic) pairs for which *doomed* is true."""
        for table in (self._offsets, self._starts):
            for key in [key for key in table if doomed(key)]:
                del table[key]
        self.changed = True

    def to_json(self) -> dict[str, Any]:
        """Both tables: ``{"offsetTable": {"topic@group": {"0": 17}}, "startTable": …}``."""
        return {_OFFSETS: to_table(self._offsets), _STARTS: to_table(self._starts)}

    def load(self, value: Mapping[str, Any]) -> None:
        """Take what :meth:`to_json` wrote."""
        self._offsets = _offsets(value.get(_OFFSETS, {}))
        self._starts = _offsets(value.get(_STARTS, {}))


def to_table(queues_of: Mapping[tuple[str, str], Mapping[int, Any]]) -> dict[str, dict[str, Any]]:
    """As RocketMQ writes a table of values by group, topic and queue."""
    return {
        f"{topic}@{group}": {str(queue): value for queue, value in queues.items()}
        for (group, topic), queues in queues_of.items()
    }


def from_table(value: Mapping[str, Mapping[str, Any]]) -> dict[tuple[str, str], dict[int, Any]]:
    """What :func:`to_table` made."""
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
