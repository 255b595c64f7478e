"""Faust's manager of tables, for parts that are gained and lost queue by queue.

Faust stops all agents while it recovers. Here a feed that gains a queue number holds its messages
until the parts of that number are recovered, and everything else continues. Faust's recovery
service keeps its other task: it starts the fetcher, and so the agents.

Order; each step is complete before the next begins
  1. A queue is gained: the changelogs refuse what former owners change, then the tables' parts are
     read from them, then the queue's messages come.
  2. Offsets are committed: every change made before is stored, then the offsets.
  3. A queue is lost: handlers finish, changes and offsets as above, then the parts are dropped.

A changelog that refuses a change, because its queue has a newer owner, *fences* the part: nothing
more of it is changed or committed, its holders give the queue up, and it is dropped. That happens
to a process that was stopped for longer than its lease, between its last look at the lease and the
store. What its handlers had finished is processed again by the present owner.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from faust.assignor.client_assignment import ClientAssignment
from faust.exceptions import PartitionsMismatch
from faust.tables.manager import TableManager
from faust.tables.recovery import Recovery
from faust.types.tuples import TP
from mode import Service

from rocketray.base.quantity import counted
from rocketray.errors import ConfigError
from rocketray.message import Message
from rocketray.messaging.api.queue_owners import fence_queue
from rocketray.messaging.api.tails import tail_of
from rocketray.runtime.clock import system_clock_ms
from rocketray.store.retention import RetentionPolicy
from rocketray.topology.tables.changelog import ChangelogBuffer
from rocketray.topology.tables.part_reader import PartReader

from .queue_holders import PartHolder, QueueHolders

logger = logging.getLogger(__name__)

FOLLOW_INTERVAL_S = 0.2  # how old a copy of a global table may be
LAST_OF_EACH_KEY = RetentionPolicy(compacts=True)


class PromptRecovery(Recovery):  # type: ignore[misc]  # Faust's types are not followed
    """Faust's recovery, without its reading of changelogs: a part is read with its queue."""

    @Service.task  # type: ignore[untyped-decorator]  # mode's
    async def _restart_recovery(self) -> None:
        while not await self.wait_for_stopped(self.signal_recovery_start):
            self.signal_recovery_start.clear()
            await self._resume_streams(generation_id=self._generation_id)

    @Service.task  # type: ignore[untyped-decorator]  # mode's
    async def _slurp_changelogs(self) -> None:
        """Do nothing: no changes come through Faust's queue."""


class FeedTableManager(TableManager):  # type: ignore[misc]  # Faust's types are not followed
    """The tables of one app."""

    _recovery: PromptRecovery | None = None

    def __init__(self, app: Any, **options: Any) -> None:
        super().__init__(app, **options)
        self.changes = ChangelogBuffer()
        self._ownership = QueueHolders()
        self._epochs: dict[int, int] = {}  # of the parts here, and of those that were here before
        self._fenced: set[int] = set()  # held, and owned by another instance
        self._recovered: set[int] = set()
        self._reading: set[int] = set()  # being recovered, and held since that began
        self._readers: dict[tuple[str, int], PartReader] = {}
        # The two locks are never held together. ``lose`` takes neither: a lost queue must be
        # released at once, and a recovery may read for minutes.
        self._recovering = asyncio.Lock()
        self._flushing = asyncio.Lock()

    @property
    def recovery(self) -> PromptRecovery:
        """The service that starts the fetcher when the app's flow begins."""
        if self._recovery is None:
            self._recovery = PromptRecovery(self.app, self, beacon=self.beacon, loop=self.loop)
        return self._recovery

    async def on_start(self) -> None:
        """Start the tables, without Faust's pause of 1 s."""
        await self._update_channels()
        await self.recovery.start()

    async def _update_channels(self) -> None:
        """Start the tables; their changelogs are no channels of the app's."""
        # Faust's marks: from here on no table may be added; the conductor waits for the second one.
        self._tables_finalized.set()
        for table in self.values():
            await table.maybe_start()
        self._tables_registered.set()

    def add(self, table: Any) -> Any:
        """Manage *table*; raise :class:`ConfigError` when agents divide queues otherwise."""
        added = super().add(table)
        for agent in self.app.agents.values():
            if agent.membership is not None:
                self.check_agent(agent.name, agent.membership.strategy, agent.channel)
        return added

    def check_agent(self, agent: str, strategy: str, channel: Any) -> None:
        """Raise ``ConfigError`` when the app has tables and the agent might own other queues."""
        if not self:
            return
        if getattr(channel, "pattern", None) is not None:
            raise ConfigError(
                f"agent {agent}: an app with tables cannot use topics by pattern, because they "
                "need as many queues as its changelogs; name them: app.topic('a', 'b')"
            )
        if strategy != "averagely":
            raise ConfigError(
                f"agent {agent}: an app with tables cannot use strategy {strategy!r}: all agents "
                "of an instance own the same queue numbers, because each part of a table belongs "
                "to one; leave strategy= out, or move the tables to a separate app"
            )

    def now_s(self) -> float:
        """Return the clock of windows, in seconds since 1970."""
        return system_clock_ms() / 1000

    # Queues

    def owned_queues(self) -> list[int]:
        """Return the queue numbers whose parts are here, and are this instance's to change."""
        return [one for one in self._ownership.owned() if one in self._recovered - self._fenced]

    async def gain(self, holder: PartHolder, queue_ids: Iterable[int]) -> None:
        """Recover the parts of these queues, so that *holder* may read them on return.

        If it raises, the holder has none of them, and may ask again. A fenced part that others have
        not released yet is read again.
        """
        gained = set(queue_ids)
        self._ownership.hold(holder, gained)
        if not self:
            return
        try:
            async with self._recovering:
                again = gained & self._fenced & self._recovered
                self._recovered -= again
                await self._drop(again, are_whole=False, are_stale=True)
                new = set(self._ownership.owned()) - self._recovered
                if new:
                    await self._recover(new)
        except BaseException:
            await self.lose(holder, gained)
            raise

    async def lose(self, holder: PartHolder, queue_ids: Iterable[int]) -> None:
        """Release these queues, which *holder* no longer reads.

        Its lease runs if their changes are stored, or still can be. If it has lapsed, another
        instance may have changed the parts since: changes that are not stored are dropped, and
        what is here of the parts, in global tables and on disk, is read again.
        A part being recovered is dropped by its recovery: another instance may change it from now
        on, even if the queue is gained again before the recovery ends.
        """
        released = self._ownership.release(holder, queue_ids)
        stale = released & self._fenced if holder.is_leased else released
        self._fenced -= released
        self.changes.forget_queues(stale)
        lost = released & self._recovered
        self._recovered -= lost
        self._reading -= released
        await self._drop(lost - stale, are_whole=True)
        await self._drop(lost & stale, are_whole=False, are_stale=True)

    async def _drop(self, queue_ids: set[int], *, are_whole: bool, are_stale: bool = False) -> None:
        """Drop the parts of queues; those that *are_whole* are at their changelogs' ends.

        Those that *are_stale* differ from them, or may: they were changed elsewhere, or have
        changes that no changelog has.
        """
        if not queue_ids:
            return
        for table in self.values():
            for queue_id in queue_ids:
                reader = self._readers.get((table.name, queue_id))
                if reader is None:
                    continue
                if are_stale:
                    reader.forget_part()
                if not table.is_global:
                    del self._readers[table.name, queue_id]
                    reader.close()
                    table.forget_queue(queue_id)
                elif are_whole:
                    await reader.skip_to_end()
        await self._tell_assignment(self._recovered | self._reading, queue_ids)

    async def _recover(self, queue_ids: set[int]) -> None:
        """Read the parts of *queue_ids*; those lost meanwhile are dropped at the end."""
        self._reading = set(queue_ids)
        self._fenced -= queue_ids
        self._epochs |= {queue_id: self._ownership.epoch(queue_id) for queue_id in queue_ids}
        try:
            await self._tell_assignment(self._recovered | self._reading, set())
            for table in self.values():
                await self._recover_table(table, queue_ids)
            self._recovered |= self._reading
        finally:
            self._reading = set()
            gone = queue_ids - self._recovered
            if gone:
                await self._drop(gone, are_whole=False)

    async def _recover_table(self, table: Any, queue_ids: set[int]) -> None:
        await self._find_changelog(table)
        await self._fence(table, queue_ids)
        others = set(range(table.changelog_queues or 0)) if table.is_global else set()
        others -= self._recovered  # these are newer here than in their changelogs
        count = 0
        for queue_id in sorted(queue_ids | others):
            if queue_id in self._reading or queue_id in others:
                count += await self._recover_part(table, queue_id)
        if count:
            logger.info(
                "table %s: %s read from its changelog", table.name, counted(count, "change")
            )
        owned = self._recovered | self._reading
        tps = {TP(table.changelog_topic_name, queue_id) for queue_id in owned}
        await table.on_recovery_completed(tps, set())

    async def _fence(self, table: Any, queue_ids: set[int]) -> None:
        """Have the changelog refuse what former owners of these queues change from now on.

        Where it has a newer owner, the part is fenced instead. A changelog that does not exist yet
        refuses them from the first change of a newer owner on.
        """
        owned = [(queue_id, self._epochs[queue_id]) for queue_id in queue_ids & self._reading]
        owned = [(queue_id, epoch) for queue_id, epoch in owned if epoch]
        if table.use_partitioner or not owned:  # any instance changes any part
            return
        connection = await self.app.connect()
        topics = await asyncio.to_thread(connection.topics.all)
        changelog = topics.get(table.changelog_topic_name)
        if changelog is None:
            return
        # A queue that the changelog lacks has no former owner's changes.
        owned = [part for part in owned if part[0] < changelog.queues]
        newest = await asyncio.gather(
            *(asyncio.to_thread(fence_queue, connection, changelog, *part) for part in owned)
        )
        for (queue_id, epoch), newer in zip(owned, newest, strict=True):
            if newer > epoch:
                self._note_fenced(queue_id, newer)

    def _note_fenced(self, queue_id: int, newest_epoch: int = 0) -> None:
        """Stop changing the parts of a queue that has another owner, and have it released."""
        if queue_id not in self._fenced:
            logger.warning(
                "tables of app %s: queue %d has another owner by now; its part is dropped, and "
                "what was processed without being stored is redelivered to the owner",
                self.app.conf.id,
                queue_id,
            )
        self._fenced.add(queue_id)
        self._reading.discard(queue_id)
        self.changes.forget_queues({queue_id})
        for holder in self._ownership.holders(queue_id):
            holder.give_up(queue_id, newest_epoch)

    async def _recover_part(self, table: Any, queue_id: int) -> int:
        known = self._readers.get((table.name, queue_id))
        if known is not None:  # of a global table: its changelog was followed until now
            return await known.catch_up()
        connection = await self.app.connect()
        topic = table.changelog_topic_name
        tail = await asyncio.to_thread(tail_of, connection, topic, queue_id)
        reader = self._readers[table.name, queue_id] = PartReader(
            f"table {table.name} queue {queue_id}",
            tail,
            apply=table.apply,
            drop=lambda: table.drop_part(queue_id),
        )
        return await reader.recover(table.persisted_offset(TP(topic, queue_id)))

    async def _find_changelog(self, table: Any) -> None:
        """Read how many queues the table's changelog has; without one, use the table's number."""
        if table.changelog_queues is None:
            connection = await self.app.connect()
            topics = await asyncio.to_thread(connection.topics.all)
            found = topics.get(table.changelog_topic_name)
            if table.changelog_queues is None:  # else a first change has decided meanwhile
                table.changelog_queues = table.partitions if found is None else found.queues

    def settle_queues(self, table: Any, source: str) -> None:
        """Give the table's changelog as many queues as topic *source*, whose messages change it.

        Raises:
            PartitionsMismatch: the changelog has another number.
        """
        count = self.app.declarations.queue_count(source)
        if count is None or count == table.changelog_queues:
            return
        if table.changelog_queues is not None:
            held = counted(table.changelog_queues, "queue")
            raise PartitionsMismatch(
                f"table {table.name} has {held} and topic {source} has {count}: a part of a table "
                f"belongs to one queue number; send the messages through a topic of {held} "
                "(group_by), or give the table another name"
            )
        table.changelog_queues = count

    async def _tell_assignment(self, owned: set[int], lost: set[int]) -> None:
        """Update Faust's assignor, which stores and web views ask, and the stores themselves."""
        actives = {table.changelog_topic_name: sorted(owned) for table in self.values()}
        self.app.assignor._assignment = ClientAssignment(  # noqa: SLF001  # contract-tested
            actives=actives, standbys={}
        )
        for table in self.values():
            topic = table.changelog_topic_name
            assigned = {TP(topic, queue_id) for queue_id in owned}
            revoked = {TP(topic, queue_id) for queue_id in lost}
            await table.on_rebalance(assigned, revoked, assigned, self.app.consumer_generation_id)

    # Changes

    def may_change(self) -> bool:
        """Return whether no other instance can own parts of tables that are held here."""
        return not self or all(one.is_leased for one in self._ownership.holders())

    def note_change(self, table: Any, queue_id: int, key: bytes, value: bytes | None) -> None:
        """Record a change of *table*, for its changelog; raises as :meth:`ChangelogBuffer.put`.

        One of a part that is fenced is dropped: another instance processes its message.
        """
        if table.use_partitioner:  # no instance owns the part
            self.changes.put(table.changelog_topic, queue_id, key, value)
        elif queue_id not in self._fenced:
            epoch = self._epochs.get(queue_id, 0)
            self.changes.put(table.changelog_topic, queue_id, key, value, epoch=epoch)

    async def flush(self) -> bool:
        """Send every change made until now to the app's outbox; return whether they were sent.

        They wait while another instance may own the parts, whose changes are later ones.
        """
        async with self._flushing:
            if not self.may_change():
                return False
            await self.changes.flush(self._send)
            return True

    async def _send(self, message: Message, queue_id: int, epoch: int) -> None:
        table = self._changelogs[message.topic]
        await self.app.declarations.declare(
            message.topic, table.changelog_queues, LAST_OF_EACH_KEY, internal=True
        )
        outbox = await self.app.outbox_of_changes()
        outbox.on_fenced = self._refused
        stored = await outbox.put(message, queue_id, owner_epoch=epoch)
        if table.keeps_offsets:
            stored.add_done_callback(table.note_stored)

    def _refused(self, queue_id: int, epoch: int) -> None:
        """Fence a part whose changes were refused; before a flush that waits for them returns."""
        if self._epochs.get(queue_id) == epoch:  # else they are of an earlier grant
            self._note_fenced(queue_id)

    @Service.task  # type: ignore[untyped-decorator]  # mode's
    async def _follow_global_tables(self) -> None:
        """Apply the changes of other instances to global tables, periodically."""
        if not any(table.is_global for table in self.values()):
            return
        async for _ in self.itertimer(FOLLOW_INTERVAL_S, name="global tables"):
            await self.follow_global_tables()

    async def follow_global_tables(self) -> None:
        """Apply the changes that others made until now."""
        async with self._recovering:
            for table in self.values():
                if table.is_global:
                    await self._find_changelog(table)
                    for queue_id in range(table.changelog_queues or 0):
                        if queue_id not in self._recovered:
                            await self._recover_part(table, queue_id)
