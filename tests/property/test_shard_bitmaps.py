"""With filter bitmaps a stream delivers what it would without: whatever befalls shard, groups, clock.

A model of one shard, driven step by step: groups come, change their minds, go and come back; the
coordinator's word comes late, twice, out of order or not at all; the shard is restarted, killed,
its files are damaged; streams of old subscriptions, whose members were thought dead, go on.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from support.models.random_sql import random_expression, random_message
from support.nodes.stores import FakeClock, kill

from rocketray.base.ack_mode import Durability
from rocketray.base.config import StoreConfig
from rocketray.broker.filtering.filter_stream import scan_block
from rocketray.broker.filtering.shard_bitmaps import StreamBits
from rocketray.broker.shards.shard_writer import ShardWriter
from rocketray.errors import ConfigError, FilterSyntaxError
from rocketray.filters.consumer_filter_data import read_filters
from rocketray.filters.counters import NO_COUNTERS
from rocketray.filters.expression_filter import ExpressionFilter
from rocketray.filters.message_filter import MessageFilter
from rocketray.filters.sql92.dialect import DIALECTS, Dialect, current_rules
from rocketray.filters.subscription import Subscription
from rocketray.groups.group_descriptions import LiveSubscription
from rocketray.message import Message
from rocketray.runtime.files.paths import filters_file
from rocketray.runtime.ipc.ring import ProducerRing
from rocketray.runtime.processes import owned_name
from rocketray.store.batches.encoded_batch import encode_messages, pack_batch
from rocketray.store.reading.reader import QueueReader
from rocketray.store.retention import DiskUse, RetentionPolicy

HISTORIES = int(os.environ.get("ROCKETRAY_TEST_BITMAP_HISTORIES", "12"))
STEPS = 60
DAY_MS = 24 * 60 * 60 * 1000
EMPTY_DISK = DiskUse(0, 1 << 40)
CONFIG = StoreConfig(
    commit_log_segment_bytes=16 * 1024,
    consume_queue_segment_entries=50,
    index_hash_slots=10,
    index_entries=100,
    consume_queue_ext_segment_bytes=1024,
)


class Stream:
    """A member's stream: reads on behind what it saw, with bitmaps and without."""

    def __init__(self, shard: Shard, wanted: LiveSubscription, at: int) -> None:
        self.wanted = wanted
        self.at = at
        self.counters = NO_COUNTERS
        self._shard = shard
        self._filter = MessageFilter(wanted.subscription)
        control = shard.writer.control
        self.reader = QueueReader(shard.directory, "T", 0)
        self._bits = StreamBits(shard.directory, control, wanted)

    def pump(self) -> None:
        control = self._shard.writer.control
        stop = control.visible()
        start = self.at = min(max(self.at, control.minimum()), stop)
        test = self._bits.test()
        while start < stop:
            found, counters = scan_block(self._filter, self.reader, start, stop, test)
            assert 0 < counters.scanned <= stop - start
            end = start + counters.scanned
            wanted, plain = scan_block(self._filter, self.reader, start, end)
            assert found.queue_offsets.tolist() == wanted.queue_offsets.tolist()
            assert counters.rejected + counters.errors == plain.rejected + plain.errors
            self.counters += counters
            start = self.at = end


class Shard:
    """The shard, what its coordinator says, and all streams that were ever begun."""

    def __init__(self, directory: Path, rng: random.Random) -> None:
        self.directory = directory
        self.rng = rng
        self.clock = FakeClock()
        self.living: dict[str, LiveSubscription] = {}
        self.said: list[list[LiveSubscription]] = []
        self.streams: list[Stream] = []
        self.version = 0
        self.ring = ProducerRing(directory.with_name(owned_name(directory.name)), 64 * 1024)
        self.open()

    def open(self) -> None:
        self.writer = ShardWriter(self.directory, "T", 0, CONFIG, clock_ms=self.clock)
        self.writer.rings.attach_ring(self.ring.path)

    def subscribe(self) -> None:
        group = f"group-{self.rng.randrange(4)}"
        self.version += 1
        old = [one.wanted.subscription for one in self.streams if one.wanted.group == group]
        if old and self.rng.random() < 0.4:
            subscription = self.rng.choice(old)  # as it was before
        else:
            subscription = random_subscription(self.rng)
        wanted = LiveSubscription(group, "T", subscription, self.version)
        self.living[group] = wanted
        self.streams.append(
            Stream(self, wanted, self.rng.choice((0, self.writer.control.visible())))
        )

    def order(self) -> None:
        """The coordinator's word of now; or one from before that was held up."""
        self.said.append(list(self.living.values()))
        late = self.rng.random() < 0.2
        self.writer.keep_bitmaps(self.rng.choice(self.said) if late else self.said[-1])

    def put(self) -> None:
        if self.rng.random() < 0.3:
            self.writer.append(one_batch(self.rng), Durability.MEMORY)
            return
        for _ in range(self.rng.randint(1, 8)):
            assert self.ring.try_write(one_batch(self.rng), Durability.MEMORY)
        self.ring.publish()
        self.writer.prepare_next()
        self.writer.rings.drain()

    def restart(self) -> None:
        if self.rng.random() < 0.4:
            self.writer.close()
        else:
            kill(self.writer.store)
        path = filters_file(self.directory)
        befallen = self.rng.random()
        if befallen < 0.1 and path.exists():
            path.write_bytes(b"{")
        elif befallen < 0.2:
            shutil.rmtree(self.directory / "consumequeue", ignore_errors=True)  # made again
            for stream in self.streams:
                stream.reader.close()  # which has the old files mapped
        self.open()

    def step(self) -> None:
        kind = self.rng.random()
        if kind < 0.3:
            self.put()
        elif kind < 0.45:
            self.subscribe()
        elif kind < 0.65:
            self.order()
        elif kind < 0.7 and self.living:
            del self.living[self.rng.choice(list(self.living))]
        elif kind < 0.73:
            self.writer.keep_bitmaps(None)
        elif kind < 0.78:
            self.restart()
        elif kind < 0.8:
            self.writer.expire(RetentionPolicy(None, 64 * 1024), None, EMPTY_DISK)
        else:
            self.clock.now_ms += self.rng.choice((0, 1, 1, 1000, DAY_MS, -1, -5000))
        for stream in self.rng.sample(self.streams, min(4, len(self.streams))):
            stream.pump()

    def check_file(self) -> None:
        """Who reads the directory as a broker does loses nothing either; of a damaged file, all passes."""
        with suppress(FileNotFoundError, ConfigError):
            for data in read_filters(filters_file(self.directory)).get("T", {}).values():
                chosen = ExpressionFilter(data.subscription, data)
                store = self.writer.store
                for offset in range(
                    store.reads.min_queue_offset("T", 0), store.reads.max_queue_offset("T", 0)
                ):
                    entry = store.reads.queue_entry("T", 0, offset)
                    message = store.reads.view(entry.physical_offset)
                    passes = chosen.matches_entry(entry.tags_code, entry.unit)
                    assert passes or not chosen.matches_record(message)


def random_subscription(rng: random.Random) -> Subscription:
    """SQL in either dialect, by either version of the rules."""
    while True:
        dialect: Dialect = rng.choice(DIALECTS)
        rules = rng.randint(1, current_rules(dialect))
        found = Subscription("SQL92", random_expression(rng), dialect=dialect, rules=rules)
        with suppress(FilterSyntaxError):
            found.check_text()
            return found


def one_batch(rng: random.Random) -> bytes:
    messages = [one_message(rng) for _ in range(rng.choice((1, 1, 5, 20)))]
    return pack_batch(encode_messages(messages, born_host=("127.0.0.1", 1), clock_ms=lambda: 1))


def one_message(rng: random.Random) -> Message:
    properties = {
        name: value
        for name, value in random_message(rng).items()
        if name != "TAGS" and value and not {"\0", "\x01", "\x02"} & set(value)
    }
    return Message("T", b"x", tags=rng.choice((None, "5", "eu")), properties=properties)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_long_histories(rng: random.Random, tmp_path: Path) -> None:
    histories(rng, tmp_path, 10 * HISTORIES)


def test_streams_deliver_the_same_with_bitmaps_and_without(
    rng: random.Random, tmp_path: Path, amount: Callable[[int], int]
) -> None:
    histories(rng, tmp_path, amount(HISTORIES))


def histories(rng: random.Random, tmp_path: Path, count: int) -> None:
    counters = NO_COUNTERS
    for number in range(HISTORIES + count):
        if number >= count and counters.bloom_rejected:
            break  # bitmaps left something out
        shard = Shard(tmp_path / str(number), rng)
        for _ in range(STEPS):
            shard.step()
        for stream in shard.streams:
            stream.pump()
            stream.at = 0  # and all that is left once more, with what is known now
            stream.pump()
            counters += stream.counters
            stream.reader.close()
        shard.check_file()
        shard.writer.close()
        shard.ring.close()
        shutil.rmtree(shard.directory)
    assert counters.bloom_rejected > 0
