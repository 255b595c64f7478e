"""The fetch service on the shards' node: filtered messages for members on other nodes.

A session has the filter streams of one member. The member names with each fetch the position of
each queue. So a lost reply costs a stream that begins again at that position, and nothing else;
the coordinator knows nothing of sessions, and a session knows nothing of groups' offsets.

Invariants
  1. The frames of a queue continue at the position that the fetch names, whatever was sent before.
  2. A fetch returns when it has messages, at ``POLL_MAX_S`` at the latest. A fetch whose number is
     not above those of earlier fetches is late or repeated: it returns nothing and moves nothing.
  3. A reply has ``REPLY_BYTES`` of frames, and at most one frame more: a frame has ``FRAME_BYTES``,
     or one message. All queues with messages have a turn.
  4. There are at most ``SESSIONS_MAX`` sessions, each with one waiting fetch: calls that return at
     once never wait for a thread. A session without a call for ``IDLE_S`` is dropped; the next
     fetch begins another.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rocketray.base.names import check_group, check_topic
from rocketray.base.quantity import counted
from rocketray.broker.topics.consumed_batch import ConsumedBatch
from rocketray.errors import ShardUnavailableError, StreamError
from rocketray.filters.counters import NO_COUNTERS, FilterCounters
from rocketray.messaging.api.node_client import NodeClient
from rocketray.messaging.consumers.filter_errors import FilterErrorLog
from rocketray.messaging.consumers.queue_stream import QueueStream, QueueStreams, queue_bounds
from rocketray.messaging.consumers.stream_source import QueueBounds
from rocketray.store.reading.packed_records import pack_records

from .fetch_api import POLL_MAX_S, Fetch, FetchedQueue, QueueFetch

_LOG = logging.getLogger(__name__)
# gRPC starts a thread for each fetch that waits, so these are 200 threads at most. If all had a
# full reply at once, that would be 200 × (4 + 1) MiB, some 1 GB.
SESSIONS_MAX = 200
# A member that lives fetches every POLL_MAX_S = 5 s, so it has missed three. Its streams keep the
# filter actor busy, and a ring of 1.5 MiB for each queue, until it is dropped.
IDLE_S = 20.0
FRAME_BYTES = 1024 * 1024  # queues take turns by frames; four fill a reply
# At 3.4 Mbit/s it arrives within the 10 s that the link allows for it (flight_link.py).
REPLY_BYTES = 4 * 1024 * 1024
_TAKE_MESSAGES = 4000  # with records of 270 bytes, one frame
_PROGRESS_S = 1.0  # how long the news waits that a queue has moved on without a match


class FetchSessions:
    """All sessions of a node; any thread may call."""

    def __init__(self, node: NodeClient, clock_s: Callable[[], float]) -> None:
        """Create it empty; *clock_s* is monotonic."""
        self._node = node
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._sessions: dict[str, _Session] = {}

    def bounds(self, topic: str, queue_id: int) -> QueueBounds:
        return queue_bounds(self._node.data, check_topic(topic), queue_id)

    def attach(self, fetch: Fetch) -> None:
        """Have the filter begin with the queues of *fetch*, beside those of earlier ones.

        Waiting fetches return, so that the next one names these queues, too.

        Raises:
            FilterError: the filter does not compile, or the node may not run its predicate.
            ShardUnavailableError: the filter actor or a shard is unavailable.
            StreamError: there are too many sessions.
        """
        with self._called(fetch) as session:
            session.attach(fetch.queues)

    def fetch(self, fetch: Fetch, timeout_s: float) -> dict[int, FetchedQueue]:
        """Return the matches of a member, or wait for them up to *timeout_s* and ``POLL_MAX_S``.

        Raises:
            StreamError: there are too many sessions.
        """
        deadline_s = self._clock_s() + max(0.0, min(POLL_MAX_S, timeout_s))
        with self._called(fetch) as session:
            return session.fetch(fetch, deadline_s)

    def wake(self, session: str, number: int) -> None:
        with self._lock:
            found = self._sessions.get(session)
        if found is not None:
            found.wake(number)

    def leave(self, session: str) -> None:
        """Drop a session at once, not after ``IDLE_S``."""
        self._drop([session])

    def sweep(self) -> None:
        """Drop idle sessions (invariant 4)."""
        with self._lock:
            since_s = self._clock_s() - IDLE_S
            sessions = self._sessions.items()
            idle = [name for name, one in sessions if one.called_s < since_s and not one.is_called]
        if idle:
            _LOG.info(
                "closed %s of members on other nodes that fetch no more",
                counted(len(idle), "session"),
            )
        self._drop(idle)

    def close(self) -> None:
        """Drop all sessions; fetches that wait end with an error."""
        self._drop([*self._sessions])

    @contextmanager
    def _called(self, fetch: Fetch) -> Iterator[_Session]:
        session = self._find(fetch)
        try:
            yield session
        finally:
            session.called_s = self._clock_s()

    def _find(self, fetch: Fetch) -> _Session:
        with self._lock:
            found = self._sessions.get(fetch.session)
            if found is None:
                if len(self._sessions) >= SESSIONS_MAX:
                    raise StreamError(
                        f"{len(self._sessions)} members on other nodes read through this node "
                        "already, which is the limit: stop some of them, or run consumers on the "
                        "node of the shards"
                    )
                names = check_group(fetch.group), check_topic(fetch.topic)
                found = self._sessions[fetch.session] = _Session(self._node, *names, self._clock_s)
            found.called_s = self._clock_s()
            return found

    def _drop(self, names: list[str]) -> None:
        with self._lock:
            dropped = [self._sessions.pop(name) for name in names if name in self._sessions]
        for session in dropped:
            session.close()


class _Session:
    """The streams of one member; any thread may call."""

    def __init__(
        self, node: NodeClient, group: str, topic: str, clock_s: Callable[[], float]
    ) -> None:
        self._topic = topic
        self._clock_s = clock_s
        self._streams = QueueStreams(node, group, topic)
        self._errors = FilterErrorLog(node.messages, group, topic)
        self._lock = threading.Lock()  # for the streams; a fetch does not hold it while it waits
        self._queues: dict[int, _SentQueue] = {}
        self._fetching = threading.Lock()  # for one fetch at a time; taken before the lock above
        self._latest = 0  # the number of the last fetch that began
        self._ending = threading.Lock()  # alone, so that a wake waits for neither
        self._ended = 0  # fetches up to that number wait no more
        self._is_closed = False
        self.called_s = clock_s()
        """When the last call began or ended."""

    @property
    def is_called(self) -> bool:
        """Whether a call is under way, which takes long if the filter actor does not answer."""
        return self._fetching.locked() or self._lock.locked()

    def attach(self, queues: Mapping[int, QueueFetch]) -> None:
        with self._open():
            for queue_id, wanted in queues.items():
                self._align(queue_id, wanted).have_filled()
            number = self._latest
        self.wake(number)  # it may have begun with a stream that is replaced now

    def fetch(self, fetch: Fetch, deadline_s: float) -> dict[int, FetchedQueue]:
        self.wake(fetch.number - 1)  # the member waits for earlier ones no more
        with self._fetching:
            if fetch.number <= self._latest:
                return {}
            self._latest = fetch.number
            begin_s = self._clock_s()
            with self._open():
                begun, errors = self._begin(fetch)
            while True:
                rung = self._streams.bell.count()
                with self._open():
                    found = self._collect(fetch, begun, errors)
                now_s = self._clock_s()
                if _has_news(fetch, found, is_patient=now_s < begin_s + _PROGRESS_S):
                    return found
                if now_s >= deadline_s or self._ended >= fetch.number:
                    return found
                self._streams.bell.wait(rung, min(deadline_s - now_s, _PROGRESS_S))

    def wake(self, number: int) -> None:
        with self._ending:
            self._ended = max(self._ended, number)
        self._streams.bell.ring()

    def close(self) -> None:
        self._is_closed = True
        self._streams.bell.ring()
        with self._fetching, self._lock:
            for queue in self._queues.values():
                queue.close()
            self._queues.clear()
            self._streams.close()

    @contextmanager
    def _open(self) -> Iterator[None]:
        with self._lock:
            if self._is_closed:  # the next call begins another one
                raise ShardUnavailableError("the member's session", "it was dropped", 0)
            yield

    def _begin(
        self, fetch: Fetch
    ) -> tuple[dict[int, _SentQueue], dict[int, StreamError | OSError]]:
        """Have a stream for each queue of *fetch* that has credit; return them, and what failed.

        A filter actor that does not answer holds up one queue. A fetch that was ended meanwhile
        begins one queue, and leaves the others to the next fetch.
        """
        for queue_id in self._queues.keys() - fetch.queues.keys():
            self._queues.pop(queue_id).close()
        begun: dict[int, _SentQueue] = {}
        errors: dict[int, StreamError | OSError] = {}
        away: ShardUnavailableError | None = None  # why no stream can be filled
        for queue_id, wanted in fetch.queues.items():
            if wanted.credit_bytes <= 0:
                continue
            try:
                queue = self._align(queue_id, wanted)
            except (StreamError, OSError) as error:
                errors[queue_id] = error
                continue
            begun[queue_id] = queue
            try:
                if away is not None and not queue.stream.is_attached:
                    raise away
                queue.have_filled()
            except ShardUnavailableError as error:
                errors[queue_id] = away = error
            except (StreamError, OSError) as error:
                errors[queue_id] = error
            if self._is_closed or self._ended >= fetch.number:
                break
        return begun, errors

    def _align(self, queue_id: int, wanted: QueueFetch) -> _SentQueue:
        """Return a stream that continues at the wanted position (invariant 1).

        Another one if the queue was moved away meanwhile, and perhaps back.
        """
        queue = self._queues.get(queue_id)
        is_same = queue is not None and (queue.stream.part, queue.position) == wanted[:2]
        if queue is None or not is_same or not queue.stream.is_there():
            if queue is not None:
                self._queues.pop(queue_id).close()
            stream = self._streams.open(queue_id, wanted.part, wanted.position)
            queue = self._queues[queue_id] = _SentQueue(self._topic, stream)
        return queue

    def _collect(
        self,
        fetch: Fetch,
        begun: Mapping[int, _SentQueue],
        errors: Mapping[int, StreamError | OSError],
    ) -> dict[int, FetchedQueue]:
        """Take frames of the queues in turn, as far as their credit and the reply allow.

        Another call may replace streams meanwhile: those are for a later fetch.
        """
        failed = dict(errors)
        frames: dict[int, list[memoryview]] = {queue_id: [] for queue_id in fetch.queues}
        credit = {at: one.credit_bytes for at, one in fetch.queues.items() if one.credit_bytes > 0}
        same = {at for at in credit.keys() & begun.keys() if self._queues.get(at) is begun[at]}
        turns = deque(sorted(same - failed.keys()))
        turns.rotate(fetch.number)  # another queue is the first each time
        room = REPLY_BYTES
        while turns and room > 0:
            queue_id = turns.popleft()
            try:
                frame = self._queues[queue_id].frame(credit[queue_id])
            except (StreamError, OSError) as error:
                failed[queue_id] = error
                continue
            if frame is not None:
                frames[queue_id].append(memoryview(frame))
                room -= len(frame)
                credit[queue_id] -= len(frame)
                if credit[queue_id] > 0:
                    turns.append(queue_id)
        streams = [queue.stream for queue in self._queues.values()]
        self._errors.log_failures(streams, 0)  # the member logs the number of errors
        replies = {at: self._queues[at].reply(frames[at], failed.get(at)) for at in same}
        for queue_id in failed.keys() - replies.keys():
            position = fetch.queues[queue_id].position
            replies[queue_id] = FetchedQueue([], position, error=failed[queue_id])
        return replies


class _SentQueue:
    """One queue of a session, and what was sent of it: everything below ``position``."""

    def __init__(self, topic: str, stream: QueueStream) -> None:
        self.stream = stream
        self.position = stream.next_queue_offset
        self._topic = topic
        self._name = uuid.uuid4().hex
        self._unsent: deque[ConsumedBatch] = deque()
        self._counted = NO_COUNTERS

    def have_filled(self) -> None:
        """Have the filter actor fill the stream, unless it does so already."""
        if not self.stream.is_attached:
            self.stream.attach()

    def frame(self, credit_bytes: int) -> bytes | None:
        """Return the next frame; None if there is none now."""
        self.stream.let_go(self.position)
        while not self._unsent:
            taken = self.stream.take_matches(_TAKE_MESSAGES)
            if taken is None:
                return None
            missed, collisions = taken.missed, taken.collisions
            self._counted += FilterCounters(missed=missed, collisions=collisions)
            if not len(taken.entries):
                self.position = taken.next_queue_offset
                continue  # the next ones have rung already
            place = self._topic, self.stream.queue_id, taken.next_queue_offset
            batch = ConsumedBatch(*place, taken.entries, taken.reader)
            self._unsent += batch.pieces(min(FRAME_BYTES, credit_bytes))
        batch = self._unsent[0]
        frame = pack_records(batch.reader, batch.entries, batch.next_queue_offset)
        self._unsent.popleft()
        self.position = batch.next_queue_offset
        return frame

    def reply(self, frames: list[memoryview], error: StreamError | OSError | None) -> FetchedQueue:
        counters = self._counted + self.stream.counters()
        end = self.stream.visible()
        return FetchedQueue(frames, self.position, end, self._name, counters, error)

    def close(self) -> None:
        self.stream.stop()
        self.stream.close()


def _has_news(fetch: Fetch, found: Mapping[int, FetchedQueue], *, is_patient: bool) -> bool:
    """Return whether a reply is worth sending before its time: rejected messages alone can wait."""
    if any(one.frames or one.error is not None for one in found.values()):
        return True
    return not is_patient and any(
        one.next_position != fetch.queues[queue_id].position for queue_id, one in found.items()
    )
