"""Retention on one store: collect the facts for the policy, then carry out its decision.

Steps of a round; a crash at any point leaves a store that opens and holds all retained messages:
  1. The policy (retention.py) decides about the leading files of the log.
  2. All retained data is flushed to disk. A queue's end must be durable before the records are
     removed from which it could be counted again.
  3. Log, queues and index forget the files, and readers get the new minimum. Files that a reader
     has mapped stay readable for it.
  4. The files are removed, the log's first (see :meth:`StoreFiles.remove_forgotten`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

from rocketray.errors import StoreError

from .age_clock import AgeClock
from .queues.consume_queue import ConsumeQueue, QueueEntry
from .retention import DiskUse, ExpiredFile, LogFile, RetentionPolicy, expired_files
from .store_files import StoreFiles

_LOG = logging.getLogger(__name__)


class Expiry:
    """The retention rounds of one store. For one thread at a time."""

    def __init__(self, files: StoreFiles, name: str, clock: AgeClock) -> None:
        """Expire *files*, whose store times are from *clock*; messages name the store *name*."""
        self._files = files
        self._name = name
        self._clock = clock
        self._seen_ms: dict[int, int] = {}  # when a file was first seen full, by the steady clock
        self._store_times: dict[int, int | None] = {}  # of checked files that stay

    def run(
        self,
        policy: RetentionPolicy,
        *,
        disk: DiskUse,
        needed: Mapping[tuple[str, int], int],
        guard: AbstractContextManager[object],
        before: Callable[[], object],
        announce: Callable[[], None],
    ) -> list[ExpiredFile]:
        """Run one round (see the module's docstring); return the removed files.

        *before* flushes everything; it is called if anything is to be removed. *guard* is held
        while the store's lists are read or changed, and not during disk operations.

        Raises:
            StoreError: a file could not be removed; the next round tries again.
        """
        log = self._files.log
        with guard:
            gone = expired_files(
                self._log_files(),
                policy,
                log_end=log.max_offset,
                needed_from=self._needed_from(needed),
                disk=disk,
            )
        if gone:
            # Outside of the guard: a flush takes as long as the disk, and the writer would wait.
            before()
            with guard:
                self._files.forget_before(gone[-1].file.end)
                announce()
        self._note_expired(gone)
        try:
            self._files.remove_forgotten()
        except OSError as error:
            reason = f"{self._name}: an expired file could not be removed: {error}"
            raise StoreError(reason) from None
        return gone

    def _note_expired(self, gone: Sequence[ExpiredFile]) -> None:
        """Drop what is kept about removed files, and log why each is removed."""
        for expired in gone:
            self._seen_ms.pop(expired.file.start, None)
            self._store_times.pop(expired.file.start, None)
            _LOG.log(
                logging.WARNING if expired.was_held else logging.INFO,
                "%s: removing the log from %d to %d: %s%s",
                self._name,
                expired.file.start,
                expired.file.end,
                expired.reason.value,
                "; a group had not finished it" if expired.was_held else "",
            )

    def _log_files(self) -> Iterator[LogFile]:
        log, now_ms = self._files.log, self._clock.steady_ms()
        size = log.files.segment_bytes
        full = [start for start in log.files.starts if start + size < log.max_offset]
        for start in full:
            self._seen_ms.setdefault(start, now_ms)
        for start in full:
            if start not in self._store_times:
                self._store_times[start] = self._last_store_ms(start, start + size)
            stored_ms, age_ms = self._store_times[start], None
            if stored_ms is not None:
                age_ms = self._clock.age_ms(stored_ms, self._seen_ms[start], now_ms)
            yield LogFile(start, size, age_ms)

    def _last_store_ms(self, start: int, end: int) -> int | None:
        """Return the store time of a file's last record, or of the next one if no queue has it."""
        log = self._files.log
        times = [
            log.store_timestamp_ms(entry.physical_offset, entry.size)
            for queue in self._files.queues.all()
            if (entry := _last_before(queue, end)) is not None and entry.physical_offset >= start
        ]
        known = [time for time in times if time is not None]
        return max(known) if known else log.store_timestamp_ms(end, log.files.segment_bytes)

    def _needed_from(self, needed: Mapping[tuple[str, int], int]) -> int | None:
        """Return the first physical offset that a reader still needs."""
        found = []
        for name, queue_offset in needed.items():
            queue = self._files.queues.find(*name)
            if queue is None:
                continue
            first = queue.gaps.after(max(queue_offset, queue.min_offset))
            if first < queue.max_offset:
                found.append(queue.entry(first).physical_offset)
        return min(found, default=None)


def _last_before(queue: ConsumeQueue, physical_offset: int) -> QueueEntry | None:
    """Return the queue's last entry of a record before *physical_offset*."""
    after = queue.first_at_or_after(lambda entry: entry.physical_offset >= physical_offset)
    last = queue.gaps.before(after) - 1
    return queue.entry(last) if last >= queue.min_offset else None
