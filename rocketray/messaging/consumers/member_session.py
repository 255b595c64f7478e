"""The session of a group member with the coordinator: queues, lease, commits and heartbeats.

It makes no calls: :meth:`MemberSession.beat` gets the function that sends a heartbeat. One thread
sends heartbeats. Another one (the polling thread) assigns, reads and revokes queues, which can take
as long as a call, so that a reply may arrive meanwhile. Any thread may commit.

Invariants
  1. A queue is assigned only while the last reply grants it. It counts as held from the reply that
     grants it until it is revoked. So no heartbeat leaves out a queue that is read, and no queue is
     read that a heartbeat left out.
  2. A revoked queue is assigned again only by the reply to a heartbeat that left it out: that
     heartbeat brought its last commit, and the reply says where to resume.
  3. A reply renews the lease (lease.py). A reply that arrives after the lease expired, and does not
     grant all held queues, renews it only after those queues are revoked: another member may have
     had them.
  4. A commit is in each heartbeat until one is answered. It is repeated to a coordinator that
     reports a lower offset: that one restarted, and had not saved it.
  5. Commits are sent whether or not the lease is running. The coordinator takes those of queues
     that the member owns, or reclaims because no other member had them (handover.py). A queue that
     is assigned again begins without commits, so none from before undoes what others finished.
  6. A queue that a store refused to the member is revoked, whatever the replies say until then; it
     may be granted again, with a larger ownership epoch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

from rocketray import __version__
from rocketray.groups.filter_plan import PlanFollower
from rocketray.groups.heartbeat import Heartbeat, HeartbeatReply
from rocketray.groups.lease import Lease
from rocketray.runtime.machine import this_process

_NONE: frozenset[int] = frozenset()


class MemberSession:
    """One member's queues by number, on one topic."""

    def __init__(self, member: Heartbeat, clock_ms: Callable[[], int]) -> None:
        """Begin without queues; *member* has the parts that all its heartbeats share."""
        name = f"member {member.member} of group {member.group} on topic {member.topic}"
        self.lease = Lease(clock_ms, name)
        self.follower = PlanFollower(member.subscription)
        here = this_process()
        self._member = replace(
            member, release=__version__, machine=here["machine"], pid=here["pid"]
        )
        self._lock = threading.Lock()
        self.moves = 0
        """How often a queue of the topic was moved, as of the last reply."""
        self._beats = 0
        self._granted: dict[int, int] = {}
        self._assigned: dict[int, int] = {}  # with the offset at which to begin
        self._granted_epochs: Mapping[int, int] = {}  # in the last reply
        self._epochs: dict[int, int] = {}  # of the assigned queues
        self._given_up = _NONE  # refused by a store, and not revoked yet
        self._newest_epoch = 0  # with which a store refused one of ours
        self._left_out = _NONE  # revoked since the last heartbeat
        self._late_reply: int | None = None  # when its heartbeat was sent
        self._finished: dict[int, int] = {}  # of the assigned queues that are read
        self._commits: dict[int, int] = {}
        self._starts: dict[int, int] = {}  # of queues that the group had no offset in

    # For the thread that sends heartbeats

    def beat(self, send: Callable[[Heartbeat], HeartbeatReply]) -> None:
        """Send a heartbeat, and take the reply; the next heartbeat repeats one without a reply."""
        asked_ms = self.lease.asked_at()
        beat = self._heartbeat()
        try:
            reply = send(beat)
        except BaseException:  # lost on its way, or refused before its commits were taken
            with self._lock:
                self._commits = {**beat.commits, **self._commits}
            raise
        self._answer(reply, asked_ms, beat.held)

    def leave(self) -> Heartbeat:
        """Revoke all queues; return the last heartbeat, which names what was held until now."""
        with self._lock:
            held = self._held
        self.revoke(held)
        return replace(self._heartbeat(), held=held)

    # For the polling thread

    @property
    def needs_rebalance(self) -> bool:
        """Whether there is a queue to revoke or to assign, or a lease to renew by that."""
        with self._lock:
            return self._granted.keys() != self._assigned.keys() or self._late_reply is not None

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing to revoke, to assign or to begin."""
        with self._lock:
            queues = self._granted.keys()
            is_read = queues == self._assigned.keys() == self._finished.keys()
            return is_read and self._late_reply is None

    def lost(self) -> frozenset[int]:
        """Return the assigned queues that are not granted any more; they have to be revoked."""
        with self._lock:
            return frozenset(self._assigned.keys() - self._granted.keys())

    def revoke(self, queue_ids: frozenset[int]) -> None:
        """Release queues that are not read from now on, and renew the lease if it waits for that.

        To be called with no queues, too, after a look for lost ones.
        """
        with self._lock:
            self._left_out |= queue_ids
            self._given_up -= queue_ids
            for queue_id in queue_ids:
                self._granted.pop(queue_id, None)
                self._assigned.pop(queue_id, None)
                self._epochs.pop(queue_id, None)
                if queue_id in self._finished:
                    self._commits.setdefault(queue_id, self._finished.pop(queue_id))
                self.follower.forget_queue(queue_id)
            if self._late_reply is not None and self._assigned.keys() <= self._granted.keys():
                self._renew(self._late_reply)

    def assign(self) -> dict[int, int]:
        """Take the granted queues; return those to :meth:`begin`, with the offset of each."""
        with self._lock:
            new = self._granted.keys() - self._assigned.keys()
            self._assigned |= {queue_id: self._granted[queue_id] for queue_id in new}
            self._epochs |= {queue_id: self._granted_epochs.get(queue_id, 0) for queue_id in new}
            self._commits = {at: end for at, end in self._commits.items() if at not in new}
            return self._unread()

    @property
    def must_begin(self) -> bool:
        """Whether there is an assigned queue that is not read yet."""
        with self._lock:
            return bool(self._unread())

    def begin(self, queue_id: int, start: int) -> None:
        """Note that an assigned queue is read from *start* on."""
        with self._lock:
            offset = self._assigned[queue_id]
            self._finished[queue_id] = start
            if start != offset:
                self._commits[queue_id] = start  # a crash now must not skip or repeat messages
            if offset < 0:
                self._starts[queue_id] = start

    # For any thread

    def epoch(self, queue_id: int) -> int:
        """Return the ownership epoch of an assigned queue; 0 if it has none, or is not assigned."""
        with self._lock:
            return self._epochs.get(queue_id, 0)

    def give_up(self, queue_id: int, newest_epoch: int = 0) -> None:
        """Have a queue revoked: a store refused its epoch, for the *newest_epoch* if that is known.

        Of a queue that is not assigned, only the epoch is reported.
        """
        with self._lock:
            self._newest_epoch = max(self._newest_epoch, newest_epoch)
            if queue_id in self._assigned:
                self._given_up |= {queue_id}
                self._granted.pop(queue_id, None)

    def commit(self, queue_id: int, next_queue_offset: int) -> None:
        """Mark a queue as finished below the offset; no effect on a queue that is not read."""
        with self._lock:
            if queue_id in self._finished:
                self._commits[queue_id] = self._finished[queue_id] = next_queue_offset

    @property
    def is_reading(self) -> bool:
        return bool(self._finished)

    def finished(self) -> dict[int, int]:
        """Return the queues that are read, with the offset below which each is finished."""
        with self._lock:
            return dict(self._finished)

    @property
    def _held(self) -> frozenset[int]:
        return frozenset(self._assigned.keys() | self._granted.keys())

    def _unread(self) -> dict[int, int]:
        assigned = self._assigned.items()
        return {queue_id: at for queue_id, at in assigned if queue_id not in self._finished}

    def _heartbeat(self) -> Heartbeat:
        with self._lock:
            self._beats += 1
            self._left_out = _NONE
            commits, self._commits = self._commits, {}
            return replace(
                self._member,
                held=self._held,
                commits=commits,
                starts=dict(self._starts),
                number=self._beats,
                plan=self.follower.version,
                switches=self.follower.proposals(),
                newest_epoch=self._newest_epoch,
            )

    def _answer(self, reply: HeartbeatReply, asked_ms: int, held: frozenset[int]) -> None:
        with self._lock:
            self.follower.plan = reply.plan
            self.moves = reply.moves
            self._granted = {
                queue_id: offset
                for queue_id, offset in reply.granted.items()
                if queue_id not in self._left_out and queue_id not in self._given_up
            }
            self._granted_epochs = reply.epochs
            for queue_id, offset in self._granted.items():
                if offset < self._finished.get(queue_id, offset):  # invariant 4
                    self._commits.setdefault(queue_id, self._finished[queue_id])
            # Invariant 3: what is held may have been another member's between lease and reply.
            if self.lease.is_running or held - self._left_out <= self._granted.keys():
                self._renew(asked_ms)
            else:
                self._late_reply = asked_ms

    def _renew(self, asked_ms: int) -> None:
        self._late_reply = None
        self.lease.renew(asked_ms)
