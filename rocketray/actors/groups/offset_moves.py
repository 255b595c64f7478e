"""Moves of a group's offsets by hand: a queue is taken from its owner, moved, and given out again.

A member that reads a queue commits what it finished there, and would undo a move beneath it. So a
queue that is to move is granted to nobody. Its owner gives it up as for any other member, with its
last commit; only then is the offset set, and whoever gets the queue next begins there.

Orders are kept in the file of the offsets, and go from it with the offsets that they set: a
coordinator that starts again carries out each that it had not, and no other.

A report may end a move of one queue and bring the last commit of another, and who owns what is in a
file of its own. So the offsets are saved twice then: before the owners without what moves did, since
a report that comes again while the old owner is on disk would undo it; and after them with it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rocketray.actors.journal.group_journal import GroupJournals
from rocketray.errors import StreamError

from .group_offsets import GroupOffsets, from_table, to_table
from .membership import Membership

__all__ = ["OffsetMoves"]

_MOVES = "moveTable"


class _Move(NamedTuple):
    order: str
    offset: int
    who: str = ""


class OffsetMoves:
    """The moves that wait for the owner of a queue; ``changed`` says that they are to be saved."""

    def __init__(self, offsets: GroupOffsets, journals: GroupJournals) -> None:
        self._offsets = offsets
        self._journals = journals
        self._waiting: dict[tuple[str, str], dict[int, _Move]] = {}
        self._done: dict[tuple[str, str], dict[int, tuple[_Move, int]]] = {}
        self.changed = False

    def order(self, group: str, topic: str, targets: Mapping[int, int], who: str = "") -> str:
        """Have queues moved to other next offsets; the order's name, for :meth:`left`.

        *who* is noted in the group's journal. A later order for the same queue counts instead.
        """
        name = uuid.uuid4().hex
        waiting = self._waiting.setdefault((group, topic), {})
        waiting.update({queue: _Move(name, offset, who) for queue, offset in targets.items()})
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
        for key in [key for key in self._done if doomed(key)]:
            del self._done[key]

    def carry_out(self, group: str, topic: str, membership: Membership | None) -> None:
        """Move the queues that nobody owns any more."""
        waiting = self._waiting.get((group, topic), {})
        owners = {} if membership is None else membership.owners
        moved: dict[str, dict[int, tuple[int, int]]] = {}
        for queue in sorted(waiting.keys() - owners.keys()):
            move = waiting.pop(queue)
            pair = self._offsets.get(group, topic, queue), move.offset
            moved.setdefault(move.who, {})[queue] = pair
            self._done.setdefault((group, topic), {}).setdefault(queue, (move, pair[0]))
            self._offsets.commit(group, topic, queue, move.offset)
            self.changed = True
            if membership is not None:
                membership.lapsed.pop(queue, None)
        for who, queues in moved.items():
            self._journals.moved(group, topic, queues, who)

    @property
    def are_done(self) -> bool:
        """Moves were carried out, and are not saved."""
        return bool(self._done)

    def saved(self) -> None:
        """The moves that wait, and the offsets, are on disk as they are."""
        self._done.clear()
        self.changed = False

    def to_json(self, *, before_done: bool = False) -> dict[str, Any]:
        """The moves that wait, beside the offsets: ``{"moveTable": {"topic@group": {…}}}``.

        With *before_done* those as well that were carried out and not saved.
        """
        waiting = dict(self._waiting)
        for key, done in self._done.items() if before_done else ():
            first = {queue: move for queue, (move, _) in done.items()}
            waiting[key] = {**first, **waiting.get(key, {})}
        table = {
            key: {queue: list(move) for queue, move in moves.items()}
            for key, moves in waiting.items()
            if moves
        }
        return {_MOVES: to_table(table)}

    def offsets_before_done(self) -> dict[tuple[str, str], dict[int, int]]:
        """The offsets of the queues that were moved, from before that; -1 where there was none."""
        return {
            key: {queue: before for queue, (_, before) in done.items()}
            for key, done in self._done.items()
        }

    def load(self, value: Mapping[str, Any]) -> None:
        """Take what :meth:`to_json` wrote.

        Raises:
            StreamError: it is something else.
        """
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
                f"the moves of offsets cannot be read ({error!r}); restore "
                "config/consumerOffset.json, or remove its moveTable and move the groups again"
            ) from None
