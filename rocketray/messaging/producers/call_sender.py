"""Sends of batches by calls, beside the threads that send: one call in flight, the others wait.

A call takes milliseconds. Messages that are sent meanwhile are collected (batcher.py), so batches
grow with the latency of a call; a full one waits here, packed.

Invariants
  1. The calls of a link begin in the order of its batches, each after the outcome of the one
     before; a list's batch is not sent if the list's batch before it is not stored.
  2. A batch whose call has no answer is sent again: the shard stores it once
     (repeated_batches.py). One with a unique key that the producer did not create is sent once.
  3. Memory is bounded: ``WAITING_BYTES``, the batch in flight among them, or one larger batch.
  4. A call to a queue that moves is repeated, at its new place: nothing was stored.
  5. A batch has its whole outcome before it counts as ended.
  6. If no thread can be started for the calls, what waits has failed: none of it is sent later.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from rocketray.broker.shards.shard_api import ShardApi, call_ends_ms, pieces_of
from rocketray.errors import ShardMovedError, ShardUnavailableError
from rocketray.runtime.ipc.acknowledgement import Ack
from rocketray.runtime.ipc.ring import RING_BYTES
from rocketray.runtime.outage_log import OutageLog
from rocketray.store.batches.encoded_batch import Packing, packed

from .batch import Batch

_LOG = logging.getLogger(__name__)
WAITING_BYTES = RING_BYTES
"""How many bytes a link to another Ray node holds, as many as a ring."""
_MOVE_S = 10.0
"""How long to wait for the new place of a queue that moves: as a send waits by default.

The queue is closed only for the last round of its copy (actors/cluster/queue_moves.py).
"""
_REPEATS_MAX = 2  # as RocketMQ's retryTimesWhenSendFailed


class CallSender:
    """The calls of one link: a :class:`~.queue_link.BatchSender`."""

    def __init__(
        self,
        name: str,
        shard: ShardApi,
        in_background: Callable[[Callable[[], None]], None],
        *,
        on_idle: Callable[[], object],
        on_unavailable: Callable[[ShardUnavailableError], object] = lambda _: None,
    ) -> None:
        """Take *in_background*, which runs a function that makes calls beside the caller.

        *on_idle* is called there when all calls have ended, for what was collected meanwhile;
        *on_unavailable* with the error of each call that has no answer. If the queue is elsewhere,
        :meth:`redirect` is expected to follow.
        """
        self._name = name
        self._shard = shard
        self._in_background = in_background
        self._on_idle = on_idle
        self._on_unavailable = on_unavailable
        self._outages = OutageLog(_LOG)
        self._changed = threading.Condition()
        self._unfinished: deque[tuple[Batch, bytes]] = deque()  # in flight or waiting, in order
        self._unfinished_bytes = 0
        self._written = self._ended = 0  # the last sequence given, and ended
        self._is_running = False
        self._calling = threading.Lock()
        """Held by the thread that makes the calls."""
        self._dropped = threading.Event()

    def redirect(self, shard: ShardApi) -> None:
        """Make the calls to *shard* from now on, also those that wait for the queue to move."""
        with self._changed:
            self._shard = shard
            self._changed.notify_all()

    @property
    def is_busy(self) -> bool:
        """Whether a call is in flight, so that messages are better collected than sent."""
        return self._ended < self._written

    def has_room(self, size: int) -> bool:
        """Return whether a batch of that size may wait here."""
        return not self.is_busy or self._unfinished_bytes + size <= WAITING_BYTES

    def try_write(self, packing: Packing, batch: Batch) -> bool:
        """Take a batch, which is sent after all others; False while there is no room."""
        size = packing.packed_bytes
        if not self.has_room(size):
            return False
        payload = packed(packing)
        with self._changed:
            self._written += 1
            batch.sequence = self._written
            self._unfinished.append((batch, payload))
            self._unfinished_bytes += size
        return True

    def publish(self) -> None:
        with self._changed:
            was_running, self._is_running = self._is_running, True
        if not was_running:
            try:
                self._in_background(self._run)
            except RuntimeError as error:  # too many threads: see invariant 6
                self._refuse(f"no thread can be started to send it: {error}")
            except BaseException:  # Ctrl-C: the thread may run; the next one waits for its end
                self._is_running = False
                raise

    def harvest(self, in_flight: deque[Batch]) -> Iterator[Batch]:
        """Take the batches with an outcome off *in_flight*."""
        while in_flight and in_flight[0].settled:
            yield in_flight.popleft()

    def wait(self, sequence: int, timeout_s: float) -> None:
        """Sleep until the call of that batch has ended, for 0 those of all, or the time is over."""
        with self._changed:
            last = sequence or self._written
            self._changed.wait_for(lambda: self._ended >= last, timeout_s)

    def ask_again(self, batch: Batch) -> None:
        """Call the shard with a batch whose outcome no call returned, in the caller's thread."""
        assert batch.unsure is not None
        # Above 1, the number says that the shard may have the batch; 1 to 3 were in ``_append``.
        batch.ack = self._call(batch.unsure, batch, 2 + _REPEATS_MAX)
        batch.unsure = batch.failure = None
        batch.is_told = False

    def drop(self) -> None:
        """Send nothing more, and leave the batches without an outcome: the shard is gone."""
        self._dropped.set()
        with self._changed:
            self._end_all()

    def _refuse(self, reason: str) -> None:
        """Give what waits the outcome that it was not sent, or not once more."""
        with self._changed:
            self._is_running = False
            for batch, payload in self._unfinished:
                said = f"{reason}; nothing of this batch was sent"
                if batch.is_repeated:
                    said = f"{reason}; a shard that ended may have stored this batch"
                    batch.unsure = payload  # for ``ask_again``
                batch.is_unsent = not batch.is_repeated
                batch.failure = ShardUnavailableError(f"shard {self._name}", said)
            self._end_all()

    def _end_all(self) -> None:
        """Let nothing wait any more; called with the lock."""
        self._unfinished.clear()
        self._unfinished_bytes = 0
        self._ended = self._written
        self._changed.notify_all()

    def _run(self) -> None:
        """Make the calls, one after the other, until none waits."""
        with self._calling:
            self._call_each()

    def _call_each(self) -> None:
        while True:
            with self._changed:
                if not self._unfinished:
                    self._is_running = False
                    return
                batch, payload = self._unfinished[0]
            ack, failure = self._send(payload, batch)
            with self._changed:
                if not self._dropped.is_set():  # else the batch has failed by then
                    batch.ack, batch.failure = ack, failure
                    self._unfinished.popleft()
                    self._unfinished_bytes -= len(payload)
                    self._ended += 1
                    self._changed.notify_all()
                is_idle = not self._unfinished
            if is_idle:
                try:
                    self._on_idle()
                except Exception:  # noqa: BLE001 - what was collected goes when it is asked for
                    _LOG.exception("%s: messages that were collected are sent later", self._name)

    def _send(self, payload: bytes, batch: Batch) -> tuple[Ack | None, Exception | None]:
        """Return the outcome of a batch, an error as well: this thread's next batch comes then."""
        if batch.after is not None and batch.after.has_failed:
            batch.is_unsent = batch.is_told = True  # the list raises the error of that one
            reason = "the batch before it is not stored; nothing of this batch was sent"
            return None, ShardUnavailableError(f"shard {self._name}", reason)
        try:
            if batch.has_new_ids:
                return self._append(payload, batch), None
            return self._call(payload, batch), None
        except Exception as error:  # noqa: BLE001  # raised when a result of the batch is read
            return None, error

    def _append(self, payload: bytes, batch: Batch) -> Ack:
        """Call the shard, and again if the outcome is unknown: it stores the batch once."""
        for attempt in range(1, 1 + _REPEATS_MAX):
            try:
                ack = self._call(payload, batch, attempt + batch.is_repeated)
            except ShardUnavailableError as error:
                said = "%s: sending a batch again: %s"
                self._outages.failed(self._name, said, self._name, error)
                if self._dropped.wait(error.retry_after_ms / 1000):
                    raise
            else:
                self._outages.works(self._name)
                return ack
        batch.unsure = payload  # kept if this call has no answer either, for ``ask_again``
        ack = self._call(payload, batch, 1 + _REPEATS_MAX + batch.is_repeated)
        batch.unsure = None
        return ack

    def _call(self, payload: bytes, batch: Batch, attempt: int = 0) -> Ack:
        first, *rest = pieces_of(payload)
        end_s = time.monotonic() + _MOVE_S
        while True:
            options: Any = {"attempt": attempt, "not_after_ms": call_ends_ms()}
            shard = self._shard
            try:
                return shard.append(first, int(batch.durability), *rest, **options)
            except ShardUnavailableError as error:
                self._on_unavailable(error)
                if not isinstance(error, ShardMovedError) or time.monotonic() >= end_s:
                    raise
                self._await_move(shard, error.retry_after_ms / 1000)
                if self._dropped.is_set():
                    raise

    def _await_move(self, shard: ShardApi, timeout_s: float) -> None:
        """Wait until calls lead elsewhere than to *shard*, or the time is over."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._shard is not shard or self._dropped.is_set(), timeout_s
            )
