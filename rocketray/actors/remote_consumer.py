"""A member of a consumer group on another node than the shards.

It has what :class:`~.consumer.GroupConsumer` has. A thread waits in long polls at the node's
gateway, where a stand-in reads for it, and keeps a few batches at hand; commits go once a second.

Invariants
  1. A queue is given up in the same order as there: its batches were handed out or dropped,
     ``on_revoke``, the last commit, and only then the word that it is given up. Answers to commits
     say that it has to be, too, so that does not wait for batches that nobody takes.
  2. Nothing is handed out without a lease, which every answer to commits renews: see lease.py.
  3. When the gateway does not know the member any more, all its queues count as taken away, and
     it joins again. Nothing is lost; what was not committed is delivered again.
  4. Commits reach the stand-in in the order in which they were made: one call at a time.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Container
from typing import Self, TypeVar, Unpack

from rocketray.errors import ShardUnavailableError, StreamError, UnknownMemberError
from rocketray.filters.subscription import Subscription
from rocketray.store.packed_records import unpack_records

from .clock import steady_clock_ms
from .consumed_batch import ConsumedBatch
from .consumer import GroupConsumer
from .kept_batches import KeptBatches
from .lease import Lease
from .member_options import MemberOptions
from .remote_calls import POLL_MAX_S, CommitReply, Gateway, JoinRequest, PollReply

__all__ = ["Member", "RemoteGroupConsumer"]

_LOG = logging.getLogger(__name__)
LONG_POLL_S = POLL_MAX_S
_REPLIES_MAX = 2
_COMMIT_INTERVAL_S = 1.0
_RETRY_S = 1.0
_ALL: Container[int] = range(2**31)
_T = TypeVar("_T")
_NOTHING = "", PollReply(0, [], frozenset())


class RemoteGroupConsumer:
    """One member of *group* on *topic*. ``poll`` is called by one thread at a time."""

    def __init__(
        self,
        gateway: Gateway,
        group: str,
        topic: str,
        subscription: Subscription,
        clock_ms: Callable[[], int] = steady_clock_ms,
        **options: Unpack[MemberOptions],
    ) -> None:
        """Join the group; the options, and what is raised, are those of the ordinary member."""
        self.on_revoke: Callable[[frozenset[tuple[str, int]]], None] | None = None
        self._gateway = gateway
        self._topic = topic
        self._request = JoinRequest(group, topic, subscription, options)
        self._lease = Lease(clock_ms)
        self._lock = threading.Lock()
        self._calling = threading.Lock()  # held from taking commits until they are answered
        self._told = 0, frozenset[int]()  # the last revocation that an answer named
        self._revoked = self._settled = 0  # the last revocation, here and as the gateway knows
        self._lost: dict[int, int] = {}  # by queue, in which revocation
        self._name = ""
        self._join()
        self._replies: queue.Queue[tuple[str, PollReply | StreamError]] = queue.Queue(_REPLIES_MAX)
        self._arriving: tuple[tuple[str, PollReply | StreamError], ...] = ()  # waits for room
        self._assignment: frozenset[int] = frozenset()
        self._kept = KeptBatches()
        self._left_alone: frozenset[int] = frozenset()  # as the gateway knows it
        self._commits: dict[int, int] = {}
        self._sent_back = self._dead_lettered = 0
        self._closed = threading.Event()
        self._threads = [
            threading.Thread(target=run, daemon=True, name=name)
            for name, run in (("long poll", self._fetch), ("commits", self._keep_committing))
        ]
        for thread in self._threads:
            thread.start()

    def poll(
        self,
        timeout_s: float,
        max_messages: int = 1000,  # noqa: ARG002  # how many come together is the gateway's to say
        skip: Container[int] = (),
    ) -> list[ConsumedBatch]:
        """Batches of messages; [] when the time is over. Raises as the ordinary member's.

        What was on its way of a queue in *skip* is kept here until the queue is read on.
        """
        if self._settle(timeout_s):
            return []
        self._tell_left_alone()
        if kept := self._kept.take(skip):
            return kept
        try:
            name, reply = self._replies.get(timeout=timeout_s)
        except queue.Empty:
            return []
        if name != self._name:
            return []  # of a stand-in that was left meanwhile, or from `wake`
        if isinstance(reply, UnknownMemberError):
            self._join_again(reply)
            return []
        if isinstance(reply, StreamError):
            raise reply
        return self._kept.sort(self._received(reply), skip)

    def _settle(self, timeout_s: float) -> bool:
        """Do what answers to commits ask for; whether there was something."""
        if not self._lease.is_running:
            self._start_anew(timeout_s)
            return True
        told = self._told
        has_to_give_up = self._has_to_give_up(*told)
        if has_to_give_up:
            self._give_up(*told)
        return has_to_give_up

    def _received(self, reply: PollReply) -> list[ConsumedBatch]:
        """What a reply brought, once the queues that it names are given up."""
        batches = [_batch(frame) for frame in reply.frames]
        batches = [batch for batch in batches if self._is_after_loss(reply, batch.queue_id)]
        told = reply.revocation, reply.revoked
        is_losing = self._has_to_give_up(*told)
        owned = reply.assignment | {batch.queue_id for batch in batches}
        with self._lock:
            self._assignment = frozenset(one for one in owned if self._is_after_loss(reply, one))
            self._assignment |= reply.revoked if is_losing else frozenset()
        kept = self._kept
        try:
            if is_losing and not self._give_up(*told):
                return []  # they come again
        except (StreamError, OSError):
            kept.sort(batches, _ALL)  # no more of use if the member could not join again
            raise
        return batches

    def wake(self) -> None:
        """Have a poll that waits look again; any thread may call."""
        with contextlib.suppress(queue.Full):  # then nobody waits
            self._replies.put_nowait(_NOTHING)

    @property
    def is_leased(self) -> bool:
        """Nobody else can own the queues; while this is false, nothing may be handed out."""
        return self._lease.is_running

    @property
    def has_to_settle(self) -> bool:
        """The next polls join again, give queues up, or raise."""
        with self._replies.mutex:
            replies = [*self._replies.queue, *self._arriving]
        return (
            not self._lease.is_running
            or self._has_to_give_up(*self._told)
            or any(
                isinstance(one, StreamError) or self._has_to_give_up(one.revocation, one.revoked)
                for _, one in replies
            )
        )

    def commit(self, topic: str, queue_id: int, next_queue_offset: int) -> None:
        """Say that everything of the queue below the offset is finished; sent once a second."""
        assert topic == self._topic
        with self._lock:
            if queue_id in self._assignment:
                self._commits[queue_id] = next_queue_offset

    def count_returns(self, *, sent_back: int = 0, dead_lettered: int = 0) -> None:
        """Add to the group's counters; sent once a second."""
        with self._lock:
            self._sent_back += sent_back
            self._dead_lettered += dead_lettered

    def assignment(self) -> frozenset[tuple[str, int]]:
        """The (topic, queue id) pairs that this member reads."""
        with self._lock:
            return frozenset((self._topic, queue_id) for queue_id in self._assignment)

    def close(self) -> None:
        """Give up all queues, send the last commits and leave the group."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._revoke(self._assignment)
        with self._calling:
            self._gateway.leave(self._name, self._take_commits())
        while any(thread.is_alive() for thread in self._threads):
            self._empty()
            time.sleep(0.01)

    def __enter__(self) -> Self:
        """The member itself; closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _revoke(self, queue_ids: frozenset[int]) -> None:
        if queue_ids and self.on_revoke is not None:
            self.on_revoke(frozenset((self._topic, queue_id) for queue_id in queue_ids))
        self._kept.drop(queue_ids)
        with self._lock:
            self._assignment -= queue_ids

    def _tell_left_alone(self) -> None:
        left_alone = self._kept.left_alone()
        if left_alone != self._left_alone:
            with contextlib.suppress(UnknownMemberError):  # the next reply says so as well
                self._gateway.leave_alone(self._name, left_alone)
                self._left_alone = left_alone

    def _has_to_give_up(self, revocation: int, queue_ids: frozenset[int]) -> bool:
        return revocation > self._settled and bool(queue_ids)

    def _is_after_loss(self, reply: PollReply, queue_id: int) -> bool:
        """The reply is not from before the queue was given up the last time."""
        return reply.revocation >= self._lost.get(queue_id, 0)

    def _give_up(self, revocation: int, queue_ids: frozenset[int]) -> bool:
        """Give queues up; False where that took so long that the member was given up itself.

        When the gateway does not answer, this is to be called again.
        """
        if revocation > self._revoked:
            self._revoke(queue_ids)
            self._revoked = revocation
            self._lost.update(dict.fromkeys(queue_ids, revocation))
        try:
            with self._calling:
                self._send(lambda name, commits: self._gateway.give_up(name, revocation, commits))
        except UnknownMemberError as error:
            self._join_again(error)
            return False
        self._settled = revocation
        return True

    def _start_anew(self, timeout_s: float) -> None:
        """Others may own the queues by now: give all up, and join again once that can be."""
        try:
            with self._calling:
                self._gateway.leave(self._name, self._take_commits())
            self._join_again(
                UnknownMemberError("the node did not answer, so the member joins again")
            )
        except (ShardUnavailableError, OSError) as error:
            _LOG.warning("the gateway does not answer, trying again: %s", error)
            self._closed.wait(timeout_s)

    def _join_again(self, reason: UnknownMemberError) -> None:
        """The stand-in is gone (invariant 3)."""
        _LOG.warning("%s", reason)
        self._empty()
        self._revoke(self._assignment)
        self._kept, self._left_alone = KeptBatches(), frozenset()
        self._join()

    def _join(self) -> None:
        asked_ms = self._lease.asked_at()
        name = self._gateway.join(self._request)
        reply = self._gateway.commit(name, {})
        with self._lock:
            self._commits = {}  # what was not committed comes again
            self._name, self._told, self._lost = name, (0, frozenset()), {}
            self._revoked = self._settled = 0
            self._lease.renew(asked_ms, reply.lease_ms)

    def _empty(self) -> None:
        try:
            while True:
                self._replies.get_nowait()
        except queue.Empty:
            pass

    def _take_commits(self) -> dict[int, int]:
        with self._lock:
            commits, self._commits = self._commits, {}
        return commits

    def _fetch(self) -> None:
        """The thread: long polls, one after the other; what says nothing new is dropped."""
        last: tuple[str, frozenset[int]] | None = None
        polled, received = "", 0
        while not self._closed.is_set():
            name = self._name
            if name != polled:
                polled, received = name, 0
            reply: PollReply | StreamError
            try:
                reply = self._gateway.poll(name, LONG_POLL_S, received)
                received = reply.number
            except ShardUnavailableError as error:
                _LOG.warning("the gateway does not answer, trying again: %s", error)
                self._closed.wait(_RETRY_S)
                continue
            except StreamError as error:
                reply = error
            if isinstance(reply, StreamError):
                self._put(name, reply)
                if not self._joined_again(name, reply):
                    return
            elif reply.frames or reply.revoked or (name, reply.assignment) != last:
                self._put(name, reply)
                last = name, reply.assignment

    def _joined_again(self, name: str, error: StreamError) -> bool:
        """Wait until the polling thread joined again; False when that is not to be."""
        if not isinstance(error, UnknownMemberError):
            return False
        while self._name == name and not self._closed.is_set():
            self._closed.wait(0.01)
        return True

    def _put(self, name: str, reply: PollReply | StreamError) -> None:
        self._arriving = ((name, reply),)
        while not self._closed.is_set():
            try:
                self._replies.put((name, reply), timeout=_RETRY_S)
            except queue.Full:
                continue
            break
        self._arriving = ()

    def _keep_committing(self) -> None:
        while not self._closed.wait(_COMMIT_INTERVAL_S):
            try:
                with self._calling:
                    self._commit()
                self._tell_returns(self._name)
            except UnknownMemberError:
                continue  # the poll says so as well, and what was not committed comes again
            except (StreamError, OSError) as error:
                _LOG.warning("commits wait for the gateway: %s", error)
            if self.has_to_settle:
                self.wake()

    def _commit(self) -> None:
        asked_ms = self._lease.asked_at()
        name, reply = self._send(lambda *call: (call[0], self._gateway.commit(*call)))
        self._take_answer(name, asked_ms, reply)

    def _send(self, call: Callable[[str, dict[int, int]], _T]) -> _T:
        """Have *call* send what is to be committed; keep it when that fails.

        Not when the member joined again meanwhile: what was not committed comes again.
        """
        name, commits = self._name, self._take_commits()
        try:
            return call(name, commits)
        except (StreamError, OSError):
            with self._lock:
                if name == self._name:
                    self._commits = {**commits, **self._commits}
            raise

    def _take_answer(self, name: str, asked_ms: int, reply: CommitReply) -> None:
        with self._lock:
            if name == self._name:
                self._lease.renew(asked_ms, reply.lease_ms)
                self._told = reply.revocation, reply.revoked

    def _tell_returns(self, name: str) -> None:
        with self._lock:
            sent_back, dead_lettered = self._sent_back, self._dead_lettered
        if sent_back or dead_lettered:
            self._gateway.count_returns(name, sent_back, dead_lettered)
        with self._lock:
            self._sent_back -= sent_back
            self._dead_lettered -= dead_lettered


Member = GroupConsumer | RemoteGroupConsumer


def _batch(frame: bytes) -> ConsumedBatch:
    reader, entries, next_queue_offset = unpack_records(frame)
    return ConsumedBatch(reader.topic, reader.queue_id, next_queue_offset, entries, reader)
