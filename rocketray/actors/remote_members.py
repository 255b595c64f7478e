"""Members of consumer groups that run on other nodes, represented on the node of the shards.

Each has a stand-in here: a group member of the ordinary kind in a thread, which packs what it gets
into frames and holds them until the member comes for them. The member waits in a long poll, so a
message is with it one call after it matched, and an idle member costs four calls a minute.

Invariants
  1. A stand-in holds ``FRAMES_MAX`` frames of about ``FRAME_BYTES``, or one message, and no more.
  2. A queue is given up after its member said that it is through with it, or did not say so for
     ``REVOKE_TIMEOUT_S``; what it says later about that queue is not heard. Its lease ends before
     that time is over, and one that let it pass gets no other until it joined again.
  3. A member that is silent for ``SILENCE_S`` has no stand-in any more: others get its queues.
  4. There are ``MEMBERS_MAX`` stand-ins at most, each with one poll that waits at a time, and a
     poll waits for ``POLL_MAX_S`` at most: what answers at once never waits for a thread.
"""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rocketray.errors import ShardUnavailableError, StreamError, UnknownMemberError
from rocketray.filters.subscription import Subscription
from rocketray.store.packed_records import pack_records

from .consumer import GroupConsumer
from .lease import LEASE_MS
from .member_options import MemberOptions

__all__ = ["FRAME_BYTES", "MEMBERS_MAX", "POLL_MAX_S", "JoinRequest", "PollReply", "RemoteMembers"]

_LOG = logging.getLogger(__name__)
FRAME_BYTES = 1024 * 1024
FRAMES_MAX = 4
MEMBERS_MAX = 200
POLL_MAX_S = 15.0  # as RocketMQ's brokers suspend a pull
REVOKE_TIMEOUT_S = 10.0  # longer than a lease, so one from before the revoke is over by then
SILENCE_S = 20.0
_POLL_S = 1.0
_POLL_MESSAGES = 1000
_REPLY_BYTES = 4 * FRAME_BYTES


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """What a member joins with; ``options`` are those of :class:`GroupConsumer`."""

    group: str
    topic: str
    subscription: Subscription
    options: MemberOptions


class PollReply(NamedTuple):
    """``frames`` are packed records; ``revoked`` are queues that the member has to give up next."""

    frames: list[bytes]
    revoked: frozenset[int]
    assignment: frozenset[int]


class _StandIn:
    """One remote member's place in its group."""

    def __init__(self, member: GroupConsumer, clock_s: Callable[[], float]) -> None:
        self._member = member
        self._clock_s = clock_s
        self._waiting: queue.Queue[bytes | frozenset[int]] = queue.Queue(FRAMES_MAX)
        self._polling = threading.Lock()
        self._closing = threading.Event()
        self._given_up = threading.Event()
        self._revoking: frozenset[int] = frozenset()
        self._left_alone: frozenset[int] = frozenset()
        self._revoke_end_s = math.inf  # no lease goes beyond
        self._failure: StreamError | None = None
        self.heard_s = clock_s()
        member.on_revoke = self._revoke
        self._thread = threading.Thread(target=self._run, daemon=True, name="remote member")
        self._thread.start()

    def poll(self, timeout_s: float) -> PollReply:
        """What waits, up to ``_REPLY_BYTES``; the first of it is waited for.

        Raises:
            ShardUnavailableError: another poll of the member waits (invariant 4).
        """
        if not self._polling.acquire(blocking=False):
            raise ShardUnavailableError("gateway", 1000, "a poll of this member waits here already")
        try:
            return self._poll(timeout_s)
        finally:
            self._polling.release()

    def _poll(self, timeout_s: float) -> PollReply:
        frames: list[bytes] = []
        size = 0
        try:
            item = self._waiting.get(timeout=timeout_s)
            while isinstance(item, bytes):
                frames.append(item)
                size += len(item)
                if size >= _REPLY_BYTES:
                    return self._reply(frames)
                item = self._waiting.get_nowait()
            return self._reply(frames, item)
        except queue.Empty:
            if not frames and self._failure is not None:
                raise self._failure from None
            return self._reply(frames)

    def commit(self, commits: Mapping[int, int]) -> int:
        """Pass on what the member finished, of queues that are still its own.

        Answers for how many milliseconds the queues are certainly the member's.
        """
        for queue_id, offset in commits.items():
            for topic, owned in self._member.assignment():
                if owned == queue_id:
                    self._member.commit(topic, queue_id, offset)
        revoke_left_s = max(self._revoke_end_s - self._clock_s(), 0.0)
        return int(min(self._member.lease_left_ms, LEASE_MS, revoke_left_s * 1000))

    def count_returns(self, sent_back: int, dead_lettered: int) -> None:
        """Count for the member."""
        self._member.count_returns(sent_back=sent_back, dead_lettered=dead_lettered)

    def leave_alone(self, queue_ids: frozenset[int]) -> None:
        """Read these queues no further, and all others."""
        self._left_alone = queue_ids
        self._member.wake()

    def give_up(self) -> None:
        """The member is through with the queues that it was told to give up."""
        self._given_up.set()

    def close(self) -> None:
        """Leave the group."""
        self._closing.set()
        self._given_up.set()
        self._thread.join()
        self._member.close()
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(frozenset())  # ends a poll that waits

    def _reply(self, frames: list[bytes], revoked: frozenset[int] = frozenset()) -> PollReply:
        owned = frozenset(queue_id for _, queue_id in self._member.assignment())
        return PollReply(frames, revoked, owned - self._revoking)

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                batches = self._member.poll(_POLL_S, _POLL_MESSAGES, self._left_alone)
                self._revoking = frozenset()  # what was revoked is gone by now
                for batch in batches:
                    for part in batch.pieces(FRAME_BYTES):
                        frame = pack_records(part.reader, part.entries, part.next_queue_offset)
                        self._put(frame)
        except StreamError as error:
            self._failure = error
        except Exception as error:  # noqa: BLE001  # the member has to hear of it
            _LOG.exception("a remote member's stand-in ends")
            self._failure = StreamError(f"the member's stand-in failed: {error}")

    def _put(self, item: bytes | frozenset[int]) -> None:
        while not self._closing.is_set():
            try:
                self._waiting.put(item, timeout=_POLL_S)
            except queue.Full:
                continue
            return

    def _revoke(self, queues: frozenset[tuple[str, int]]) -> None:
        """In the thread, while the member gives *queues* up (invariant 2)."""
        if self._closing.is_set():
            return
        self._given_up.clear()
        self._revoking = frozenset(queue_id for _, queue_id in queues)
        self._put(self._revoking)
        before_s = self._revoke_end_s
        self._revoke_end_s = min(before_s, self._clock_s() + REVOKE_TIMEOUT_S)
        if self._given_up.wait(REVOKE_TIMEOUT_S):
            self._revoke_end_s = before_s
        else:
            _LOG.warning("a remote member did not give up queues %s in time", sorted(queues))


class RemoteMembers:
    """All stand-ins of a node; any thread may call."""

    def __init__(
        self, join: Callable[[JoinRequest], GroupConsumer], clock_s: Callable[[], float]
    ) -> None:
        """*join* makes a member on this node, *clock_s* never goes back."""
        self._join = join
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._stand_ins: dict[str, _StandIn] = {}
        self._joining = 0

    def join(self, request: JoinRequest) -> str:
        """Make a stand-in; its name.

        Raises:
            StreamError: too many members read here already, or what joining the group raises.
        """
        with self._lock:
            count = len(self._stand_ins) + self._joining
            if count >= MEMBERS_MAX:
                raise StreamError(
                    f"{count} members on other nodes read through this node already, which is the "
                    "limit: stop some of them, or run consumers on the node of the shards"
                )
            self._joining += 1
        try:
            stand_in = _StandIn(self._join(request), self._clock_s)
            name = uuid.uuid4().hex
            with self._lock:
                self._stand_ins[name] = stand_in
        finally:
            with self._lock:
                self._joining -= 1
        return name

    def poll(self, name: str, timeout_s: float) -> PollReply:
        """Batches for a member, waiting up to *timeout_s*, and not beyond ``POLL_MAX_S``.

        Raises:
            UnknownMemberError: it was silent for too long, or the node started anew.
            ShardUnavailableError: another poll of the member waits.
            StreamError: the group refuses the member, or its filter failed.
        """
        stand_in = self._find(name)
        reply = stand_in.poll(max(0.0, min(POLL_MAX_S, timeout_s)))
        stand_in.heard_s = self._clock_s()
        return reply

    def commit(self, name: str, commits: Mapping[int, int]) -> int:
        """Next queue offsets by queue; raises as :meth:`poll`. Also says that the member lives.

        Answers how many milliseconds the member's lease is worth.
        """
        return self._find(name).commit(commits)

    def count_returns(self, name: str, sent_back: int, dead_lettered: int) -> None:
        """Messages that the member gave back to the node; raises as :meth:`poll`."""
        self._find(name).count_returns(sent_back, dead_lettered)

    def leave_alone(self, name: str, queue_ids: frozenset[int]) -> None:
        """The member has enough of just these queues for now; raises as :meth:`poll`."""
        self._find(name).leave_alone(queue_ids)

    def give_up(self, name: str, commits: Mapping[int, int]) -> None:
        """The member is through with the queues that were revoked; raises as :meth:`poll`."""
        stand_in = self._find(name)
        stand_in.commit(commits)
        stand_in.give_up()

    def leave(self, name: str, commits: Mapping[int, int]) -> None:
        """Take the last commits, and leave the group."""
        with self._lock:
            stand_in = self._stand_ins.pop(name, None)
        if stand_in is not None:
            stand_in.commit(commits)
            stand_in.close()

    def sweep(self) -> None:
        """Forget the members that are silent (invariant 3)."""
        now_s = self._clock_s()
        with self._lock:
            silent = [
                name for name, one in self._stand_ins.items() if now_s - one.heard_s > SILENCE_S
            ]
        for name in silent:
            _LOG.warning("remote member %s is silent; its queues go to others", name)
            self.leave(name, {})

    def close(self) -> None:
        """Leave all groups."""
        for name in list(self._stand_ins):
            self.leave(name, {})

    def _find(self, name: str) -> _StandIn:
        with self._lock:
            stand_in = self._stand_ins.get(name)
        if stand_in is None:
            raise UnknownMemberError(
                f"the node knows no remote member {name}: it was silent for {SILENCE_S:.0f} s, or "
                "the node started anew; join again"
            )
        stand_in.heard_s = self._clock_s()
        return stand_in
