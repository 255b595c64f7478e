"""The lag is what a consumer would still get: equal to counting the messages themselves."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.local_node import LocalNode

from rocketray.actors.filtering import lag
from rocketray.actors.filtering.lag import Exactness, LagCounter, LagQuestion, Switch
from rocketray.errors import FilterEvaluationError
from rocketray.filters.subscription import Subscription
from rocketray.message import Message

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
                question = LagQuestion("Trade", 0, subscription, offset)
                (found,) = counter.answer([question])
                left = sent[max(offset, 0) :]
                wanted = sum(is_wanted(subscription, message) for message in left)
                assert (found.count, found.diff) == (wanted, len(left))
                assert found.exactness is Exactness.EXACT
                at, new = rng.randrange(len(sent) + 20), rng.choice(SUBSCRIPTIONS)
                question = replace(question, switch=Switch(at, new))
                (found,) = counter.answer([question])
                wanted = sum(
                    is_wanted(new if place >= at else subscription, message)
                    for place, message in enumerate(sent)
                    if place >= offset
                )
                assert (found.count, found.diff) == (wanted, len(left))


def test_the_worse_of_two_answers_is_what_both_are_worth(node: LocalNode) -> None:
    with node.producer() as producer:
        producer.send_many("Trade", [Message("Trade", b"x") for _ in range(5)])
    switch = Switch(2, Subscription.where("support.predicates:is_even"))
    question = LagQuestion("Trade", 0, Subscription.tags("Aa"), 0, switch)
    (found,) = LagCounter(node.data).answer([question])
    assert (found.count, found.diff, found.exactness) == (3, 5, Exactness.UNFILTERED)


def test_a_question_that_costs_too_much_is_answered_with_at_least(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(lag._NEW_BLOCKS_MAX, "TAG", 2)
    with node.producer() as producer:
        producer.send_many("Trade", [Message("Trade", b"x", tags="Aa") for _ in range(100)])
    counter = LagCounter(node.data, block_entries=16)
    question = LagQuestion("Trade", 0, Subscription.tags("Aa"), 0)
    counts = [counter.answer([question])[0] for _ in range(4)]
    assert [found.count for found in counts] == [32, 64, 96, 100]
    assert [found.exactness for found in counts] == [Exactness.AT_LEAST] * 3 + [Exactness.EXACT]


def test_a_queue_without_a_directory_spoils_no_other_queue_s_answer(node: LocalNode) -> None:
    with node.producer() as producer:
        producer.send("Trade", b"x")
    missing, there = (LagQuestion("Trade", queue, Subscription.tags("*"), 0) for queue in (7, 0))
    answers = LagCounter(node.data).answer([missing, there])
    assert [(answer.count, answer.exactness) for answer in answers] == [
        (0, Exactness.AT_LEAST),
        (1, Exactness.EXACT),
    ]


def test_a_predicate_is_not_asked(node: LocalNode) -> None:
    with node.producer() as producer:
        producer.send_many("Trade", [Message("Trade", b"x") for _ in range(5)])
    where = Subscription.where("support.predicates:is_even")
    (found,) = LagCounter(node.data).answer([LagQuestion("Trade", 0, where, 2)])
    assert (found.count, found.exactness) == (3, Exactness.UNFILTERED)


def test_old_counts_are_forgotten(node: LocalNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "_KEPT_BLOCKS", 2)
    with node.producer() as producer:
        producer.send_many("Trade", [Message("Trade", b"x", tags="Aa") for _ in range(100)])
    counter = LagCounter(node.data, block_entries=16)
    for _ in range(2):
        (found,) = counter.answer([LagQuestion("Trade", 0, Subscription.tags("Aa"), 3)])
        assert found.count == 97
    assert len(counter._counts) == 2
