"""Whatever stands in the files of a store: our errors, or messages that were written.

Each example damages a copy of a store and does with it all that can be done. Nothing but our own
errors may come out, no step may be endless, memory is bounded, and each message that is handed
out must be one that was stored there: the whole of it, because these stores write the CRC over
the record, or its body where the damage hid that CRC.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.harness.faults import more_memory_at_most
from support.harness.mutations import damage
from support.nodes.stores import GOLDEN_CONFIG, GOLDEN_STORE, SMALL, FakeClock, message

from rocketray.base.config import StoreConfig
from rocketray.base.marks import DELAY_LEVEL
from rocketray.base.system_topics import SCHEDULE_TOPIC
from rocketray.errors import StreamError
from rocketray.hashing import tags_code
from rocketray.message import Message, StoredMessage
from rocketray.store.batches.batch_form import RecordOptions
from rocketray.store.batches.encoded_batch import encode_messages
from rocketray.store.formats.compression import Compression
from rocketray.store.message_store import MessageStore
from rocketray.store.queues.ext_reader import bit_test
from rocketray.store.reading.columns import COLUMN_TYPES, read_columns
from rocketray.store.reading.reader import QueueReader

EXAMPLES = int(os.environ.get("ROCKETRAY_TEST_DAMAGES", "2000"))
QUICK_EXAMPLES = 60
MEMORY_BYTES = 768 << 20  # one body may inflate to 64 MiB, an Arrow column is built beside it
READS_MAX = 400  # more than any of these stores has messages
Written = dict[int, StoredMessage]


class Bitmaps:
    """One of every message's own."""

    def bitmaps(
        self,
        topic: str,
        data: npt.NDArray[np.uint8],
        starts: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.uint8] | None:
        del topic, data, starts
        return np.array([[int(size) % 256] * 14 for size in sizes], np.uint8)


def write(directory: Path, config: StoreConfig) -> tuple[Path, Written]:
    """A store with every kind of record, and what is in it by physical offset."""
    options = [
        RecordOptions(properties_crc=True),
        RecordOptions(Compression("zlib", 1), properties_crc=True),
        RecordOptions(Compression("lz4", 1), properties_crc=True),
        RecordOptions(Compression("zstd", 1), properties_crc=True),
        RecordOptions(sys_flag=0x4, properties_crc=True),
    ]
    topics = ("%RETRY%" + "g" * 140, "Trade", "Trade", SCHEDULE_TOPIC, "Trade")
    with MessageStore(directory, config, clock_ms=FakeClock(), bitmap_source=Bitmaps()) as store:
        for number in range(60):
            one = message(number, topics[number % 5], size=20 + number % 7 * 30)
            if one.topic == SCHEDULE_TOPIC:
                one = replace(one, properties={**one.properties, DELAY_LEVEL: str(number % 20)})
            batch = encode_messages(
                [one],
                born_host=("10.0.0.9", 1),
                clock_ms=FakeClock(),
                options=options[number % len(options)],
            )
            store.append(one.topic, number % 2, batch)
        return directory, {one.physical_offset: one for one in store.reads.scan()}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Written]:
    """A store of ours."""
    return write(tmp_path_factory.mktemp("ours") / "store", SMALL)


@pytest.fixture(scope="module")
def with_units(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Written]:
    """One whose queues have units with bitmaps beside them."""
    config = replace(SMALL, consume_queue_ext=True, consume_queue_ext_segment_bytes=1024)
    return write(tmp_path_factory.mktemp("units") / "store", config)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Written]:
    """The store that RocketMQ wrote."""
    with MessageStore(GOLDEN_STORE, GOLDEN_CONFIG, read_only=True, clock_ms=FakeClock()) as store:
        return GOLDEN_STORE, {one.physical_offset: one for one in store.reads.scan()}


def with_crcs(directory: Path, written: Written) -> frozenset[int]:
    """Which of the records, as they lie there now, end with a CRC over all of them."""
    found = set()
    for offset, one in written.items():
        start = offset - offset % SMALL.commit_log_segment_bytes
        with suppress(OSError):
            file = (directory / "commitlog" / f"{start:020d}").read_bytes()
            if file[: offset - start + one.size][-21:-12] == b"\x02__CRC32#":
                found.add(offset)
    return frozenset(found)


def check(found: Iterable[StoredMessage], written: Written, vouched: frozenset[int]) -> None:
    """Nothing but what was written may be handed out."""
    for one in found:
        original = written.get(one.physical_offset)
        assert original is not None, f"no message was stored at {one.physical_offset}"
        assert one.body == original.body
        if one.physical_offset in vouched:
            assert one == original


def attempt(
    written: Written,
    vouched: frozenset[int],
    step: Callable[..., Iterable[StoredMessage]],
    *arguments: Any,
) -> None:
    """Do one thing: it gives messages that were written, or an error of ours."""
    with suppress(StreamError):
        for count, one in enumerate(step(*arguments)):
            check([one], written, vouched)
            assert count < 10 * READS_MAX


def view(store: MessageStore, offset: int) -> list[StoredMessage]:
    return [store.reads.view(offset)]


def view_by_id(store: MessageStore, offset_id: str) -> list[StoredMessage]:
    found = store.reads.view_by_id(offset_id)
    return [found] if found else []


def read_queue(store: MessageStore, topic: str, queue_id: int) -> Iterable[StoredMessage]:
    at = int(store.reads.min_queue_offset(topic, queue_id))
    for _ in range(READS_MAX):
        result = store.reads.get_message(topic, queue_id, at, 32)
        yield from result.messages
        if result.next_queue_offset <= at:
            return
        at = int(result.next_queue_offset)


def query(store: MessageStore, topic: str, key: str) -> Iterable[StoredMessage]:
    found = store.reads.query(topic, key)
    assert all(key in one.keys or key == one.unique_key for one in found)
    return found


def read_all_ways(store: MessageStore, written: Written, rng: random.Random) -> None:
    """Everything that an open store answers."""
    vouched = with_crcs(store.directory, written)
    sample = rng.sample(sorted(written), 8)
    attempt(written, vouched, store.reads.scan)
    with suppress(StreamError):
        store.statistics()
    queues = {(written[offset].topic, written[offset].queue_id) for offset in sample}
    with suppress(StreamError):
        queues |= set(store.reads.queues()[:8])
    for topic, queue_id in sorted(queues):
        attempt(written, vouched, read_queue, store, topic, queue_id)
        with suppress(StreamError):
            store.reads.queue_offset_by_time(topic, queue_id, 1_700_000_000_000, "lower")
        with suppress(StreamError):
            store.reads.queue_offset_by_time(topic, queue_id, 1_700_000_000_000, "upper")
    for offset in sample:
        one = written[offset]
        attempt(written, vouched, view, store, offset)
        attempt(written, vouched, view, store, offset + rng.randrange(-9, 9))
        attempt(written, vouched, view_by_id, store, one.offset_message_id)
        for key in (*one.keys, one.unique_key or "none"):
            attempt(written, vouched, query, store, one.topic, key)


def read_as_a_consumer(
    directory: Path, config: StoreConfig | None, written: Written, rng: random.Random
) -> None:
    """What a process beside the writer reads."""
    one = written[rng.choice(sorted(written))]
    of_queue = [
        other.queue_offset
        for other in written.values()
        if (other.topic, other.queue_id) == (one.topic, one.queue_id)
    ]
    vouched = with_crcs(directory, written)
    with suppress(StreamError), QueueReader(directory, one.topic, one.queue_id, config) as reader:
        for start in range(0, max(of_queue) + 1, 7):
            with suppress(StreamError):
                entries = reader.entries(start, min(start + 7, max(of_queue) + 1))
                check(reader.messages(entries), written, vouched)
                bodies = reader.bodies(entries)
                columns = read_columns(reader, entries, list(COLUMN_TYPES))
                assert columns["body"].to_pylist() == bodies
            with suppress(StreamError):
                find_as_a_filter(reader, start, min(start + 7, max(of_queue) + 1))


def find_as_a_filter(reader: QueueReader, start: int, stop: int) -> None:
    """What a filter actor does: it may get too much or too little, and nothing from elsewhere."""
    found = reader.match_tags(start, stop, np.array([tags_code("pay")], np.int32))
    assert set(found.queue_offsets.tolist()) <= set(range(start, stop))
    test = bit_test([1, 2, 111], 112, 0)
    at = start
    while at < stop:
        found, end = reader.match_bits(at, stop, test, 3)
        assert at < end <= stop
        assert set(found.queue_offsets.tolist()) <= set(range(at, end))
        at = end


def write_after_damage(directory: Path, written: Written, rng: random.Random) -> None:
    """Recover, read, append, and read what was appended."""
    with suppress(StreamError), MessageStore(directory, clock_ms=FakeClock()) as store:
        read_all_ways(store, written, rng)
        sent = Message("Trade", b"appended after the damage", tags="new")
        placed = store.put([sent], 0)[0]
        assert store.reads.view(placed.physical_offset).body == sent.body
        end = store.reads.max_queue_offset("Trade", 0)
        assert end == placed.queue_offset + 1
        result = store.reads.get_message("Trade", 0, placed.queue_offset, 1)
        assert [one.body for one in result.messages] == [sent.body]


def run(store: tuple[Path, Written], target: Path, seed: int, config: StoreConfig | None) -> None:
    source, written = store
    rng = random.Random(seed)
    shutil.copytree(source, target)
    done = damage(target, rng)
    try:
        with (
            suppress(StreamError),
            MessageStore(target, config, read_only=True, clock_ms=FakeClock()) as opened,
        ):
            read_all_ways(opened, written, rng)
        read_as_a_consumer(target, config, written, rng)
        if config is None:
            write_after_damage(target, written, rng)
    except BaseException as error:
        error.add_note(f"seed {seed}: {', '.join(done)}")
        raise
    finally:
        shutil.rmtree(target)


def test_a_damaged_store_of_ours_gives_errors_or_what_was_written(
    ours: tuple[Path, Written], tmp_path: Path
) -> None:
    with more_memory_at_most(MEMORY_BYTES):
        for seed in range(QUICK_EXAMPLES):
            run(ours, tmp_path / "copy", seed, None)


def test_damaged_units_of_ours_give_errors_or_what_was_written(
    with_units: tuple[Path, Written], tmp_path: Path
) -> None:
    with more_memory_at_most(MEMORY_BYTES):
        for seed in range(QUICK_EXAMPLES // 2):
            run(with_units, tmp_path / "copy", seed, None)


def test_a_damaged_store_of_rocketmqs_gives_errors_or_what_was_written(
    theirs: tuple[Path, Written], tmp_path: Path
) -> None:
    with more_memory_at_most(MEMORY_BYTES):
        for seed in range(QUICK_EXAMPLES // 6):
            run(theirs, tmp_path / "copy", seed, GOLDEN_CONFIG)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_many_damaged_stores(
    ours: tuple[Path, Written],
    with_units: tuple[Path, Written],
    theirs: tuple[Path, Written],
    tmp_path: Path,
) -> None:
    first = random.SystemRandom().randrange(1 << 40)
    with more_memory_at_most(MEMORY_BYTES):
        for seed in range(first, first + EXAMPLES):
            run(with_units if seed % 2 else ours, tmp_path / "copy", seed, None)
            if seed % 4 == 0:
                run(theirs, tmp_path / "copy", seed, GOLDEN_CONFIG)
