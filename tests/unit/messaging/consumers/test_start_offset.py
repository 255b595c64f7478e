"""Illegal offsets are corrected as RocketMQ does, and offsets move over what a filter leaves out."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.nodes.apps import numbers, put
from support.nodes.local_node import LocalNode

from rocketray.filters.subscription import Subscription
from rocketray.messaging.consumers.start_offset import NextBegin, next_begin
from rocketray.store.reading.pull import GetMessageStatus

ALL = Subscription.tags("*")
TOO_SMALL = GetMessageStatus.OFFSET_TOO_SMALL
OVERFLOW = GetMessageStatus.OFFSET_OVERFLOW_BADLY


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path) as local:
        local.topics.ensure("T", 1)
        yield local


@pytest.mark.parametrize(
    ("offset", "minimum", "maximum", "begin"),
    [
        (0, 0, 0, NextBegin(0)),
        (5, 0, 10, NextBegin(5)),
        (10, 0, 10, NextBegin(10)),
        (0, 0, 10, NextBegin(0)),
        (4, 5, 10, NextBegin(5, TOO_SMALL, 1)),
        (4, 5, 5, NextBegin(5, TOO_SMALL, 1)),
        (5, 5, 5, NextBegin(5)),
        (6, 5, 5, NextBegin(5, OVERFLOW)),
        (11, 0, 10, NextBegin(0, OVERFLOW)),
        (2**62, 0, 0, NextBegin(0, OVERFLOW)),
    ],
)
def test_the_next_begin_loses_no_message_that_is_there(
    offset: int, minimum: int, maximum: int, begin: NextBegin
) -> None:
    assert next_begin(offset, minimum, maximum) == begin


@pytest.mark.proves(
    "groups",
    "A group with an offset beyond the end of the queue begins again, and that is logged once",
)
def test_a_group_beyond_the_end_begins_again_and_says_so_once(
    node: LocalNode, caplog: pytest.LogCaptureFixture
) -> None:
    put(node, "T", numbers(10))
    node.consumer("g", "T", ALL).close()
    node.state.registry.offsets.commit("g", "T", 0, 50)
    with caplog.at_level(logging.WARNING), node.consumer("g", "T", ALL) as member:
        member.beat()
        assert node.groups.all()[0].offsets == {0: 0}, "corrected before anything is delivered"
        put(node, "T", numbers(3, first=10))
        found: list[bytes] = []
        while len(found) < 13:
            found += [body for batch in member.poll(0.1) for body in batch.bodies()]
        assert found == numbers(13)
        assert member.counters().missed == 0
    (said,) = [one for one in caplog.messages if "out of range" in one]
    assert said.startswith("T/0: offset 50 of group g is out of range (OFFSET_OVERFLOW_BADLY)")
    assert said.endswith("continuing at 0, 0 messages missed")
    caplog.clear()
    node.consumer("g", "T", ALL).close()
    assert not caplog.messages


@pytest.mark.proves("groups", "Offsets advance over messages that the filter excludes")
def test_offsets_move_over_what_the_filter_leaves_out_without_a_delivery(node: LocalNode) -> None:
    """RocketMQ's client calls it correctTagsOffset."""
    put(node, "T", numbers(10), tags="other")
    with node.consumer("g", "T", Subscription.tags("wanted")) as member:
        passed = 0
        while passed < 10:
            for batch in member.poll(0.1):
                assert len(batch) == 0
                passed = batch.next_queue_offset
                member.commit("T", 0, passed)
    assert node.groups.all()[0].offsets == {0: 10}
