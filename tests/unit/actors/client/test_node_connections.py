"""Connections to a node are kept, and opened again when the node was started again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from support.harness.patience import patience

from rocketray.actors.client.node_connections import _IDLE_MAX, NodeConnections, open_node
from rocketray.errors import NodeNotRunningError, StoreError


def test_a_connection_is_used_again_unless_its_node_ended() -> None:
    opened: list[Any] = []

    def open_one() -> Any:
        opened.append(object())
        return opened[-1]

    def fails(error: BaseException) -> Any:
        def question(_: Any) -> None:
            raise error

        return question

    asked = NodeConnections(open_one)
    assert asked.ask(lambda node: node) is asked.ask(lambda node: node)
    with pytest.raises(StoreError):
        asked.ask(fails(StoreError("it burns")))
    assert asked.ask(lambda node: node) is opened[0]
    with pytest.raises(NodeNotRunningError):
        asked.ask(fails(NodeNotRunningError("it ended")))
    assert asked.ask(lambda node: node) is opened[1]
    assert asked.ask(lambda first: asked.ask(lambda node: node is not first)), "each has its own"
    asked.close()
    assert len(opened) == 3
    assert asked.ask(lambda node: node) is opened[3]
    with pytest.raises(KeyboardInterrupt):
        asked.ask(fails(KeyboardInterrupt()))
    assert asked.ask(lambda node: node) is opened[4], "the last may have an answer of that call"


def test_what_many_threads_give_back_at_once_is_kept_or_closed() -> None:
    """None of them waits for room: another one has taken the last place in between."""
    open_one: Any = object
    asked, count = NodeConnections(open_one), 2 * _IDLE_MAX
    together = Barrier(count)
    with ThreadPoolExecutor(count) as threads:
        for _ in range(20):
            found = [threads.submit(asked.ask, lambda _: together.wait()) for _ in range(count)]
            assert len([one.result(patience(60)) for one in found]) == count
            asked.close()


def test_without_a_node_it_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(NodeNotRunningError, match="start one with: rocketray start --data"):
        open_node(tmp_path)
