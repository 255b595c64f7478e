"""Delivery of delayed messages when they are due: a plain object that is stepped.

Invariants
  1. A message is marked as done after its target has it on disk, or when nobody can ever take it.
     So a crash loses nothing.
  2. What is on its way is noted before it goes. Who finds such a note at the start asks the targets
     first, so that the end of this process repeats nothing; only a power failure, which may take
     the note, repeats up to one batch.
  3. No message goes before it is due, nor after it was recalled.
  4. Messages go to a queue in the order in which they are due. What a target does not take now is
     held, with all that is due later for it; the other targets get theirs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np

from rocketray.delay import (
    DELAY_LEVELS_MS,
    SCHEDULE_TOPIC,
    TIMER_QUEUE_ID,
    TIMER_TOPIC,
    restored,
)
from rocketray.errors import (
    InvalidMessageError,
    MessageTooLargeError,
    StreamError,
    TopicNotFoundError,
)
from rocketray.message import ForwardedMessage, StoredMessage
from rocketray.store.file_system import SYSTEM_FILES, FileSystem

from .due_times import Due
from .waiting_queue import CLOCK_STEP_MS, WaitingLog, WaitingQueue

__all__ = ["BATCH_MAX", "Place", "Schedule", "Targets"]

_LOG = logging.getLogger(__name__)
BATCH_MAX = 1024
_BATCH_BYTES = 8 * 1024 * 1024
_READ_AT_ONCE = 64  # bodies may be inflated to 4 MiB each
_BATCHES_A_STEP = 16
_PAUSE_MS, _PAUSE_MAX_MS = 1000, 60_000  # before a target is tried again; doubled each time
_IDLE_MS = 60_000

Place = tuple[str, int]
"""A topic and a queue."""
_WAITING: tuple[Place, ...] = (
    *((SCHEDULE_TOPIC, level) for level in range(len(DELAY_LEVELS_MS))),
    (TIMER_TOPIC, TIMER_QUEUE_ID),
)


class Targets(Protocol):
    """Where messages wait, and where they go."""

    def find(self, topic: str, queue_id: int) -> WaitingLog | None:
        """The shard of one of the schedule's own queues, where there is one."""
        ...

    def forward(self, topic: str, queue_id: int, messages: Sequence[ForwardedMessage]) -> None:
        """Store messages, all or none; they are on disk when this returns.

        Raises:
            TopicNotFoundError: the topic is gone.
            InvalidMessageError, MessageTooLargeError: there is one that the target never takes.
            StreamError: the target does not take them now.
        """
        ...

    def is_stored(self, message: ForwardedMessage, queue_id: int) -> bool:
        """Whether the target has exactly this message already; raises :class:`StreamError`."""
        ...


class Schedule:
    """All delayed messages of a node. For one thread at a time."""

    def __init__(
        self,
        targets: Targets,
        *,
        under_way: Mapping[Place, Iterable[int]] | None = None,
        note: Callable[[Mapping[Place, Sequence[int]]], None] = lambda _offsets: None,
        file_system: FileSystem = SYSTEM_FILES,
    ) -> None:
        """*note* keeps what is under way for the next process, which gets it as *under_way*."""
        self._targets = targets
        self._note = note
        self._file_system = file_system
        self._queues: dict[Place, WaitingQueue] = {}
        self._doubtful = {
            (place, offset) for place, offsets in (under_way or {}).items() for offset in offsets
        }
        self._blocked: set[Place] = set()
        self._retry_ms: int | None = None
        self._pause_ms = _PAUSE_MS
        self._last_ms = 0
        self.given_up = 0
        """Messages that nobody could ever take; the log tells of each."""

    def __len__(self) -> int:
        """How many messages wait."""
        return sum(map(len, self._queues.values()))

    def step(self, now_ms: int) -> int:
        """Deliver what is due at *now_ms*; the time of the next call, in ms since 1970."""
        self._open_queues()
        is_set_back = now_ms < self._last_ms - CLOCK_STEP_MS
        if self._retry_ms is None:
            self._pause_ms = _PAUSE_MS
        elif is_set_back or now_ms >= self._retry_ms:
            self._retry_ms = None
            self._blocked.clear()
            for queue in self._queues.values():
                queue.release()
        for queue in self._queues.values():
            if is_set_back:
                queue.limit_waits(now_ms)
            queue.refresh(now_ms)
        self._last_ms = now_ms
        for _ in range(_BATCHES_A_STEP):
            if not self._deliver(now_ms):
                return self._wakeup_ms(now_ms)
        return now_ms

    def recall(self, place: Place, offset: int, unique_key: str) -> bool:
        """Let a message never be delivered; False when it was before, or was recalled before.

        Raises:
            InvalidMessageError: no such message ever waited there.
            StreamError: it may have been delivered, and its target does not answer.
        """
        self._open_queues()
        queue = self._queues.get(place)
        if queue is not None and 0 <= offset < queue.log.minimum():
            return False
        stored = queue.find(offset) if queue is not None else None
        if queue is None or stored is None or stored.unique_key != unique_key:
            raise InvalidMessageError(
                f"no delayed message {unique_key!r} was stored at {place[0]}/{place[1]}@{offset}; "
                "use the handle that its send returned"
            )
        if queue.are_done(np.array([offset])).all():
            return False
        is_late = False
        if (place, offset) in self._doubtful:
            message, queue_id = restored(stored)
            is_late = self._targets.is_stored(message, queue_id)
        queue.finish(np.array([offset], np.int64))
        return not is_late

    def first_open(self) -> dict[Place, int]:
        """Each queue's first message that still waits, or the offset of the next one."""
        return {place: queue.first_open() for place, queue in self._queues.items()}

    def let_go(self) -> None:
        """Give back memory and disk of what is done."""
        for queue in self._queues.values():
            queue.let_go()

    def close(self) -> None:
        """Unmap everything; the next step begins anew."""
        for queue in self._queues.values():
            queue.close()
        self._queues = {}

    def _open_queues(self) -> None:
        for place in _WAITING:
            log = self._targets.find(*place)
            known = self._queues.get(place)
            if known is not None and known.log is not log:  # its topic was deleted
                self._queues.pop(place).close()
                known = None
            if known is None and log is not None:
                self._queues[place] = WaitingQueue(log, *place, file_system=self._file_system)

    def _wakeup_ms(self, now_ms: int) -> int:
        times = [queue.next_ms() for queue in self._queues.values()]
        wanted = [time for time in (*times, self._retry_ms) if time is not None]
        return min(wanted, default=now_ms + _IDLE_MS)

    def _deliver(self, now_ms: int) -> bool:
        """Deliver one batch; False when nothing is due."""
        rows, waiting = list[_Row](), list[_Row]()
        try:
            taken, rows, finished = self._take(now_ms)
            if rows:
                self._note(_offsets_of(rows))
            for target, group in _by_target(rows).items():
                done, undone = self._send(target, group)
                finished += done
                waiting += undone
            self._finish(finished)
        except BaseException:
            self._doubtful |= {(row.place, row.offset) for row in rows}
            self.close()  # what was taken is found again, by its missing marks
            raise
        for place in {row.place for row in waiting}:
            held = [row.due for row in waiting if row.place == place]
            self._queues[place].hold(Due.concatenated(held))
        if waiting and self._retry_ms is None:
            self._retry_ms = now_ms + self._pause_ms
            self._pause_ms = min(2 * self._pause_ms, _PAUSE_MAX_MS)
        return taken

    def _take(self, now_ms: int) -> tuple[bool, list[_Row], list[_Row]]:
        """Whether anything was due; what is to go, as it is due; and what cannot go anywhere."""
        queues = list(self._queues.values())
        parts = [queue.take(now_ms, BATCH_MAX) for queue in queues]
        numbers = np.repeat(np.arange(len(parts)), [len(part.offsets) for part in parts])
        if not len(numbers):
            return False, [], []
        due = Due.concatenated(parts)
        order = np.lexsort((due.offsets, numbers, due.due_ms))
        rows, hopeless, size, taken = list[_Row](), list[_Row](), 0, 0
        while size < _BATCH_BYTES and taken < min(len(order), BATCH_MAX):
            chosen = order[taken : min(taken + _READ_AT_ONCE, BATCH_MAX)]
            taken += len(chosen)
            found: dict[int, _Row] = {}
            for number in np.unique(numbers[chosen]).tolist():
                indexes = chosen[numbers[chosen] == number]
                read = _read(queues[number], due.part(indexes))
                found |= {int(indexes[at]): row for at, row in read.items()}
            for row in (found[index] for index in chosen.tolist() if index in found):
                (rows if row.message else hopeless).append(row)
                size += len(row.message.body) if row.message else 0
        rest = order[taken:]
        for number in np.unique(numbers[rest]).tolist():
            queues[number].put_back(due.part(rest[numbers[rest] == number]))
        self.given_up += len(hopeless)
        return True, rows, hopeless

    def _send(self, target: Place, rows: Sequence[_Row]) -> tuple[list[_Row], list[_Row]]:
        """Store messages in a queue; those that are done with now, and those that have to wait."""
        if target in self._blocked:
            return [], [*rows]
        try:
            new = [row for row in rows if not self._is_there_already(row)]
            if new:
                self._targets.forward(*target, [row.forwarded() for row in new])
        except (TopicNotFoundError, InvalidMessageError, MessageTooLargeError) as error:
            if len(rows) == 1 or isinstance(error, TopicNotFoundError):
                _LOG.error("%d messages for %s/%d are given up: %s", len(rows), *target, error)
                self.given_up += len(rows)
                return [*rows], []
            half = len(rows) // 2
            done, waiting = self._send(target, rows[:half])
            more, still = self._send(target, rows[half:])
            return done + more, waiting + still
        except StreamError as error:
            _LOG.warning("%d messages for %s/%d wait: %s", len(rows), *target, error)
            self._blocked.add(target)
            self._doubtful |= {(row.place, row.offset) for row in rows}
            return [], [*rows]
        return [*rows], []

    def _is_there_already(self, row: _Row) -> bool:
        """Whether an attempt of which the outcome is not known delivered the message."""
        if (row.place, row.offset) not in self._doubtful:
            return False
        message, queue_id = row.forwarded(), row.target[1]
        return self._targets.is_stored(message, queue_id)

    def _finish(self, rows: Sequence[_Row]) -> None:
        for place, offsets in _offsets_of(rows).items():
            self._queues[place].finish(np.array(offsets, np.int64))
            self._doubtful -= {(place, offset) for offset in offsets}


class _Row:
    """One message that is due, and where it waited."""

    __slots__ = ("due", "message", "offset", "place", "queue", "target")

    def __init__(self, queue: WaitingQueue, due: Due, stored: StoredMessage | None) -> None:
        """*stored* is what waited, None where it cannot be read."""
        self.queue = queue
        self.due = due
        self.offset = int(due.offsets[0])
        self.place: Place = queue.topic, queue.queue_id
        self.message: ForwardedMessage | None = None
        self.target: Place = "", 0
        if stored is not None:
            try:
                self.message, queue_id = restored(stored)
                self.target = self.message.topic, queue_id
            except InvalidMessageError as error:
                _LOG.error("a delayed message is given up: %s", error)

    def forwarded(self) -> ForwardedMessage:
        """The message, which was read."""
        assert self.message is not None
        return self.message


def _read(queue: WaitingQueue, due: Due) -> dict[int, _Row]:
    """The messages that are not done, by their numbers in *due*."""
    waiting = np.flatnonzero(~queue.are_done(due.offsets))  # the others were recalled
    if not len(waiting):
        return {}
    offsets = due.offsets[waiting]
    entries = queue.entries(offsets)
    messages = queue.messages(entries)
    at = np.searchsorted(entries.queue_offsets, offsets).tolist()
    return {
        number: _Row(queue, due.part(slice(number, number + 1)), messages[place])
        for number, place in zip(waiting.tolist(), at, strict=True)
    }


def _by_target(rows: Sequence[_Row]) -> dict[Place, list[_Row]]:
    groups: dict[Place, list[_Row]] = {}
    for row in rows:
        groups.setdefault(row.target, []).append(row)
    return groups


def _offsets_of(rows: Sequence[_Row]) -> dict[Place, list[int]]:
    offsets: dict[Place, list[int]] = {}
    for row in rows:
        offsets.setdefault(row.place, []).append(row.offset)
    return offsets
