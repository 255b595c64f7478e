"""Moves of a group's offsets by hand: a queue is taken from its owner, moved, and given out again.

A member that reads a queue commits what it finished there, and would undo a move beneath it. So a
queue that is to move is granted to nobody. Its owner gives it up as for any other member, with its
last commit; only then is the offset set, and whoever gets the queue next begins there.

Orders are kept in the file of the offsets, and go from it with the offsets that they set: a
coordinator that starts again carries out each that it had not, and no other.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rocketray.errors import StreamError

from .group_offsets import GroupOffsets, from_table, to_table
from .membership import Membership

__all__ = ["OffsetMoves"]

_MOVES = "moveTable"


class _Move(NamedTuple):
    order: str
    offset: int


class OffsetMoves:
    """The moves that wait for the owner of a queue; ``changed`` says that they are to be saved."""

    def __init__(self, offsets: GroupOffsets) -> None:
        self._offsets = offsets
        self._waiting: dict[tuple[str, str], dict[int, _Move]] = {}
        self.changed = False

    def order(self, group: str, topic: str, targets: Mapping[int, int]) -> str:
        """Have queues moved to other next offsets; the order's name, for :meth:`left`.

        A later order for the same queue counts instead.
        """
        name = uuid.uuid4().hex
        waiting = self._waiting.setdefault((group, topic), {})
        waiting.update({queue: _Move(name, offset) for queue, offset in targets.items()})
        self.changed = True
        return name

    def left(self, name: str) -> set[int]:
        """The queues of an order that are still to be moved."""
        return {
            queue
            for waiting in self._waiting.values()
            for queue, move in waiting.items()
            if move.order == name
        }

    def waiting(self, group: str, topic: str) -> set[int]:
        """The queues that nobody may be given now."""
        return set(self._waiting.get((group, topic), ()))

    def drop(self, doomed: Callable[[tuple[str, str]], bool]) -> None:
        """Forget the moves of the (group, topic) pairs for which *doomed* is true."""
        for key in [key for key in self._waiting if doomed(key)]:
            del self._waiting[key]
            self.changed = True

    def carry_out(self, group: str, topic: str, membership: Membership | None) -> None:
        """Move the queues that nobody owns any more."""
        waiting = self._waiting.get((group, topic), {})
        owners = {} if membership is None else membership.owners
        for queue in waiting.keys() - owners.keys():
            self._offsets.commit(group, topic, queue, waiting.pop(queue).offset)
            self.changed = True
            if membership is not None:
                membership.lapsed.pop(queue, None)

    def to_json(self) -> dict[str, Any]:
        """The moves that wait, beside the offsets: ``{"moveTable": {"topic@group": {…}}}``."""
        table = {
            key: {queue: list(move) for queue, move in moves.items()}
            for key, moves in self._waiting.items()
            if moves
        }
        return {_MOVES: to_table(table)}

    def load(self, value: Mapping[str, Any]) -> None:
        """Take what :meth:`to_json` wrote.

        Raises:
            StreamError: it is something else.
        """
        try:
            self._waiting = {
                key: {queue: _Move(str(name), int(at)) for queue, (name, at) in queues.items()}
                for key, queues in from_table(value.get(_MOVES, {})).items()
            }
        except (AttributeError, TypeError, ValueError) as error:
            raise StreamError(
                f"the moves of offsets cannot be read ({error!r}); restore "
                "config/consumerOffset.json, or remove its moveTable and move the groups again"
            ) from None
