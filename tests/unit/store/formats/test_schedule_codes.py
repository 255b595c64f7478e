from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.records import back_to_back, i64
from support.stores import SMALL, FakeClock

from rocketray.delay import DELAY_LEVELS_MS, SCHEDULE_TOPIC, TIMER_TOPIC, at_level, at_time
from rocketray.hashing import tags_code
from rocketray.message import Message
from rocketray.store.files.store_settings import Salvage
from rocketray.store.formats.schedule_codes import entry_codes
from rocketray.store.message_store import MessageStore

CLOCK = FakeClock()


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
        store.put([Message("trade", b"x", "pay", properties={"DELAY": "3"})], 0)
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
