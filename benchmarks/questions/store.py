"""How fast is the store alone: put, read as Arrow, find by key, open, recover?

Segments are created and touched ahead of the writer, as a shard's maintenance does. Recovery is
measured at its worst: the store appears killed and has no checkpoint, so the whole log is read.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from rocketray.base.config import StoreConfig
from rocketray.runtime.clock import system_clock_ms
from rocketray.store.batches.batch_form import EncodedBatch
from rocketray.store.message_store import MessageStore
from rocketray.store.reading.columns import COLUMN_TYPES, read_columns
from rocketray.store.reading.reader import QueueReader
from rocketray_bench.orders import BODY_BYTES, TOPIC, encoded, order_table
from rocketray_bench.report import BenchOptions, Row, bench_directory

BATCH = 1024
_LOOKUPS = 2_000
_BATCHES_BETWEEN_PREPARATIONS = 16


def run(options: BenchOptions) -> list[Row]:
    """Measure in one process, without actors; a few GiB of disk for a while."""
    rows = [_put(options, size) for size in (BODY_BYTES, 1024)]
    rows.append(_sustained(options))
    with _open_store() as store:
        count = options.amount(2_000_000)
        append_all(store, list(encoded_batches(count)))
        rows.append(_lookups(options, store, count))
        rows += [
            _columns(options, store.directory, count, chosen)
            for chosen in (("body", "queueOffset"), tuple(COLUMN_TYPES))
        ]
    return [*rows, _recovery(options, with_keys=False), _recovery(options)]


@contextmanager
def _open_store() -> Iterator[MessageStore]:
    with (
        bench_directory() as directory,
        MessageStore(directory, StoreConfig(), clock_ms=system_clock_ms) as store,
    ):
        yield store


def key_of(number: int) -> str:
    """Return the unique key of message *number* of :func:`encoded_batches`."""
    return f"{number:032X}"


def encoded_batches(
    count: int, *, first: int = 0, body_bytes: int = BODY_BYTES, with_keys: bool = True
) -> Iterator[EncodedBatch]:
    """Yield batches of :data:`BATCH` messages with a tag, three properties and a unique key each.

    At least *count* messages, rounded up to a whole batch; unique keys count from *first*.
    """
    prices = pa.array((np.arange(BATCH) % 997 / 10).astype(str))
    table = order_table(BATCH, body_bytes=body_bytes).append_column("price", prices)
    for start in range(first, first + count, BATCH):
        ids = "".join(map(key_of, range(start, start + BATCH))).encode() if with_keys else None
        yield encoded(table, ids, ("a", "region", "price"))


def append_all(store: MessageStore, batches: list[EncodedBatch]) -> float:
    """Append them; return the seconds of the appends; files are created between them."""
    spent = 0.0
    for number, batch in enumerate(batches):
        if number % _BATCHES_BETWEEN_PREPARATIONS == 0:
            store.prepare_next()
        begun = time.perf_counter()
        store.append(TOPIC, 0, batch)
        spent += time.perf_counter() - begun
    return spent


def recovery_seconds(path: Path) -> float:
    """Return the seconds to open the store at *path* when all of its log has to be read."""
    (path / "abort").touch()
    (path / "checkpoint").unlink()
    begun = time.perf_counter()
    store = MessageStore(path, clock_ms=system_clock_ms)
    spent = time.perf_counter() - begun
    assert store.recovery is not None
    assert store.recovery.start_offset == store.reads.min_physical_offset
    store.close()
    return spent


def _put(options: BenchOptions, body_bytes: int) -> Row:
    amount = options.amount(1_000_000 if body_bytes < 1000 else 200_000)
    batches = list(encoded_batches(amount, body_bytes=body_bytes))
    count = len(batches) * BATCH
    rates = []
    for _ in range(options.runs):
        with _open_store() as store:
            rates.append(count / append_all(store, batches))
    return Row(
        f"put, in process, readable on return, bodies of {body_bytes} B, batches of {BATCH}",
        statistics.median(rates),
        "messages/s",
        options.ceilings.copy(sum(batch.records.nbytes for batch in batches) / count),
    )


def _sustained(options: BenchOptions) -> Row:
    """Write 4 GiB, files and their first touch included, with a flush of the log every 64 MiB."""
    batches = list(encoded_batches(64 * BATCH))
    size = sum(batch.records.nbytes for batch in batches)
    rounds = max(options.amount(4 << 30) // size, 1)
    with _open_store() as store:
        spent = sum(append_all(store, batches) for _ in range(rounds))
    count = rounds * len(batches) * BATCH
    return Row(
        f"put, the same over {rounds * size / 2**30:.1f} GiB in one go, bodies of 100 B",
        count / spent,
        "messages/s",
        options.ceilings.copy(size / len(batches) / BATCH),
    )


def _lookups(options: BenchOptions, store: MessageStore, count: int) -> Row:
    generator = np.random.default_rng(5)
    keys = [key_of(number) for number in generator.integers(0, count, _LOOKUPS).tolist()]

    def work() -> None:
        for key in keys:
            assert len(store.reads.query(TOPIC, key, 1)) == 1

    rate = options.median_rate(_LOOKUPS, work)
    return Row(f"query by key, found, among {count:,} messages", 1e6 / rate, "µs", "one page read")


def _columns(options: BenchOptions, path: Path, count: int, chosen: tuple[str, ...]) -> Row:
    with QueueReader(path, TOPIC, 0) as reader:

        def work() -> None:
            for first in range(0, count, 16_384):
                read_columns(reader, reader.entries(first, min(first + 16_384, count)), chosen)

        rate = options.median_rate(count, work)
    named = "all columns" if len(chosen) == len(COLUMN_TYPES) else " and ".join(chosen)
    return Row(f"Arrow batches of 16384: {named}", rate, "messages/s", options.ceilings.copy(280))


def _recovery(options: BenchOptions, *, with_keys: bool = True) -> Row:
    batches = list(encoded_batches(64 * BATCH, with_keys=with_keys))
    size = sum(batch.records.nbytes for batch in batches)
    rounds = max(options.amount(1 << 30) // size, 1)
    with bench_directory() as path:
        with MessageStore(path, StoreConfig(), clock_ms=system_clock_ms) as store:
            for _ in range(rounds):
                append_all(store, batches)
        times = [recovery_seconds(path) for _ in range(options.runs)]
    keyed = "a key each" if with_keys else "no keys"
    count = rounds * len(batches) * BATCH
    return Row(
        f"recover {rounds * size / 2**30:.2f} GiB, {count:,} records, {keyed}",
        statistics.median(times),
        "s",
        options.ceilings.read(size / len(batches) / BATCH),
    )
