"""A preview agrees with what a group would get, and changes nothing."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.nodes.local_node import LocalNode
from support.nodes.stores import GOLDEN_STORE, FakeClock, open_golden
from support.nodes.stores import SMALL as SMALL_STORE

from rocketray.broker.filtering.preview import Preview, PreviewRange, preview, sample_recent
from rocketray.errors import ConfigError, FilterSyntaxError, InvalidNameError, StoreError
from rocketray.filters.counters import FilterCounters
from rocketray.filters.subscription import Subscription
from rocketray.message import Message
from rocketray.runtime.files.paths import shard_directory
from rocketray.store.message_store import MessageStore

COUNT = 1200
AMOUNTS = ["3", "12", None, "4.5"]
TAGS = ["Aa", "BB", "C"]
EVERYTHING = PreviewRange()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Three queues of messages whose number decides tag and amount; the node runs on."""
    directory = tmp_path_factory.mktemp("node") / "data"
    with LocalNode(directory) as node:
        node.topics.ensure("Trade", 3)
        with node.producer() as producer:
            for queue in range(3):
                messages = [made(number) for number in range(queue, COUNT, 3)]
                producer.send_many("Trade", messages, queue_id=queue)
        yield directory


def made(number: int) -> Message:
    amount = AMOUNTS[number % 4]
    properties = {"n": str(number)} | ({} if amount is None else {"amount": amount})
    return Message("Trade", b"x" * (number % 30), TAGS[number % 3], (), properties)


def look(
    data: Path, subscription: Subscription, within: PreviewRange = EVERYTHING, show: int = 5
) -> Preview:
    return preview(data, "Trade", subscription, within, show=show)


def test_sql_is_counted_by_what_became_of_it(data: Path) -> None:
    found = look(data, Subscription.sql("amount > 10", "rocketmq"))
    quarter = COUNT // 4
    ours = look(data, Subscription.sql("amount > 10")).counters
    assert ours == FilterCounters(COUNT, sql_rejected=3 * quarter, delivered=quarter)
    assert found.counters == FilterCounters(
        COUNT,
        sql_rejected=2 * quarter,
        evaluation_errors=quarter,
        not_int32=quarter,
        delivered=quarter,
    )
    assert [message.properties["amount"] for message in found.matches] == ["12"] * 5
    assert found.held == COUNT
    assert found.bytes_read > COUNT * 100


def test_tags_are_compared_exactly(data: Path) -> None:
    found = look(data, Subscription.tags("Aa"))
    third = COUNT // 3
    assert found.counters == FilterCounters(
        COUNT, tag_rejected=third, collisions=third, delivered=third
    )
    assert {message.tags for message in found.matches} == {"Aa"}
    everything = look(data, Subscription.tags("*"), show=0)
    assert everything.counters == FilterCounters(COUNT, delivered=COUNT)
    assert everything.bytes_read == COUNT * 20
    assert everything.matches == ()


def test_a_predicate_is_asked_here_and_its_failures_are_counted(data: Path) -> None:
    short = sum(number % 30 < 10 for number in range(COUNT))
    found = look(data, Subscription.where("support.predicates:body_is_short"))
    assert found.counters == FilterCounters(COUNT, class_rejected=COUNT - short, delivered=short)
    fails = look(data, Subscription.where("support.predicates:fails_always"))
    assert fails.counters == FilterCounters(COUNT, predicate_errors=COUNT)
    assert "broken on purpose" in fails.error


def test_a_range_may_be_of_offsets_of_time_and_of_one_queue(data: Path) -> None:
    every = Subscription.tags("*")

    def numbers(within: PreviewRange) -> set[int]:
        found = look(data, every, within, COUNT)
        assert len(found.matches) == found.counters.scanned
        return {int(message.properties["n"]) for message in found.matches}

    assert numbers(PreviewRange(10, 12, queue_id=1)) == {31, 34}
    assert len(numbers(PreviewRange(begin_offset=390))) == 30
    assert len(numbers(PreviewRange(limit=450))) == 450
    assert numbers(PreviewRange(5, 3)) == set()
    stored = {
        int(message.properties["n"]): message.store_timestamp_ms
        for message in look(data, every, EVERYTHING, COUNT).matches
    }
    times = sorted(stored.values())
    begin, end = times[COUNT // 4], times[COUNT // 2]
    wanted = {number for number, time_ms in stored.items() if begin <= time_ms <= end}
    assert numbers(PreviewRange(begin_ms=begin, end_ms=end)) == wanted
    assert numbers(PreviewRange(begin_ms=times[-1] + 1)) == set()
    with pytest.raises(ConfigError, match="no queue 7; its queues are 0, 1, 2"):
        look(data, every, PreviewRange(queue_id=7))


def test_looking_changes_nothing_on_disk(data: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(data, tmp_path / "data")  # the node flushes its own

    def checksums() -> dict[str, str]:
        files = [path for path in copy.rglob("*") if path.is_file()]
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    before = checksums()
    assert look(copy, Subscription.sql("amount > 10"), show=100).matches
    look(copy, Subscription.tags("Aa"))
    sample_recent(copy, "Trade", ["amount"], 100)
    assert checksums() == before


def test_a_shard_and_a_store_of_rocketmq_can_be_looked_at_too(data: Path) -> None:
    one = preview(
        shard_directory(data, "Trade", 2), "Trade", Subscription.tags("C"), EVERYTHING, show=0
    )
    assert one.counters.delivered == COUNT // 3
    with open_golden() as store:
        topic = store.reads.queues()[0][0]
        stored = sum(message.topic == topic for message in store.reads.scan())
    found = preview(GOLDEN_STORE, topic, Subscription.tags("*"), EVERYTHING, show=3)
    assert found.counters.scanned == found.counters.delivered == stored
    assert all(message.topic == topic for message in found.matches)


def test_a_store_of_many_topics_has_its_own(tmp_path: Path) -> None:
    with MessageStore(tmp_path, SMALL_STORE, clock_ms=FakeClock()) as store:
        store.put([Message("Trade", b"1", "a"), Message("Trade", b"2", "b")], 4)
        store.put([Message("Other", b"3", "a")], 0)
    found = look(tmp_path, Subscription.tags("a"))
    assert [message.body for message in found.matches] == [b"1"]


def test_what_is_not_there_is_said(data: Path, tmp_path: Path) -> None:
    every = Subscription.tags("*")
    with pytest.raises(StoreError, match="has no topic 'Absent'; see: rocketray"):
        preview(data, "Absent", every, EVERYTHING, show=1)
    with pytest.raises(StoreError, match="no topic 'Tarde'; did you mean 'Trade'"):
        preview(data, "Tarde", every, EVERYTHING, show=1)
    with pytest.raises(StoreError, match="nor a store directory"):
        look(tmp_path, every)
    with pytest.raises(InvalidNameError):
        preview(data, "../x", every, EVERYTHING, show=1)
    with pytest.raises(FilterSyntaxError):
        look(data, Subscription.sql("a >"))


def test_a_sample_has_the_newest_messages(data: Path) -> None:
    sample = sample_recent(data, "Trade", ["amount", "absent"], 30)
    assert sample.count == 30
    assert {"amount", "n", "TAGS"} <= sample.names
    assert "absent" not in sample.names
    assert set(sample.values["absent"]) == {None}
    newest = {AMOUNTS[number % 4] for number in range(COUNT - 30, COUNT)}
    assert set(sample.values["amount"]) == newest
    assert sample_recent(data, "Trade", [], 10**6).count == COUNT
