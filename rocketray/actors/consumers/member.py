"""A member of a consumer group: reads the queues it owns, and tells how far it came.

The coordinator decides who owns a queue and hears a heartbeat every second. For each owned queue
the member makes a match ring, which the filter actor fills; messages then come without any call.

Invariants
  1. A queue is read only while it is held, from the answer that grants it on: see queue_ownership.py. It is
     given up in this order: no more batches from it, ``on_revoke``, and only then the heartbeat that
     no longer names it. That one always says how far the queue is finished: a coordinator that
     started again may not know it.
  2. What the member commits goes out with the next heartbeat, and with ``close``; one that was not
     answered is repeated by the next.
  3. Nothing is handed out without a lease: see lease.py.
  4. A stream that the filter actor stopped raises in ``poll``, as does a record that cannot be read;
     no message is passed over, and other queues are read on.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from collections.abc import Callable, Container, Mapping
from typing import Protocol, Self, Unpack

from rocketray.actors.files.paths import consumer_directory
from rocketray.actors.groups.failing import FailingMessage
from rocketray.actors.groups.group_offsets import check_member_topic
from rocketray.actors.groups.heartbeat import Heartbeat, HeartbeatReply
from rocketray.actors.groups.lease import Lease
from rocketray.actors.groups.member_options import MemberOptions, check_member, new_client_id
from rocketray.actors.groups.subscription_change import PlanFollower
from rocketray.actors.ipc.control_page import Doorbell
from rocketray.actors.runtime.clock import steady_clock_ms
from rocketray.actors.runtime.processes import owned_name
from rocketray.actors.topics.consumed_batch import ConsumedBatch
from rocketray.errors import ShardUnavailableError, StreamError
from rocketray.filters.counters import FilterCounters
from rocketray.filters.subscription import Subscription

from .filter_errors import FilterErrorLog
from .local_offsets import open_local_offsets
from .member_queues import MemberQueues, OnRevoke, QueueNode
from .queue_ownership import Grants

__all__ = ["GroupConsumer", "Groups"]

_LOG = logging.getLogger(__name__)
HEARTBEAT_INTERVAL_S = 1.0


class Groups(QueueNode, Protocol):
    """The calls that a member needs."""

    def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        """Report to the coordinator."""

    def leave(self, beat: Heartbeat) -> None:
        """Give everything up."""


class GroupConsumer:
    """One member of *group* on *topic*. ``poll`` is called by one thread at a time."""

    def __init__(
        self,
        node: Groups,
        group: str,
        topic: str,
        subscription: Subscription,
        *,
        has_heart: bool = True,
        clock_ms: Callable[[], int] = steady_clock_ms,
        **options: Unpack[MemberOptions],
    ) -> None:
        """Join the group; without a heart somebody else calls :meth:`beat` once a second.

        *clock_ms* is one that never jumps.

        Raises:
            SubscriptionConflictError: the group's members subscribe differently.
            StrategyConflictError: they divide the queues in another way.
            ConfigError: an option cannot be used as given.
            FilterError: the subscription does not compile, or the node may not run its predicate.
        """
        self.on_revoke: OnRevoke | None = None
        check_member(group, topic, subscription, options)
        self._node = node
        self._topic = topic
        client_id = options.get("client_id") or new_client_id()
        self._identity = (group, topic, subscription, client_id)
        self._together = options.get("together")
        self._strategy = options.get("strategy", "averagely")
        self._local = open_local_offsets(node.data, group, topic, options, clock_ms)
        self._instance = uuid.uuid4().hex
        bell = consumer_directory(node.data) / owned_name(f"{self._instance}.bell")
        self._doorbell = Doorbell(bell)
        self._lease = Lease(clock_ms, f"member {client_id} of group {group} on topic {topic}")
        self._grants = Grants(self._lease)
        self._follower = PlanFollower(subscription)
        self._queues = MemberQueues(
            node,
            group,
            topic,
            start=options.get("start", "earliest"),
            grants=self._grants,
            follower=self._follower,
            doorbell=bell,
            clock_ms=clock_ms,
        )
        self._beats = 0
        self._failure: StreamError | None = None
        self._failing: Mapping[int, FailingMessage] = {}
        self._filter_errors = FilterErrorLog(node.data, group, topic)
        self._closed = threading.Event()
        try:
            self._report(self._beat(self._grants.held()))
            self._queues.settle(None)
            self._queues.check()
        except BaseException:
            with contextlib.suppress(StreamError, OSError):  # what went wrong first is to be heard
                self._leave()
            raise
        self._heart = threading.Thread(target=self._keep_beating, daemon=True, name="heartbeat")
        if has_heart:
            self._heart.start()

    def poll(
        self, timeout_s: float, max_messages: int = 1000, skip: Container[int] = ()
    ) -> list[ConsumedBatch]:
        """Batches of messages, at most *max_messages* of each queue; [] when the time is over.

        Sleeps with the GIL released. What the queues in *skip* have stays in their rings; whoever
        takes a queue out of it meanwhile calls :meth:`wake`.

        Raises:
            FilterError: a class filter failed; the text says on which message and why.
            StreamError: the coordinator refuses the member: the topic was deleted or may not be
                read, or others changed the group's subscription.
        """
        rung = self._doorbell.count()
        batches = self._take(max_messages, skip)
        if not batches and not self._closed.is_set():
            self._doorbell.wait(rung, timeout_s)
            batches = self._take(max_messages, skip)
        return batches

    def wake(self) -> None:
        """Have a poll that waits look again; any thread may call."""
        self._doorbell.ring()

    @property
    def is_leased(self) -> bool:
        """Nobody else can own the queues; while this is false, nothing may be handed out."""
        return self._local is not None or self._lease.is_running

    @property
    def lease_left_ms(self) -> int:
        """For how long that is certain."""
        return self._lease.left_ms

    @property
    def has_to_settle(self) -> bool:
        """The next poll gives queues up, takes some, renews the lease by that, or raises."""
        has_to = self._grants.has_to_settle or self._queues.has_to_open
        return has_to or self._failure is not None

    def commit(self, topic: str, queue_id: int, next_queue_offset: int) -> None:
        """Say that everything of the queue below the offset is finished; sent with a heartbeat.

        For a queue that the member gave up meanwhile this does nothing: its next owner goes on
        where the last commit was.

        Raises:
            ConfigError: the member does not read that topic, or never read that queue.
            OffsetOutOfRangeError: the offset is negative, or behind the end of the queue.
        """
        check_member_topic(self._topic, topic)
        self._queues.commit(queue_id, next_queue_offset)

    def assignment(self) -> frozenset[tuple[str, int]]:
        """The (topic, queue id) pairs that this member reads."""
        return self._queues.assignment()

    def close(self) -> None:
        """Give up all queues, send the last commits and leave the group."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._doorbell.ring()
        if self._heart.ident is not None:
            self._heart.join()
        self._leave()

    def _leave(self) -> None:
        held = self._grants.held()
        self._queues.give_up(held, self.on_revoke)
        try:
            self._node.leave(self._beat(held))
        finally:
            if self._local is not None:
                self._local.close()
            self._doorbell.unlink()

    def __enter__(self) -> Self:
        """The member itself; closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _take(self, max_messages: int, skip: Container[int]) -> list[ConsumedBatch]:
        if self._failure is not None:
            raise self._failure
        self._queues.settle(self.on_revoke)
        if self._local is None and not self._lease.may_hand_out():
            return []
        return self._queues.take(max_messages, skip)

    def counters(self) -> FilterCounters:
        """What the filter did for this member in all, and what became of the matches here."""
        return self._queues.counters()

    def count_returns(self, *, sent_back: int = 0, dead_lettered: int = 0) -> None:
        """Add to the counters what became of messages that a handler could not finish."""
        self._queues.count(sent_back=sent_back, dead_lettered=dead_lettered)

    def report_failing(self, failing: Mapping[int, FailingMessage]) -> None:
        """Say at which messages queues are held now, and no others; sent with a heartbeat."""
        self._failing = failing

    def _beat(self, held: frozenset[int]) -> Heartbeat:
        """A report; what is *held* was asked before, so the last commits of all else are in it."""
        self._beats += 1
        commits, starts, pulled = self._queues.progress()
        counters = self._queues.counters()
        self._filter_errors.look(self._queues.first_errors(), counters.evaluation_errors)
        if self._local is not None:
            self._local.commit(commits)  # may write a file: whoever commits does not wait for it
            commits = {}
        return Heartbeat(
            *self._identity,
            self._instance,
            held,
            commits,
            counters,
            starts,
            self._together,
            self._strategy,
            self._beats,
            self._follower.version,
            self._follower.proposals(),
            self._local is not None,
            pulled,
            self._failing,
        )

    def beat(self) -> None:
        """Report to the coordinator, and take what it grants; the next poll acts on it."""
        report = self._beat(self._grants.held())
        try:
            self._report(report)
        except (ShardUnavailableError, OSError) as error:
            _LOG.warning("the coordinator does not answer, trying again: %s", error)
            self._queues.commit_later(report.commits)
        except StreamError as error:  # the topic is gone or closed, the subscription changed
            self._failure = error
        except Exception as error:  # noqa: BLE001  # else the heart stops, and nobody hears why
            self._failure = StreamError(f"the coordinator failed at a heartbeat: {error!r}")
        if self.has_to_settle:
            self._doorbell.ring()

    def _report(self, beat: Heartbeat) -> None:
        """Tell the coordinator, and take what it grants."""
        asked_ms = self._lease.asked_at()
        reply = self._node.heartbeat(beat)
        granted = dict(reply.granted)
        if self._local is not None:
            granted = {queue: self._local.get(queue) for queue in granted}
        self._queues.commit_again(granted)
        if self._follower.plan != reply.plan:
            self._follower.plan = reply.plan
            self._doorbell.ring()
        self._grants.answer(beat.held, asked_ms, granted)

    def _keep_beating(self) -> None:
        while not self._closed.wait(HEARTBEAT_INTERVAL_S) and self._failure is None:
            self.beat()
