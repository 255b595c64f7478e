"""A coordinator that starts again, from offsets of before, hears from the living how far they came."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.nodes.local_node import RULES, LocalNode

from rocketray.actors.cluster.cluster_state import ClusterState
from rocketray.filters.subscription import Subscription
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.runtime.clock import system_clock_ms

ALL = Subscription.tags("*")
COUNT = 20


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path) as local:
        local.topics.ensure("T", 2)
        with local.producer() as producer:
            for number in range(COUNT):
                producer.send("T", b"%d" % number, queue_id=number % 2)
        yield local


def restart_coordinator(node: LocalNode) -> None:
    """As after SIGKILL: what was not saved is forgotten."""
    node.state = ClusterState(node.data, RULES, system_clock_ms)


def finish_all(member: GroupConsumer) -> None:
    """Read what there is, and tell the coordinator."""
    found = 0
    while found < COUNT:
        for batch in member.poll(0.1):
            found += len(batch)
            member.commit("T", batch.queue_id, batch.next_queue_offset)
    member.beat()


def offsets(node: LocalNode) -> list[int]:
    return [node.state.registry.offsets.get("g", "T", queue) for queue in range(2)]


def test_a_member_that_stays_says_again_what_it_finished(node: LocalNode) -> None:
    with GroupConsumer(node, "g", "T", ALL, has_heart=False) as member:
        finish_all(member)
        told = offsets(node)
        restart_coordinator(node)
        member.beat()  # hears that the coordinator knows less
        member.beat()
        assert sum(told) == COUNT
        assert offsets(node) == told


def test_a_queue_that_is_taken_away_first_is_given_up_where_its_reader_stands(
    node: LocalNode,
) -> None:
    with GroupConsumer(node, "g", "T", ALL, has_heart=False, client_id="a") as member:
        finish_all(member)
        told = offsets(node)
        restart_coordinator(node)
        with GroupConsumer(node, "g", "T", ALL, has_heart=False, client_id="b") as other:
            member.beat()  # one queue is not its own any more
            member.poll(0)
            member.beat()
            assert offsets(node) == told
            other.beat()
            assert other.poll(0.1) == [], "what was finished does not come again"
            assert len(other.assignment()) == 1


def test_a_member_that_leaves_then_says_it_as_it_goes(node: LocalNode) -> None:
    with GroupConsumer(node, "g", "T", ALL, has_heart=False) as member:
        finish_all(member)
        told = offsets(node)
        restart_coordinator(node)
    assert offsets(node) == told
