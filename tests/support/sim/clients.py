"""The clients of a simulated node: members of groups with handlers, and readers with positions."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any, cast

from rocketray.broker.fetching.range_reader import BlockFilter
from rocketray.broker.retries.retry_records import dead_letter_topic, retry_topic, sent_back
from rocketray.errors import StreamError
from rocketray.filters.subscription import EVERYTHING
from rocketray.message import Message, StoredMessage
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.runtime.files.paths import control_path, shard_directory
from rocketray.runtime.ipc.control_page_reader import ControlView
from rocketray.store.reading.reader import QueueReader
from rocketray.topology.delivery.returns import Return, Returns

from .history import Filter, Group, History, WrongError
from .parts import SimNode
from .tables import CHANGELOG, Copy, Table


class AppConnection:
    """What an app's returns need of a connection."""

    def __init__(self, node: SimNode) -> None:
        self.topics = node.topics
        self._node = node

    def producer(self, **options: Any) -> NodeProducer:
        """Return a new producer."""
        return NodeProducer(self._node, clock_ms=self._node.machine.clock, **options)


def _nothing() -> None:
    """Nobody waits for a message that was sent back."""


class Reader:
    """A member of a group, and a handler that finishes messages in their order, some later."""

    def __init__(
        self,
        node: SimNode,
        history: History,
        group: Group,
        topic: str,
        name: str,
        *,
        copies: dict[int, Copy] | None = None,
    ) -> None:
        """Join as *name*; one with *copies* has a table."""
        self.group = group
        self.topic = topic
        self.name = name
        self.part = f"member:{name}"
        self.is_silent = False
        """Whether its heartbeats do not arrive."""
        self.will_stop = self.is_stopped = False
        """Whether its process stops, or did, before it stores changes that it is about to store."""
        self._node = node
        self._say = node.say
        self._connection: Any = AppConnection(node)
        self._returns = Returns(cast("Any", None), cast("Any", None))
        self._history = history
        self._pending: deque[tuple[int, list[StoredMessage], int]] = deque()
        self._finished: dict[int, int] = {}
        """Where queues continue whose finished batches are not committed yet."""
        self._last: dict[int, int] = {}
        self._table: Table | None = None
        if copies is not None:
            self._table = Table(node, copies, self._store_change, self._give_up)
        self.member = GroupConsumer(
            node,
            group.name,
            topic,
            group.filter.subscription if topic == group.topic else EVERYTHING,
            has_heart=False,
            clock_ms=node.machine.steady_ms,
            client_id=name,
            broadcast=group.is_broadcast,
        )
        self.member.on_revoke = self._revoke

    def poll(self, count: int) -> None:
        """Take what waits."""
        for batch in self.member.poll(0.0, count):
            messages = batch.messages()
            for one in messages:
                last = self._last.get(batch.queue_id, -1)
                if one.queue_offset <= last:
                    raise WrongError(
                        f"{self.name} got {one.topic}/{one.queue_id} offset {one.queue_offset} "
                        f"after {last}"
                    )
                self._last[batch.queue_id] = one.queue_offset
                self._history.delivered(self.group, one)
            self._pending.append((batch.queue_id, messages, batch.next_queue_offset))

    def finish(self) -> None:
        """Finish the oldest batch, and commit it as soon as the lease runs."""
        if self._pending:
            self._finish_oldest()
        if self.member.is_leased:
            for queue_id, next_offset in self._finished.items():
                self.member.commit(self.topic, queue_id, next_offset)
            self._finished.clear()

    def _finish_oldest(self) -> None:
        queue_id, messages, next_offset = self._pending[0]
        if self._table is not None:
            content = self._table.hold(queue_id, self.member.ownership.epoch(queue_id))
            if content is None:
                return
            if self.member.is_leased:  # else another instance may have gone further
                self._history.check_table(self.group, queue_id, content)
        while messages:
            if not self._handle(queue_id, messages[0]):
                return
            messages.pop(0)
        if self._table is not None:
            if not self.member.is_leased:
                return  # another instance may own the part by now
            self._table.take()
            self.is_stopped, self.will_stop = self.will_stop, False
            if self.is_stopped:
                return
            self._table.store()
        if self._pending and self._pending[0][0] == queue_id:  # else it was given up
            self._pending.popleft()
            self._finished[queue_id] = next_offset

    def stop(self) -> None:
        """Stop the process before it stores changes, as soon as it has some to store."""
        self.will_stop = self._table is not None and not self.is_stopped

    def go_on(self) -> None:
        """Let the stopped process go on with what it was about to do."""
        was_stopped, self.is_stopped = self.is_stopped, False
        if was_stopped and self._table is not None:
            self._table.store()

    def held(self) -> set[tuple[str, int]]:
        """Return the queues that it may deliver from now."""
        is_one = self.member.is_leased and not self.group.is_broadcast
        return set(self.member.assignment()) if is_one else set()

    def _handle(self, queue_id: int, one: StoredMessage) -> bool:
        """Finish a message, or send it back; False if that is not possible now."""
        sent = self._history.known(one)
        if one.reconsume_times < self.group.failures(sent):
            try:
                self._send_back(one)
            except (StreamError, OSError) as error:
                self._say(f"{self.name} cannot send {sent.number} back: {error}")
                return False
        else:
            self.group.succeeded.add(sent.number)
            if self._table is not None:
                self._table.add(queue_id, sent)
        self.group.done.add(sent.number)
        self._history.progress += 1
        return True

    def _send_back(self, one: StoredMessage) -> None:
        group = self.group.name
        back = sent_back(one, group, self.group.attempts, dead_letter_topic(group))
        topics = (
            (back.message.topic,)
            if back.is_dead_letter
            else (retry_topic(group), back.message.topic)
        )
        self._returns._store_in_thread(
            self._connection,
            [Return(back, (one.topic, one.queue_id), topics, _nothing, lambda: True)],
        )

    def _store_change(self, change: Message, queue_id: int, epoch: int) -> int:
        with self._connection.producer(ack="disk") as producer:
            sent = producer.begin_many(CHANGELOG, [change], queue_id=queue_id, owner_epoch=epoch)
            offset = sent.result()[0].queue_offset
        assert isinstance(offset, int)
        return offset

    def _give_up(self, queue_id: int, newest_epoch: int) -> None:
        self.member.ownership.give_up(queue_id, newest_epoch)
        self._pending = deque(one for one in self._pending if one[0] != queue_id)
        self._finished.pop(queue_id, None)

    def _revoke(self, queues: frozenset[tuple[str, int]]) -> None:
        lost = {queue_id for _, queue_id in queues}
        if self._table is not None:
            self._table.release(lost, is_leased=self.member.is_leased)
        self._pending = deque(one for one in self._pending if one[0] not in lost)
        for queue_id in lost:
            self._last.pop(queue_id, None)
            self._finished.pop(queue_id, None)


class PositionReader:
    """A reader that keeps its own positions, as a Spark query does: they are never lost."""

    def __init__(self, data: Path, history: History, topic: str, chosen: Filter) -> None:
        self.data = data
        self.topic = topic
        self.read: set[int] = set()
        """The numbers of the messages it got."""
        self.filter = chosen
        self._history = history
        self._positions: dict[int, int] = {}

    def step(self, queue_id: int) -> None:
        """Read what a queue has behind the position, and keep the new one."""
        control = ControlView(control_path(self.data, self.topic, queue_id))
        start = max(self._positions.get(queue_id, 0), control.minimum())
        stop = control.visible()
        if start > stop:
            raise WrongError(f"a query has read {self.topic}/{queue_id} to {start}, beyond {stop}")
        if stop == start:
            return
        directory = shard_directory(self.data, self.topic, queue_id)
        reader = QueueReader(directory, self.topic, queue_id)
        try:
            for part in reader.gaps.outside(start, stop):
                self._read(reader, *part)
        finally:
            reader.close()
        self._positions[queue_id] = stop

    def _read(self, reader: QueueReader, start: int, stop: int) -> None:
        entries = BlockFilter(self.filter.subscription).select(reader, start, stop)
        reader.map_records(entries)
        for one in reader.messages(entries):
            sent = self._history.known(one)
            if not self.filter.matches(sent):
                raise WrongError(f"a query got {sent.number}, against its filter")
            self.read.add(sent.number)

    def check_end(self) -> None:
        """Check that it got everything that is there."""
        for (topic, queue_id), messages in self._history.there.items():
            for offset, number in messages.items():
                is_due = topic == self.topic and self.filter.matches(self._history.sent[number])
                if is_due and number not in self.read:
                    raise WrongError(
                        f"a query never got message {number} at {topic}/{queue_id} {offset}"
                    )
