"""The lag is what a consumer would still get: equal to counting the messages themselves."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.nodes.local_node import LocalNode

from rocketray.broker.filtering import lag
from rocketray.broker.filtering.filtered_lag import Exactness, FilteredLag, total_lag
from rocketray.broker.filtering.lag import LagCounter
from rocketray.errors import FilterEvaluationError
from rocketray.filters.counters import NO_COUNTERS
from rocketray.filters.subscription import Subscription
from rocketray.groups.filter_plan import FilterPlan
from rocketray.groups.group_descriptions import GroupDescription
from rocketray.message import Message
from rocketray.store.reading.reader import QueueReader

SUBSCRIPTIONS = [
    Subscription.tags("*"),
    Subscription.tags("Aa"),
    Subscription.tags("BB || C"),
    Subscription.sql("a > 5"),
    Subscription.sql("a > 5", "rocketmq"),
    Subscription.sql("a > 5 OR TAGS = 'C'"),
]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path / "data") as node:
        node.topics.ensure("Trade", 1)
        yield node


def group_at(
    offsets: dict[int, int],
    subscription: Subscription,
    switch: tuple[int, Subscription] | None = None,
) -> GroupDescription:
    """Return a group; from the offset of *switch* on it reads queue 0 with another subscription."""
    plan = None
    if switch is not None:
        plan = FilterPlan(1, subscription, switch[1], switches={0: switch[0]})
    return GroupDescription("g", "Trade", subscription, offsets, {}, {}, NO_COUNTERS, 0, plan)


def lag_of(
    counter: LagCounter,
    offset: int,
    subscription: Subscription,
    switch: tuple[int, Subscription] | None = None,
) -> FilteredLag:
    return counter.of(group_at({0: offset}, subscription, switch))[0]


def is_wanted(subscription: Subscription, message: Message) -> bool:
    if subscription.expression_type == "TAG":
        tags = [tag.strip() for tag in subscription.expression.split("||")]
        return tags == ["*"] or message.tags in tags
    properties = {**message.properties, **({"TAGS": message.tags} if message.tags else {})}
    try:
        return subscription.compiled().evaluate(properties) is True
    except FilterEvaluationError:
        return False


def test_lag_equals_a_brute_force_count_over_random_histories(
    node: LocalNode, rng: random.Random
) -> None:
    counter = LagCounter(node.data, block_entries=16)
    sent: list[Message] = []
    with node.producer() as producer:
        for _ in range(30):
            batch = [
                Message(
                    "Trade",
                    b"x",
                    tags=rng.choice([None, "Aa", "BB", "C"]),
                    properties={"a": rng.choice(["1", "7", "5.5", "5d"])},
                )
                for _ in range(rng.randrange(1, 40))
            ]
            producer.send_many("Trade", batch)
            sent += batch
            for subscription in SUBSCRIPTIONS:
                offset = rng.choice([-1, 0, len(sent), rng.randrange(len(sent) + 1)])
                found = lag_of(counter, offset, subscription)
                left = sent[max(offset, 0) :]
                stored = node.stored("Trade")[max(offset, 0) :]
                assert found.oldest_ms == (stored[0].store_timestamp_ms if stored else None)
                wanted = sum(is_wanted(subscription, message) for message in left)
                assert (found.count, found.diff) == (wanted, len(left))
                assert found.exactness is Exactness.EXACT
                at, new = rng.randrange(len(sent) + 20), rng.choice(SUBSCRIPTIONS)
                found = lag_of(counter, offset, subscription, (at, new))
                wanted = sum(
                    is_wanted(new if place >= at else subscription, message)
                    for place, message in enumerate(sent)
                    if place >= offset
                )
                assert (found.count, found.diff) == (wanted, len(left))


def test_the_worse_of_two_answers_is_what_both_are_worth(node: LocalNode) -> None:
    with node.producer() as producer:
        producer.send_many("Trade", [Message("Trade", b"x") for _ in range(5)])
    switch = 2, Subscription.where("support.predicates:is_even")
    found = lag_of(LagCounter(node.data), 0, Subscription.tags("Aa"), switch)
    assert (found.count, found.diff, found.exactness) == (3, 5, Exactness.UNFILTERED)


def test_a_question_that_costs_too_much_is_answered_with_at_least(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(lag._NEW_BLOCKS_MAX, "TAG", 2)
    with node.producer() as producer:
        producer.send_many("Trade", [Message("Trade", b"x", tags="Aa") for _ in range(100)])
    counter = LagCounter(node.data, block_entries=16)
    counts = [lag_of(counter, 0, Subscription.tags("Aa")) for _ in range(4)]
    assert [found.count for found in counts] == [32, 64, 96, 100]
    assert [found.exactness for found in counts] == [Exactness.AT_LEAST] * 3 + [Exactness.EXACT]


def test_a_queue_without_a_directory_spoils_no_other_queue_s_answer(node: LocalNode) -> None:
    with node.producer() as producer:
        producer.send("Trade", b"x")
    answers = LagCounter(node.data).of(group_at({7: 0, 0: 0}, Subscription.tags("*")))
    assert {queue: (answer.count, answer.exactness) for queue, answer in answers.items()} == {
        7: (0, Exactness.AT_LEAST),
        0: (1, Exactness.EXACT),
    }


def test_a_predicate_is_not_asked(node: LocalNode) -> None:
    with node.producer() as producer:
        producer.send_many("Trade", [Message("Trade", b"x") for _ in range(5)])
    where = Subscription.where("support.predicates:is_even")
    found = lag_of(LagCounter(node.data), 2, where)
    assert (found.count, found.exactness) == (3, Exactness.UNFILTERED)


def test_old_counts_are_forgotten(node: LocalNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "_KEPT_BLOCKS", 2)
    with node.producer() as producer:
        producer.send_many("Trade", [Message("Trade", b"x", tags="Aa") for _ in range(100)])
    counter = LagCounter(node.data, block_entries=16)
    for offset in (3, 4):
        assert lag_of(counter, offset, Subscription.tags("Aa")).count == 100 - offset
    assert len(counter._counts._values) == 2


def test_while_nothing_moves_the_files_are_not_read_again(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = LagCounter(node.data)
    opened: list[int] = []

    class CountingReader(QueueReader):
        def __init__(self, *arguments: Any) -> None:
            opened.append(1)
            super().__init__(*arguments)

    monkeypatch.setattr(lag, "QueueReader", CountingReader)

    def ask(offset: int, tag: str = "*") -> tuple[int, int]:
        found = lag_of(counter, offset, Subscription.tags(tag))
        return found.count, len(opened)

    with node.producer() as producer:
        producer.send_many("Trade", [Message("Trade", b"x", tags="Aa") for _ in range(9)])
        first, second = ask(2), ask(2)
        assert (first, second) == ((7, 1), (7, 1))
        assert ask(3) == (6, 2)
        assert ask(3, "BB") == (0, 3)
        producer.send("Trade", b"x", tags="Aa")
        assert ask(3) == (7, 4)
    node.topics.delete("Trade")
    node.topics.ensure("Trade", 1)
    with node.producer() as producer:
        producer.send_many("Trade", [Message("Trade", b"x", tags="BB") for _ in range(10)])
    assert ask(3, "Aa") == (0, 5), "another topic of that name"


def test_the_lag_of_all_queues_is_as_exact_as_the_least_exact() -> None:
    exact = FilteredLag(3, 5, Exactness.EXACT, 700)
    bound = FilteredLag(1, 1, Exactness.AT_LEAST, 400)
    whole = FilteredLag(2, 2, Exactness.UNFILTERED)
    assert total_lag([exact, bound]) == FilteredLag(4, 6, Exactness.AT_LEAST, 400)
    assert total_lag([bound, whole, exact]).exactness is Exactness.UNFILTERED
    assert total_lag([]) == FilteredLag(0, 0, Exactness.EXACT)
    assert total_lag([exact, bound]).age_ms(1_000) == 600
    assert total_lag([]).age_ms(1_000) == 0, "nothing is unread"
    assert whole.age_ms(1_000) is None, "what is unread was removed"
    assert exact.age_ms(600) == 0, "the clock was set back"
