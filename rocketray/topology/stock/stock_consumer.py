"""The consumer of stock Faust apps: one group an app, driven through Faust's eager rebalances.

- The instance is a member of the app's group on every topic that it reads
  (messaging/consumers/app_member.py). All topics together give it the same queue numbers, so they
  are co-partitioned as Faust requires.
- Messages are read by position from the log (messaging/api/node_log.py), in batches; after that,
  Faust processes every event in its own way.
- A changelog has no committed offsets, so the group does not read it: the instance reads the
  changelogs of its queue numbers, and all queues of a global table's.

A rebalance, when the assigned queues differ from the held ones:

    stop the flow, wait for the events that handlers have, commit    before any queue is released
    release the revoked queues, take the assigned ones               one round of heartbeats
    tell the assignor and Faust, under the next generation           which recovers and seeks

Without a lease nothing is read and no event delivered (:class:`LeasedGeneration`); events dropped
then are redelivered after the rebalance that follows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from faust.transport.consumer import Consumer
from faust.types.tuples import TP, ConsumerMessage

from rocketray.base.quantity import counted
from rocketray.broker.topics.log_reader import Queue
from rocketray.errors import ShardUnavailableError, TopicNotFoundError
from rocketray.message import StoredMessage
from rocketray.messaging.api.node_log import NodeLog
from rocketray.messaging.consumers.app_member import AppMember
from rocketray.runtime.outage_log import OutageLog
from rocketray.topology.faust.routes import LOOK_INTERVAL_S, member_name, owned_queues
from rocketray.topology.values.wire import group_name, parts_of, topic_name

from .stock_assignment import note_distribution, plan_assignment

logger = logging.getLogger(__name__)

# Without an acknowledgement for so long, a stop no longer waits; the events are redelivered.
STOP_QUIET_S = 5.0
_ACK_CHECK_S = 0.02  # Faust has no event for it
_RETRY_S = 1.0  # a heartbeat's interval: the next one says whether a topic was deleted
_LEASE_LOOK_S = 0.1  # nothing is read meanwhile; a heartbeat, once a second, renews the lease


class StockConsumer(Consumer):  # type: ignore[misc]  # Faust's types are not followed
    """The consumer of one app."""

    def __post_init__(self) -> None:
        self._topics: set[str] = set()
        self._assigned: set[TP] = set()
        self._position: dict[TP, int] = {}
        self._ends: dict[TP, int] = {}
        self._member: AppMember | None = None
        self._log: NodeLog | None = None
        self._outages = OutageLog(logger)
        # One thread: the log is read by one at a time (messaging/api/node_log.py).
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="log reader")
        self._must_rebalance = asyncio.Event()
        self._is_unsettled = False  # Faust has yet to be told which queues this instance may read

    # Membership

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Read *topics*; called by the conductor, again whenever they change."""
        connection = await self.transport.connect()
        self._topics = set(topics)
        deleted: frozenset[str] = frozenset() if self._member is None else self._member.deleted
        existing = [topic for topic in self._topics if topic_name(topic) not in deleted]
        counts = {topic: await self.transport.queue_count(topic) for topic in existing}
        if self._log is None:
            self._log = NodeLog(connection)
        if self.app.client_only:
            await self._read_replies(counts)
            return
        if self._member is None:
            self._member = AppMember(
                connection.sessions,
                group_name(self.app.conf.id),
                member_name(self.app.conf),
                self._log.bounds,
                start=self.app.conf.consumer_auto_offset_reset,
                on_change=self._call_soon(self._must_rebalance.set),
                on_failure=self._member_failed,
            )
        changelogs = self.app.tables.changelog_topics
        # A member needs a topic: where there are only changelogs, these divide the queue numbers.
        names = map(topic_name, self._topics - changelogs or self._topics)
        await asyncio.to_thread(self._member.subscribe, list(names))
        self._is_unsettled = True
        self._must_rebalance.set()

    def assignment(self) -> set[TP]:
        """Return the queues that Faust assigns to this instance now."""
        return set(self._assigned)

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Commit finished messages first: Faust's own forgets them before it commits."""
        if self._assigned:
            self.stop_flow()
            self.app.flow_control.suspend()
            self.pause_partitions(self._assigned)
            self.app.flow_control.clear()
            if self.app.conf.stream_wait_empty:
                await self._wait_for_handlers(self.app.conf.broker_session_timeout)
            await self.commit()
        await super().on_partitions_revoked(revoked)

    async def wait_empty(self) -> None:
        """Wait for the events that handlers have, and commit.

        Faust would wait for ever for an event that is never acknowledged.
        """
        await self._wait_for_handlers(STOP_QUIET_S)
        await self.commit_and_end_transactions()

    async def on_stop(self) -> None:
        """Commit, and leave the group."""
        await super().on_stop()
        self._assigned = set()
        if self._log is not None:
            self._log.interrupt()
        if self._member is not None:
            await asyncio.to_thread(self._member.close)
        await asyncio.to_thread(self._reading.shutdown)
        if self._log is not None:
            self._log.close()

    @Consumer.task  # type: ignore[untyped-decorator]  # the same
    async def _rebalancer(self) -> None:
        while not self.should_stop:
            if await self.wait_for_stopped(self._must_rebalance):
                return
            self._must_rebalance.clear()
            try:
                await self._rebalance()
            except ShardUnavailableError as error:
                self.log.warning("the node does not answer, trying again: %s", error)
                await self.sleep(_RETRY_S)
                self._must_rebalance.set()

    @Consumer.task  # type: ignore[untyped-decorator]  # the same
    async def _find_routes(self) -> None:
        """Refresh which instance owns which queue, for web pages that are routed by key."""
        if not self.app.conf.web_enabled:
            return
        own = {group_name(self.app.conf.id)}
        async for _ in self.itertimer(LOOK_INTERVAL_S, name="routes"):
            connection = await self.transport.connect()
            groups = await asyncio.to_thread(connection.groups.all)
            held: dict[str, list[Queue]] = {}
            for url, topic, queue in owned_queues(groups, own):
                held.setdefault(url, []).append((topic, queue))
            actives = {url: self._actives(queues) for url, queues in held.items()}
            note_distribution(self.app, actives)

    async def _rebalance(self) -> None:
        assert self._member is not None
        if not (self._is_unsettled or self._member.has_changed()):
            return
        self._is_unsettled = True  # until it is complete, also if the node does not answer
        self.app.on_rebalance_start()
        if self._assigned:
            await self.on_partitions_revoked(self.assignment())
        offsets = await asyncio.to_thread(self._member.adopt)
        await self._follow_deleted(self._member.deleted)
        self._is_unsettled = False
        actives = self._actives(offsets)
        plan = plan_assignment(self.app, actives, self.transport.known_queue_count)
        self._assigned = {TP(topic, queue) for topic, queues in plan.items() for queue in queues}
        self._position = {tp: offsets[_queue(tp)] for tp in self._assigned if _queue(tp) in offsets}
        self.app.consumer_generation_id += 1
        await self.on_partitions_assigned(self.assignment(), self.app.consumer_generation_id)

    async def _follow_deleted(self, deleted: frozenset[str]) -> None:
        """Forget what is known of deleted topics; each may come back with other queues."""
        for topic in self._topics:
            if topic_name(topic) not in deleted:
                # For its effect: a topic that came back is looked up, or created, with its present
                # queues.
                await self.transport.queue_count(topic)
            elif self.transport.known_queue_count(topic) is not None:
                self.transport.forget_topic(topic)
                if self._log is not None:
                    self._log.reopen()

    def _actives(self, held: Iterable[Queue]) -> dict[str, list[int]]:
        """Return queue numbers by Faust topic; a changelog has those of the other topics."""
        numbers: dict[str, set[int]] = {}
        for topic, number in held:
            numbers.setdefault(topic, set()).add(number)
        all_numbers = set().union(*numbers.values())
        actives = {}
        for topic in self._topics:
            if topic in self.app.tables.changelog_topics:
                count = self.transport.known_queue_count(topic) or 0
                mine = all_numbers & set(range(count))
            else:
                mine = numbers.get(topic_name(topic), set())
            if mine:
                actives[topic] = sorted(mine)
        return actives

    async def _read_replies(self, counts: Mapping[str, int]) -> None:
        """Read all queues from now on: a client has no group."""
        self._assigned = {TP(topic, number) for topic, n in counts.items() for number in range(n)}
        bounds = await self._all_bounds(self._assigned - self._position.keys())
        self._position |= {tp: end for tp, (_, end) in bounds.items()}
        await self.app.topics.on_client_only_start()

    async def _wait_for_handlers(self, quiet_s: float) -> None:
        """Wait until every event is acknowledged, or nothing was for *quiet_s*."""
        end = self.loop.time() + quiet_s
        waiting = len(self._unacked_messages)
        while waiting and self.loop.time() < end:
            await asyncio.sleep(_ACK_CHECK_S)
            self._clean_unacked_messages()
            left = len(self._unacked_messages)
            if left != waiting:
                waiting, end = left, self.loop.time() + quiet_s
        if waiting:
            self.log.warning(
                "%s not acknowledged, and redelivered: the app stops", counted(waiting, "event")
            )
            self._unacked_messages.clear()

    # Offsets

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Seek to the group's offsets, in all queues that the group reads."""
        assert self._member is not None
        found = {
            tp: self._member.committed(_queue(tp))
            for tp in self._assigned
            if not self._is_changelog_tp(tp)
        }
        self._move(found)
        return found

    async def seek_wait(self, partitions: Mapping[TP, int]) -> None:
        for tp, offset in partitions.items():
            await self.seek(tp, offset)

    async def _seek(self, partition: TP, offset: int) -> None:
        self._move({partition: offset})

    async def seek_to_beginning(self, *partitions: TP) -> None:
        """Seek to the first stored message."""
        self._move({tp: first for tp, (first, _) in (await self._all_bounds(partitions)).items()})

    async def position(self, tp: TP) -> int | None:
        """Return the offset of the next message to fetch."""
        return self._position.get(tp)

    def highwater(self, tp: TP) -> int:
        """Return the end of the queue at its last read; Faust's monitor asks at every event."""
        if tp not in self._ends:
            self._ends[tp] = self._known_end(tp)
        return self._ends[tp]

    async def highwaters(self, *partitions: TP) -> Mapping[TP, int]:
        """Return the offsets that the next messages of the queues will have."""
        return {tp: end for tp, (_, end) in (await self._all_bounds(partitions)).items()}

    async def earliest_offsets(self, *partitions: TP) -> Mapping[TP, int]:
        """Return the offsets of the first stored messages."""
        return {tp: first for tp, (first, _) in (await self._all_bounds(partitions)).items()}

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        assert self._member is not None
        self._member.commit({_queue(tp): offset for tp, offset in offsets.items()})
        return True

    def _move(self, positions: Mapping[TP, int]) -> None:
        self._position.update(positions)
        if self._log is not None:
            self._log.interrupt()

    async def _all_bounds(self, partitions: Iterable[TP]) -> dict[TP, tuple[int, int]]:
        """Return the first offset and the end of queues; those of another machine take a call."""
        assert self._log is not None
        log, wanted = self._log, [*partitions]
        return await asyncio.to_thread(lambda: {tp: log.bounds(_queue(tp)) for tp in wanted})

    def _known_end(self, tp: TP) -> int:
        assert self._log is not None
        return self._log.known_end(_queue(tp))

    # Messages

    def ack(self, message: Any) -> bool:
        """Record that *message* is finished; Faust calls this for a dropped one, too."""
        return bool(message.tracked and super().ack(message))

    def _may_hand_out(self) -> bool:
        return self._member is None or self._member.may_hand_out()

    async def _getmany(
        self,
        active_partitions: set[TP] | None,
        timeout: float,  # noqa: ASYNC109  # of Faust's interface
    ) -> Mapping[TP, list[StoredMessage]]:
        """Return the next messages of the active queues; none of those repositioned meanwhile."""
        assert self._log is not None
        if not self._may_hand_out():
            await self.sleep(_LEASE_LOOK_S)
            return {}
        active = self._assigned if active_partitions is None else active_partitions
        wanted = {tp: self._position[tp] for tp in active if tp in self._position}
        try:
            by_queue = await self.loop.run_in_executor(
                self._reading,
                self._log.read,
                {_queue(tp): position for tp, position in wanted.items()},
                self.app.conf.broker_max_poll_records or 500,  # Kafka's default of max.poll.records
                timeout,
            )
        except TopicNotFoundError:
            if self._member is None:
                raise
            await self.sleep(_RETRY_S)  # the next heartbeat says that it was deleted
            return {}
        except ShardUnavailableError as error:
            self._outages.failed("queues", "queues of another machine are not read now: %s", error)
            await self.sleep(_RETRY_S)
            return {}
        self._outages.works("queues")
        records = {}
        for tp, position in wanted.items():
            messages = by_queue.get(_queue(tp))
            if messages and self._position.get(tp) == position:
                records[tp] = messages
                self._ends[tp] = self._known_end(tp)
                self._position[tp] = messages[-1].queue_offset + 1
        return records

    def _to_message(self, tp: TP, record: StoredMessage) -> ConsumerMessage:
        key, value, headers = parts_of(record)
        return ConsumerMessage(
            tp.topic,
            tp.partition,
            record.queue_offset,
            record.born_timestamp_ms / 1000,
            0,  # of the producer's clock, as Kafka's CreateTime
            headers,
            key,
            value,
            None,
            len(key or b""),
            len(value or b""),
            tp,
            generation_id=LeasedGeneration(self.app.consumer_generation_id, self._may_hand_out),
        )

    def _new_topicpartition(self, topic: str, partition: int) -> TP:
        return TP(topic, partition)

    # Topics

    async def create_topic(self, *arguments: Any, **options: Any) -> None:
        """Create a topic unless it exists."""
        await self.app.producer.create_topic(*arguments, **options)

    def topic_partitions(self, topic: str) -> int | None:
        """Return how many queues *topic* has, as far as this app knows it."""
        count: int | None = self.transport.known_queue_count(topic)
        return count

    def key_partition(self, topic: str, key: bytes, partition: int | None = None) -> int | None:
        if partition is not None or key is None:
            return partition
        return int(self.app.producer.key_partition(topic, key).partition)

    # From the heartbeat's thread

    def _call_soon(self, function: Any) -> Any:
        loop = self.loop

        def call() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(function)

        return call

    def _member_failed(self, error: Exception) -> None:
        self._call_soon(lambda: self.add_future(self.app.crash(error)))()


def _queue(tp: TP) -> Queue:
    return topic_name(tp.topic), tp.partition


class LeasedGeneration(int):
    """The generation in which a message was fetched, equal to its number while the lease holds.

    Right before a stream of Faust delivers an event, it compares the event's generation with the
    app's, and drops the event where they differ. So a process that was stopped for longer than its
    lease drops its fetched events when it resumes.
    """

    _may_hand_out: Callable[[], bool]

    def __new__(cls, number: int, may_hand_out: Callable[[], bool]) -> Self:
        """Create a generation; *may_hand_out* is called at every comparison."""
        self = super().__new__(cls, number)
        self._may_hand_out = may_hand_out
        return self

    def __eq__(self, other: object) -> bool:
        return int(self) == other and self._may_hand_out()

    def __ne__(self, other: object) -> bool:
        return not self == other

    # A class that defines ``__eq__`` loses its hash.
    __hash__ = int.__hash__
