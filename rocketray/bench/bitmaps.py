"""Do filter bitmaps pay: what do they save when groups scan, and what do they cost when one puts?

Every message is put once and scanned once by each group. Without bitmaps a group evaluates its
expression on each message. With them the expressions of all groups are evaluated when a message
is put, a group tests its bits, and evaluates its expression where they are set, because bits of
other groups can be the same. The sum of both is what it is about. All times are of the processor,
so that other work on the machine and the making of files count for little.

Bits are tested on an array in memory that holds the units one after the other. A reader has to
follow an address to each, so the figures with bitmaps are better than they can be in a node.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketray.actors.clock import system_clock_ms
from rocketray.actors.filter_stream import sql_states
from rocketray.config import StoreConfig
from rocketray.filters.consumer_filter import ConsumerFilterManager, ConsumerSubscription
from rocketray.filters.consumer_filter_data import ConsumerFilterData
from rocketray.filters.sql92 import compile_expression
from rocketray.filters.sql92.vectorized import VectorizedExpression
from rocketray.store.consume_queue_ext import unit_row
from rocketray.store.encoded_batch import EncodedBatch
from rocketray.store.encoded_table import encode_table
from rocketray.store.message_store import MessageStore
from rocketray.store.reader import QueueReader

from .ceilings import Ceilings, measure
from .report import BenchOptions, Row
from .store import TOPIC, append_all

__all__ = ["run"]

_MESSAGES = 100_000
_SINGLE_MESSAGES = 4_000
_BATCH = 1024
_RECORD_BLOCK = 1024  # a step of the filter actor where it reads records
_ENTRY_BLOCK = 16_384  # the same where it first looks at what stands beside queue entries
_GROUP_COUNTS = (1, 2, 8, 32)
_SELECTIVITIES = (1.0, 0.1, 0.01, 0.001)
_A_RANGE = 10_000  # property a is a number below it
_RECORD_BYTES = 210
_GROUP_UNIT = "messages × groups/s"
_Units = npt.NDArray[np.void]


@dataclass(frozen=True, slots=True)
class _Case:
    """So many groups, of which each matches such a share of the messages."""

    groups: int
    share: float

    def manager(self) -> ConsumerFilterManager:
        """With an expression of its own for each group."""
        manager = ConsumerFilterManager(clock_ms=lambda: 0)
        width = round(_A_RANGE * self.share)
        for group in range(self.groups):
            low = group * 37 if width < _A_RANGE else -group
            sql = f"a BETWEEN {low} AND {low + width - 1 if low >= 0 else _A_RANGE}"
            manager.register(f"group-{group}", [ConsumerSubscription(TOPIC, sql, "SQL92", 1)])
        return manager

    def __str__(self) -> str:
        return f"{self.share:.1%} match, {self.groups} groups"


def run(options: BenchOptions) -> list[Row]:
    """In one process, from warm memory, without actors."""
    ceilings = measure()
    batches = _batches(options.amount(_MESSAGES), _BATCH)
    single = _batches(options.amount(_SINGLE_MESSAGES), 1)
    with tempfile.TemporaryDirectory(prefix="rocketray-bench-") as name:
        with MessageStore(Path(name), clock_ms=system_clock_ms) as store:
            append_all(store, 0, batches)
        with QueueReader(Path(name), TOPIC, 0) as reader:
            return list(_rows(options, ceilings, reader, batches, single))


def _rows(
    options: BenchOptions,
    ceilings: Ceilings,
    reader: QueueReader,
    batches: Sequence[EncodedBatch],
    single: Sequence[EncodedBatch],
) -> Iterator[Row]:
    copy, read = ceilings.copy(_RECORD_BYTES), ceilings.read(_RECORD_BYTES)
    plain = _put_rate(options, batches, None)
    yield Row(f"put, no bitmaps, batches of {_BATCH}", plain, "messages/s", copy)
    rate = _put_rate(options, single, None)
    yield Row("put, no bitmaps, batches of 1", rate, "messages/s", copy)
    for groups in _GROUP_COUNTS:
        for share in _SELECTIVITIES:
            case = _Case(groups, share)
            manager = case.manager()
            put = _put_rate(options, batches, manager)
            yield Row(f"put, bitmaps, {case}, batches of {_BATCH}", put, "messages/s", copy)
            rate = _evaluation_rate(options, manager, batches)
            yield Row(f"evaluate all groups in one pass, {case}", rate, _GROUP_UNIT, read)
            units = np.concatenate([_units(manager, batch) for batch in batches])
            for what, stored, some in (("no bitmaps", plain, None), ("bitmaps", put, units)):
                rate = _scan_rate(options, reader, len(units), manager, some)
                yield Row(f"scan, {what}, {case}", rate, _GROUP_UNIT, read)
                spent = 1e6 / stored + 1e6 * groups / rate
                yield Row(f"put and scans, {what}, {case}", spent, "µs a message", read)
        rate = _put_rate(options, single, manager)
        yield Row(f"put, bitmaps, {case}, batches of 1", rate, "messages/s", copy)


def _batches(count: int, size: int) -> list[EncodedBatch]:
    """Messages of 100 bytes with two properties, one of which the expressions look at."""
    generator = np.random.default_rng(3)
    made = []
    for _ in range(0, count, size):
        columns = {
            "body": pa.array([bytes(100)] * size, pa.binary()),
            "a": pa.array(generator.integers(0, _A_RANGE, size).astype(str)),
            "region": pa.array(generator.choice(["eu", "us", "ap", "cn"], size)),
        }
        made.append(
            encode_table(
                TOPIC,
                pa.table(columns),
                born_host=("127.0.0.1", 1),
                born_timestamp_ms=system_clock_ms(),
                unique_ids=None,
                property_columns=("a", "region"),
            )
        )
    return made


def _put_rate(
    options: BenchOptions, batches: Sequence[EncodedBatch], manager: ConsumerFilterManager | None
) -> float:
    """Into the store: with units and bitmaps where there is a manager, else without units."""
    config = StoreConfig(consume_queue_ext=manager is not None)
    count = sum(len(batch) for batch in batches)
    rates = []
    for _ in range(options.runs):
        with (
            tempfile.TemporaryDirectory(prefix="rocketray-bench-") as name,
            MessageStore(
                Path(name), config, clock_ms=system_clock_ms, bitmap_source=manager
            ) as store,
        ):
            append_all(store, 0, [batches[0]])  # makes the first files
            rates.append(count / _processor_s(lambda: append_all(store, 0, list(batches))))
    return statistics.median(rates)


def _evaluation_rate(
    options: BenchOptions, manager: ConsumerFilterManager, batches: Sequence[EncodedBatch]
) -> float:
    """What a put does for its bitmaps; a scanner that serves all groups at once could do it too."""

    def evaluate() -> None:
        for batch in batches:
            _bitmaps(manager, batch)

    count = sum(len(batch) for batch in batches) * len(manager.filters[TOPIC])
    return count / statistics.median(_processor_s(evaluate) for _ in range(options.runs))


def _bitmaps(manager: ConsumerFilterManager, batch: EncodedBatch) -> npt.NDArray[np.uint8]:
    bitmaps = manager.bitmaps(TOPIC, batch.records, *batch.property_spans())
    assert bitmaps is not None
    return bitmaps


def _units(manager: ConsumerFilterManager, batch: EncodedBatch) -> _Units:
    bitmaps = _bitmaps(manager, batch)
    units = np.zeros(len(batch), unit_row(bitmaps.shape[1]))
    units["bitmap"] = bitmaps
    return units


def _scan_rate(
    options: BenchOptions,
    reader: QueueReader,
    count: int,
    manager: ConsumerFilterManager,
    units: _Units | None,
) -> float:
    """Each group in turn over each block, as the filter actor does it."""
    groups = [
        (
            _words(np.frombuffer(_bitmap_of(data), np.uint8)[None])[:, 0],
            VectorizedExpression(compile_expression(data.expression)),
        )
        for data in manager.filters[TOPIC].values()
    ]

    block = _RECORD_BLOCK if units is None else _ENTRY_BLOCK

    def scan() -> None:
        for first in range(0, count, block):
            part = slice(first, min(first + block, count))
            entries = reader.entries(part.start, part.stop)
            words = None if units is None else _words(units["bitmap"][part])
            for mask, expression in groups:
                if words is None:
                    sql_states(expression, reader, entries)
                else:
                    passed = _may_match(words, mask)
                    if len(passed):
                        sql_states(expression, reader, entries.select(passed))

    times = [_processor_s(scan) for _ in range(options.runs)]
    return count * len(groups) / statistics.median(times)


def _bitmap_of(data: ConsumerFilterData) -> bytes:
    """The bitmap of a message that this group alone matches."""
    bits = bytearray(data.bit_count // 8)
    for bit in data.bit_positions:
        bits[bit >> 3] |= 1 << (bit & 7)
    return bytes(bits)


def _words(bitmaps: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """Bitmaps in words of 8 bytes, uint64[words, n], filled up with zeros."""
    padded = np.zeros((len(bitmaps), -(-bitmaps.shape[1] // 8) * 8), np.uint8)
    padded[:, : bitmaps.shape[1]] = bitmaps
    return np.ascontiguousarray(padded.view(np.uint64).T)


def _may_match(words: npt.NDArray[np.uint64], mask: npt.NDArray[np.uint64]) -> npt.NDArray[np.intp]:
    """The numbers of the messages in whose bitmaps all bits of *mask* uint64[words] are set."""
    passed = (words[0] & mask[0]) == mask[0]
    for word, bits in zip(words[1:], mask[1:], strict=True):
        if bits:
            passed &= (word & bits) == bits
    return np.flatnonzero(passed)


def _processor_s(work: Callable[[], object]) -> float:
    begun = time.thread_time()
    work()
    return time.thread_time() - begun
