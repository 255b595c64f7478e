"""A member of a consumer group on another Ray node than the shards.

It has the interface of ``GroupConsumer`` (consumers/member.py). A proxy at the node's gateway reads
for it. long_poll.py receives the proxy's messages; remote_commits.py sends commits once a second.

Invariants
  1. A queue is released in the same order as there: its batches are delivered or dropped,
     ``on_revoke``, the last commit, the confirmation of the release. Replies to commits name
     revocations, too, so a release does not wait for batches that are not polled.
  2. Nothing is delivered without a lease, which every reply to a commit renews (lease.py).
  3. When the gateway does not know the member any more, all its queues count as revoked, and it
     joins again. Nothing is lost; uncommitted messages are redelivered.
  4. A permanent error is raised by every poll from then on.
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
from .remote_calls import CommitReply, GatewayApi, JoinRequest, PollReply
from .remote_commits import RemoteCommits

__all__ = ["Member", "RemoteGroupConsumer"]

_LOG = logging.getLogger(__name__)
_COMMIT_INTERVAL_S = 1.0
_ALL: Container[int] = range(2**31)


class RemoteGroupConsumer:
    """One member of *group* on *topic*. ``poll`` is called by one thread at a time."""

    def __init__(
        self,
        gateway: GatewayApi,
        group: str,
        topic: str,
        subscription: Subscription,
        *,
        has_heart: bool = True,
        clock_ms: Callable[[], int] = steady_clock_ms,
        **options: Unpack[MemberOptions],
    ) -> None:
        """Join the group; options and errors are those of the ordinary member.

        Without *has_heart* the caller calls :meth:`beat` once a second, and :meth:`receive`.
        """
        self.on_revoke: Callable[[frozenset[tuple[str, int]]], None] | None = None
        check_member(group, topic, subscription, options)
        self._gateway = gateway
        self._topic = topic
        self._request = JoinRequest(group, topic, subscription, options)
        self._lease = Lease(clock_ms)
        self._lock = threading.Lock()
        self._told = 0, frozenset[int]()  # the last revocation that a reply named
        self._revoked = self._settled = 0  # the last revocation, here and as the gateway knows
        self._lost: dict[int, int] = {}  # by queue, its last revocation
        self._ends: dict[int, int] = {}  # by queue, the end of what was ever read
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
        max_messages: int = 1000,  # noqa: ARG002  # the gateway sets the batch size
        skip: Container[int] = (),
    ) -> list[ConsumedBatch]:
        """Return batches of messages; [] after *timeout_s*. Raises as the ordinary member's.

        Batches of a queue in *skip* that are already sent are kept here until it is read again.
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
            return []  # from an earlier proxy, or from `wake`
        if isinstance(reply, UnknownMemberError):
            self._join_again(reply)
            return []
        if isinstance(reply, StreamError):
            self._failure = reply
            raise reply
        return self._kept.sort(self._received(reply), skip)

    def _settle(self, timeout_s: float) -> bool:
        """Do what replies to commits ask for; return whether there was something to do."""
        if not self._lease.is_running:
            self._start_anew(timeout_s)
            return True
        told = self._told
        has_to_give_up = self._has_to_give_up(*told)
        if has_to_give_up:
            self._give_up(*told)
        return has_to_give_up

    def _received(self, reply: PollReply) -> list[ConsumedBatch]:
        """Return the batches of a reply, after the queues that it names are released."""
        try:
            batches = [_batch(frame) for frame in reply.frames]
        except StreamError as error:
            self._failure = error  # their messages are not skipped
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
                return []  # they are redelivered
        except (StreamError, OSError):
            kept.sort(batches, _ALL)  # useless if the member could not join again
            raise
        return batches

    def wake(self) -> None:
        """Have a waiting poll look again; any thread may call."""
        self._long_poll.wake()

    @property
    def is_leased(self) -> bool:
        """Whether no other member can own the queues; if not, nothing may be delivered."""
        return self._lease.is_running

    @property
    def needs_rebalance(self) -> bool:
        """Whether the next polls join again, release queues, or raise."""
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
        """Mark the queue as finished below the offset; sent once a second.

        Raises as the ordinary member's; the known end of a queue is where this member has read it.
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
        """Set the messages at which queues are held now; sent once a second."""
        self._failing = failing

    def assignment(self) -> frozenset[tuple[str, int]]:
        """Return the (topic, queue id) pairs that this member reads."""
        with self._lock:
            return frozenset((self._topic, queue_id) for queue_id in self._assignment)

    def close(self) -> None:
        """Release all queues, send the last commits and leave the group."""
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
        """Return the member itself; it is closed at the end of the block."""
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
            with contextlib.suppress(UnknownMemberError):  # the next reply raises it, too
                self._gateway.leave_alone(self._name, left_alone)
                self._left_alone = left_alone

    def _has_to_give_up(self, revocation: int, queue_ids: frozenset[int]) -> bool:
        return revocation > self._settled and bool(queue_ids)

    def _is_after_loss(self, reply: PollReply, queue_id: int) -> bool:
        """Return whether the reply is not from before the queue was last released."""
        return reply.revocation >= self._lost.get(queue_id, 0)

    def _give_up(self, revocation: int, queue_ids: frozenset[int]) -> bool:
        """Release queues; return False if the gateway dropped the member meanwhile.

        If the gateway does not answer, this is to be called again.
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
        """Leave, as other members may own the queues by now, and join again if possible."""
        try:
            self._commits.send(self._gateway.leave)
            self._join_again(
                UnknownMemberError("the node did not answer, so the member joins again")
            )
        except (ShardUnavailableError, OSError) as error:
            _LOG.warning("the gateway does not answer, trying again: %s", error)
            self._closed.wait(timeout_s)

    def _join_again(self, reason: UnknownMemberError) -> None:
        """Join again after the proxy is gone (invariant 3)."""
        _LOG.warning("%s", reason)
        self._lease.renew(self._lease.asked_at(), 0)  # until it has joined, which polls retry
        self._long_poll.empty()
        self._revoke(self._assignment)
        self._kept, self._left_alone = KeptBatches(), frozenset()
        self._join()
        self._long_poll.follow(self._name)

    def _join(self) -> None:
        asked_ms = self._lease.asked_at()
        name = self._next_name  # the same until answered: a lost reply leaves no proxy
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
        """Fetch what waits at the gateway; polls deliver it."""
        self._long_poll.step()

    def beat(self) -> None:
        """Commit, and take the gateway's reply; the next poll acts on it."""
        try:
            self._commits.send(self._commit)
            self._commits.tell_returns(self._gateway.count_returns)
            self._tell_failing()
        except UnknownMemberError:
            return  # the long poll gets it, too; uncommitted messages are redelivered
        except (StreamError, OSError) as error:
            _LOG.warning("the gateway did not receive commits, trying again: %s", error)
        except Exception as error:  # noqa: BLE001  # else the heartbeat stops without a trace
            self._failure = StreamError(f"the gateway failed at a commit: {error!r}")
        if self.needs_rebalance:
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
