"""Connections to a node are kept, and opened again when the node was started again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rocketray.actors.client.asked_node import AskedNode, open_node
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

    asked = AskedNode(open_one)
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


def test_without_a_node_it_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(NodeNotRunningError, match="start one with: rocketray start --data"):
        open_node(tmp_path)
