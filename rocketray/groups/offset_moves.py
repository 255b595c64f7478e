"""Moves of a group's offsets by an operator: the queue is revoked, moved and assigned again.

A member that reads a queue commits what it finished, and would undo a move. So a queue that is to
move is assigned to no member. Its owner releases it as in a rebalance, with its last commit. Only
then the offset is set, and the next owner begins there.

Orders, offsets and owners are saved in one snapshot (actors/cluster/groups_file.py). So a
coordinator that restarts carries out exactly the orders that were not carried out, and a report
that is repeated to it finds the old owner and the old offset, or neither.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rocketray.errors import StreamError
from rocketray.groups.journal.group_journal import EntryKind, GroupJournals

from .group_offsets import GroupOffsets, from_table, to_table
from .membership import Membership

_MOVES = "moveTable"


class _Move(NamedTuple):
    order: str
    offset: int
    who: str = ""


class OffsetMoves:
    """The moves that wait for the owner of a queue; ``changed``: they have to be saved."""

    def __init__(self, offsets: GroupOffsets, journals: GroupJournals) -> None:
        self._offsets = offsets
        self._journals = journals
        self._waiting: dict[tuple[str, str], dict[int, _Move]] = {}
        self.changed = False

    def order(self, group: str, topic: str, targets: Mapping[int, int], who: str = "") -> str:
        """Order moves of queues, in place of earlier ones of these; return the order's name.

        *who* is recorded in the group's journal.
        """
        name = uuid.uuid4().hex
        waiting = self._waiting.setdefault((group, topic), {})
        waiting.update({queue: _Move(name, offset, who) for queue, offset in targets.items()})
        self.changed = True
        return name

    def left(self, name: str) -> set[int]:
        """Return the queues of an order that are still to be moved."""
        return {
            queue
            for waiting in self._waiting.values()
            for queue, move in waiting.items()
            if move.order == name
        }

    def waiting(self, group: str, topic: str) -> set[int]:
        """Return the queues that must not be assigned now."""
        return set(self._waiting.get((group, topic), ()))

    def drop(self, doomed: Callable[[tuple[str, str]], bool]) -> None:
        """Remove the moves of the (group, topic) pairs for which *doomed* is true."""
        for key in [key for key in self._waiting if doomed(key)]:
            del self._waiting[key]
            self.changed = True

    def carry_out(self, group: str, topic: str, membership: Membership) -> None:
        """Move the waiting queues that have no owner any more."""
        waiting = self._waiting.get((group, topic), {})
        owners = membership.owners
        moved: dict[str, dict[int, tuple[int, int]]] = {}
        moving = sorted(waiting.keys() - owners.names.keys())
        owners.forget(moving)  # a former owner that reclaimed one would commit its old offset
        for queue in moving:
            move = waiting.pop(queue)
            pair = self._offsets.get(group, topic, queue), move.offset
            moved.setdefault(move.who, {})[queue] = pair
            self._offsets.commit(group, topic, queue, move.offset)
            self.changed = True
        for who, queues in moved.items():
            self._journals.note(EntryKind.MOVE, group, topic, queues, who=who)

    def to_json(self) -> dict[str, Any]:
        """Return the waiting moves: ``{"moveTable": {"topic@group": {"0": [order, 17, who]}}}``."""
        table = {
            key: {queue: list(move) for queue, move in moves.items()}
            for key, moves in self._waiting.items()
            if moves
        }
        return {_MOVES: to_table(table)}

    def load(self, value: Mapping[str, Any]) -> None:
        """Load the result of :meth:`to_json`; raise :class:`StreamError` for another form."""
        try:
            self._waiting = {
                key: {
                    queue: _Move(str(name), int(at), *map(str, who))
                    for queue, (name, at, *who) in queues.items()
                }
                for key, queues in from_table(value.get(_MOVES, {})).items()
            }
        except (AttributeError, TypeError, ValueError) as error:
            raise StreamError(
                f"the pending offset moves cannot be read ({error!r}); restore config/groups.json, "
                "or remove its moveTable and move the groups again"
            ) from None
