"""Queries with the name of a filter: which version they read, from one start to the next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.nodes.apps import put
from support.nodes.local_node import LocalNode
from support.spark.driven_stream import Stream

from rocketray.errors import ConfigError
from rocketray.filters.subscription import Subscription


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path) as local:
        local.topics.ensure("Trade", 1)
        save(local, "amount > 10")
        yield local


def save(node: LocalNode, sql: str) -> None:
    node.named_filters.save("Trade", "large", Subscription.sql(sql))


def send(node: LocalNode, *amounts: int) -> None:
    for amount in amounts:
        put(node, "Trade", [b"%d" % amount], properties={"amount": str(amount)})


def test_a_query_keeps_the_version_with_which_it_began(
    node: LocalNode, caplog: pytest.LogCaptureFixture
) -> None:
    send(node, 5, 15, 25)
    first = Stream(node.data, filter="large")
    end, found = first.read(first.start())
    assert found == [b"15", b"25"]
    save(node, "amount > 20")
    send(node, 6, 16, 26)
    end, found = first.read(end)
    assert found == [b"16", b"26"]
    assert caplog.text == ""
    send(node, 7, 17, 27)
    _, found = Stream(node.data, filter="large").read(end)
    assert found == [b"17", b"27"]
    assert "began with filter large@1, and continues with it, though large@2" in caplog.text


def test_another_version_is_another_filter_for_a_checkpoint(node: LocalNode) -> None:
    save(node, "amount > 20")
    send(node, 5, 15, 25)
    first = Stream(node.data, filter="large@1")
    end, _ = first.read(first.start())
    send(node, 6, 16, 26)
    with pytest.raises(ConfigError, match=r"filter large@1\), and this query has .*large@2\)"):
        Stream(node.data, filter="large@2").read(end)
    assert Stream(node.data, filter="large@2", allowFilterChange="true").read(end)[1] == [b"26"]
    assert Stream(node.data, filter="large", allowFilterChange="true").read(end)[1] == [b"26"]
    assert Stream(node.data, sql="amount > 10").read(end)[1] == [b"16", b"26"]


def test_a_batch_that_was_planned_keeps_its_version(node: LocalNode) -> None:
    """Spark had planned the first batch, and ended: the next run begins with the same start."""
    send(node, 5, 15, 25)
    first = Stream(node.data, filter="large")
    end, found = first.read(first.start())
    save(node, "amount > 20")
    again = Stream(node.data, filter="large")
    assert again.rows(again.start(), end) == found


def test_a_filter_that_was_removed_is_read_on_from_a_checkpoint_alone(
    node: LocalNode, caplog: pytest.LogCaptureFixture
) -> None:
    first = Stream(node.data, filter="large")
    end, _ = first.read(first.start())
    node.named_filters.remove("Trade", "large")
    send(node, 5, 15)
    assert Stream(node.data, filter="large").read(end)[1] == [b"15"]
    assert "continues with filter large@1: topic 'Trade' has no filter 'large'" in caplog.text
    fresh = Stream(node.data, filter="large")
    start = fresh.start()
    with pytest.raises(ConfigError, match="it was removed"):
        fresh.read(start)
