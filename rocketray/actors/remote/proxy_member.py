"""The proxy of a member on another node: an ordinary group member whose messages are fetched.

Its thread reads, packs messages into frames, and puts those into a backlog. While the backlog is
full the thread reads no further, but still releases revoked queues at once.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Container, Mapping

from rocketray.actors.consumers.member import GroupConsumer
from rocketray.actors.groups.failing import FailingMessage
from rocketray.actors.groups.lease import LEASE_MS
from rocketray.actors.topics.consumed_batch import ConsumedBatch
from rocketray.errors import ShardUnavailableError, StreamError
from rocketray.store.reading.packed_records import pack_records

from .backlog import Backlog
from .remote_calls import CommitReply, PollReply

__all__ = ["FRAME_BYTES", "REVOKE_TIMEOUT_S", "ProxyMember"]

_LOG = logging.getLogger(__name__)
FRAME_BYTES = 1024 * 1024
REVOKE_TIMEOUT_S = 10.0  # longer than a lease, so one from before the revocation has expired
_POLL_S = 1.0
_POLL_MESSAGES = 1000
_ROOM_S = 0.1  # how long the release of a queue may wait while the backlog is full
_ALL: Container[int] = range(2**31)


class ProxyMember:
    """The proxy of one remote member in its group."""

    def __init__(self, member: GroupConsumer, clock_s: Callable[[], float]) -> None:
        """Start reading for the remote member; *clock_s* is monotonic."""
        self._member = member
        self._clock_s = clock_s
        self._backlog = Backlog()
        self._unpacked: deque[ConsumedBatch] = deque()  # the thread's: taken, without room yet
        self._polling = threading.Lock()
        self._committing = threading.Lock()
        self._last_number = 0  # of the commit calls
        self._returns = 0, 0  # sent back and dead-lettered, as far as counted
        self._closing = threading.Event()
        self._revoking: frozenset[int] = frozenset()
        self._left_alone: frozenset[int] = frozenset()
        self._revoke_end_s = math.inf  # no lease ends later
        self._failure: StreamError | None = None
        member.on_revoke = self._revoke
        self._thread = threading.Thread(target=self._run, daemon=True, name="remote member")
        self._start()

    def poll(self, timeout_s: float, received: int) -> PollReply:
        """Return what waits, or wait for it; *received* is the last reply that arrived.

        Raises:
            ShardUnavailableError: another poll of the member waits.
            StreamError: the group refuses the member, or its filter failed.
        """
        if not self._polling.acquire(blocking=False):
            raise ShardUnavailableError("gateway", 1000, "this member has a waiting poll already")
        try:
            taken = self._backlog.take(received, timeout_s)
        finally:
            self._polling.release()
        if self._failure is not None and not taken.frames:
            raise self._failure
        owned = frozenset(queue_id for _, queue_id in self._member.assignment())
        return PollReply(taken.number, taken.frames, owned - self._revoking, *taken.revocation)

    def commit(self, commits: Mapping[int, int], number: int = 0) -> CommitReply:
        """Pass on commits, for queues that the member still owns; return its lease in milliseconds.

        Ignores the commits of a call whose *number* is not above those of earlier calls: it is
        late, and later calls repeated its commits. For the time of the lease the queues are
        certainly the member's.
        """
        with self._committing:
            is_late = 0 < number <= self._last_number
            self._last_number = max(self._last_number, number)
            for queue_id, offset in ({} if is_late else commits).items():
                for topic, owned in self._member.assignment():
                    if owned == queue_id:
                        self._member.commit(topic, queue_id, offset)
        revoke_left_s = max(self._revoke_end_s - self._clock_s(), 0.0)
        lease_ms = int(min(self._member.lease_left_ms, LEASE_MS, revoke_left_s * 1000))
        if self._closing.is_set():
            lease_ms = 0  # other members get its queues
        return CommitReply(lease_ms, *self._backlog.revocation)

    def count_returns(self, sent_back: int, dead_lettered: int) -> None:
        """Raise the member's counters to these sums; ignore sums of a late or repeated call."""
        with self._committing:
            more = max(sent_back - self._returns[0], 0), max(dead_lettered - self._returns[1], 0)
            self._returns = self._returns[0] + more[0], self._returns[1] + more[1]
        self._member.count_returns(sent_back=more[0], dead_lettered=more[1])

    def report_failing(self, failing: Mapping[int, FailingMessage]) -> None:
        """Report for the member the messages at which it holds queues."""
        self._member.report_failing(failing)

    def leave_alone(self, queue_ids: frozenset[int]) -> None:
        """Pause just these queues."""
        self._left_alone = queue_ids
        self._member.wake()

    def give_up(self, revocation: int) -> None:
        """Note that the member released the queues of that revocation."""
        self._backlog.given_up(revocation)

    def close(self) -> None:
        """Leave the group."""
        self._closing.set()
        self._backlog.close()
        self._member.wake()
        self._end()
        self._member.close()

    def step(self, poll_s: float = 0.0, room_s: float = 0.0) -> None:
        """Run one turn of the thread; wait up to *poll_s* for messages, or *room_s* for room."""
        try:
            self._read_or_pack(poll_s, room_s)
        except StreamError as error:
            self._failure = error
        except Exception as error:  # noqa: BLE001  # the member has to get the error
            _LOG.exception("a remote member's proxy ends")
            self._failure = StreamError(f"the member's proxy failed: {error}")

    def _start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._closing.is_set() and self._failure is None:
            self.step(_POLL_S, _ROOM_S)
        self._backlog.close()  # a waiting poll has nothing to wait for

    def _end(self) -> None:
        self._thread.join()

    def _read_or_pack(self, poll_s: float, room_s: float) -> None:
        if not self._unpacked:
            self._read(poll_s, self._left_alone)
        elif self._backlog.wait_for_room(room_s):
            self._pack(self._unpacked.popleft())
        elif self._member.needs_rebalance:
            self._read(0, _ALL)

    def _read(self, timeout_s: float, skip: Container[int]) -> None:
        try:
            batches = self._member.poll(timeout_s, _POLL_MESSAGES, skip)
        except ShardUnavailableError as error:
            _LOG.warning("a remote member's proxy failed, trying again: %s", error)
            self._closing.wait(error.retry_after_ms / 1000)
            return
        finally:
            self._revoking = frozenset()  # revoked queues are released by now
        for batch in batches:
            self._unpacked.extend(batch.pieces(FRAME_BYTES))

    def _pack(self, batch: ConsumedBatch) -> None:
        frame = pack_records(batch.reader, batch.entries, batch.next_queue_offset)
        self._backlog.put(batch.queue_id, frame)

    def _revoke(self, queues: frozenset[tuple[str, int]]) -> None:
        """Revoke *queues* from the remote member, and wait until it released them or timed out.

        Called in the thread, while the proxy's own member releases them.
        """
        if self._closing.is_set():
            return
        self._revoking = frozenset(queue_id for _, queue_id in queues)
        kept = [batch for batch in self._unpacked if batch.queue_id not in self._revoking]
        self._unpacked = deque(kept)
        self._backlog.revoke(self._revoking)
        before_s = self._revoke_end_s
        self._revoke_end_s = min(before_s, self._clock_s() + REVOKE_TIMEOUT_S)
        if self._backlog.wait_until_given_up(REVOKE_TIMEOUT_S):
            self._revoke_end_s = before_s
        else:
            _LOG.warning("a remote member did not release queues %s in time", sorted(queues))
