"""What queues stored today and yesterday, beside a plain count of what is stored."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from random import Random
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from rocketray.broker.shards.day_counts import DayCounts, count_days, midnights
from rocketray.errors import ShardUnavailableError
from rocketray.services.health.day_totals import DayTotals, read_days
from rocketray.store.queues.queue_gaps import NO_GAPS
from rocketray.testing import Broker, Clock
from rocketray.testing.fixtures import broker, clock
from rocketray.views.node_records import days_record

__all__ = ["broker", "clock"]

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


def at(*parts: int) -> int:
    return int(datetime(*parts, tzinfo=BERLIN).timestamp() * 1000)  # type: ignore[misc,arg-type]


@pytest.mark.usefixtures("in_berlin")
@pytest.mark.parametrize(
    ("now", "yesterday", "today"),
    [
        ((2026, 11, 29, 0, 0), (2026, 11, 28), (2026, 11, 29)),
        ((2026, 11, 29, 23, 59), (2026, 11, 28), (2026, 11, 29)),
        ((2026, 3, 1, 12, 0), (2026, 2, 28), (2026, 3, 1)),
        ((2026, 3, 29, 12, 0), (2026, 3, 28), (2026, 3, 29)),  # this day has 23 hours
        ((2026, 10, 26, 0, 30), (2026, 10, 25), (2026, 10, 26)),  # the day before had 25
    ],
)
def test_days_begin_at_midnight_of_the_machine_s_zone(
    now: tuple[int, ...], yesterday: tuple[int, ...], today: tuple[int, ...]
) -> None:
    assert midnights(at(*now)) == (at(*yesterday), at(*today))


def test_the_totals_are_those_of_a_plain_count(tmp_path: Any) -> None:
    clock, random = Clock(), Random(7)
    with Broker(tmp_path, clock=clock) as broker:
        broker.topics.create("orders", 2)
        broker.topics.create("other", 1)
        with broker.producer() as producer:
            for _ in range(200):
                producer.send("orders", b"x", queue_id=random.randrange(2))
                if random.random() < 0.1:
                    producer.send("other", b"x")
                clock.advance(minutes=random.randrange(40))
        found = read_days(broker.node, broker.topics.all())
        assert found.yesterday_ms is not None
        assert found.today_ms is not None
        assert found.yesterday_ms < found.today_ms <= clock() < found.today_ms + 25 * 3_600_000
        for name in ("orders", "other"):
            times = [message.store_timestamp_ms for message in broker.stored(name)]
            today = sum(each >= found.today_ms for each in times)
            yesterday = sum(found.yesterday_ms <= each < found.today_ms for each in times)
            assert yesterday
            assert found.topics[name] == DayTotals(today, yesterday, False, False)
            only = read_days(broker.node, {name: broker.topics.get(name)})
            assert only.topics == {name: found.topics[name]}


def test_offsets_in_a_gap_are_not_counted(broker: Broker) -> None:
    broker.topics.create("orders", 1)
    with broker.producer() as producer:
        producer.send("orders", b"1")
        broker.node.shard("orders", 0).writer.store.skip_to("orders", 0, 5_000)
        producer.send("orders", b"2")
    found = read_days(broker.node, {"orders": broker.topics.get("orders")})
    assert found.topics == {"orders": DayTotals(2, 0, False, False)}


class Reads:
    """A queue with a message each hour, of which those before *first* were removed."""

    def __init__(self, first: int, end: int) -> None:
        self._first, self._end = first, end

    def min_queue_offset(self, *_: object) -> int:
        return self._first

    def max_queue_offset(self, *_: object) -> int:
        return self._end

    def gaps(self, *_: object) -> Any:
        return NO_GAPS

    def queue_offset_by_time(self, _topic: str, _queue: int, hour: int) -> int:
        return min(max(hour, self._first), self._end)


@pytest.mark.parametrize(
    ("first", "counts"),
    [
        (0, (6, 24, False, False)),
        (23, (6, 24, False, False)),
        (24, (6, 24, False, True)),  # its first message may be the first of the day, or not
        (30, (6, 18, False, True)),
        (48, (6, 0, True, True)),
        (50, (4, 0, True, True)),
        (54, (0, 0, True, True)),
    ],
)
def test_where_messages_of_a_day_may_be_removed_the_total_is_a_least_one(
    first: int, counts: tuple[int, int, bool, bool]
) -> None:
    reads: Any = Reads(first, 54)
    assert count_days(reads, "orders", 0, 24, 48) == DayCounts("orders", 0, *counts)


def test_a_topic_with_a_process_that_does_not_answer_is_unknown(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.topics.create("orders", 1)
    topics = {"orders": broker.topics.get("orders")}

    def silent(process: str) -> Any:
        def asked(*_: object) -> Any:
            raise ShardUnavailableError(process, "it burns")

        return SimpleNamespace(midnights=asked, stored_by_day=asked)

    monkeypatch.setattr(broker.node, "process_calls", silent)
    found = read_days(broker.node, topics)
    assert (found.today_ms, found.yesterday_ms) == (None, None)
    record = days_record(found, "orders")
    assert record.keys() == {"unknown"}
    assert "it burns" in record["unknown"]
