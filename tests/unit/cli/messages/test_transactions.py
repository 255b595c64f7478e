"""The command that shows transactions without a decision, over a node in this process."""

from __future__ import annotations

from typing import Any

from support.harness.command_server import run_here
from support.harness.patience import wait_until
from support.nodes.local_node import LocalNode
from support.nodes.transactions import begin

from rocketray.messaging.producers.producer import NodeProducer


def test_what_nobody_has_decided_is_shown_until_somebody_does(node: LocalNode) -> None:
    empty = run_here("transactions")
    assert (empty.code, "undecided: 0" in empty.out) == (0, True)
    node.topics.ensure("T", 1)
    with NodeProducer(node, group="orders", check=lambda _: "unknown") as producer:
        first, second = (begin(producer, "T", body) for body in (b"a", b"b"))
        found = wait_for(2)
        assert [(each["group"], each["halfOffset"], each["checks"]) for each in found] == [
            ("orders", 0, 0),
            ("orders", 1, 0),
        ]
        assert len(run_here("transactions", "--max", "1", "--json").lines()) == 1
        shown = run_here("transactions", "--max", "1").out
        assert found[0]["msgId"] in shown
        assert found[1]["msgId"] not in shown
        assert "undecided: 2, committed: 0" in shown
        first.commit()
        second.rollback()
        wait_for(0)


def wait_for(count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def are_there() -> bool:
        found[:] = run_here("transactions", "--json").lines()
        return len(found) == count

    wait_until(are_there, lambda: found)
    return found
