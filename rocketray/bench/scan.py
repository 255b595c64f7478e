"""How many ConsumeQueue entries a second does the store scan by tag, and how many records by SQL92?"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from rocketray.actors.filter_stream import sql_states
from rocketray.config import StoreConfig
from rocketray.filters.message_filter import compile_filter
from rocketray.filters.subscription import Subscription
from rocketray.hashing import tags_code
from rocketray.kernels.consume_queue import match_tags
from rocketray.message import Message
from rocketray.store.message_store import MessageStore
from rocketray.store.reader import QueueReader

from .ceilings import measure
from .report import BenchOptions, Row, median_rate

__all__ = ["run"]

_ENTRY_BYTES = 20
_RECORD_BYTES = 190
_BLOCK = 16_384  # entries; a pull of the filter actor
_RECORD_BLOCK = 1_024
_SQL = "a BETWEEN 10 AND 20 AND region IN ('eu','us')"


def run(options: BenchOptions) -> list[Row]:
    """In one process, from warm memory, without actors."""
    ceilings = measure()
    with tempfile.TemporaryDirectory(prefix="rocketray-bench-") as directory:
        sql = _sql_rate(options, Path(directory))
    rows = []
    for tags in (1, 3, 10):
        rate = _tag_rate(options, tags)
        question = f"tag filter, store alone, 1 % match, {tags} tags"
        rows.append(Row(question, rate, "entries/s", ceilings.read(_ENTRY_BYTES)))
    rows.append(Row(f"SQL92 {_SQL}, store alone", sql, "messages/s", ceilings.read(_RECORD_BYTES)))
    return rows


def _tag_rate(options: BenchOptions, tag_count: int) -> float:
    """Entries with random codes, of which one in a hundred is the wanted one."""
    count = options.amount(10_000_000)
    generator = np.random.default_rng(3)
    entries = np.zeros(count, np.dtype([("offset", ">i8"), ("size", ">i4"), ("code", ">i8")]))
    wanted = [tags_code(f"tag-{number}") for number in range(tag_count)]
    hit = generator.random(count) < 0.01
    entries["code"] = np.where(hit, wanted[0], tags_code("common"))
    raw = entries.view(np.uint8)
    codes = np.array(wanted, np.int32)
    out = np.empty(_BLOCK, np.int64)

    def scan() -> None:
        for first in range(0, count, _BLOCK):
            match_tags(raw, first, min(_BLOCK, count - first), codes, out)

    return median_rate(options, count, scan)


def _sql_rate(options: BenchOptions, directory: Path) -> float:
    """As the filter actor does it: needed properties from the log, then the expression."""
    count = options.amount(200_000)
    generator = np.random.default_rng(3)
    numbers = generator.integers(0, 100, count).tolist()
    regions = generator.choice(["eu", "us", "ap", "cn"], count).tolist()
    with MessageStore(directory, StoreConfig(), clock_ms=lambda: 0) as store:
        for first in range(0, count, _RECORD_BLOCK):
            rows = zip(
                numbers[first : first + _RECORD_BLOCK],
                regions[first : first + _RECORD_BLOCK],
                strict=True,
            )
            messages = [
                Message("Bench", bytes(100), properties={"a": str(a), "region": region})
                for a, region in rows
            ]
            store.put(messages, 0)
    expression = compile_filter(Subscription.sql(_SQL)).sql
    assert expression is not None
    with QueueReader(directory, "Bench", 0) as reader:

        def scan() -> None:
            for first in range(0, count, _RECORD_BLOCK):
                entries = reader.entries(first, min(first + _RECORD_BLOCK, count))
                sql_states(expression, reader, entries)

        return median_rate(options, count, scan)
