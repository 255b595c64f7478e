"""A tail shows what a group would get, and for the rest the reason; what it leaves out is counted."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.nodes.local_node import LocalNode

from rocketray.broker.filtering.preview import PreviewRange, preview
from rocketray.broker.filtering.seen_messages import SeenMessage
from rocketray.broker.filtering.tail import TailStart, TopicTail
from rocketray.errors import StoreError
from rocketray.filters.subscription import Subscription
from rocketray.filters.verdict_values import FilterReason
from rocketray.message import Message
from rocketray.runtime.files.paths import shard_directory

COUNT = 600
AMOUNTS = ["3", "12", None, "abc"]
TAGS = ["Aa", "BB", "C"]
EARLIEST = TailStart("earliest")
EVERYTHING = Subscription.tags("*")


def made(number: int, topic: str = "Trade") -> Message:
    amount = AMOUNTS[number % 4]
    properties = {"n": str(number)} | ({} if amount is None else {"amount": amount})
    return Message(topic, b"x" * (number % 30), TAGS[number % 3], (), properties)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNode]:
    with LocalNode(tmp_path_factory.mktemp("node") / "data") as node:
        node.topics.ensure("Trade", 3)
        send(node, range(COUNT))
        yield node


def send(node: LocalNode, numbers: range, topic: str = "Trade", queues: int = 3) -> None:
    with node.producer() as producer:
        for queue in range(queues):
            of_queue = [made(number, topic) for number in numbers if number % queues == queue]
            producer.send_many(topic, of_queue, queue_id=queue)


def read_all(tail: TopicTail, room: int | None = None) -> list[SeenMessage]:
    found: list[SeenMessage] = []
    while True:
        before = tail.counts
        found += tail.read(room)
        if tail.counts == before:
            return found


def numbers(seen: list[SeenMessage]) -> list[int]:
    return [int(each.message.properties["n"]) for each in seen]


@pytest.mark.parametrize(
    "subscription",
    [
        EVERYTHING,
        Subscription.tags("Aa"),
        Subscription.tags("BB || C"),
        Subscription.sql("amount > 10"),
        Subscription.sql("amount > 10 AND n <> '5' OR amount IS NULL"),
        Subscription.where("support.predicates:body_is_short"),
        Subscription.where("support.predicates:fails_always"),
    ],
    ids=str,
)
def test_the_verdicts_agree_with_a_preview(node: LocalNode, subscription: Subscription) -> None:
    """The preview counts by kernels; the verdicts come from the explanation of single messages."""
    tail = TopicTail(node.data, "Trade", subscription, EARLIEST, with_rejected=True)
    seen = read_all(tail)
    expected = preview(node.data, "Trade", subscription, PreviewRange(), show=COUNT)
    assert sorted(numbers(seen)) == list(range(COUNT))
    matches = {int(message.properties["n"]) for message in expected.matches}
    assert {*numbers([each for each in seen if each.is_match])} == matches
    assert tail.counts.filter == expected.counters
    by_reason = {
        reason: sum(each.reason is reason for each in seen)
        for reason in {each.reason for each in seen}
    }
    counters = expected.counters
    assert by_reason.get(FilterReason.TAG_MISMATCH, 0) == counters.tag_rejected
    assert by_reason.get(FilterReason.TAG_COLLISION, 0) == counters.collisions
    assert by_reason.get(FilterReason.SQL_ERROR, 0) == counters.evaluation_errors
    assert by_reason.get(FilterReason.CLASS_ERROR, 0) == counters.predicate_errors
    assert all((each.step is None) == each.is_match for each in seen)
    only = TopicTail(node.data, "Trade", subscription, EARLIEST)
    assert {*numbers(read_all(only))} == matches


def test_the_failing_part_is_named(node: LocalNode) -> None:
    subscription = Subscription.sql("n IS NOT NULL AND (amount > 10 AND n < 100000)")
    tail = TopicTail(node.data, "Trade", subscription, EARLIEST, with_rejected=True)
    found = {int(each.message.properties["n"]): each for each in read_all(tail)}
    small, absent, text = found[0], found[2], found[3]
    assert small.step is not None
    assert (small.reason, small.step.detail) == (FilterReason.SQL_FALSE, "amount > 10")
    assert small.step.values == {"amount": "3"}
    assert absent.step is not None
    assert (absent.reason, absent.step.detail) == (FilterReason.SQL_NULL, "amount > 10")
    assert text.reason is FilterReason.SQL_ERROR
    assert text.step is not None
    assert "'abc'" in text.step.detail


def test_it_begins_where_it_is_told(node: LocalNode) -> None:
    latest = TopicTail(node.data, "Trade", EVERYTHING, TailStart())
    assert read_all(latest) == []
    offset = TopicTail(node.data, "Trade", EVERYTHING, TailStart("offset", COUNT // 3 - 2))
    seen = read_all(offset)
    assert sorted(numbers(seen)) == list(range(COUNT - 6, COUNT))
    assert [each.message.store_timestamp_ms for each in seen] == sorted(
        each.message.store_timestamp_ms for each in seen
    )
    beyond = TopicTail(node.data, "Trade", EVERYTHING, TailStart("offset", 10**9))
    assert read_all(beyond) == []
    every = read_all(TopicTail(node.data, "Trade", EVERYTHING, EARLIEST))
    middle = sorted(each.message.store_timestamp_ms for each in every)[COUNT // 2]
    later = read_all(TopicTail(node.data, "Trade", EVERYTHING, TailStart("time", middle)))
    assert {*numbers(later)} == {
        int(each.message.properties["n"])
        for each in every
        if each.message.store_timestamp_ms >= middle
    }


def test_new_messages_and_new_queues_are_followed(node: LocalNode) -> None:
    node.topics.ensure("Grows", 1)
    tail = TopicTail(node.data, "Grows", EVERYTHING, TailStart())
    assert read_all(tail) == []
    send(node, range(5), "Grows", 1)
    assert numbers(read_all(tail)) == list(range(5))
    node.topics.alter("Grows", 2)
    send(node, range(5, 9), "Grows", 2)
    tail.look_for_queues()
    assert tail.queue_ids == [0, 1]
    assert sorted(numbers(read_all(tail))) == list(range(5, 9))


def test_a_tail_resumes_another(node: LocalNode) -> None:
    node.topics.ensure("Resumed", 2)
    send(node, range(2000), "Resumed", 2)
    first = TopicTail(node.data, "Resumed", EVERYTHING, EARLIEST)
    assert len(read_all(first)) == 2000
    positions = first.positions
    assert sum(positions.values()) == 2000
    first.close()
    node.topics.alter("Resumed", 3)
    send(node, range(2000, 2030), "Resumed", 3)
    resumed = TailStart("earliest", positions=positions)
    second = TopicTail(node.data, "Resumed", EVERYTHING, resumed)
    assert sorted(numbers(read_all(second))) == list(range(2000, 2030))
    recreated = TailStart("earliest", positions={0: 10**6, 1: 10**6, 2: 10**6})
    assert len(read_all(TopicTail(node.data, "Resumed", EVERYTHING, recreated))) == 2030


def test_a_tail_that_resumes_leaves_out_the_oldest_of_many(node: LocalNode) -> None:
    """A tail that begins reads all that is there; one that was hidden for a night does not."""
    node.topics.ensure("Night", 1)
    send(node, range(4000), "Night", 1)
    resumed = TailStart("earliest", positions={0: 500})
    tail = TopicTail(node.data, "Night", EVERYTHING, resumed, backlog_max=1100)
    assert numbers(read_all(tail)) == list(range(4000 - 1024, 4000))
    assert tail.counts.skipped == 4000 - 1024 - 500


def test_a_slow_reader_loses_the_oldest_and_they_are_counted(node: LocalNode) -> None:
    node.topics.ensure("Fast", 1)
    send(node, range(2000), "Fast", 1)
    tail = TopicTail(node.data, "Fast", EVERYTHING, EARLIEST, backlog_max=1100)
    send(node, range(2000, 5000), "Fast", 1)
    first = numbers(list(tail.read()))
    assert first == list(range(1024)), "what was stored before is never left out"
    rest = numbers(read_all(tail))
    assert rest[: 2000 - 1024] == list(range(1024, 2000))
    assert rest[-1] == 4999
    counts = tail.counts
    assert counts.skipped > 0
    assert counts.skipped + counts.filter.scanned == 5000
    assert len(first) + len(rest) == counts.filter.scanned


def test_room_is_for_the_newest_and_the_others_are_counted(node: LocalNode) -> None:
    tail = TopicTail(node.data, "Trade", Subscription.sql("amount = 12"), EARLIEST)
    seen = list(tail.read(30))
    counts = tail.counts
    assert (len(seen), counts.filter.scanned, counts.filter.delivered) == (30, COUNT, COUNT // 4)
    assert counts.unshown == COUNT // 4 - 30
    assert COUNT - 3 in numbers(seen)


def test_a_topic_that_is_not_there_or_not_any_more(node: LocalNode) -> None:
    with pytest.raises(StoreError, match="no topic 'Nothing'"):
        TopicTail(node.data, "Nothing", EVERYTHING, EARLIEST)
    node.topics.ensure("Gone", 1)
    tail = TopicTail(node.data, "Gone", EVERYTHING, EARLIEST)
    node.topics.delete("Gone")
    shutil.rmtree(shard_directory(node.data, "Gone", 0).parent, ignore_errors=True)
    with pytest.raises(StoreError, match="no topic 'Gone'"):
        tail.look_for_queues()


def test_it_leaves_the_files_as_they_are(node: LocalNode, tmp_path: Path) -> None:
    copy = shutil.copytree(node.data, tmp_path / "data")
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("*")}
    tail = TopicTail(copy, "Trade", Subscription.sql("amount > 10"), EARLIEST, with_rejected=True)
    assert len(read_all(tail)) == COUNT
    tail.close()
    assert {path: path.stat().st_mtime_ns for path in copy.rglob("*")} == before
