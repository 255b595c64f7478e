"""A node for a benchmark, with a data directory of its own that is deleted afterwards.

What processes use is as Linux counts it, which is meaningful on a busy machine too. The node's
processes are those that this one started: Ray's own, the coordinator, the filter and the shards.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa

from rocketray.actors.client.connection import Connection
from rocketray.actors.cluster.node import Node

__all__ = [
    "BODY_BYTES",
    "bench_node",
    "idle_use",
    "node_memory_bytes",
    "node_processor_s",
    "order_table",
    "own_memory_bytes",
    "processor_s",
]

BODY_BYTES = 100
_REGIONS = ("eu", "us", "ap", "cn")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PARENT, _USER_TICKS, _SYSTEM_TICKS = 1, 11, 12  # of /proc/PID/stat behind the command's name


@contextmanager
def bench_node() -> Iterator[Connection]:
    """Connect to a fresh node on this machine's disk."""
    with (
        tempfile.TemporaryDirectory(prefix="rocketray-bench-") as directory,
        Node(Path(directory) / "data") as node,
        node.connection() as connection,
    ):
        yield connection


def order_table(rows: int, *, rare_share: float = 0.01) -> pa.Table:
    """Return messages with bodies of 100 bytes: a share has tag ``rare``; a in 0…99; a region."""
    generator = np.random.default_rng(7)
    data = generator.integers(0, 256, rows * BODY_BYTES, np.uint8)
    starts = np.arange(rows + 1, dtype=np.int32) * BODY_BYTES
    body = pa.Array.from_buffers(
        pa.binary(), rows, [None, pa.py_buffer(starts), pa.py_buffer(data)]
    )
    rare = generator.random(rows) < rare_share
    regions = pa.array(_REGIONS).take(pa.array(generator.integers(0, len(_REGIONS), rows)))
    return pa.table(
        {
            "body": body,
            "tags": pa.array(np.where(rare, "rare", "common")),
            "a": pa.array(generator.integers(0, 100, rows)).cast(pa.string()),
            "region": regions,
        }
    )


def node_processor_s() -> float:
    """Return the processor seconds that the node's processes have used."""
    return sum(map(processor_s, _descendants(os.getpid())))


def node_memory_bytes() -> int:
    """Return the private memory of the node's processes."""
    return own_memory_bytes(_descendants(os.getpid()))


def idle_use(seconds: int, settle_s: float) -> tuple[float, int]:
    """Return the share of a core that an idle node uses, *settle_s* from now on, and its memory."""
    time.sleep(settle_s)
    begun, before = time.perf_counter(), node_processor_s()
    time.sleep(seconds)
    used_s = node_processor_s() - before
    return used_s / (time.perf_counter() - begun), node_memory_bytes()


def _descendants(pid: int) -> list[int]:
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
    return sum(_own_bytes(Path(f"/proc/{pid}/smaps_rollup")) for pid in pids)


def _own_bytes(rollup: Path) -> int:
    lines = rollup.read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss_Anon:"))
