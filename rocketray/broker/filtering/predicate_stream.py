"""The filter of a stream whose group names a predicate: users' code, isolated from other streams.

The predicate runs in a thread of its own, a batch at a time, while the filter's thread serves all
other streams. The filter's thread reads the messages, passes them on, and checks again when the
doorbell rings, or half a second later at the latest.

Rules
  1. A batch that takes too long ends after the running call: its verdicts so far count, the rest is
     tried again. So a slow predicate is slow, and is counted, and delays no other stream.
  2. For a message on which the predicate raises, or does not return within the limit, the group's
     policy decides: ``stop`` keeps it and all later messages and tells the member; ``skip`` leaves
     it out; ``deliver`` delivers it. It is counted in any case.
  3. Python cannot end a thread. One that does not return is abandoned and a new one continues; if
     ``STUCK_MAX`` of a stream are stuck at once, the stream stops under every policy.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketray.errors import PredicateError
from rocketray.filters.counters import FilterCounters
from rocketray.filters.message_filter import MessageFilter
from rocketray.filters.predicate_run import FAILED, LATE, PredicateRun
from rocketray.filters.subscription import Subscription
from rocketray.runtime.files.paths import shard_directory
from rocketray.store.reading.columns import column_schema, read_columns
from rocketray.store.reading.reader import QueueReader
from rocketray.store.reading.record_spans import EntryColumns

from .filter_rules import FilterRules
from .filter_stream import FilterStream
from .record_views import RecordViews

_LOG = logging.getLogger(__name__)
STUCK_MAX = 3  # each may keep a core busy until the node ends
_BATCH_MAX = 1_024  # the time limit is for so many


class PredicateStream(FilterStream):
    """One member's stream of one queue, filtered by a predicate."""

    def __init__(
        self, path: Path, data: Path, rules: FilterRules, wake: Callable[[], None]
    ) -> None:
        """Open the stream as :class:`FilterStream`; *wake* wakes the thread that pumps.

        Raises:
            StreamError: the ring, the predicate or the shard is not usable.
        """
        super().__init__(path, data, rules)
        if self._filter.batch_columns is not None:
            column_schema(self._filter.batch_columns)
            pa.array([True]).to_pylist()  # imports pandas, a second that is not the predicate's
        self._limit_s = rules.time_limit_ms / 1000
        self._policy = self._filter.subscription.on_error
        self._wake = wake
        self._worker = _Worker(self._where, wake)
        self._stuck: list[_Worker] = []
        self._under_way: tuple[EntryColumns, PredicateRun] | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether a batch is running."""
        return self._under_way is not None

    @property
    def stuck_calls(self) -> int:
        """Number of predicate calls that exceeded their time and still have not returned."""
        self._stuck = [worker for worker in self._stuck if worker.is_alive()]
        return len(self._stuck)

    def pump(self) -> bool:
        """Begin a batch, or take one that is over; False if there is nothing to do but wait."""
        try:
            if self._under_way is None:
                return self._begin()
            entries, run = self._under_way
            if not run.is_over and not run.is_overdue():
                return False
            self._under_way = None
            self._settle(entries, run)
        except Exception as error:  # noqa: BLE001 - the member is told
            self._fail(error)
            return False
        return True

    def close(self) -> None:
        """Unmap the queue's files; the thread ends when its call returns."""
        self._worker.end()
        super().close()

    def _begin(self) -> bool:
        start, stop = self._window(_BATCH_MAX)
        if stop > start:
            entries = self._reader.entries(start, stop).without_holes()
            if not len(entries):
                holes = stop - start
                self._publish(entries, FilterCounters(holes, class_rejected=holes), stop)
                return True
            run = PredicateRun(
                len(entries),
                asker(self._filter, self._reader, entries),
                batch=self._filter.batch_columns is not None,
                stop_on_error=self._policy == "stop",
                time_limit_s=self._limit_s,
                clock_s=time.monotonic,
            )
            self._under_way = entries, run
            self._worker.begin(run)
        return False

    def _settle(self, entries: EntryColumns, run: PredicateRun) -> None:
        """Publish the matches, and apply the group's policy to messages that failed."""
        verdicts = run.take()
        late = np.flatnonzero(verdicts == LATE)
        if len(late):
            self._leave_behind()
        bad = verdicts < 0
        end = int(np.argmax(bad)) if self._policy == "stop" and bad.any() else len(verdicts)
        matches = verdicts[:end] == 1
        if self._policy == "deliver":
            matches |= bad
        stop = int(entries.queue_offsets[end - 1]) + 1 if end else self._position.next_offset
        holes = stop - self._position.next_offset - end
        counters = FilterCounters(
            scanned=len(verdicts) + holes,
            class_rejected=int(np.count_nonzero(verdicts == 0)) + holes,
            predicate_errors=int(np.count_nonzero(verdicts == FAILED)),
            predicate_timeouts=len(late),
            slow_batches=int(run.is_slow),
            delivered_on_error=int(np.count_nonzero(bad)) if self._policy == "deliver" else 0,
        )
        self._publish(entries.select(slice(0, end)).select(matches), counters, stop)
        if end < len(verdicts) or self.stuck_calls >= STUCK_MAX:
            where = int(entries.queue_offsets[late[0]]) if len(late) else -1
            raise PredicateError(self._too_late(where) if len(late) else run.error)

    def _leave_behind(self) -> None:
        _LOG.warning("%s: a predicate does not return; its thread is abandoned", self._where)
        self._worker.end()
        self._stuck.append(self._worker)
        self._worker = _Worker(self._where, self._wake)

    def _too_late(self, queue_offset: int) -> str:
        return (
            f"class filter {self._filter.subscription.expression!r} gave no answer within "
            f"{self._limit_s:g} s on the message at queue offset {queue_offset}; fix it, or start "
            "the node with a longer --predicate-time-limit-ms"
        )


def asker(
    matcher: MessageFilter, reader: QueueReader, entries: EntryColumns
) -> Callable[[int, int], npt.NDArray[np.bool_]]:
    """Return the predicate's call for a range of *entries*; any thread may run it."""
    if matcher.batch_columns is not None:
        batch: Any = read_columns(reader, entries, matcher.batch_columns)
        return lambda first, stop: matcher.matches_batch(batch.slice(first, stop - first))
    views = RecordViews(reader, entries)
    return lambda first, _: np.array([matcher.matches_record(views[first])])


def ask_all(matcher: MessageFilter, reader: QueueReader, entries: EntryColumns) -> PredicateRun:
    """Run the predicate over *entries* in this thread, without a time limit; return the run."""
    run = PredicateRun(
        len(entries),
        asker(matcher, reader, entries),
        batch=matcher.batch_columns is not None,
        stop_on_error=False,
        time_limit_s=math.inf,
        clock_s=time.monotonic,
    )
    run.go()
    return run


def ask_once(
    data: Path, rules: FilterRules, subscription: Subscription, place: tuple[str, int, int]
) -> bool:
    """Return the result of a predicate for one stored message, outside of any stream.

    *place* is the message's topic, queue id and queue offset. As in a stream, the predicate must be
    allowed, runs in its own thread and has the same time limit.

    Raises:
        PredicateError: it is not allowed, it raised, or it did not return in time.
    """
    topic, queue_id, queue_offset = place
    matcher = MessageFilter(subscription, allowed=rules.allowed)
    with QueueReader(shard_directory(data, topic, queue_id), topic, queue_id) as reader:
        ask = asker(matcher, reader, reader.entries(queue_offset, queue_offset + 1))
    limit_s = rules.time_limit_ms / 1000
    run = PredicateRun(
        1, ask, batch=True, stop_on_error=True, time_limit_s=limit_s, clock_s=time.monotonic
    )
    thread = Thread(target=run.go, name=f"question to {subscription.expression}", daemon=True)
    thread.start()
    thread.join(limit_s)
    verdicts = run.take()
    if len(verdicts) and verdicts[0] == FAILED:
        raise PredicateError(run.error)
    if not len(verdicts) or verdicts[0] < 0:
        raise PredicateError(
            f"class filter {subscription.expression!r} gave no answer within {limit_s:g} s"
        )
    return bool(verdicts[0])


class _Worker:
    """A thread that processes runs, one at a time; started with the first one."""

    def __init__(self, where: str, wake: Callable[[], None]) -> None:
        self._runs: SimpleQueue[PredicateRun | None] = SimpleQueue()
        self._wake = wake
        self._thread = Thread(target=self._work, name=f"predicate {where}", daemon=True)

    def begin(self, run: PredicateRun) -> None:
        if not self._thread.ident:
            self._thread.start()
        self._runs.put(run)

    def end(self) -> None:
        self._runs.put(None)

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _work(self) -> None:
        while (run := self._runs.get()) is not None:
            run.go()
            self._wake()
