"""Two filters compared on columns differ where a verdict on each single message says so."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from support.nodes.local_node import LocalNode

from rocketray.broker.filtering.filter_diff import Difference, FilterDiff, diff_filters
from rocketray.broker.filtering.left_out import left_out
from rocketray.broker.filtering.preview import PreviewRange
from rocketray.errors import ConfigError, FilterSyntaxError
from rocketray.filters.filter_verdict import explain_filter
from rocketray.filters.subscription import Subscription
from rocketray.filters.verdict_values import FilterReason
from rocketray.hashing import tags_code
from rocketray.message import Message, StoredMessage

QUEUES, COUNT = 3, 2400
FILTERS = [
    *map(Subscription.tags, ("*", "Aa", "BB || C", "Nothing")),
    *map(
        Subscription.sql,
        ("amount > 3", "amount > 3 OR n < 900", "amount IS NULL", "TAGS = 'Aa' AND amount > 0"),
    ),
    Subscription.sql("amount > 3", "rocketmq"),
]


@pytest.fixture(scope="module")
def node(
    tmp_path_factory: pytest.TempPathFactory, module_rng: random.Random
) -> Iterator[LocalNode]:
    """Tags whose hashes collide, and amounts that are absent or no numbers."""
    with LocalNode(tmp_path_factory.mktemp("node") / "data") as node:
        node.topics.ensure("Trade", QUEUES)
        with node.producer() as producer:
            for queue in range(QUEUES):
                made = [message(number, module_rng) for number in range(queue, COUNT, QUEUES)]
                producer.send_many("Trade", made, queue_id=queue)
        yield node


@pytest.fixture(scope="module")
def module_rng() -> random.Random:
    return random.Random(5)


def message(number: int, rng: random.Random) -> Message:
    amount = rng.choice([None, "2", "4", "4.5", "n/a"])
    properties = {"n": str(number)} | ({} if amount is None else {"amount": amount})
    return Message("Trade", b"body", rng.choice(["Aa", "BB", "C"]), (), properties)


def slowly(
    node: LocalNode, filters: tuple[Subscription, Subscription], begins: dict[int, int], show: int
) -> FilterDiff:
    """Decide on each message by itself."""
    found = []
    for stored in node.stored("Trade"):
        if stored.queue_offset >= begins.get(stored.queue_id, 0):
            old, new = (reason(each, stored) for each in filters)
            found.append(Difference(stored, old, new))
    matched, failed = FilterReason.MATCHED, FilterReason.SQL_ERROR
    found.sort(key=lambda one: one.message.store_timestamp_ms)
    lost = [one for one in found if one.old is matched is not one.new]
    gained = [one for one in found if one.new is matched is not one.old]
    return FilterDiff(
        held=len(found),
        scanned=len(found),
        both=sum(one.old is one.new is matched for one in found),
        only_old=len(lost),
        only_new=len(gained),
        old_failed=sum(one.old is failed for one in found),
        new_failed=sum(one.new is failed for one in found),
        lost=tuple(lost[:show]),
        gained=tuple(gained[:show]),
    )


def reason(subscription: Subscription, stored: StoredMessage) -> FilterReason:
    return explain_filter(subscription, stored, tags_code(stored.tags), lambda *_: False).reason


def test_each_count_and_example_is_that_of_single_verdicts(
    node: LocalNode, rng: random.Random
) -> None:
    for _ in range(8):
        filters = rng.choice(FILTERS), rng.choice(FILTERS)
        begins = {queue: rng.randrange(COUNT // QUEUES) for queue in range(rng.randrange(4))}
        found = diff_filters(node.data, "Trade", filters, begins=begins, show=COUNT)
        wanted = slowly(node, filters, begins, COUNT)
        assert _without_order(found) == _without_order(wanted)


def _without_order(found: FilterDiff) -> tuple[object, ...]:
    """Messages of several queues that were stored in the same millisecond come in any order."""
    places = [
        sorted(
            (one.message.queue_id, one.message.queue_offset, one.old.name, one.new.name)
            for one in each
        )
        for each in (found.lost, found.gained)
    ]
    counts = found.held, found.scanned, found.both, found.only_old, found.only_new
    return *counts, found.old_failed, found.new_failed, *places


def test_it_keeps_few_examples_and_scans_no_more_than_it_may(node: LocalNode) -> None:
    filters = Subscription.tags("*"), Subscription.tags("Aa")
    within = PreviewRange(limit=1000)
    found = diff_filters(node.data, "Trade", filters, within, show=3)
    assert (found.held, found.scanned, len(found.lost), found.gained) == (COUNT, 1000, 3, ())
    assert {one.new for one in found.lost} <= {
        FilterReason.TAG_MISMATCH,
        FilterReason.TAG_COLLISION,
    }
    nothing = diff_filters(
        node.data, "Trade", filters, PreviewRange(queue_id=1), {1: COUNT}, show=3
    )
    assert (nothing.held, nothing.scanned) == (0, 0)


@pytest.mark.parametrize("only_failed", [False, True])
@pytest.mark.parametrize("subscription", FILTERS)
def test_what_a_filter_leaves_out_is_what_single_verdicts_leave_out(
    node: LocalNode, subscription: Subscription, only_failed: bool
) -> None:
    found = left_out(
        node.data, "Trade", subscription, PreviewRange(), show=COUNT, only_failed=only_failed
    )
    said = {
        (one.message.queue_id, one.message.queue_offset): one.reason for one in found if one.step
    }
    verdicts = [(stored, reason(subscription, stored)) for stored in node.stored("Trade")]
    assert said == {
        (stored.queue_id, stored.queue_offset): verdict
        for stored, verdict in verdicts
        if verdict is (FilterReason.SQL_ERROR if only_failed else verdict)
        and verdict is not FilterReason.MATCHED
    }
    few = left_out(
        node.data, "Trade", subscription, PreviewRange(), show=2, only_failed=only_failed
    )
    assert len(few) == min(2, len(found))


def test_a_wrong_filter_or_queue_is_refused(node: LocalNode) -> None:
    every = Subscription.tags("*")
    with pytest.raises(FilterSyntaxError):
        diff_filters(node.data, "Trade", (every, Subscription.sql("amount >")), show=1)
    with pytest.raises(ConfigError, match="queue 9"):
        diff_filters(node.data, "Trade", (every, every), PreviewRange(queue_id=9), show=1)
