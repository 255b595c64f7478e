"""A member of a consumer group: reads the queues that it owns, and reports its progress.

The coordinator assigns the queues and receives a heartbeat every second. Each owned queue has a
stream (stream_source.py), through which matching messages arrive without a call for each.

Invariants
  1. A queue is read only while it is held, from the reply that grants it (member_session.py). It is
     released in this order: no more batches from it, ``on_revoke``, the heartbeat that no longer
     names it and has its last commit.
  2. Commits are sent with the next heartbeat, and by ``close``.
  3. Nothing is delivered without a lease (lease.py).
  4. A stream that the filter actor stopped raises in ``poll``, as does an unreadable record. No
     message is skipped, and the other queues are still read.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from typing import Self, Unpack

from rocketray.broker.topics.consumed_batch import ConsumedBatch
from rocketray.errors import ShardUnavailableError, StreamError
from rocketray.filters.counters import FilterCounters
from rocketray.filters.subscription import Subscription
from rocketray.groups.failing import FailingMessage
from rocketray.groups.group_offsets import check_member_topic
from rocketray.groups.heartbeat import Heartbeat, HeartbeatReply
from rocketray.groups.member_options import (
    MemberOptions,
    check_member,
    check_poll,
    new_client_id,
)
from rocketray.messaging.api.node_client import NodeClient
from rocketray.runtime.clock import steady_clock_ms
from rocketray.runtime.one_process import OfOneProcess
from rocketray.runtime.outage_log import OutageLog

from .filter_errors import FilterErrorLog
from .local_offsets import open_local_offsets
from .member_queues import MemberQueues, OnRevoke
from .member_session import MemberSession
from .queue_ownership import QueueOwnership
from .queue_stream import QueueStreams
from .stream_source import StreamSource

_LOG = logging.getLogger(__name__)
# A heartbeat carries commits and brings grants, so it is more frequent than RocketMQ's, which come
# every 30 s beside separate commits. The lease of 8 s outlasts seven in a row without an answer.
HEARTBEAT_INTERVAL_S = 1.0


class GroupConsumer(OfOneProcess, what="consumer"):
    """One member of *group* on *topic*. ``poll`` is called by one thread at a time."""

    def __init__(
        self,
        node: NodeClient,
        group: str,
        topic: str,
        subscription: Subscription,
        *,
        streams: StreamSource | None = None,
        has_heart: bool = True,
        clock_ms: Callable[[], int] = steady_clock_ms,
        **options: Unpack[MemberOptions],
    ) -> None:
        """Join the group; without *has_heart* the caller calls :meth:`beat` once a second.

        *streams* are those of the shards' machine, unless given. *clock_ms* is monotonic.

        Raises:
            SubscriptionConflictError: the group's members subscribe differently.
            StrategyConflictError: they divide the queues in another way.
            ConfigError: an option is invalid.
            FilterError: the subscription does not compile, or the node may not run its predicate.
        """
        self.on_revoke: OnRevoke | None = None
        check_member(group, topic, subscription, options)
        self.subscription = subscription
        """What it asked for when it joined."""
        self._node = node
        self._group = group
        self._topic = topic
        self._local = open_local_offsets(node, group, topic, options, clock_ms)
        self._first_queues: frozenset[int] | None = None
        """Those of a broadcast topic, when the client began."""
        self._streams = streams or QueueStreams(node, group, topic)
        member = Heartbeat(
            *(group, topic, subscription, options.get("client_id") or new_client_id()),
            *(uuid.uuid4().hex, frozenset()),
            together=options.get("together"),
            strategy=options.get("strategy", "averagely"),
            is_broadcast=self._local is not None,
        )
        self._session = MemberSession(member, clock_ms)
        self.ownership = QueueOwnership(self._session, self.wake)
        """Of the queues that it reads."""
        self._queues = MemberQueues(
            *(node, self._streams, group, topic),
            start=options.get("start", "earliest"),
            session=self._session,
            clock_ms=clock_ms,
        )
        self._outages = OutageLog(_LOG)
        self._failure: StreamError | None = None
        self._failing: Mapping[int, FailingMessage] = {}
        self._filter_errors = FilterErrorLog(node.messages, group, topic)
        self._closed = threading.Event()
        try:
            self._session.beat(self._send)
            self._queues.settle_assignment(None)
            self._queues.check()
        except BaseException:
            with contextlib.suppress(StreamError, OSError):  # the first error is the one to raise
                self._leave()
            raise
        self._heart = threading.Thread(target=self._keep_beating, daemon=True, name="heartbeat")
        if has_heart:
            self._streams.start()
            self._heart.start()

    def poll(
        self, timeout_s: float = 0.0, max_messages: int = 1000, skip: Container[int] = ()
    ) -> list[ConsumedBatch]:
        """Return batches of at most *max_messages* of each queue; [] after *timeout_s*.

        Without a timeout, it returns the available messages at once. Else it sleeps with the GIL
        released. The messages of the queues in *skip* stay in their streams; a thread that removes
        a queue from *skip* meanwhile calls :meth:`wake`. If another thread closes the member
        meanwhile, the poll returns [].

        Raises:
            ConfigError: *timeout_s* is not from 0 to 1e9, or *max_messages* is below 1.
            FilterError: a class filter failed; the text names the message and the reason.
            StreamError: the coordinator refuses the member: the topic was deleted or may not be
                read, or other members changed the group's subscription; or the member is closed.
        """
        check_poll(timeout_s, max_messages)
        if self._closed.is_set():
            raise StreamError(
                f"this member of group {self._group!r} on topic {self._topic!r} is closed; create a new "
                "one to read on, and end the loop that polls before close()"
            )
        rung = self._streams.bell.count()  # first, so that a match after the look ends the wait
        batches = self._take(max_messages, skip)
        if not batches and not self._closed.is_set():
            self._streams.bell.wait(rung, timeout_s)
            batches = self._take(max_messages, skip)
        return batches

    def wake(self) -> None:
        """Have a waiting poll look again; any thread may call."""
        self._streams.bell.ring()

    @property
    def is_leased(self) -> bool:
        """Whether no other member can own the queues; if not, nothing may be delivered."""
        return self._local is not None or self._session.lease.is_running

    @property
    def needs_rebalance(self) -> bool:
        """Whether the next poll releases or opens queues, renews the lease by that, or raises."""
        has_to = self._session.needs_rebalance or self._queues.has_to_open
        return has_to or self._failure is not None

    def commit(self, topic: str, queue_id: int, next_queue_offset: int) -> None:
        """Mark the queue as finished below the offset; sent with a heartbeat.

        No effect on a queue that was revoked meanwhile: its next owner resumes at the last commit.

        Raises:
            ConfigError: the member does not read that topic, or never read that queue.
            OffsetOutOfRangeError: the offset is negative, or behind the end of the queue.
        """
        check_member_topic(self._topic, topic)
        self._queues.commit(queue_id, next_queue_offset)

    def assignment(self) -> frozenset[tuple[str, int]]:
        """Return the (topic, queue id) pairs that this member reads."""
        return frozenset((self._topic, queue_id) for queue_id in tuple(self._queues.streams))

    def close(self) -> None:
        """Release all queues, send the last commits and leave the group."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._streams.bell.ring()
        if self._heart.ident is not None:
            self._heart.join()
        self._leave()

    def _leave(self) -> None:
        # Whatever fails, the rest is done. The last callback is the first to run: the heartbeat
        # that leaves has the commits of ``on_revoke``, and so has a broadcast client's file.
        with contextlib.ExitStack() as exits:
            exits.callback(self._streams.close)
            if self._local is not None:
                exits.callback(self._local.close)
            exits.callback(lambda: self._node.sessions.leave(self._complete(self._session.leave())))
            self._queues.close(frozenset(self._queues.streams), self.on_revoke)

    def __enter__(self) -> Self:
        """Return the member itself; it is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self, max_messages: int, skip: Container[int]) -> list[ConsumedBatch]:
        if self._failure is not None:
            raise self._failure
        self._queues.settle_assignment(self.on_revoke)
        if self._local is None and not self._session.lease.may_hand_out():
            return []
        return self._queues.take_batches(max_messages, skip)

    def counters(self) -> FilterCounters:
        """Return the sums of the filter for this member, and of the outcomes of its matches."""
        return self._queues.counters()

    def count_returns(self, *, sent_back: int = 0, dead_lettered: int = 0) -> None:
        """Add the messages that a handler could not finish to the counters."""
        self._queues.count(sent_back=sent_back, dead_lettered=dead_lettered)

    def report_failing(self, failing: Mapping[int, FailingMessage]) -> None:
        """Set the messages at which queues are held now; sent with a heartbeat."""
        self._failing = failing

    def beat(self) -> None:
        """Report to the coordinator, and take what it grants; the next poll acts on it."""
        plan, was_leased = self._session.follower.plan, self.is_leased
        try:
            self._session.beat(self._send)
            self._outages.works("coordinator")
        except (ShardUnavailableError, OSError) as error:
            warning = "the coordinator does not answer, trying again: %s"
            self._outages.failed("coordinator", warning, error)
        except StreamError as error:  # topic deleted or closed, or subscription changed
            self._failure = error
        except Exception as error:  # noqa: BLE001  # else the heartbeat stops without a trace
            self._failure = StreamError(f"the coordinator failed at a heartbeat: {error!r}")
        has_resumed = self.is_leased and not was_leased
        if has_resumed or self.needs_rebalance or self._session.follower.plan != plan:
            self._streams.bell.ring()

    def _send(self, beat: Heartbeat) -> HeartbeatReply:
        reply = self._node.sessions.heartbeat(self._complete(beat))
        if self._local is None:
            return reply
        if self._first_queues is None:
            self._first_queues = self._local.queues() or frozenset(reply.granted)
        offsets = {queue: self._local.get(queue) for queue in reply.granted}
        added = {queue: max(0, offsets[queue]) for queue in offsets.keys() - self._first_queues}
        return replace(reply, granted=offsets | added)  # of a queue that came later, it gets all

    def _complete(self, beat: Heartbeat) -> Heartbeat:
        """Return a heartbeat of the session with the rest of the report."""
        counters = self._queues.counters()
        streams = tuple(self._queues.streams.values())
        self._filter_errors.log_failures(streams, counters.evaluation_errors)
        if self._local is not None:
            self._local.commit(beat.commits)  # may write a file; other threads do not wait for it
            beat = replace(beat, commits={})
        pulled, failing = self._queues.pulled(), self._failing
        return replace(beat, counters=counters, pulled=pulled, failing=failing)

    def _keep_beating(self) -> None:
        while not self._closed.wait(HEARTBEAT_INTERVAL_S) and self._failure is None:
            self.beat()
