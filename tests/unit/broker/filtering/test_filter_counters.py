"""Every message that a filter scans is settled once, whatever kind of filter it is."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest
from support.harness.patience import wait_until
from support.nodes.local_node import LocalNode

from rocketray.filters.counters import FilterCounters
from rocketray.filters.subscription import Subscription
from rocketray.message import Message
from rocketray.messaging.consumers.member import GroupConsumer

COUNT = 3000


@pytest.fixture(scope="module", params=[False, True], ids=["near", "far"])
def node(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[LocalNode]:
    with LocalNode(tmp_path_factory.mktemp("node") / "data") as node:
        node.has_far_members = request.param
        yield node


@pytest.fixture(scope="module")
def sent(node: LocalNode) -> list[Message]:
    """Random tags, of which two share a hash, and amounts, of which some are no numbers."""
    random_ = random.Random(5)
    messages = []
    for _ in range(COUNT):
        amount = random_.choice(["3", "12", "40", "4.5", None])
        properties = {} if amount is None else {"amount": amount}
        body = b"x" * random_.choice([1, 20])
        messages.append(
            Message("Trade", body, random_.choice(["Aa", "BB", "C", None]), (), properties)
        )
    node.topics.ensure("Trade", 2)
    with node.producer() as producer:
        producer.send_many("Trade", messages)
    return messages


def consume_all(member: GroupConsumer) -> FilterCounters:
    """The member's counters after it took all messages of the topic."""
    offsets = Counter[int]()

    def has_all() -> bool:
        for batch in member.poll(0.2):
            offsets[batch.queue_id] = batch.next_queue_offset
        return offsets.total() >= COUNT

    wait_until(has_all)
    assert offsets.total() == COUNT
    return member.counters()


def settled(counters: FilterCounters) -> int:
    """What the module's docstring says that ``scanned`` is."""
    delivered = counters.delivered - counters.delivered_on_error
    return counters.rejected + counters.errors + counters.collisions + delivered


def test_all_messages(node: LocalNode, sent: list[Message]) -> None:
    with node.consumer("all", "Trade", Subscription.tags("*")) as member:
        assert consume_all(member) == FilterCounters(COUNT, delivered=COUNT)


def test_tags(node: LocalNode, sent: list[Message]) -> None:
    tags = Counter(message.tags for message in sent)
    with node.consumer("tags", "Trade", Subscription.tags("Aa || C")) as member:
        counters = consume_all(member)
    assert counters == FilterCounters(
        COUNT, tag_rejected=tags[None], collisions=tags["BB"], delivered=tags["Aa"] + tags["C"]
    )
    assert settled(counters) == COUNT


def test_sql_of_rocketmq(node: LocalNode, sent: list[Message]) -> None:
    amounts = Counter(message.properties.get("amount") for message in sent)
    with node.consumer("sql", "Trade", Subscription.sql("amount > 10", "rocketmq")) as member:
        counters = consume_all(member)
    assert counters == FilterCounters(
        COUNT,
        sql_rejected=amounts["3"] + amounts[None],
        evaluation_errors=amounts["4.5"],
        not_int32=amounts["4.5"],
        delivered=amounts["12"] + amounts["40"],
    )
    assert settled(counters) == COUNT


def test_a_class_filter(node: LocalNode, sent: list[Message]) -> None:
    short = sum(len(message.body) < 10 for message in sent)
    where = Subscription.where("support.predicates:body_is_short")
    with node.consumer("class", "Trade", where) as member:
        counters = consume_all(member)
    assert counters == FilterCounters(COUNT, class_rejected=COUNT - short, delivered=short)
    assert settled(counters) == COUNT


def test_the_coordinator_knows_the_sum_over_all_members(
    node: LocalNode, sent: list[Message]
) -> None:
    with node.consumer("sum", "Trade", Subscription.tags("C")) as member:
        counters = consume_all(member)
    assert node.state.registry.memberships.counters("sum", "Trade") == counters
