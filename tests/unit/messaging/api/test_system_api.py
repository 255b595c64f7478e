"""Transactions and delayed messages of all disks, and before the shared processes were started."""

from __future__ import annotations

from typing import Any, Never

import pytest

from rocketray.base.recall import RecallHandle
from rocketray.base.system_topics import HALF_TOPIC, SCHEDULE_TOPIC
from rocketray.base.transaction import Decision
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.broker.topics.placement import Placement
from rocketray.broker.topics.topics import Topics
from rocketray.errors import ConfigError, InvalidMessageError
from rocketray.messaging.api.system_api import (
    NodeDelays,
    NodeTransactions,
    TransactionCounts,
    TransactionOverview,
    UndecidedHalf,
    WaitingByMinute,
)

FAR = "00000000-0000-0000-0000-000000000002"
SHARED = "shards:shared"
DECISION = Decision(7, "K", "g", "commit", "producer")


class NoProcess:
    def __getattr__(self, name: str) -> Any:
        def call(*_: object) -> Never:
            raise AssertionError(f"{name} was called")

        return call


def half(queue_id: int, stored_ms: int) -> UndecidedHalf:
    return UndecidedHalf(queue_id, 0, "g", f"K{stored_ms}", stored_ms, 0)


class TwoDisks:
    """The transport to the services of two disks, and which of the disks answer."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.there = {"", FAR}
        self.overviews = {
            SHARED: TransactionOverview((half(0, 1), half(0, 4)), 5, TransactionCounts(1, 2, 3, 4)),
            f"{SHARED}@{FAR}": TransactionOverview((half(1, 2),), 1, TransactionCounts(10)),
        }

    def reports(self) -> dict[str, object]:
        return dict.fromkeys(self.there)

    def call(self, endpoint: Any, method: str, *arguments: Any, **_: object) -> Any:
        self.calls.append((endpoint.actor, method))
        if method == "overview":
            return self.overviews[endpoint.actor]
        answers = {"checks": [endpoint.actor, *arguments], "waiting": 3}
        return answers.get(method, True)


@pytest.fixture
def disks(monkeypatch: pytest.MonkeyPatch) -> TwoDisks:
    both = Placement(disks=lambda: ("", FAR))
    catalog = TopicCatalog().with_topic(HALF_TOPIC, 1, both).with_topic(SCHEDULE_TOPIC, 18, both)
    monkeypatch.setattr(Topics, "all", lambda _: catalog.topics)
    monkeypatch.setattr(Topics, "get", lambda _, name: catalog.get(name))
    return TwoDisks()


def transactions(disks: Any) -> NodeTransactions:
    return NodeTransactions(disks, Topics(NoProcess()), disks)


def test_a_node_on_which_no_transaction_was_begun_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = TopicCatalog().with_topic("Trade", 1)
    monkeypatch.setattr(Topics, "all", lambda _: catalog.topics)
    none = transactions(NoProcess())
    assert none.overview(10) == TransactionOverview()
    assert none.checks("g") == []


def test_the_transactions_of_all_disks_are_shown_oldest_first(disks: TwoDisks) -> None:
    found = transactions(disks).overview(2)
    assert [one.stored_ms for one in found.halves] == [1, 2]
    assert found.undecided == 6
    assert found.counts == TransactionCounts(11, 2, 3, 4)
    assert found.unknown == ()


@pytest.mark.parametrize(("away", "there"), [(FAR, SHARED), ("", f"{SHARED}@{FAR}")])
def test_a_disk_that_is_away_is_named_and_not_asked(disks: TwoDisks, away: str, there: str) -> None:
    disks.there.remove(away)
    found = transactions(disks).overview(10)
    assert (found.unknown, found.halves) == ((away,), disks.overviews[there].halves)
    checked: list[object] = [*transactions(disks).checks("g")]
    assert checked == [there, "g"]
    assert {actor for actor, _ in disks.calls} == {there}


def test_a_half_is_decided_on_its_disk(disks: TwoDisks) -> None:
    node = transactions(disks)
    for queue_id in (1, 0):
        node.decide(queue_id, DECISION, to_disk=True)
    assert disks.calls == [(f"{SHARED}@{FAR}", "decide"), (SHARED, "decide")]
    with pytest.raises(ConfigError, match="has the queues 0 to 1, not 2"):
        node.decide(2, DECISION, to_disk=True)


def test_a_delayed_message_is_recalled_on_its_disk(disks: Any) -> None:
    delays = NodeDelays(disks, Topics(NoProcess()))
    assert delays.recall(str(RecallHandle(SCHEDULE_TOPIC, 20, 5, "K")))
    assert delays.is_waiting(SCHEDULE_TOPIC, 2, 5)
    assert delays.recall(str(RecallHandle(SCHEDULE_TOPIC, 99, 5, "K"))), "which it may refuse"
    assert disks.calls == [
        (f"{SHARED}@{FAR}", "recall"),
        (SHARED, "is_waiting"),
        (SHARED, "recall"),
    ]


def test_what_is_left_on_a_disk_is_counted_there(disks: Any) -> None:
    delays = NodeDelays(disks, Topics(NoProcess()))
    assert (delays.waiting(FAR), delays.waiting("another")) == (3, 0)
    assert delays.by_minute("another", 10) == WaitingByMinute()
    node = transactions(disks)
    assert (node.undecided(FAR), node.undecided(""), node.undecided("another")) == (1, 5, 0)
    assert {actor for actor, _ in disks.calls} == {f"{SHARED}@{FAR}", SHARED}


def test_what_is_no_handle_is_recalled_without_a_call() -> None:
    with pytest.raises(InvalidMessageError):
        NodeDelays(NoProcess(), Topics(NoProcess())).recall("no handle")
