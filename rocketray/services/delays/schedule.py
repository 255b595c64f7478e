"""Delivery of delayed messages when they are due: a plain object that is stepped.

Invariants
  1. A message is marked as done after its target has it on disk, or after it is a dead letter on
     disk because it can never be delivered (undeliverable.py). So a crash loses no message.
  2. The messages of an attempt are noted before they are sent. A process that finds such a note at
     its start asks the targets first, so the end of the earlier process repeats nothing. Only a
     power failure, which may lose the note, repeats up to one batch.
  3. No message is delivered before it is due, nor after it was recalled.
  4. Messages go to a queue in the order in which they are due. A message that its target does not
     accept now is held, with all later messages for that target; the other targets get theirs
     without waiting for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from rocketray.base.delay import restored
from rocketray.base.system_topics import TIMER_TOPIC
from rocketray.broker.retries.deliveries import (
    PATIENCE_S,
    Attempt,
    OutboundDeliveries,
    Place,
    Submit,
    TargetQueues,
    at_once,
    attempt,
    grouped,
    store_once,
)
from rocketray.errors import InvalidMessageError, ShardUnavailableError
from rocketray.message import ForwardedMessage
from rocketray.store.files.file_system import SYSTEM_FILES, FileSystem

from .due_rows import NOWHERE, DueRow, read_rows
from .due_times import Due, DueTimes
from .waiting_queue import WaitingQueue
from .waiting_records import CLOCK_STEP_MS, Int64s, WaitingLog

_LOG = logging.getLogger(__name__)
# What a power failure may repeat (invariant 2). Bodies are counted after they are read, so a batch
# may be larger than the limit of bytes by what is read at once: 64 bodies of 4 MiB, or 256 MiB.
BATCH_MAX = 1024
_BATCH_BYTES = 8 * 1024 * 1024
_READ_AT_ONCE = 64  # bodies may be inflated to 4 MiB each
# A recall waits for a step, and so does the other service of the process. Each batch waits
# PATIENCE_S for its targets, so 16 of them take 1.6 s at most beside their own work.
_BATCHES_A_STEP = 16
_IDLE_MS = 60_000  # nothing waits: a message that is stored wakes the services


class Targets(TargetQueues, Protocol):
    """The queues where messages wait, and the queues they are delivered to."""

    def waiting(self) -> Iterable[Place]:
        """Return the schedule's own queues: those of one disk."""

    def find(self, topic: str, queue_id: int) -> WaitingLog | None:
        """Return the shard of one of the schedule's own queues, None if it is not open."""


class Schedule:
    """All delayed messages of a disk. For one thread at a time."""

    def __init__(
        self,
        targets: Targets,
        *,
        under_way: Mapping[Place, Iterable[int]] | None = None,
        note: Callable[[Mapping[Place, Sequence[int]]], None] = lambda _offsets: None,
        file_system: FileSystem = SYSTEM_FILES,
        submit: Submit = at_once,
    ) -> None:
        """Take *note*, which saves the messages in progress for the next process's *under_way*.

        *submit* runs a storing task, possibly in another thread.
        """
        self._targets = targets
        self._note = note
        self._file_system = file_system
        self._queues: dict[Place, WaitingQueue] = {}
        self._doubtful = {
            (place, offset) for place, offsets in (under_way or {}).items() for offset in offsets
        }
        self._deliveries = OutboundDeliveries[list[DueRow], Attempt[DueRow]](submit)
        self._held: dict[Place, dict[Place, DueTimes]] = {}  # by target, then by queue
        self._recalled: set[Place] = set()
        """The queues whose due times may have recalled messages."""
        self._last_ms = 0
        self.given_up = 0
        """Number of messages that could never be delivered; the log names each."""

    def __len__(self) -> int:
        """Return the number of waiting messages, without recalled ones."""
        return sum(map(len, self._waiting())) + sum(map(len, self._deliveries.under_way()))

    def due_times(self) -> Int64s:
        """Return when the waiting messages are due, in ms since 1970, without recalled ones."""
        parts = [rest.due_ms for times in self._waiting() for rest in times.rests()]
        parts += [row.due.due_ms for rows in self._deliveries.under_way() for row in rows]
        return np.concatenate([*parts, np.empty(0, np.int64)])

    def _waiting(self) -> list[DueTimes]:
        """Return the due times of what waits; recalled messages, left there until now, are gone."""
        waiting = [(place, queue.times) for place, queue in self._queues.items()]
        for queues in self._held.values():
            waiting += queues.items()
        for place, times in waiting:
            if place in self._recalled:
                times.drop(self._queues[place].are_done)
        self._recalled.clear()
        return [times for _, times in waiting]

    def step(self, now_ms: int) -> int:
        """Deliver the messages due at *now_ms*; return the next call's time, in ms since 1970."""
        self._open_queues()
        self._settle(now_ms)
        is_set_back = now_ms < self._last_ms - CLOCK_STEP_MS
        if is_set_back:
            self._deliveries.end_pauses()
        self._release(now_ms)
        for queue in self._queues.values():
            if is_set_back:
                queue.times.limit_waits(now_ms)
            queue.refresh(now_ms)
        self._last_ms = now_ms
        for _ in range(_BATCHES_A_STEP):
            self._release(now_ms)  # of targets whose delivery ended within the batch before
            if not self._deliver(now_ms):
                return self._wakeup_ms(now_ms)
        return now_ms

    def recall(self, place: Place, offset: int, unique_key: str) -> bool:
        """Recall a message, so it is never delivered; False if it was delivered or recalled before.

        Raises:
            InvalidMessageError: no such message ever waited there.
            StreamError: it is being delivered, or may have been, and its target does not answer.
        """
        self._open_queues()
        self._settle(self._last_ms)
        queue = self._queues.get(place)
        if queue is not None:
            queue.finish_rolling()  # else a copy that a crash left is delivered after the recall
        # Its file is removed, so it was delivered, or stored again at the end of the queue.
        if queue is not None and 0 <= offset < queue.log.minimum():
            rolled = queue.rolled(unique_key)
            if rolled is None:
                return False
            offset = rolled
        stored = queue.records.find(offset) if queue is not None else None
        if queue is None or stored is None or stored.unique_key != unique_key:
            raise InvalidMessageError(
                f"no delayed message {unique_key!r} was stored at {place[0]}/{place[1]}@{offset}; "
                "use the handle that its send returned"
            )
        if queue.are_done(np.array([offset])).all():
            rolled = queue.rolled(unique_key)
            if rolled is None:
                return False
            offset = rolled
        if any(row.is_at(place, offset) for rows in self._deliveries.under_way() for row in rows):
            raise ShardUnavailableError(f"message {unique_key}", "it is being delivered")
        is_late = False
        if (place, offset) in self._doubtful:
            message, queue_id = restored(stored)
            is_late = self._targets.is_stored(message, queue_id)
            if is_late:  # an attempt stored it, perhaps in memory only; it is marked as done below
                self._targets.sync(message.topic, queue_id)
        queue.finish(np.array([offset], np.int64))
        self._recalled.add(place)
        self._doubtful.discard((place, offset))
        return not is_late

    def is_waiting(self, place: Place, offset: int) -> bool:
        """Return whether the message at *offset* is neither delivered nor recalled."""
        self._open_queues()
        queue = self._queues.get(place)
        if queue is None or not queue.log.minimum() <= offset < queue.log.visible():
            return False
        return not queue.are_done(np.array([offset], np.int64))[0]

    def roll(self) -> int:
        """Free files that are kept for few messages; return how many of these were stored again.

        A message that may have been delivered stays at the place where it is looked for.
        """
        rows = (row for rows in self._deliveries.under_way() for row in rows)
        held = {(row.place, row.offset) for row in rows} | self._doubtful
        return sum(
            queue.roll({offset for where, offset in held if where == place})
            for place, queue in self._queues.items()
            if place[0] == TIMER_TOPIC
        )

    def first_open(self) -> dict[Place, int]:
        """Return each queue's first message that still waits, or the offset of the next one."""
        return {place: queue.first_open() for place, queue in self._queues.items()}

    def let_go(self) -> None:
        """Free memory and disk space of messages that are done."""
        for queue in self._queues.values():
            queue.let_go()

    def close(self) -> None:
        """Wait for attempts in progress and unmap everything; the next step starts afresh."""
        abandoned = self._deliveries.abandon()
        self._doubtful |= {(row.place, row.offset) for rows in abandoned for row in rows}
        for queue in self._queues.values():
            queue.close()
        self._queues = {}
        self._held = {}

    def _open_queues(self) -> None:
        for place in {**self._queues, **dict.fromkeys(self._targets.waiting())}:
            log = self._targets.find(*place)
            known = self._queues.get(place)
            if known is not None and known.log != log:  # its topic was deleted
                self._queues.pop(place).close()
                for queues in self._held.values():
                    queues.pop(place, None)
                known = None
            if known is None and log is not None:
                queue = WaitingQueue(log, *place, file_system=self._file_system)
                self._queues[place] = queue
                noted = [offset for where, offset in self._doubtful if where == place]
                done = queue.are_done(np.array(noted, np.int64)).tolist()
                self._doubtful -= {
                    (place, one) for one, ends in zip(noted, done, strict=True) if ends
                }

    def _wakeup_ms(self, now_ms: int) -> int:
        times = [queue.times.next_ms() for queue in self._queues.values()]
        wanted = (*times, self._deliveries.next_ms(now_ms, self._held))
        return min((time for time in wanted if time is not None), default=now_ms + _IDLE_MS)

    def _deliver(self, now_ms: int) -> bool:
        """Deliver one batch; False if nothing is due."""
        taken, rows = False, list[DueRow]()
        try:
            taken, rows, damaged = self._take(now_ms)
            ready = dict[Place, list[DueRow]]()
            for target, group in grouped((row.target, row) for row in rows).items():
                if self._deliveries.may_begin(target, now_ms):
                    ready[target] = group
                else:
                    self._hold(target, group)
            if ready:
                self._note(self._may_be_delivered([*self._deliveries.under_way(), *ready.values()]))
            for target, group in ready.items():
                for row in group:
                    row.is_doubtful = (row.place, row.offset) in self._doubtful
                self._deliveries.begin(target, group, partial(self._attempt, target, group))
            self._finish(damaged)
            self._settle(now_ms, PATIENCE_S if ready else 0.0)
        except BaseException:
            self._doubtful |= {(row.place, row.offset) for row in rows}
            self.close()  # the messages taken are found again, by their missing marks
            raise
        return taken

    def _may_be_delivered(self, under_way: Iterable[Sequence[DueRow]]) -> dict[Place, list[int]]:
        """Return the messages that the next process has to look for in their targets."""
        offsets = grouped((row.place, row.offset) for rows in under_way for row in rows)
        for place, offset in self._doubtful:
            offsets.setdefault(place, []).append(offset)
        return {place: sorted(set(one)) for place, one in offsets.items()}

    def _take(self, now_ms: int) -> tuple[bool, list[DueRow], list[DueRow]]:
        """Return whether any was due, the messages to send in due order, and unreadable ones."""
        queues = list(self._queues.values())
        parts = [queue.times.take(now_ms, BATCH_MAX) for queue in queues]
        numbers = np.repeat(np.arange(len(parts)), [len(part.offsets) for part in parts])
        if not len(numbers):
            return False, [], []
        due = Due.concatenated(parts)
        order = np.lexsort((due.offsets, numbers, due.due_ms))
        rows, damaged, size, taken = list[DueRow](), list[DueRow](), 0, 0
        while size < _BATCH_BYTES and taken < min(len(order), BATCH_MAX):
            chosen = order[taken : min(taken + _READ_AT_ONCE, BATCH_MAX)]
            taken += len(chosen)
            found: dict[int, DueRow] = {}
            for number in np.unique(numbers[chosen]).tolist():
                indexes = chosen[numbers[chosen] == number]
                read = read_rows(queues[number], due.part(indexes))
                found |= {int(indexes[at]): row for at, row in read.items()}
            for row in (found[index] for index in chosen.tolist() if index in found):
                (rows if row.stored else damaged).append(row)
                size += len(row.stored.body) if row.stored else 0
        rest = order[taken:]
        for number in np.unique(numbers[rest]).tolist():
            queues[number].times.add(due.part(rest[numbers[rest] == number]))
        self.given_up += len(damaged)
        return True, rows, damaged

    def _attempt(self, target: Place, rows: list[DueRow]) -> Attempt[DueRow]:
        """Store messages in a queue, undeliverable ones as dead letters; called by any thread."""
        where = f"{target[0]}/{target[1]}"
        if target == NOWHERE:
            tried = Attempt[DueRow]([], rows, [])
        else:
            tried = attempt(rows, partial(self._store, target), where)
        if not tried.refused:
            return tried
        letters = attempt(tried.refused, self._store_letters, f"{where}, as dead letters")
        return Attempt(
            [*tried.done, *letters.done],
            letters.done,
            tried.waiting + letters.refused + letters.waiting,
        )

    def _store(self, target: Place, rows: Sequence[DueRow]) -> None:
        self._store_new(target, [(row, row.forwarded()) for row in rows])

    def _store_letters(self, rows: Sequence[DueRow]) -> None:
        letters = [(row, row.letter()) for row in rows]
        for topic, pairs in grouped((pair[1].topic, pair) for pair in letters).items():
            self._store_new((topic, 0), pairs)

    def _store_new(self, target: Place, pairs: Sequence[tuple[DueRow, ForwardedMessage]]) -> None:
        """Store the messages that no attempt with unknown outcome stored before."""
        store_once(self._targets, target, ((message, row.is_doubtful) for row, message in pairs))

    def _settle(self, now_ms: int, patience_s: float = 0.0) -> None:
        try:
            for target, rows, tried in self._deliveries.ended(patience_s=patience_s):
                self._doubtful |= {(row.place, row.offset) for row in rows}
                self._finish(tried.done)
                self._hold(target, tried.waiting)
                self.given_up += len(tried.refused)
                if tried.waiting:
                    self._deliveries.failed(target, now_ms)
                else:
                    self._deliveries.succeeded(target)
        except BaseException:
            self.close()
            raise

    def _hold(self, target: Place, rows: Sequence[DueRow]) -> None:
        """Hold messages until their target may be tried."""
        here = [row for row in rows if self._is_there(row)]
        for place in {row.place for row in here}:
            held = self._held.setdefault(target, {}).setdefault(place, DueTimes())
            held.add(Due.concatenated([row.due for row in here if row.place == place]))

    def _release(self, now_ms: int) -> None:
        """Return held messages to their queues if their targets may be tried."""
        for target in [one for one in self._held if self._deliveries.may_begin(one, now_ms)]:
            for place, times in self._held.pop(target).items():
                times.limit_waits(now_ms)  # the clock may have been set back meanwhile
                self._queues[place].times.add(times.take_all())

    def _finish(self, rows: Sequence[DueRow]) -> None:
        there = grouped((row.place, row.offset) for row in rows if self._is_there(row))
        for place, offsets in there.items():
            self._queues[place].finish(np.array(offsets, np.int64))
            self._doubtful -= {(place, offset) for offset in offsets}

    def _is_there(self, row: DueRow) -> bool:
        """Return whether the queue that the message was read from still exists."""
        return self._queues.get(row.place) is row.queue
