"""A member of a consumer group on another node than the shards.

It has what :class:`~rocketray.actors.consumers.member.GroupConsumer` has. At the node's gateway a stand-in reads for it:
long_poll.py waits for what comes from there, remote_commits.py is what goes there once a second.

Invariants
  1. A queue is given up in the same order as there: its batches were handed out or dropped,
     ``on_revoke``, the last commit, and only then the word that it is given up. Answers to commits
     say that it has to be, too, so that does not wait for batches that nobody takes.
  2. Nothing is handed out without a lease, which every answer to commits renews: see lease.py.
  3. When the gateway does not know the member any more, all its queues count as taken away, and
     it joins again. Nothing is lost; what was not committed is delivered again.
  4. An error that does not go by itself is raised by every poll from then on.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from typing import Self, Unpack

from rocketray.actors.consumers.member import GroupConsumer
from rocketray.actors.groups.failing import FailingMessage
from rocketray.actors.groups.group_offsets import (
    check_known_queue,
    check_member_topic,
    check_next_offset,
)
from rocketray.actors.groups.lease import Lease
from rocketray.actors.groups.member_options import MemberOptions, check_member, new_client_id
from rocketray.actors.runtime.clock import steady_clock_ms
from rocketray.actors.topics.consumed_batch import ConsumedBatch
from rocketray.errors import ShardUnavailableError, StreamError, UnknownMemberError
from rocketray.filters.subscription import Subscription
from rocketray.store.reading.packed_records import unpack_records

from .kept_batches import KeptBatches
from .long_poll import NOTHING, LongPoll
from .remote_calls import CommitReply, Gateway, JoinRequest, PollReply
from .remote_commits import RemoteCommits

__all__ = ["Member", "RemoteGroupConsumer"]

_LOG = logging.getLogger(__name__)
_COMMIT_INTERVAL_S = 1.0
_ALL: Container[int] = range(2**31)


class RemoteGroupConsumer:
    """One member of *group* on *topic*. ``poll`` is called by one thread at a time."""

    def __init__(
        self,
        gateway: Gateway,
        group: str,
        topic: str,
        subscription: Subscription,
        *,
        has_heart: bool = True,
        clock_ms: Callable[[], int] = steady_clock_ms,
        **options: Unpack[MemberOptions],
    ) -> None:
        """Join the group; the options, and what is raised, are those of the ordinary member.

        Without a heart somebody else calls :meth:`beat` once a second, and :meth:`receive`.
        """
        self.on_revoke: Callable[[frozenset[tuple[str, int]]], None] | None = None
        check_member(group, topic, subscription, options)
        self._gateway = gateway
        self._topic = topic
        self._request = JoinRequest(group, topic, subscription, options)
        self._lease = Lease(clock_ms)
        self._lock = threading.Lock()
        self._told = 0, frozenset[int]()  # the last revocation that an answer named
        self._revoked = self._settled = 0  # the last revocation, here and as the gateway knows
        self._lost: dict[int, int] = {}  # by queue, in which revocation
        self._ends: dict[int, int] = {}  # by queue, behind what was read of it at any time
        self._failure: StreamError | None = None
        self._failing: Mapping[int, FailingMessage] = {}
        self._told_failing: Mapping[int, FailingMessage] = {}  # as the gateway knows it
        self._name = ""
        self._next_name = new_client_id()
        self._commits = RemoteCommits()
        self._join()
        self._long_poll = LongPoll(gateway, self._name)
        self._assignment: frozenset[int] = frozenset()
        self._kept = KeptBatches()
        self._left_alone: frozenset[int] = frozenset()  # as the gateway knows it
        self._closed = threading.Event()
        self._heart = threading.Thread(target=self._keep_committing, daemon=True, name="commits")
        if has_heart:
            self._long_poll.start()
            self._heart.start()

    def poll(
        self,
        timeout_s: float,
        max_messages: int = 1000,  # noqa: ARG002  # how many come together is the gateway's to say
        skip: Container[int] = (),
    ) -> list[ConsumedBatch]:
        """Batches of messages; [] when the time is over. Raises as the ordinary member's.

        What was on its way of a queue in *skip* is kept here until the queue is read on.
        """
        if self._failure is not None:
            raise self._failure
        if self._settle(timeout_s):
            return []
        self._tell_left_alone()
        if kept := self._kept.take(skip):
            return kept
        name, reply = self._long_poll.take(timeout_s) or NOTHING
        if name != self._name:
            return []  # of a stand-in that was left meanwhile, or from `wake`
        if isinstance(reply, UnknownMemberError):
            self._join_again(reply)
            return []
        if isinstance(reply, StreamError):
            self._failure = reply
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
        try:
            batches = [_batch(frame) for frame in reply.frames]
        except StreamError as error:
            self._failure = error  # what they hold is not passed over
            raise
        batches = [batch for batch in batches if self._is_after_loss(reply, batch.queue_id)]
        told = reply.revocation, reply.revoked
        is_losing = self._has_to_give_up(*told)
        owned = reply.assignment | {batch.queue_id for batch in batches}
        with self._lock:
            for batch in batches:
                end = max(batch.next_queue_offset, self._ends.get(batch.queue_id, 0))
                self._ends[batch.queue_id] = end
            self._assignment = frozenset(one for one in owned if self._is_after_loss(reply, one))
            if is_losing and reply.revocation > self._revoked:
                self._assignment |= reply.revoked
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
        self._long_poll.wake()

    @property
    def is_leased(self) -> bool:
        """Nobody else can own the queues; while this is false, nothing may be handed out."""
        return self._lease.is_running

    @property
    def has_to_settle(self) -> bool:
        """The next polls join again, give queues up, or raise."""
        return (
            self._failure is not None
            or not self._lease.is_running
            or self._has_to_give_up(*self._told)
            or any(
                isinstance(one, StreamError) or self._has_to_give_up(one.revocation, one.revoked)
                for _, one in self._long_poll.waiting()
            )
        )

    def commit(self, topic: str, queue_id: int, next_queue_offset: int) -> None:
        """Say that everything of the queue below the offset is finished; sent once a second.

        Raises as the ordinary member's. Where the queue ends is known as far as it was read here.
        """
        check_member_topic(self._topic, topic)
        with self._lock:
            check_known_queue(topic, queue_id, self._ends)
            offset = check_next_offset(topic, queue_id, next_queue_offset, self._ends[queue_id])
            if queue_id in self._assignment:
                self._commits.put(queue_id, offset)

    def count_returns(self, *, sent_back: int = 0, dead_lettered: int = 0) -> None:
        """Add to the group's counters; sent once a second."""
        self._commits.count_returns(sent_back, dead_lettered)

    def report_failing(self, failing: Mapping[int, FailingMessage]) -> None:
        """Say at which messages queues are held now, and no others; sent once a second."""
        self._failing = failing

    def assignment(self) -> frozenset[tuple[str, int]]:
        """The (topic, queue id) pairs that this member reads."""
        with self._lock:
            return frozenset((self._topic, queue_id) for queue_id in self._assignment)

    def close(self) -> None:
        """Give up all queues, send the last commits and leave the group."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._long_poll.close()
        self._revoke(self._assignment)
        self._commits.send(self._gateway.leave)
        while self._heart.is_alive() or self._long_poll.is_running():
            self._long_poll.empty()
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
            self._commits.send(
                lambda name, commits, number: self._gateway.give_up(
                    name, revocation, commits, number
                )
            )
        except UnknownMemberError as error:
            self._join_again(error)
            return False
        self._settled = revocation
        return True

    def _start_anew(self, timeout_s: float) -> None:
        """Others may own the queues by now: give all up, and join again once that can be."""
        try:
            self._commits.send(self._gateway.leave)
            self._join_again(
                UnknownMemberError("the node did not answer, so the member joins again")
            )
        except (ShardUnavailableError, OSError) as error:
            _LOG.warning("the gateway does not answer, trying again: %s", error)
            self._closed.wait(timeout_s)

    def _join_again(self, reason: UnknownMemberError) -> None:
        """The stand-in is gone (invariant 3)."""
        _LOG.warning("%s", reason)
        self._lease.renew(self._lease.asked_at(), 0)  # until it joined, which polls try again
        self._long_poll.empty()
        self._revoke(self._assignment)
        self._kept, self._left_alone = KeptBatches(), frozenset()
        self._join()
        self._long_poll.follow(self._name)

    def _join(self) -> None:
        asked_ms = self._lease.asked_at()
        name = self._next_name  # the same until that is answered: a lost answer leaves no stand-in
        options: MemberOptions = {**self._request.options}
        options["client_id"] = options.get("client_id") or name
        self._gateway.join(name, replace(self._request, options=options))
        reply = self._gateway.commit(name, {})
        with self._lock:
            self._commits.begin(name)
            self._name, self._told, self._lost = name, (0, frozenset()), {}
            self._told_failing = {}
            self._revoked = self._settled = 0
            self._lease.renew(asked_ms, reply.lease_ms)
        self._next_name = new_client_id()

    def receive(self) -> None:
        """Fetch what waits at the gateway; polls hand it out."""
        self._long_poll.step()

    def beat(self) -> None:
        """Commit, and take what the gateway answers; the next poll acts on it."""
        try:
            self._commits.send(self._commit)
            self._commits.tell_returns(self._gateway.count_returns)
            self._tell_failing()
        except UnknownMemberError:
            return  # the long poll says so as well, and what was not committed comes again
        except (StreamError, OSError) as error:
            _LOG.warning("commits wait for the gateway: %s", error)
        except Exception as error:  # noqa: BLE001  # else the heart stops, and nobody hears why
            self._failure = StreamError(f"the gateway failed at a commit: {error!r}")
        if self.has_to_settle:
            self.wake()

    def _tell_failing(self) -> None:
        name, failing = self._name, self._failing
        if failing != self._told_failing:
            self._gateway.report_failing(name, failing)
            self._told_failing = failing

    def _keep_committing(self) -> None:
        while not self._closed.wait(_COMMIT_INTERVAL_S):
            self.beat()

    def _commit(self, name: str, commits: dict[int, int], number: int) -> None:
        asked_ms = self._lease.asked_at()
        self._take_answer(name, asked_ms, self._gateway.commit(name, commits, number))

    def _take_answer(self, name: str, asked_ms: int, reply: CommitReply) -> None:
        with self._lock:
            if name == self._name:
                self._lease.renew(asked_ms, reply.lease_ms)
                self._told = reply.revocation, reply.revoked


Member = GroupConsumer | RemoteGroupConsumer


def _batch(frame: bytes) -> ConsumedBatch:
    reader, entries, next_queue_offset = unpack_records(frame)
    return ConsumedBatch(reader.topic, reader.queue_id, next_queue_offset, entries, reader)
