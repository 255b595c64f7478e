from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.models.records import RawRecord, back_to_back, i64
from support.nodes.stores import SMALL, FakeClock, message, open_golden

from rocketray.base.config import StoreConfig
from rocketray.base.delay import DELAY_LEVELS_MS, at_level, at_time
from rocketray.base.system_topics import SCHEDULE_TOPIC, TIMER_TOPIC
from rocketray.hashing import index_key_hash, tags_code
from rocketray.message import ForwardedMessage, Message, StoredMessage
from rocketray.store.batches.forward import encode_forwarded
from rocketray.store.files.store_settings import Salvage
from rocketray.store.formats.record import RecordValues, encode_record
from rocketray.store.log.commit_log import CommitLog
from rocketray.store.log.log_blocks import LogBlock, entry_codes, read_blocks, record_keys
from rocketray.store.message_store import MessageStore

CLOCK = FakeClock()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore(tmp_path, SMALL, clock_ms=FakeClock()) as made:
        for number in range(60):
            made.put([message(number, ("Trade", "Audit")[number % 3 == 0])], number % 2)
        yield made


def rows(block: LogBlock) -> list[tuple[str, int, int, int, int, int]]:
    return [
        (block.topics[topic], *row)
        for topic, *row in zip(
            block.topic_numbers.tolist(),
            block.queue_ids.tolist(),
            block.queue_offsets.tolist(),
            block.physical_offsets.tolist(),
            block.sizes.tolist(),
            block.tags_codes.tolist(),
            strict=True,
        )
    ]


def expected_row(one: StoredMessage) -> tuple[str, int, int, int, int, int]:
    code = tags_code(one.tags)
    return one.topic, one.queue_id, one.queue_offset, one.physical_offset, one.size, code


def keys_of(one: StoredMessage) -> list[int]:
    keys = [*([one.unique_key] if one.unique_key else []), *one.keys]
    return [index_key_hash(f"{one.topic}#{key}") for key in keys]


def broken_text(rng: Random) -> bytes:
    """Bytes like those that bad writers store: most are no UTF-8, and none separates properties."""
    parts = [
        b"\xed\xa0\x80",
        b"\xed\xb0",
        b"\xe0\x9f",
        b"\xf0\x9f\x98",
        b"\xc3",
        b"tag",
        "é😀".encode(),
    ]
    parts += [bytes([rng.randrange(3, 256)]) for _ in range(4)]
    return b"".join(rng.choices(parts, k=rng.randrange(1, 8)))


def test_text_that_is_no_utf8_hashes_as_when_it_was_appended(tmp_path: Path, rng: Random) -> None:
    """Who appends hashes the tag that Java reads; who recovers has its bytes."""
    log = bytearray()
    for _ in range(300):
        tag, key = broken_text(rng), broken_text(rng)
        properties = b"TAGS\x01%b\x02KEYS\x01%b\x02" % (tag, key)
        log += RawRecord(properties=properties, physical_offset=len(log)).encode()
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(log.ljust(1 << 16, b"\0"))
    config = StoreConfig(commit_log_segment_bytes=1 << 16)
    with MessageStore(tmp_path, config, read_only=True, clock_ms=FakeClock()) as store:
        messages = list(store.reads.scan())
        [block] = read_blocks(store._log, 0)
        assert len(messages) == 300
        assert rows(block) == list(map(expected_row, messages))
        hashes, _, _ = record_keys(block)
        assert hashes.tolist() == [key for one in messages for key in keys_of(one)]


def test_blocks_say_what_decoding_each_record_says(store: MessageStore) -> None:
    messages = list(store.reads.scan())
    blocks = list(read_blocks(store._log, 0))
    assert len(blocks) == store.statistics().log_files
    assert [row for block in blocks for row in rows(block)] == list(map(expected_row, messages))
    at = 0
    for block in blocks:
        found = [column.tolist() for column in record_keys(block)]
        expected = [
            (key, one.physical_offset, one.store_timestamp_ms)
            for one in messages[at : at + len(block)]
            for key in keys_of(one)
        ]
        assert list(zip(*found, strict=True)) == expected
        assert block.end == messages[at + len(block) - 1].physical_offset + block.sizes[-1]
        at += len(block)


def test_blocks_begin_at_any_record_or_file(store: MessageStore) -> None:
    messages = list(store.reads.scan())
    for first in (1, 30, 59):
        found = list(read_blocks(store._log, messages[first].physical_offset))
        assert [row for block in found for row in rows(block)] == list(
            map(expected_row, messages[first:])
        )
    assert list(read_blocks(store._log, store.reads.max_physical_offset)) == []


def test_reading_ends_at_the_first_bad_record_wherever_it_is_bad(store: MessageStore) -> None:
    messages = list(store.reads.scan())
    victim = messages[40]
    segment = store._log.files.file(victim.physical_offset)
    assert segment is not None
    start = victim.physical_offset - segment.start
    topic = start + 88 + len(victim.body) + 1
    for position in (start, start + 4, start + 28, start + 90, topic, start + victim.size - 1):
        before = int(segment.data[position])
        segment.data[position] = 0 if before else 1
        found = list(read_blocks(store._log, 0))
        assert sum(len(block) for block in found) == 40
        assert found[-1].end == victim.physical_offset
        segment.data[position] = before
    assert sum(len(block) for block in read_blocks(store._log, 0)) == 60


def test_the_log_that_rocketmq_wrote_is_read_alike() -> None:
    with open_golden() as store:
        messages = list(store.reads.scan())
        found = [row for block in read_blocks(store._log, 0) for row in rows(block)]
        assert found == list(map(expected_row, messages))


@pytest.mark.parametrize(
    ("properties", "is_whole"),
    [
        (b"", True),
        (b"a\x01b\x02", True),
        (b"a\x01b", False),  # RocketMQ 4.9.1 to 5.1 ended it so, no writer of ours does
        (b"a\x01b\x00", False),
        (b"a\x01\xff\xff", False),
        (b"a\x01b\x02tail", False),
        (b"\x00\x00\x00\x00", False),
    ],
)
def test_a_record_whose_property_string_cannot_end_so_is_torn(
    tmp_path: Path, properties: bytes, is_whole: bool
) -> None:
    record = encode_record(
        RecordValues(
            "Trade",
            b"body",
            properties,
            queue_id=0,
            queue_offset=0,
            physical_offset=0,
            born_timestamp_ms=1,
            born_host=("1.2.3.4", 5),
            store_timestamp_ms=2,
            store_host=("5.6.7.8", 9),
        )
    )
    (tmp_path / f"{0:020d}").write_bytes(record.ljust(4096, b"\0"))
    log = CommitLog(tmp_path, 4096, ("5.6.7.8", 9), read_only=True)
    assert sum(map(len, read_blocks(log, 0))) == is_whole
    log.files.close()


def codes(store: MessageStore, topic: str, queue_id: int) -> list[int | None]:
    end = store.reads.max_queue_offset(topic, queue_id)
    return [store.reads.queue_entry(topic, queue_id, offset).tags_code for offset in range(end)]


def scheduled(level: str) -> Message:
    return Message(SCHEDULE_TOPIC, b"x", "pay", properties={"DELAY": level})


def test_an_entry_of_a_delay_level_holds_the_time_of_delivery(tmp_path: Path) -> None:
    with MessageStore(tmp_path, SMALL, clock_ms=CLOCK) as store:
        for level in (1, 3, 18):
            message, queue_id = at_level(Message("trade", b"x", "pay"), level, 0)
            store.put([message, message], queue_id)
            due = CLOCK.now_ms + DELAY_LEVELS_MS[level - 1]
            assert codes(store, SCHEDULE_TOPIC, queue_id) == [due, due]


@pytest.mark.parametrize(
    ("level", "delay"), [("19", DELAY_LEVELS_MS[-1]), ("2147483647", DELAY_LEVELS_MS[-1])]
)
def test_a_level_that_is_too_high_is_the_last(tmp_path: Path, level: str, delay: int) -> None:
    with MessageStore(tmp_path, SMALL, clock_ms=CLOCK) as store:
        store.put([scheduled(level)], 0)
        assert codes(store, SCHEDULE_TOPIC, 0) == [CLOCK.now_ms + delay]


@pytest.mark.parametrize("level", ["0", "-1", "x", "1" * 30])
def test_an_entry_without_a_level_holds_the_code_of_the_tag(tmp_path: Path, level: str) -> None:
    with MessageStore(tmp_path, SMALL, clock_ms=CLOCK) as store:
        store.put([scheduled(level), Message(SCHEDULE_TOPIC, b"x")], 0)
        assert codes(store, SCHEDULE_TOPIC, 0) == [tags_code("pay"), 0]


def test_other_topics_keep_the_codes_of_their_tags(tmp_path: Path) -> None:
    with MessageStore(tmp_path, SMALL, clock_ms=CLOCK) as store:
        message, queue_id = at_time(
            Message("trade", b"x", "pay"), CLOCK.now_ms + 5000, 0, CLOCK.now_ms
        )
        store.put([message], queue_id)
        kept = {"TAGS": "pay", "DELAY": "3"}  # as a delivered message keeps its level
        forwarded = ForwardedMessage("trade", b"x", kept, CLOCK.now_ms, ("127.0.0.1", 0))
        store.append("trade", 0, encode_forwarded([forwarded]))
        assert codes(store, TIMER_TOPIC, 0) == [tags_code("pay")]
        assert codes(store, "trade", 0) == [tags_code("pay")]


def test_recovery_makes_the_same_entries_again(tmp_path: Path) -> None:
    with MessageStore(tmp_path, SMALL, clock_ms=CLOCK) as store:
        for number in range(30):
            CLOCK.now_ms += 7
            message, queue_id = at_level(Message("trade", b"x" * number, "pay"), number % 3 + 1, 0)
            store.put([message], queue_id)
            store.put([Message("trade", b"y", "pay")], 0)
        before = [codes(store, SCHEDULE_TOPIC, queue) for queue in range(3)]
    shutil.rmtree(tmp_path / "consumequeue")
    (tmp_path / "abort").touch()
    with MessageStore(tmp_path, salvage=Salvage.ALL, clock_ms=CLOCK) as store:
        assert [codes(store, SCHEDULE_TOPIC, queue) for queue in range(3)] == before
        assert any(before)
        assert store.verify().problems == ()


PIECES = [b"DELAY\x013\x02", b"DELAY\x0199999\x02", b"DELAY", b"\x01", b"\x02", b"3", b"\xff"]
TIMES = st.sampled_from([-(2**63), -(2**40), 0, 2**63 - 1]) | st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.tuples(st.lists(st.sampled_from(PIECES), max_size=4), TIMES), max_size=5))
def test_any_properties_and_any_time_give_a_code(rows: list[tuple[list[bytes], int]]) -> None:
    """A time out of all bounds, which no checksum covers, is neither an error nor an address."""
    data, starts, sizes = back_to_back([b"".join(pieces) for pieces, _ in rows])
    times = i64([time for _, time in rows])
    found = entry_codes(i64([7] * len(rows)), data, starts, sizes, times).tolist()
    assert len(found) == len(rows)
    assert all(code >= 0 for code in found)
