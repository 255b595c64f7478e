"""What do more groups on one topic cost, and what does a member cost that is far behind?"""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from pathlib import Path

from rocketray.actors.client import Connection
from rocketray.actors.layout import consumer_directory
from rocketray.actors.remote_consumer import Member
from rocketray.filters.subscription import Subscription

from .ceilings import Ceilings, measure
from .node import bench_node, order_table
from .report import BenchOptions, Row

__all__ = ["run"]

_ENTRY_BYTES = 20
_GROUPS = (1, 10, 100)
_LAG = 10_000_000
_TABLE_ROWS = 1_000_000
_ALERTS = 200
_SETTLE_S = 3.0
_TIMEOUT_S = 300.0
_MIB = 1024 * 1024


def run(options: BenchOptions) -> list[Row]:
    """All members are in this process, one a group; each gets one message in a hundred."""
    ceilings = measure()
    rows = options.amount(_TABLE_ROWS)
    table = order_table(rows).select(["body", "tags"])
    with bench_node() as connection:
        connection.create_topic("Bench", 1)
        with connection.producer() as producer:
            producer.send_many("Bench", table)
            found = [row for count in _GROUPS for row in _groups(connection, count, ceilings)]
            wanted = options.amount(_LAG)
            while _end(connection) < wanted:
                producer.send_many("Bench", table.slice(0, wanted - _end(connection)))
        return [*found, _lagging(connection, wanted)]


def _groups(connection: Connection, count: int, ceilings: Ceilings) -> list[Row]:
    many = f"{count} group{'s' * (count > 1)}"
    end = _end(connection)
    with ExitStack() as stack:
        joining = time.perf_counter()
        members = {_member(connection): 0 for _ in range(count)}
        for member in members:
            stack.callback(member.close)
        joined = time.perf_counter()
        _read(members, end)
        read = time.perf_counter() - joined
        waits = []
        with connection.producer() as producer:
            last = dict([members.popitem()])
            for _ in range(_ALERTS):
                sent = time.perf_counter()
                end = producer.send("Bench", b"alert", tags="rare").queue_offset + 1
                _read(last, end)
                waits.append(time.perf_counter() - sent)
            _read(members or last, end)
    return [
        Row(
            f"tag filter, 1 % match, {many} together",
            end * count / read,
            "entries/s",
            ceilings.read(_ENTRY_BYTES),
        ),
        Row(f"joining, a member of {many}", (joined - joining) / count * 1000, "ms", "two calls"),
        Row(
            f"a send with its ack to a handler, {many} listening, p50",
            statistics.median(waits) * 1000,
            "ms",
            ceilings.wake(),
        ),
    ]


def _lagging(connection: Connection, lag: int) -> Row:
    """What a member holds that polled once and stands *lag* messages behind."""
    shared_before, own_before = _shared_bytes(connection), _own_bytes()
    with connection.consumer("bench-late", "Bench", Subscription.tags("*")) as member:
        deadline = time.perf_counter() + _SETTLE_S
        first = member.poll(1.0)
        while time.perf_counter() < deadline:  # the filter runs ahead as far as it may
            time.sleep(0.1)
        assert first
        held = _shared_bytes(connection) - shared_before + _own_bytes() - own_before
    return Row(f"memory of a member that lags by {lag:,}", held / _MIB, "MiB", "its match ring")


def _member(connection: Connection) -> Member:
    return connection.consumer(f"bench-{time.monotonic_ns()}", "Bench", Subscription.tags("rare"))


def _read(members: dict[Member, int], end: int) -> None:
    """Until each member is through with all entries before *end*; notes where each stands."""
    begun = time.perf_counter()
    wait_s = 0.0 if len(members) > 1 else 1.0
    while min(members.values()) < end:
        for member in members:
            for batch in member.poll(wait_s, 8192):
                for body in batch.bodies():
                    len(body)
                members[member] = batch.next_queue_offset
                member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)
        if time.perf_counter() - begun > _TIMEOUT_S:
            raise TimeoutError(f"{min(members.values())} of {end} entries after {_TIMEOUT_S} s")


def _end(connection: Connection) -> int:
    return connection.shard_statistics("Bench")[0].max_queue_offset


def _shared_bytes(connection: Connection) -> int:
    """What the match rings of all members take of shared memory."""
    paths = consumer_directory(connection.data).iterdir()
    return sum(path.stat().st_blocks * 512 for path in paths)


def _own_bytes() -> int:
    """Memory of this process alone; maps of the log are not, since they are in the page cache."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    fields = dict(line.split()[:2] for line in lines[1:])
    return int(fields["Private_Dirty:"]) * 1024
