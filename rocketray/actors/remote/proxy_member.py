"""The stand-in of a member on another node: an ordinary group member whose messages are fetched.

Its thread reads, packs what it gets into frames, and lets those wait in a backlog. While that is
full it reads no further, and still gives up queues as soon as it has to.
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

__all__ = ["FRAME_BYTES", "REVOKE_TIMEOUT_S", "StandIn"]

_LOG = logging.getLogger(__name__)
FRAME_BYTES = 1024 * 1024
REVOKE_TIMEOUT_S = 10.0  # longer than a lease, so one from before the revoke is over by then
_POLL_S = 1.0
_POLL_MESSAGES = 1000
_ROOM_S = 0.1  # how long a queue may wait for a member whose backlog is full
_ALL: Container[int] = range(2**31)


class StandIn:
    """One remote member's place in its group."""

    def __init__(self, member: GroupConsumer, clock_s: Callable[[], float]) -> None:
        """*clock_s* never goes back."""
        self._member = member
        self._clock_s = clock_s
        self._backlog = Backlog()
        self._unpacked: deque[ConsumedBatch] = deque()  # of the thread: taken, and without room yet
        self._polling = threading.Lock()
        self._committing = threading.Lock()
        self._last_number = 0  # of the calls that committed
        self._closing = threading.Event()
        self._revoking: frozenset[int] = frozenset()
        self._left_alone: frozenset[int] = frozenset()
        self._revoke_end_s = math.inf  # no lease goes beyond
        self._failure: StreamError | None = None
        member.on_revoke = self._revoke
        self._thread = threading.Thread(target=self._run, daemon=True, name="remote member")
        self._start()

    def poll(self, timeout_s: float, received: int) -> PollReply:
        """What waits; the first of it is waited for. *received* is the last reply that came there.

        Raises:
            ShardUnavailableError: another poll of the member waits.
            StreamError: the group refuses the member, or its filter failed.
        """
        if not self._polling.acquire(blocking=False):
            raise ShardUnavailableError("gateway", 1000, "a poll of this member waits here already")
        try:
            taken = self._backlog.take(received, timeout_s)
        finally:
            self._polling.release()
        if self._failure is not None and not taken.frames:
            raise self._failure
        owned = frozenset(queue_id for _, queue_id in self._member.assignment())
        return PollReply(taken.number, taken.frames, owned - self._revoking, *taken.revocation)

    def commit(self, commits: Mapping[int, int], number: int = 0) -> CommitReply:
        """Pass on what the member finished, of queues that are still its own.

        Unless a call with that *number* or a later one came before: this one is late, and what it
        says was said again since. Answers for how many milliseconds the queues are certainly the
        member's.
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
            lease_ms = 0  # others get its queues
        return CommitReply(lease_ms, *self._backlog.revocation)

    def count_returns(self, sent_back: int, dead_lettered: int) -> None:
        """Count for the member."""
        self._member.count_returns(sent_back=sent_back, dead_lettered=dead_lettered)

    def report_failing(self, failing: Mapping[int, FailingMessage]) -> None:
        """Report for the member at which messages it holds queues."""
        self._member.report_failing(failing)

    def leave_alone(self, queue_ids: frozenset[int]) -> None:
        """Read these queues no further, and all others."""
        self._left_alone = queue_ids
        self._member.wake()

    def give_up(self, revocation: int) -> None:
        """The member is through with the queues that it was told to give up then."""
        self._backlog.given_up(revocation)

    def close(self) -> None:
        """Leave the group."""
        self._closing.set()
        self._backlog.close()
        self._member.wake()
        self._end()
        self._member.close()

    def step(self, poll_s: float = 0.0, room_s: float = 0.0) -> None:
        """One turn of the thread, which waits that long for messages, or for room."""
        try:
            self._read_or_pack(poll_s, room_s)
        except StreamError as error:
            self._failure = error
        except Exception as error:  # noqa: BLE001  # the member has to hear of it
            _LOG.exception("a remote member's stand-in ends")
            self._failure = StreamError(f"the member's stand-in failed: {error}")

    def _start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._closing.is_set() and self._failure is None:
            self.step(_POLL_S, _ROOM_S)
        self._backlog.close()  # a poll that waits has nothing to wait for

    def _end(self) -> None:
        self._thread.join()

    def _read_or_pack(self, poll_s: float, room_s: float) -> None:
        if not self._unpacked:
            self._read(poll_s, self._left_alone)
        elif self._backlog.wait_for_room(room_s):
            self._pack(self._unpacked.popleft())
        elif self._member.has_to_settle:
            self._read(0, _ALL)

    def _read(self, timeout_s: float, skip: Container[int]) -> None:
        try:
            batches = self._member.poll(timeout_s, _POLL_MESSAGES, skip)
        except ShardUnavailableError as error:
            _LOG.warning("a remote member's stand-in tries again: %s", error)
            self._closing.wait(error.retry_after_ms / 1000)
            return
        finally:
            self._revoking = frozenset()  # what was revoked is gone by now
        for batch in batches:
            self._unpacked.extend(batch.pieces(FRAME_BYTES))

    def _pack(self, batch: ConsumedBatch) -> None:
        frame = pack_records(batch.reader, batch.entries, batch.next_queue_offset)
        self._backlog.put(batch.queue_id, frame)

    def _revoke(self, queues: frozenset[tuple[str, int]]) -> None:
        """In the thread, while the member gives *queues* up, until it did or the time is over."""
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
            _LOG.warning("a remote member did not give up queues %s in time", sorted(queues))
