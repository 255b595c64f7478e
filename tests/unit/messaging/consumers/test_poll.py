"""``poll()`` of the node's consumers and of the testing kit's is one method."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.harness.patience import wait_until
from support.nodes.local_node import LocalNode

from rocketray.filters.subscription import Subscription
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.testing import Member


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path) as made:
        yield made


def test_a_poll_without_arguments_returns_what_is_there(node: LocalNode) -> None:
    node.topics.ensure("T", 1)
    with node.consumer("g", "T", Subscription.tags("*")) as member:
        wait_until(lambda: member.poll() == [] and bool(member.assignment()), "no queue is held")
        with node.producer() as producer:
            producer.send("T", b"x")
        found: list[bytes] = []

        def is_there() -> bool:
            for batch in member.poll():
                found.extend(batch.bodies())
            return found == [b"x"]

        wait_until(is_there, "the message did not come")
        assert member.poll() == []


def test_the_kit_has_the_signature_of_the_node() -> None:
    assert inspect.signature(Member.poll) == inspect.signature(GroupConsumer.poll)
