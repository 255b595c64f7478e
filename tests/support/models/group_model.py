"""What a group of readers may do, as Python lists: the model that a node in one process is held to.

A reader is what a feed is in an app: it takes batches, has handlers work on them out of order,
commits what is finished, and gives queues up when it is told to. The model knows every message and
decides by itself which of them match; each batch and each offset is checked against that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from rocketray.filters.subscription import Subscription
from rocketray.groups.lease import SESSION_TIMEOUT_MS
from rocketray.testing import Member
from rocketray.topology.delivery.delivery import Delivery, split
from rocketray.topology.delivery.offset_ledger import OffsetLedger

SESSION_S = SESSION_TIMEOUT_MS // 1000
SURE_SILENCE_MS = (SESSION_S - 1) * 1000  # with the second between two heartbeats, no session ends


class Owner(Protocol):
    """Who reads queues."""

    name: str
    is_excused: bool
    """Something was done to it that lets others read its queues, or repeat what it did."""


class Sent(NamedTuple):
    """A message as the model remembers it."""

    tag: str | None
    number: int
    name: int = 0
    """Tells it from all others, where a model needs that."""
    attempts: int = 0
    """How often its group had it before."""


class Filter(NamedTuple):
    """A subscription, and what it means."""

    subscription: Subscription
    matches: Callable[[Sent], bool]


def _large(sent: Sent) -> bool:
    return sent.number > 7 and sent.tag is not None


FILTERS = (
    Filter(Subscription.tags("*"), lambda _: True),
    Filter(Subscription.tags("Aa || C"), lambda sent: sent.tag in {"Aa", "C"}),  # BB collides
    Filter(Subscription.sql("number > 5"), lambda sent: sent.number > 5),
    Filter(Subscription.sql("number > 7 AND TAGS IS NOT NULL"), _large),
)


@dataclass
class Queue:
    """One queue, as the model sees it."""

    sent: list[Sent] = field(default_factory=list)
    finished: dict[int, int] = field(default_factory=dict)
    """How often each message was finished, by its offset."""
    owner: Owner | None = None
    """Who began to read it last."""
    given_up_at: int | None = 0
    """Where the next reader goes on, if the owner gave it up in order."""
    committed: int = -1
    """As the coordinator had it after the last step."""
    moves_to: int | None = None
    """Where the group is to go on, as somebody asked."""
    ordered: int | None = None
    """Where it was to go on when somebody asked last."""
    skipped: set[int] = field(default_factory=set)
    """Offsets that moves went over."""


class GroupModel:
    """All queues of a topic, and one group that reads them."""

    def __init__(
        self, queues: int, heard: Callable[[int], int], is_moving: Callable[[int], bool]
    ) -> None:
        """*heard* is the offset of a queue that the coordinator knows now, or -1.

        *is_moving* says that a move of the queue waits for its owner.
        """
        self.queues = [Queue() for _ in range(queues)]
        self.filter = FILTERS[0]
        self._heard = heard
        self._is_moving = is_moving
        self.has_moved = False
        """Some queue was moved since somebody looked."""

    def matching(self, queue_id: int, start: int, stop: int) -> list[int]:
        """The offsets from *start* up to, not including, *stop* that the group is to get."""
        sent = self.queues[queue_id].sent
        return [at for at in range(start, stop) if self.filter.matches(sent[at])]

    def lag(self, queue_id: int) -> int:
        """How many messages the group has not finished, as far as the coordinator knows."""
        queue = self.queues[queue_id]
        return len(self.matching(queue_id, max(queue.committed, 0), len(queue.sent)))

    def begin(self, reader: Owner, queue_id: int, start: int) -> None:
        """*reader* reads a queue from *start* on; nothing is passed over, and repeated for cause."""
        self.take_move(queue_id)
        queue = self.queues[queue_id]
        before, due = queue.owner, queue.given_up_at
        is_in_order = before is None or not before.is_excused
        if due is not None and (is_in_order or start == due):
            assert start == due, f"queue {queue_id}: given up at {due}, goes on at {start}"
        else:  # what the owner gave up last the coordinator may never have heard
            assert before is not None
            assert before.is_excused, f"queue {queue_id}: {reader.name} and {before.name} read it"
            assert start >= self._heard(queue_id)
            self._check_finished(queue_id, self._heard(queue_id), start)
        queue.owner, queue.given_up_at = reader, None

    def revoke(self, reader: Owner, queue_id: int, finished: int) -> None:
        """*reader* reads a queue no more, and has committed *finished*."""
        queue = self.queues[queue_id]
        if queue.owner is reader:
            queue.given_up_at = None if reader.is_excused else finished

    def take_move(self, queue_id: int) -> None:
        """If a move that was asked for has been done, the group goes on there."""
        queue = self.queues[queue_id]
        if queue.moves_to is None or self._is_moving(queue_id):
            return
        queue.skipped |= set(range(queue.committed, queue.moves_to))
        queue.committed = queue.given_up_at = queue.moves_to
        queue.moves_to = None
        self.has_moved = True

    def check_committed(self, queue_id: int, committed: int, *, may_go_back: bool) -> None:
        """The coordinator's offset never passes an unfinished message that matches."""
        queue = self.queues[queue_id]
        assert committed <= len(queue.sent)
        assert may_go_back or committed >= queue.committed
        self._check_finished(queue_id, queue.committed, committed)
        queue.committed = committed

    def _check_finished(self, queue_id: int, start: int, stop: int) -> None:
        done = self.queues[queue_id].finished.keys() | self.queues[queue_id].skipped
        for offset in self.matching(queue_id, max(start, 0), stop):
            assert offset in done, f"queue {queue_id}: {offset} was passed over"


class Reader:
    """A member, and the handlers behind it."""

    def __init__(self, model: GroupModel, name: str, member: Member, handlers: int) -> None:
        self.name = name
        self.member = member
        self.is_excused = False
        self.is_paused = False
        self._model = model
        self._handlers = handlers
        self._ledger = OffsetLedger()
        self._positions: dict[int, int] = {}
        self._finished: dict[int, int] = {}
        self._cut_off_ms: int | None = None
        self._beats = 0
        self._clock_ms: Callable[[], int] = int
        member.on_revoke = self._revoke
        self._begin_new()

    def silence(self, clock_ms: Callable[[], int]) -> int:
        """Its heartbeats do not arrive from now on, until they do again; returns since when."""
        if (
            self._cut_off_ms is None or self._beats != self.member._session._beats
        ):  # it was heard since
            self._cut_off_ms, self._beats = clock_ms(), self.member._session._beats
        self._clock_ms = clock_ms
        return self._cut_off_ms

    def poll(self, max_messages: int) -> None:
        """Take what waits; what is behind the handlers already stays there."""
        batches = self.member.poll(0.0, max_messages)
        if self._may_be_replaced():
            assert not batches, "others may have its queues by now"
            return  # nor does it read what it was granted long ago: it has to hear of it again
        if not self.member.is_leased:
            assert not batches, "a member without a lease hands out nothing"
            return  # its heartbeats arrive again, and the next one has not been sent yet
        self._begin_new()
        for batch in batches:
            start, stop = self._positions[batch.queue_id], batch.next_queue_offset
            due = self._model.matching(batch.queue_id, start, stop)
            assert batch.queue_offsets.tolist() == due
            assert not due or self._model.queues[batch.queue_id].owner is self
            sent = self._model.queues[batch.queue_id].sent
            assert [int(body) for body in batch.bodies()] == [sent[at].number for at in due]
            self._positions[batch.queue_id] = stop
            for delivery in split(batch, self._handlers):
                self._ledger.add(delivery)

    def working(self) -> list[Delivery]:
        """The batches that handlers have now."""
        return [one for one in self._ledger.outstanding() if not one.is_passed]

    def finish(self, delivery: Delivery, count: int) -> None:
        """A handler finishes the next *count* messages of its batch."""
        queue = self._model.queues[delivery.queue_id]
        for _ in range(min(count, delivery.stop - delivery.cursor)):
            offset = delivery.queue_offset()
            queue.finished[offset] = queue.finished.get(offset, 0) + 1
            delivery.cursor += 1

    def commit(self) -> None:
        """Commit what is finished, as an app does twice a second."""
        for queue_id, next_offset in self._ledger.advance():
            assert self._ledger.commit(queue_id, next_offset)
            self._finished[queue_id] = next_offset
            self.member.commit("T", queue_id, next_offset)

    def close(self) -> None:
        """Leave in order."""
        self.member.close()

    def _may_be_replaced(self) -> bool:
        """Nobody heard of the member for a session time."""
        since_ms, now_ms = self._cut_off_ms, self._clock_ms()
        is_cut_off = since_ms is not None and now_ms < self.member.silent_until_ms
        return is_cut_off and now_ms >= (since_ms or 0) + SESSION_TIMEOUT_MS

    def _begin_new(self) -> None:
        for _, queue_id in sorted(self.member.assignment() - self._held()):
            start = self.member._session.finished()[queue_id]
            self._positions[queue_id] = self._finished[queue_id] = start
            self._model.begin(self, queue_id, start)

    def _held(self) -> set[tuple[str, int]]:
        return {("T", queue_id) for queue_id in self._positions}

    def _revoke(self, queues: frozenset[tuple[str, int]]) -> None:
        self.commit()
        lost = [queue_id for _, queue_id in queues]
        self._ledger.forget_queues(lost)
        for queue_id in lost:
            if queue_id in self._positions:
                del self._positions[queue_id]
                self._model.revoke(self, queue_id, self._finished.pop(queue_id))
