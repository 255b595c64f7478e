"""How fast does the store filter, by tag over ConsumeQueue entries and by SQL92 over records?

Tables: how many match × how many tags; how many groups share each block while it is in the cache;
from 10⁵ to 10⁷ entries. SQL92 is measured as in the filter actor, from the queue entries to the
verdicts, in blocks and in pulls of 32, where the cost of a call shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rocketray.base.config import StoreConfig
from rocketray.broker.filtering.filter_stream import sql_states
from rocketray.filters.sql92 import compile_expression
from rocketray.filters.sql92.dialect import DEFAULT_DIALECT
from rocketray.filters.sql92.vectorized import VectorizedExpression
from rocketray.hashing import tags_code
from rocketray.kernels.consume_queue import match_tags
from rocketray.store.message_store import MessageStore
from rocketray.store.reading.reader import QueueReader
from rocketray_bench.orders import TOPIC, encoded, order_table
from rocketray_bench.report import BenchOptions, Row, bench_directory

_ENTRY_BYTES = 20
_RECORD_BYTES = 210
_BLOCK = 16_384  # entries; a step of the filter actor
_RECORD_BLOCK = 1_024  # the same where it reads records
_PULL = 32
_ENTRIES = 4_000_000
_RECORDS = 200_000
_SELECTIVITIES = (1.0, 0.1, 0.01, 0.001)
_TAG_COUNTS = (1, 3, 10)
_GROUP_COUNTS = (1, 8, 32)
_GROWTH = (100_000, 1_000_000, 10_000_000)
_SQL = "a BETWEEN 10 AND 20 AND region IN ('eu','us')"
_A_RANGE = 1000  # a is a number below it


def run(options: BenchOptions) -> list[Row]:
    """Measure in one process, from warm memory, without actors."""
    with bench_directory() as directory:
        return [*_tag_rows(options), *_sql_rows(options, directory)]


def _tag_rows(options: BenchOptions) -> Iterator[Row]:
    ceiling, unit = options.ceilings.read(_ENTRY_BYTES), "entries/s"
    for share in _SELECTIVITIES:
        raw = _entries(options.amount(_ENTRIES), share)
        for tags in _TAG_COUNTS:
            rate = _tag_rate(options, raw, [_codes(tags)])
            yield Row(f"tag filter, {share:.1%} match, {tags} tags", rate, unit, ceiling)
    raw = _entries(options.amount(_ENTRIES), 0.01)
    for groups in _GROUP_COUNTS:
        rate = _tag_rate(options, raw, [_codes(1)] * groups)
        yield Row(f"tag filter, 1.0% match, entries × {groups} groups", rate, unit, ceiling)
    for count in _GROWTH:
        rate = _tag_rate(options, _entries(options.amount(count), 0.01), [_codes(1)])
        yield Row(f"tag filter, 1.0% match, {count:,} entries", rate, unit, ceiling)


def _codes(tags: int) -> npt.NDArray[np.int32]:
    return np.array([tags_code(f"tag-{number}") for number in range(tags)], np.int32)


def _entries(count: int, share: float) -> npt.NDArray[np.uint8]:
    """Return queue entries, of which about *share* have the first of the codes."""
    generator = np.random.default_rng(3)
    entries = np.zeros(count, np.dtype([("offset", ">i8"), ("size", ">i4"), ("code", ">i8")]))
    hits = generator.random(count) < share
    entries["code"] = np.where(hits, _codes(1)[0], tags_code("common"))
    return entries.view(np.uint8)


def _tag_rate(
    options: BenchOptions, raw: npt.NDArray[np.uint8], groups: Sequence[npt.NDArray[np.int32]]
) -> float:
    count = len(raw) // _ENTRY_BYTES
    out = np.empty(_BLOCK, np.int64)

    def scan() -> None:
        for first in range(0, count, _BLOCK):
            for codes in groups:
                match_tags(raw, first, min(_BLOCK, count - first), codes, out)

    return options.median_rate(count * len(groups), scan)


def _sql_rows(options: BenchOptions, directory: Path) -> Iterator[Row]:
    count = options.amount(_RECORDS)
    ceiling, unit = options.ceilings.read(_RECORD_BYTES), "messages/s"
    _fill(directory / "one", count)
    with QueueReader(directory / "one", TOPIC, 0) as reader:
        for share in _SELECTIVITIES:
            sql = f"a < {round(_A_RANGE * share)}"
            rate = _sql_rate(options, reader, count, [sql])
            yield Row(f"SQL92 {sql}, {share:.1%} match", rate, unit, ceiling)
        for groups in _GROUP_COUNTS:
            rate = _sql_rate(options, reader, count, [_SQL] * groups)
            yield Row(f"SQL92 {_SQL}, messages × {groups} groups", rate, unit, ceiling)
        rate = _sql_rate(options, reader, count, [_SQL], block=_PULL)
        yield Row(f"SQL92 {_SQL}, pulls of {_PULL}", rate, unit, ceiling)
    for grown in _GROWTH[:2]:  # ten million records are 2 GB
        amount = options.amount(grown)
        _fill(directory / str(grown), amount)
        with QueueReader(directory / str(grown), TOPIC, 0) as reader:
            rate = _sql_rate(options, reader, amount, [_SQL])
        yield Row(f"SQL92 {_SQL}, {grown:,} messages", rate, unit, ceiling)


def _fill(directory: Path, count: int) -> None:
    """Store messages of 100 bytes with two properties that an expression reads."""
    table = order_table(count, a_range=_A_RANGE).drop_columns("tags")
    with MessageStore(directory, StoreConfig(), clock_ms=lambda: 0) as store:
        for first in range(0, count, _RECORD_BLOCK):
            store.append(TOPIC, 0, encoded(table.slice(first, _RECORD_BLOCK)))


def _sql_rate(
    options: BenchOptions,
    reader: QueueReader,
    count: int,
    expressions: Sequence[str],
    block: int = _RECORD_BLOCK,
) -> float:
    """Measure as in the filter actor: needed properties from the log, then the expression."""
    groups = [VectorizedExpression(compile_expression(sql, DEFAULT_DIALECT)) for sql in expressions]

    def scan() -> None:
        for first in range(0, count, block):
            entries = reader.entries(first, min(first + block, count))
            for expression in groups:
                sql_states(expression, reader, entries)

    return options.median_rate(count * len(groups), scan)
