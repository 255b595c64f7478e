"""A node for a benchmark, with a data directory of its own that is deleted afterwards.

What processes use is as Linux counts it, which is meaningful on a busy machine too. The node's
processes are those that this one started: Ray's own, the coordinator, the filter and the shards.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from rocketray.actors.client.connection import Connection
from rocketray.actors.cluster.node import Node
from rocketray.broker.topics.consumed_batch import ConsumedBatch
from rocketray.messaging.consumers.member import GroupConsumer

from .report import bench_directory

TIMEOUT_S = 300.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PARENT, _USER_TICKS, _SYSTEM_TICKS = 1, 11, 12  # of /proc/PID/stat behind the command's name


@contextmanager
def bench_node() -> Iterator[Connection]:
    """Connect to a fresh node on this machine's disk."""
    with (
        bench_directory() as directory,
        Node(directory / "data") as node,
        node.connection() as connection,
    ):
        yield connection


def touch_bodies(batch: ConsumedBatch) -> None:
    """Read each body, as a handler does."""
    for body in batch.bodies():
        len(body)


def touch_arrow(batch: ConsumedBatch) -> None:
    """Take the bodies and the offsets as Arrow columns."""
    batch.to_arrow(["body", "queueOffset"])


def read_queues(
    wanted: Mapping[GroupConsumer, Mapping[int, int]],
    handle: Callable[[ConsumedBatch], None] = touch_bodies,
) -> None:
    """Read until each member has finished its queues, up to the offsets in *wanted*."""
    deadline = time.perf_counter() + TIMEOUT_S
    left = {(member, queue_id) for member, ends in wanted.items() for queue_id in ends}
    wait_s = 0.0 if len(wanted) > 1 else 1.0
    while left:
        for member, ends in wanted.items():
            for batch in member.poll(wait_s, 8192):
                handle(batch)
                member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)
                if batch.next_queue_offset >= ends[batch.queue_id]:
                    left.discard((member, batch.queue_id))
        if time.perf_counter() > deadline:
            raise TimeoutError(f"{len(left)} queues are not read after {TIMEOUT_S} s")


def node_processor_s() -> float:
    """Return the processor seconds that the node's processes have used."""
    return sum(map(processor_s, descendants(os.getpid())))


def node_memory_bytes() -> int:
    """Return the private memory of the node's processes."""
    return own_memory_bytes(descendants(os.getpid()))


def idle_use(seconds: int, settle_s: float) -> tuple[float, int]:
    """Return the share of a core that an idle node uses, *settle_s* from now on, and its memory."""
    time.sleep(settle_s)
    begun, before = time.perf_counter(), node_processor_s()
    time.sleep(seconds)
    used_s = node_processor_s() - before
    return used_s / (time.perf_counter() - begun), node_memory_bytes()


def descendants(pid: int) -> list[int]:
    """Return the processes that *pid* started, and those that they started."""
    children: dict[int, list[int]] = {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdecimal():
            with suppress(OSError):  # it has ended meanwhile
                fields = (directory / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[_PARENT]), []).append(int(directory.name))
    found, rest = [], [pid]
    while rest:
        new = children.get(rest.pop(), [])
        found += new
        rest += new
    return found


def processor_s(pid: int) -> float:
    """Return the processor seconds since the process began, in steps of a tick of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])) / _TICKS_PER_S


def own_memory_bytes(pids: Iterable[int]) -> int:
    """Return the private memory of the processes.

    Shared memory is divided among its processes (PSS). Files are left out, in shared memory or on
    disk: the first exist once for all, the others belong to the page cache.
    """
    rollups = (Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids)
    return sum(int(text.partition("Pss_Anon:")[2].split()[0]) * 1024 for text in rollups)
