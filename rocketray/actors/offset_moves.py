"""Moves of a group's offsets by hand: a queue is taken from its owner, moved, and given out again.

A member that reads a queue commits what it finished there, and would undo a move beneath it. So a
queue that is to move is granted to nobody. Its owner gives it up as for any other member, with its
last commit; only then is the offset set, and whoever gets the queue next begins there.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

from rocketray.errors import StreamError

from .group_offsets import GroupOffsets
from .membership import Membership

__all__ = ["OffsetMoves"]

_REMEMBERED = 100


class OffsetMoves:
    """The moves that were ordered since the coordinator started; the latest are remembered."""

    def __init__(self, offsets: GroupOffsets) -> None:
        self._offsets = offsets
        self._waiting: dict[tuple[str, str], dict[int, tuple[str, int]]] = {}
        self._orders: dict[str, tuple[str, str]] = {}

    def order(self, group: str, topic: str, targets: Mapping[int, int]) -> str:
        """Have queues moved to other next offsets; the order's name, for :meth:`left`.

        A later order for the same queue counts instead.
        """
        name = uuid.uuid4().hex
        while len(self._orders) >= _REMEMBERED:
            del self._orders[next(iter(self._orders))]
        self._orders[name] = group, topic
        waiting = self._waiting.setdefault((group, topic), {})
        waiting.update({queue: (name, offset) for queue, offset in targets.items()})
        return name

    def left(self, name: str) -> set[int]:
        """The queues of an order that are still to be moved.

        Raises:
            StreamError: nobody knows the order: the coordinator started again.
        """
        if name not in self._orders:
            raise StreamError(
                "the coordinator started again, and may not have moved all offsets; "
                "look at them with: rocketray groups progress, and move them again"
            )
        waiting = self._waiting.get(self._orders[name], {})
        return {queue for queue, (order, _) in waiting.items() if order == name}

    def waiting(self, group: str, topic: str) -> set[int]:
        """The queues that nobody may be given now."""
        return set(self._waiting.get((group, topic), ()))

    def drop(self, doomed: Callable[[tuple[str, str]], bool]) -> None:
        """Forget the moves of the (group, topic) pairs for which *doomed* is true."""
        for key in [key for key in self._waiting if doomed(key)]:
            del self._waiting[key]

    def carry_out(self, group: str, topic: str, membership: Membership | None) -> None:
        """Move the queues that nobody owns any more."""
        waiting = self._waiting.get((group, topic), {})
        owners = {} if membership is None else membership.owners
        for queue in waiting.keys() - owners.keys():
            self._offsets.commit(group, topic, queue, waiting.pop(queue)[1])
