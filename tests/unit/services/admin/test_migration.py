"""A running group gets another subscription, on a node with its real filter."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.nodes.apps import numbers, put
from support.nodes.local_node import LocalNode

from rocketray.errors import PredicateError, StreamError, SubscriptionConflictError
from rocketray.filters.subscription import Subscription
from rocketray.groups.filter_plans import PlanProgress
from rocketray.messaging.api.node_client import lag_of
from rocketray.messaging.consumers import member as member_module
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.services.admin.migration import migrate

OLD, NEW = Subscription.tags("a || both"), Subscription.tags("b || both")


@pytest.fixture(params=[False, True], ids=["near", "far"])
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LocalNode]:
    with LocalNode(tmp_path) as local:
        local.topics.ensure("T", 1)
        local.has_far_members = request.param
        yield local


def take(members: list[GroupConsumer], count: int) -> list[bytes]:
    found: list[bytes] = []
    for _ in range(300):
        for member in members:
            for batch in member.poll(0.05):
                found += batch.bodies()
                member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)
        if len(found) >= count:
            break
    return found


@pytest.mark.proves("groups", "A change of filter switches each queue at one offset")
def test_a_queue_switches_at_one_offset_and_members_are_replaced(node: LocalNode) -> None:
    told: list[str] = []
    results: list[PlanProgress | None] = []

    def run() -> None:
        results.append(migrate(node.groups, "g", "T", NEW, timeout_s=30, tell=told.append))

    with node.consumer("g", "T", OLD, client_id="old") as old:
        for tag in ("a", "b", "both"):
            put(node, "T", [f"{tag}1".encode()], tags=tag)
        assert take([old], 2) == [b"a1", b"both1"]
        migrating = threading.Thread(target=run)
        migrating.start()
        while migrating.is_alive():
            take([old], 0)
        (found,) = results
        assert found is not None
        assert found.plan.switches == {0: 3}
        assert (found.outdated, found.without_switch, found.before_switch) == (["old"], [], [])
        assert told == ["all members have received tags 'b || both'; switching"]
        for tag in ("a", "b", "both"):
            put(node, "T", [f"{tag}2".encode()], tags=tag)
        put(node, "T", [b"b3"], tags="b")
        (group,) = node.groups.all()
        assert group.subscription == OLD
        assert lag_of(node, group)[0].count == 3, "what the new filter lets pass behind the switch"
        assert take([old], 3) == [b"b2", b"both2", b"b3"]
        with node.consumer("g", "T", NEW) as new:
            old.close()
            put(node, "T", numbers(1), tags="b")
            assert take([new], 1) == [b"0"]
    assert node.groups.all()[0].subscription == NEW
    with pytest.raises(StreamError, match="subscribes to topic 'T' with tags 'b"):
        migrate(node.groups, "g", "T", NEW, timeout_s=1, tell=told.append)


@pytest.mark.proves(
    "groups",
    "A change that has switched leads back while members ask for the old subscription",
)
def test_a_change_that_has_switched_leads_back_while_members_ask_for_the_old_one(
    node: LocalNode,
) -> None:
    def go_to(subscription: Subscription) -> None:
        changing = threading.Thread(
            target=lambda: migrate(
                node.groups, "g", "T", subscription, timeout_s=30, tell=lambda _: None
            )
        )
        changing.start()
        while changing.is_alive():
            take([old], 0)

    with node.consumer("g", "T", OLD, client_id="old") as old:
        put(node, "T", [b"a1"], tags="a")
        assert take([old], 1) == [b"a1"]
        go_to(NEW)
        put(node, "T", [b"b1"], tags="b")
        assert take([old], 1) == [b"b1"], "the new filter delivers"
        with pytest.raises(
            StreamError, match="cannot be dropped any more: when all queues"
        ) as refused:
            node.groups.abort_change("g", "T")
        assert str(refused.value).endswith("rocketray groups migrate g T --tags 'a || both'")
        with pytest.raises(StreamError, match="replace the members that ask for tags 'a"):
            migrate(node.groups, "g", "T", Subscription.tags("c"), timeout_s=0, tell=lambda _: None)
        go_to(OLD)
        assert node.groups.change_progress("g", "T") is None
        (group,) = node.groups.all()
        assert group.subscription == OLD
        put(node, "T", [b"b2"], tags="b")
        put(node, "T", [b"a2"], tags="a")
        assert take([old], 1) == [b"a2"], "the old filter delivers again"


def test_no_way_leads_back_before_every_queue_has_switched(node: LocalNode) -> None:
    node.consumer("g", "T", OLD).close()
    migrate(node.groups, "g", "T", NEW, timeout_s=0.5, tell=lambda _: None)
    with pytest.raises(StreamError, match="when all queues have reached their switch"):
        migrate(node.groups, "g", "T", OLD, timeout_s=0, tell=lambda _: None)


def test_what_it_waits_for_is_told_every_five_seconds(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_module, "HEARTBEAT_INTERVAL_S", 3600)  # nobody hears of it by itself
    told: list[tuple[float, str]] = []
    slept_s = [0.0]

    with node.consumer("g", "T", OLD, client_id="old") as old:

        def sleep(seconds: float) -> None:
            slept_s[0] += seconds
            if len(told) == 2:
                old.beat()

        def tell(line: str) -> None:
            told.append((slept_s[0], line))

        steps: dict[str, Any] = {"tell": tell, "sleep": sleep, "clock_s": lambda: slept_s[0]}
        found = migrate(node.groups, "g", "T", NEW, timeout_s=22, **steps)
    assert found is not None
    assert found.without_switch == [0]
    assert [line for _, line in told] == [
        "waiting for members old to receive the change; 17 s are left",
        "waiting for members old to receive the change; 12 s are left",
        "all members have received tags 'b || both'; switching",
        "waiting for the owners of queues 0 to reach the switch; 7 s are left",
        "waiting for the owners of queues 0 to reach the switch; 1 s are left",
    ]
    times = [at_s for at_s, line in told if line.startswith("waiting")]
    gaps = [after - before for before, after in pairwise([0.0, *times])]
    assert all(4.9 < gap < 5.3 for gap in gaps), gaps


def test_its_time_is_over_also_if_calls_take_most_of_it(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_module, "HEARTBEAT_INTERVAL_S", 3600)  # nobody hears of it by itself
    times = itertools.count(0.0, 5.0)  # each look takes so long, and no pause takes any time
    steps: dict[str, Any] = {"sleep": lambda _: None, "clock_s": lambda: next(times)}
    with (
        node.consumer("g", "T", OLD, client_id="old"),
        pytest.raises(StreamError, match=r"members old .* have not received the change after 12 s"),
    ):
        migrate(node.groups, "g", "T", NEW, timeout_s=12, tell=lambda _: None, **steps)
    assert next(times) == 20.0


def test_what_cannot_be_changed_is_said(node: LocalNode) -> None:
    def try_it(subscription: Subscription, **options: Any) -> None:
        migrate(node.groups, "g", "T", subscription, tell=lambda _: None, **options)

    with pytest.raises(StreamError, match="group 'g' does not read topic 'T'"):
        try_it(NEW, timeout_s=0)
    with node.consumer("g", "T", OLD):
        with pytest.raises(SubscriptionConflictError, match="added: b; removed: a; kept: both"):
            node.consumer("g", "T", NEW)
        with pytest.raises(PredicateError, match="not allowed on this node"):
            try_it(Subscription.where("os:getcwd"), timeout_s=0)
        with pytest.raises(StreamError, match=r"have not received the change after 0 s.*--abort"):
            try_it(NEW, timeout_s=0)
        with pytest.raises(StreamError, match="is changing from tags"):
            try_it(Subscription.tags("c"), timeout_s=0)
        node.groups.abort_change("g", "T")
        with pytest.raises(StreamError, match="no change of group 'g'"):
            node.groups.abort_change("g", "T")
