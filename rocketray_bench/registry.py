"""The benchmarks by name; each is imported when it is run."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from rocketray.errors import ConfigError

from .report import BenchOptions, Row

__all__ = ["BENCHMARKS", "run"]

BENCHMARKS = {
    "send": "one producer, to four queues and to one: single, unbatched, lists, Arrow tables",
    "consume": "a backlog: an agent (bytes, JSON, Records, Arrow), a plain member, with filters",
    "groups": "1, 10 and 100 groups on one topic, and the memory of a member that is far behind",
    "store": "the store alone: put, lookups by key, Arrow columns, recovery",
    "growth": "the store from 10⁵ to 10⁷ messages and 1 to 16 shards, and an idle shard's memory",
    "flush": "two ways of flushing beside a thread that is busy in Python",
    "scan": "the store alone: tag scan of the ConsumeQueue, SQL92 over records",
    "bitmaps": "filter bitmaps: the time they save in SQL92 scans, and their cost at the put",
    "idle": "processor time and memory of a node that does nothing, and of each of its queues",
    "queues": "1 to 256 queues of a topic: rate, and memory and processor time of the idle node",
    "latency": "from publishing to an agent's handler, and to a plain member, at 1000 messages a second",
}


def run(name: str, *, quick: bool = False) -> list[Row]:
    """Run one benchmark; raise :class:`ConfigError` for an unknown name."""
    if name not in BENCHMARKS:
        raise ConfigError(f"benchmark {name!r} is not one of: {', '.join(BENCHMARKS)}")
    module = import_module(f"{__package__}.{name}")
    work: Callable[[BenchOptions], list[Row]] = module.run
    return work(BenchOptions(quick=quick))
