"""``filter stats --since``: the filters of groups, evaluated on what is stored."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.harness.command_server import run_here
from support.nodes.local_node import LocalNode

from rocketray.errors import NodeElsewhereError
from rocketray.filters.subscription import Subscription

AMOUNTS = (5, 15, "x", 25)


@pytest.fixture
def since(node: LocalNode) -> int:
    """The store time of all messages of a topic but the first one."""
    node.topics.ensure("Trade", 2)
    with node.producer() as producer:
        producer.send("Trade", b"", properties={"amount": "99"})
        time.sleep(0.005)
        begin_ms = node.clock_ms()
        for amount in AMOUNTS:
            producer.send("Trade", b"", properties={"amount": str(amount)})
    node.consumer("large", "Trade", Subscription.sql("amount > 10")).close()
    node.consumer("tagged", "Trade", Subscription.tags("pay")).close()
    return begin_ms


def test_the_funnel_of_each_group_is_computed_for_what_was_stored_since(since: int) -> None:
    large, tagged = run_here("filter", "stats", "--since", str(since), "--json").lines()
    assert (large["group"], large["held"], large["sinceMs"]) == ("large", 4, since)
    numbers = [large["counters"][name] for name in ("scanned", "matched", "sqlRejected")]
    assert numbers == [4, 2, 1]
    assert "delivered" not in large["counters"], "the group has read nothing"
    assert large["counters"]["evaluationErrors"] == 1
    assert (tagged["counters"]["scanned"], tagged["counters"]["tagRejected"]) == (4, 4)
    [all_of_it] = run_here("filter", "stats", "large", "--since", "1h", "--json").lines()
    assert all_of_it["counters"]["matched"] == 3
    shown = run_here("filter", "stats", "large", "--since", str(since), "--max-scan", "2")
    assert shown.out.splitlines()[0].split()[-1] == "matched"
    assert "only 2 of 4 messages were scanned: --max-scan" in shown.err


def test_what_cannot_be_known_is_not_zero(since: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def elsewhere(*_: object) -> Path:
        raise NodeElsewhereError("its files are elsewhere")

    monkeypatch.setattr(LocalNode, "files", elsewhere)
    shown = run_here("filter", "stats", "large", "--since", str(since))
    assert shown.err == (
        "group large, topic Trade: unknown, because none of the 2 queues of topic "
        "'Trade' is on this machine; do this where they are; see: rocketray topology\n"
    )
    assert "large" not in shown.out
    [found] = run_here("filter", "stats", "large", "--since", str(since), "--json").lines()
    assert found["unknown"].startswith("none of the 2 queues of topic 'Trade' is on this machine")
    refused = run_here("filter", "stats", "--since", "1h", "--rate")
    assert (refused.code, "give one" in refused.err) == (2, True)
