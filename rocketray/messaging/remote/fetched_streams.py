"""The streams of a member on another node than the shards: filled by long polls to the gateway.

One thread fetches for all queues of the member, from the position up to which each was fetched
(fetch_api.py). The member's polling thread takes the messages from memory, without a call.

Invariants
  1. The batches of a queue continue each other: a reply counts only for a queue that still has the
     position and the part for which it was asked.
  2. A queue holds ``CREDIT_BYTES``, or its share of ``MEMBER_BYTES`` if there are many queues, and
     one frame more at most. It is asked for again when half of that is taken. If no queue has
     room, a fetch waits all the same: that keeps the session.
  3. A failed call is repeated, and asks for the same positions. Nothing is lost or comes twice.
  4. A wait of the gateway that does not name a queue with room is ended by another thread. It calls
     again each ``_RETRY_S`` until the fetch returns: a call may be lost, or come before the fetch.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping

import numpy as np

from rocketray.errors import InvalidMessageError, ShardUnavailableError, StreamError
from rocketray.filters.counters import NO_COUNTERS, FilterCounters
from rocketray.groups.filter_plan import QueuePart
from rocketray.messaging.consumers.stream_source import MemberBell, QueueBounds, TakenMatches
from rocketray.runtime.outage_log import OutageLog
from rocketray.store.reading.packed_records import PackedRecords, Unpacked, unpack_records
from rocketray.store.reading.record_spans import EntryColumns

from .fetch_api import POLL_MAX_S, Fetch, FetchApi, FetchedQueue, QueueFetch

_LOG = logging.getLogger(__name__)
# As much as a reply has at most. One queue alone asks again when half is taken, so the next 2 MiB
# travel while the member handles the other 2 MiB.
CREDIT_BYTES = 4 * 1024 * 1024
# Up to 32 queues hold CREDIT_BYTES each, more share this. A frame is no larger than the share, but
# for a single message: 32 queues hold 32 × (4 + 1) MiB = 160 MiB at most, 1,000 queues 256 MiB.
MEMBER_BYTES = 128 * 1024 * 1024
_RETRY_S = 1.0  # after an error, and between two calls to end the same wait
_NO_ENTRIES = EntryColumns.room_for(0)


class FetchedStreams:
    """The streams of one member of *group*; see ``StreamSource``."""

    def __init__(
        self,
        gateway: FetchApi,
        group: str,
        topic: str,
        clock_s: Callable[[], float] = time.monotonic,
        bell: MemberBell | None = None,
    ) -> None:
        """Prepare to fetch; *clock_s* is monotonic. *bell* is the member's, if it has others."""
        self.bell: MemberBell = bell or LocalBell()
        self.failure: StreamError | None = None
        """Why the last fetch failed; the next ``take`` without messages raises it, once."""
        self._gateway = gateway
        self._group = group
        self.topic = topic
        self._clock_s = clock_s
        self._outages = OutageLog(_LOG)
        self._session = uuid.uuid4().hex
        self.lock = threading.Condition()
        """Guards the streams, too."""
        self._streams: dict[int, FetchedStream] = {}
        self._ends: dict[int, int] = {}
        self._number = 0  # of the last fetch
        self._asked: Fetch | None = None  # which is under way
        self._woken = 0  # number of a fetch, which is to end
        self._has_to_wake = threading.Event()
        self._closed = threading.Event()
        self._threads = [
            threading.Thread(target=self._keep_fetching, daemon=True, name="fetch"),
            threading.Thread(target=self._keep_waking, daemon=True, name="fetch-wake"),
        ]

    def start(self) -> None:
        """Start the threads; without them, the caller calls :meth:`step` and :meth:`wake`."""
        for thread in self._threads:
            thread.start()

    def bounds(self, queue_id: int) -> QueueBounds:
        found = self._gateway.bounds(self.topic, queue_id)
        self._ends[queue_id] = found.end
        return found

    def is_left_behind(self) -> bool:
        """Return False: the next fetch finds the gateway again."""
        return False

    def follow(self, moves: int) -> frozenset[int]:  # noqa: ARG002 - of the protocol
        """Return no queues: those of one disk are all that this source has."""
        return frozenset()

    def open(self, queue_id: int, part: QueuePart, start: int) -> FetchedStream:
        end = max(start, self._ends.get(queue_id, start))  # a stream opened again may be beyond it
        stream = FetchedStream(self, queue_id, part, start, end)
        with self.lock:
            self._streams[queue_id] = stream
        return stream

    def credit_bytes(self) -> int:
        """Return how much a queue may hold; with the lock."""
        return min(CREDIT_BYTES, MEMBER_BYTES // max(1, len(self._streams)))

    def attach(self, stream: FetchedStream) -> None:
        """Begin to fetch for *stream*; raises as ``FetchApi.attach``."""
        queues = {stream.queue_id: stream.wanted()}
        self._gateway.attach(Fetch.of(self._session, 0, self._group, self.topic, queues))

    def want(self, stream: FetchedStream) -> None:
        """Have the next fetch begin soon if the one under way does not ask for *stream*."""
        with self.lock:
            self.lock.notify_all()
            asked = self._asked
            wanted = stream.wanted()
            if asked is None or asked.number == self._woken or wanted.credit_bytes == 0:
                return
            found = asked.queues.get(stream.queue_id)
            if found is not None and found.credit_bytes > 0 and found[:2] == wanted[:2]:
                return
            self._woken = asked.number
        self._has_to_wake.set()

    def wake(self) -> None:
        """Run one turn of the waking thread: end a wait as :meth:`want` said."""
        asked = self._asked
        if asked is None or asked.number != self._woken:
            return
        try:
            self._gateway.wake(self._session, asked.number)
        except Exception as error:  # noqa: BLE001  # else the thread ends without a trace
            _LOG.debug("the gateway does not answer, trying again: %r", error)

    def drop(self, stream: FetchedStream) -> None:
        with self.lock:
            if self._streams.get(stream.queue_id) is stream:
                del self._streams[stream.queue_id]

    def close(self) -> None:
        """End the session and the threads."""
        self._closed.set()
        self._has_to_wake.set()
        with self.lock:
            self.lock.notify_all()
        try:
            self._gateway.leave(self._session)
        except (StreamError, OSError) as error:
            _LOG.debug("the gateway drops the session later: %s", error)
        else:  # the wait under way ended with the session; without an answer it may last
            for thread in self._threads:
                if thread.ident is not None:
                    thread.join()

    def step(self, timeout_s: float = 0.0) -> None:
        """Run one turn of the fetching thread: fetch, and wait up to *timeout_s* for messages."""
        with self.lock:
            fetch = self._next_fetch()
            if fetch is None:
                self.lock.wait(min(timeout_s, _RETRY_S))
                return
            self._asked = fetch
            if len(fetch.queues) < len(self._streams):
                timeout_s = min(timeout_s, _RETRY_S)  # a queue failed, and is tried again then
        failure: StreamError | None = None
        try:
            self._take_in(fetch, self._gateway.fetch(fetch, timeout_s))
            self._outages.works("gateway")
        except (ShardUnavailableError, OSError) as error:
            if not self._closed.is_set():
                said = "the gateway does not answer, trying again: %s"
                self._outages.failed("gateway", said, error)
                self._closed.wait(_RETRY_S)
            return
        except StreamError as error:
            failure = error
        except Exception as error:  # noqa: BLE001  # else the thread ends without a trace
            failure = StreamError(f"the gateway failed at a fetch: {error!r}")
        finally:
            self._asked = None
        with self.lock:
            self.failure = failure
        self.bell.ring()
        if failure is not None:
            self._closed.wait(_RETRY_S)

    def _take_in(self, fetch: Fetch, reply: Mapping[int, FetchedQueue]) -> None:
        if others := sorted(reply.keys() - fetch.queues.keys()):
            raise InvalidMessageError(f"the gateway answers for other queues: {others}")
        unpacked = {at: _unpacked(fetch.queues[at].position, one) for at, one in reply.items()}
        with self.lock:
            for queue_id, (found, batches) in unpacked.items():
                stream = self._streams.get(queue_id)
                if stream is not None and stream.wanted()[:2] == fetch.queues[queue_id][:2]:
                    stream.put(found, batches, self._clock_s())

    def _next_fetch(self) -> Fetch | None:
        now_s = self._clock_s()
        queues = {
            queue_id: stream.wanted()
            for queue_id, stream in self._streams.items()
            if stream.is_attached and stream.retry_s <= now_s
        }
        if not queues:
            return None
        self._number += 1
        return Fetch.of(self._session, self._number, self._group, self.topic, queues)

    def _keep_fetching(self) -> None:
        while not self._closed.is_set():
            self.step(POLL_MAX_S)

    def _keep_waking(self) -> None:
        while not self._closed.is_set():
            self._has_to_wake.wait(_RETRY_S)
            self._has_to_wake.clear()
            self.wake()


class FetchedStream:
    """The stream of one queue; see ``MemberStream``. Its source's lock guards it."""

    first_error: int | None = None  # the gateway logs it

    def __init__(
        self, source: FetchedStreams, queue_id: int, part: QueuePart, start: int, end: int
    ) -> None:
        self.queue_id = queue_id
        self.part = part
        self.next_queue_offset = start
        self.is_attached = False
        self.retry_s = 0.0
        self._source = source
        self._position = start  # up to which it was fetched
        self._end = end
        self._batches: deque[Unpacked] = deque()
        self._waiting_bytes = 0
        self._stream = ""  # the one at the gateway, with its counters
        self._counters = NO_COUNTERS
        self._counted = NO_COUNTERS  # of streams before
        self._error: StreamError | OSError | None = None

    def wanted(self) -> QueueFetch:
        """Return what to fetch next; with the lock."""
        most = self._source.credit_bytes()
        credit = most - self._waiting_bytes
        return QueueFetch(self.part, self._position, credit if credit >= most // 2 else 0)

    def put(self, found: FetchedQueue, batches: list[Unpacked], now_s: float) -> None:
        """Add what was fetched; with the lock."""
        self._batches += batches
        self._waiting_bytes += sum(map(_size, batches))
        self._position = found.next_position
        if found.stream:
            self._end = found.end
            if found.stream != self._stream:
                self._counted += self._counters
            self._stream, self._counters = found.stream, found.counters
        self._error = found.error
        self.retry_s = 0.0 if found.error is None else now_s + _RETRY_S

    def attach(self) -> None:
        self.is_attached = True  # first, so that no fetch of another queue leaves this one out
        try:
            self._source.attach(self)
        except BaseException:
            self.is_attached = False
            raise
        self._source.want(self)

    def visible(self) -> int:
        """Return the end of the queue at the last fetch."""
        return self._end

    def read_on(self, part: QueuePart) -> None:
        with self._source.lock:
            self.part = part
            self._position = self.next_queue_offset
            self._batches.clear()
            self._waiting_bytes = 0
            self._error, self.retry_s = None, 0.0
            self.is_attached = False

    def take_matches(self, max_count: int) -> TakenMatches | None:
        with self._source.lock:
            if not self._batches:
                return self._without_messages()
            reader, entries, end = self._batches.popleft()
            if len(entries) > max_count:
                rest = Unpacked(reader, entries.select(slice(max_count, None)), end)
                self._batches.appendleft(rest)
                entries, end = entries.select(slice(max_count)), int(rest.entries.queue_offsets[0])
            elif not self._batches:
                end = self._position  # the filter may have rejected messages behind the last match
            self._waiting_bytes -= int(entries.sizes.sum(dtype=np.int64))
            self.next_queue_offset = end
        self._source.want(self)
        return TakenMatches(entries, reader, end)

    def let_go(self, finished: int) -> None:
        """Do nothing: messages in memory are released with their batch."""

    def counters(self) -> FilterCounters:
        with self._source.lock:
            return self._counted + self._counters

    def stop(self) -> None:
        self._source.drop(self)

    def close(self) -> None:
        """Do nothing: messages that were taken are in memory."""

    def _without_messages(self) -> TakenMatches | None:
        failure, self._source.failure = self._source.failure, None
        error = failure or self._error
        if error is not None:
            if error is self._error and isinstance(error, ShardUnavailableError):
                self._error = None  # raised once for each attempt
            raise error.with_traceback(None)  # else each poll adds to it
        if self.next_queue_offset == self._position:
            return None
        self.next_queue_offset = self._position
        nothing = PackedRecords(
            self._source.topic, self.queue_id, _NO_ENTRIES, np.empty(0, np.uint8)
        )
        return TakenMatches(_NO_ENTRIES, nothing, self._position)


class LocalBell:
    """A bell in this process; see ``MemberBell``."""

    def __init__(self) -> None:
        self._rung = threading.Condition()
        self._count = 0

    def count(self) -> int:
        return self._count

    def ring(self) -> None:
        with self._rung:
            self._count += 1
            self._rung.notify_all()

    def wait(self, seen: int, timeout_s: float) -> None:
        with self._rung:
            self._rung.wait_for(lambda: self._count != seen, timeout_s)


def _unpacked(position: int, found: FetchedQueue) -> tuple[FetchedQueue, list[Unpacked]]:
    """Return *found* and its batches; nothing but an error at *position* if a frame is damaged."""
    try:
        return found, [unpack_records(frame) for frame in found.frames]
    except StreamError as error:
        return FetchedQueue([], position, error=error), []


def _size(batch: Unpacked) -> int:
    return int(batch.entries.sizes.sum(dtype=np.int64))
