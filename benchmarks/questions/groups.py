"""What do more groups on one topic cost, more members of one group, and a lagging one?

Processor time and memory are sums over the filter actor and this process, where all members are.
Both are counted per process, so that they are meaningful on a busy machine too.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pyarrow as pa

from rocketray.actors.client.connection import Connection
from rocketray.base.quantity import counted
from rocketray.filters.subscription import Subscription
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.runtime.files.paths import consumer_directory
from rocketray_bench.bench_node import (
    TIMEOUT_S,
    bench_node,
    own_memory_bytes,
    processor_s,
    read_queues,
)
from rocketray_bench.ceilings import Ceilings
from rocketray_bench.orders import order_table
from rocketray_bench.report import BenchOptions, Row

_ENTRY_BYTES = 20
_RECORD_BYTES = 210
_GROUPS = (1, 10, 100)
_MEMBERS = (1, 4, 16)
_LAG = 10_000_000
_TABLE_ROWS = 1_000_000
_SHARED_ROWS = 400_000  # the capacity of the match rings of 16 queues
_ALERTS = 200
_SETTLE_S = 3.0
_MIB = 1024 * 1024


class _Use:
    """The use of the filter actor and the members from now on."""

    def __init__(self, connection: Connection) -> None:
        self._filter_pid = connection.filters.statistics().pid
        self._rings = consumer_directory(connection.data)
        self._memory = self._memory_now()
        self.begin()

    def begin(self) -> None:
        self._filter_s, self._members_s = processor_s(self._filter_pid), time.process_time()

    def processor_s(self) -> tuple[float, float]:
        """Return the processor time of the filter actor and of this process, in seconds."""
        filter_s = processor_s(self._filter_pid) - self._filter_s
        return filter_s, time.process_time() - self._members_s

    def memory_mib(self) -> float:
        """Return the memory in use beyond that at the beginning."""
        return (self._memory_now() - self._memory) / _MIB

    def _memory_now(self) -> int:
        """Return the memory of both processes, and of all match rings."""
        shared = sum(path.stat().st_blocks * 512 for path in self._rings.glob("*"))
        return shared + own_memory_bytes((self._filter_pid, os.getpid()))


def run(options: BenchOptions) -> list[Row]:
    """Measure groups that each match one message in a hundred, and members that share all.

    A quick run leaves out the largest numbers of groups and members.
    """
    groups, members = (_GROUPS[:2], _MEMBERS[:2]) if options.quick else (_GROUPS, _MEMBERS)
    ceilings = options.ceilings
    table = order_table(options.amount(_TABLE_ROWS)).select(["body", "tags"])
    with bench_node() as connection:
        connection.topics.create("Bench", 1)
        with connection.producer() as producer:
            producer.send_many("Bench", table)
            found = [row for count in groups for row in _groups(connection, count, ceilings)]
            part = table.slice(0, options.amount(_SHARED_ROWS) // max(_MEMBERS))
            for count in members:
                found += _members(connection, count, ceilings, producer, part)
            wanted = options.amount(_LAG)
            while _end(connection) < wanted:
                producer.send_many("Bench", table.slice(0, wanted - _end(connection)))
        return [*found, _lagging(connection, wanted)]


def _groups(connection: Connection, count: int, ceilings: Ceilings) -> Iterator[Row]:
    """Measure groups of one member that all read the same queue."""
    many = counted(count, "group")
    end = _end(connection)
    rare = Subscription.tags("rare")
    with ExitStack() as stack:
        use = _Use(connection)
        begun = time.perf_counter()
        groups = [f"{count}-groups-{number}" for number in range(count)]
        join = partial(connection.consumer, topic="Bench", subscription=rare)
        members = [stack.enter_context(join(group)) for group in groups]
        joined = time.perf_counter()
        read_queues({member: {0: end} for member in members})
        read = time.perf_counter()
        filter_s, members_s = use.processor_s()
        entries = end * count
        yield Row(
            f"{many}, one message in 100 each: read together",
            entries / (read - begun),
            "entries/s",
            ceilings.read(_ENTRY_BYTES),
        )
        yield Row(f"{many}: the filter's processor time", filter_s / entries * 1e9, "ns/entry", "-")
        yield Row(
            f"{many}: the members' processor time", members_s / entries * 1e9, "ns/entry", "-"
        )
        yield Row(f"{many}: joining, each", (joined - begun) / count * 1e3, "ms", "two calls")
        yield Row(f"{many}: memory, each", use.memory_mib() / count, "MiB", "a ring of 1.5 MiB")
        yield Row(
            f"{many}: a send with its ack to the handler of one, p50",
            _alert_ms(connection, members),
            "ms",
            ceilings.wake(),
        )


def _alert_ms(connection: Connection, members: list[GroupConsumer]) -> float:
    """Return the time from a send to the first member, while all others get it too."""
    waits, end = [], 0
    with connection.producer() as producer:
        for _ in range(_ALERTS):
            sent = time.perf_counter()
            end = producer.send("Bench", b"alert", tags="rare").queue_offset + 1
            read_queues({members[0]: {0: end}})
            waits.append(time.perf_counter() - sent)
    read_queues({member: {0: end} for member in members[1:]})
    return statistics.median(waits) * 1e3


def _members(
    connection: Connection, count: int, ceilings: Ceilings, producer: NodeProducer, part: pa.Table
) -> Iterator[Row]:
    """Measure a group whose members share the queues of a topic; each queue gets *part*."""
    many, topic = counted(count, "member"), f"Shared{count}"
    connection.topics.create(topic, max(_MEMBERS), queues_per_process="shared")
    with ExitStack() as stack:
        use = _Use(connection)
        everything = Subscription.tags("*")
        join = partial(connection.consumer, "shared", topic, everything)
        members = [stack.enter_context(join()) for _ in range(count)]
        _divide(members)
        memory = use.memory_mib()
        use.begin()
        ends: Counter[int] = Counter()
        for _ in range(max(_MEMBERS)):
            ends.update(producer.send_many(topic, part).queues)
        _, sending_s = use.processor_s()
        owned = {
            member: {queue_id: ends[queue_id] for _, queue_id in member.assignment()}
            for member in members
        }
        begun = time.perf_counter()
        read_queues(owned)
        read = time.perf_counter()
        filter_s, members_s = use.processor_s()
    total = sum(ends.values())
    yield Row(
        f"{many} of a group, {max(_MEMBERS)} queues: read together",
        total / (read - begun),
        "messages/s",
        ceilings.read(_RECORD_BYTES),
    )
    yield Row(f"{many}: the filter's processor time", filter_s / total * 1e9, "ns/message", "-")
    members_ns = (members_s - sending_s) / total * 1e9
    yield Row(f"{many}: the members' processor time", members_ns, "ns/message", "-")
    yield Row(f"{many}: memory, each", memory / count, "MiB", "a ring of 1.5 MiB a queue")


def _divide(members: list[GroupConsumer]) -> None:
    """Wait until each has its share of the queues."""
    deadline = time.perf_counter() + TIMEOUT_S
    part = max(_MEMBERS) // len(members)
    while any(len(member.assignment()) != part for member in members):
        for member in members:
            member.poll(0.01)
        if time.perf_counter() > deadline:
            raise TimeoutError(f"the queues are not divided after {TIMEOUT_S} s")


def _lagging(connection: Connection, lag: int) -> Row:
    """Measure the memory of a member that polled once and lags by *lag* messages."""
    use = _Use(connection)
    with connection.consumer("bench-late", "Bench", Subscription.tags("*")) as member:
        first = member.poll(1.0)
        time.sleep(_SETTLE_S)  # the filter runs ahead as far as it may
        assert first
        held = use.memory_mib()
    return Row(f"memory of a member that lags by {lag:,} messages", held, "MiB", "as above")


def _end(connection: Connection) -> int:
    return connection.shard_statistics("Bench")[0].max_queue_offset
