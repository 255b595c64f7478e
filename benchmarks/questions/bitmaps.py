"""Do filter bitmaps pay: what do they save when groups scan, and what do they cost a shard?

Every message goes through a producer's ring into a shard and is scanned once by each group, as in a
node, but in one process.

- Without bitmaps a group evaluates its expression on each message.
- With bitmaps the expressions of all groups are evaluated when a message is stored. A group tests
  its bits, and evaluates its expression where they are set, because bits of other groups can be the
  same.

The sum of both costs decides. All times are of the processor, so that other work on the machine and
the creation of files count for little.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rocketray.base.ack_mode import Durability
from rocketray.base.config import StoreConfig
from rocketray.broker.filtering.filter_stream import RECORDS_MAX, SCAN_MAX, scan_block
from rocketray.broker.filtering.shard_bitmaps import StreamBits
from rocketray.broker.shards.shard_writer import ShardWriter
from rocketray.filters.message_filter import MessageFilter
from rocketray.filters.subscription import Subscription
from rocketray.groups.group_descriptions import LiveSubscription
from rocketray.runtime.ipc.ring import ProducerRing
from rocketray.runtime.processes import owned_name
from rocketray.store.batches.encoded_batch import pack_batch
from rocketray.store.queues.ext_reader import BitTest
from rocketray.store.reading.reader import QueueReader
from rocketray_bench.orders import TOPIC, encoded, order_table
from rocketray_bench.report import BenchOptions, Row, bench_directory

_MESSAGES = 100_000
_SINGLE_MESSAGES = 4_000
_BATCH = 1024
_GROUP_COUNTS = (1, 2, 8, 32)
_SELECTIVITIES = (1.0, 0.1, 0.01, 0.001)
_A_RANGE = 10_000  # property a is a number below it
_RECORD_BYTES = 220
_GROUP_UNIT = "messages × groups/s"
_TAGS = Subscription.tags("rare")


def _subscriptions(groups: int, share: float) -> list[LiveSubscription]:
    """Return an expression of its own for each group, which matches a share of the messages."""
    width = round(_A_RANGE * share)
    made = []
    for group in range(groups):
        low = group * 37 if width < _A_RANGE else -group
        sql = f"a BETWEEN {low} AND {low + width - 1 if low >= 0 else _A_RANGE}"
        made.append(LiveSubscription(f"group-{group}", TOPIC, Subscription.sql(sql), 1))
    return made


class _Shard:
    """A shard with a producer's ring, drained by hand."""

    def __init__(self, directory: Path, wanted: Sequence[LiveSubscription] | None) -> None:
        """Open a shard with bitmaps of *wanted*, none for None."""
        self._now_ms = 0
        self._directory = directory / "shard"
        self._writer = ShardWriter(
            self._directory, TOPIC, 0, StoreConfig(), clock_ms=lambda: self._now_ms
        )
        self._ring = ProducerRing(directory / owned_name("bench"))
        self._writer.rings.attach_ring(self._ring.path)
        self._writer.keep_bitmaps(wanted)
        self._now_ms = 1  # all messages are younger than the filters

    def store(self, batches: Sequence[bytes]) -> float:
        """Store packed batches; return the seconds of the shard's processor."""
        spent = 0.0
        waiting = list(reversed(batches))
        while waiting:
            while waiting and self._ring.try_write(waiting[-1], Durability.MEMORY) is not None:
                waiting.pop()
            self._ring.publish()
            self._writer.prepare_next()
            spent += _processor_s(self._writer.rings.drain)
        return spent

    def scan(self, wanted: Sequence[LiveSubscription]) -> float:
        """Scan all for each of *wanted* in turn; return the seconds of the filter's processor."""
        control = self._writer.control
        filters = [
            (MessageFilter(one.subscription), StreamBits(self._directory, control, one).test())
            for one in wanted
        ]
        with QueueReader(self._directory, TOPIC, 0) as reader:
            reader.map_records(reader.entries(0, control.visible()))
            return sum(
                _processor_s(lambda: _scan(reader, control.visible(), one, test))  # noqa: B023 - called here
                for one, test in filters
            )

    def close(self) -> None:
        self._ring.close()
        self._writer.close()


def run(options: BenchOptions) -> list[Row]:
    """Measure in one process, from warm memory, without actors."""
    batches = _batches(options.amount(_MESSAGES), _BATCH)
    single = _batches(options.amount(_SINGLE_MESSAGES), 1)
    return list(_rows(options, batches, single))


def _rows(
    options: BenchOptions, batches: Sequence[bytes], single: Sequence[bytes]
) -> Iterator[Row]:
    copy, read = options.ceilings.copy(_RECORD_BYTES), options.ceilings.read(_RECORD_BYTES)
    count = len(batches) * _BATCH
    plain = _store_rate(options, batches, count, None)
    yield Row(f"store, no bitmaps, batches of {_BATCH}", plain, "messages/s", copy)
    rate = _store_rate(options, single, len(single), None)
    yield Row("store, no bitmaps, batches of 1", rate, "messages/s", copy)
    tagged = [LiveSubscription("tagged", TOPIC, _TAGS, 1)]
    with _filled(batches, None) as without:
        rate = _scan_rate(options, without, tagged, count)
        yield Row("scan by tag, no bitmaps", rate, "messages/s", read)
        for groups in _GROUP_COUNTS:
            for share in _SELECTIVITIES:
                case, wanted = f"{share:.1%} match, {groups} groups", _subscriptions(groups, share)
                stored = _store_rate(options, batches, count, wanted)
                yield Row(
                    f"store, bitmaps, {case}, batches of {_BATCH}", stored, "messages/s", copy
                )
                with _filled(batches, wanted) as with_bitmaps:
                    for what, put, shard in (
                        ("no bitmaps", plain, without),
                        ("bitmaps", stored, with_bitmaps),
                    ):
                        rate = _scan_rate(options, shard, wanted, count)
                        yield Row(f"scan, {what}, {case}", rate, _GROUP_UNIT, read)
                        spent = 1e6 / put + 1e6 * groups / rate
                        yield Row(f"store and scans, {what}, {case}", spent, "µs a message", read)
                    tag_rate = _scan_rate(options, with_bitmaps, tagged, count)
            rate = _store_rate(options, single, len(single), wanted)
            yield Row(f"store, bitmaps, {case}, batches of 1", rate, "messages/s", copy)
        yield Row("scan by tag, bitmaps", tag_rate, "messages/s", read)


def _batches(count: int, size: int) -> list[bytes]:
    """Return packed messages of 100 bytes with a tag and two properties, one of which is read."""
    table = order_table(-(-count // size) * size, a_range=_A_RANGE)
    return [pack_batch(encoded(table.slice(at, size))) for at in range(0, count, size)]


@contextmanager
def _filled(
    batches: Sequence[bytes], wanted: Sequence[LiveSubscription] | None
) -> Iterator[_Shard]:
    """Open a shard that holds *batches*, for the block."""
    with bench_directory() as directory:
        shard = _Shard(directory, wanted)
        shard.store(batches)
        yield shard
        shard.close()


def _store_rate(
    options: BenchOptions,
    batches: Sequence[bytes],
    count: int,
    wanted: Sequence[LiveSubscription] | None,
) -> float:
    rates = []
    for _ in range(options.runs):
        with _filled(batches[:1], wanted) as shard:  # creates the first files
            rates.append(count / shard.store(batches))
    return statistics.median(rates)


def _scan_rate(
    options: BenchOptions, shard: _Shard, wanted: Sequence[LiveSubscription], count: int
) -> float:
    times = [shard.scan(wanted) for _ in range(options.runs)]
    return count * len(wanted) / statistics.median(times)


def _scan(reader: QueueReader, end: int, chosen: MessageFilter, test: BitTest | None) -> None:
    """Scan all entries, in steps of the filter actor's size."""
    at = 0
    step = RECORDS_MAX if chosen.needs_record and test is None else SCAN_MAX
    while at < end:
        at += scan_block(chosen, reader, at, min(end, at + step), test)[1].scanned


def _processor_s(work: Callable[[], object]) -> float:
    begun = time.thread_time()
    work()
    return time.thread_time() - begun
