"""Which stored message is the one that a service forwarded: a unique key may be made again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.nodes.local_node import LocalNode

from rocketray.message import ForwardedMessage
from rocketray.services.system.node_link import NodeLinks

MESSAGE = ForwardedMessage(
    "trade", b"body" * 2000, {"UNIQ_KEY": "K", "TAGS": "a"}, 1_800_000_000_000, ("192.0.2.1", 7)
)


@pytest.fixture
def links(tmp_path: Path) -> Iterator[NodeLinks]:
    with LocalNode(tmp_path / "data") as node:
        node.topics.ensure("trade", 2)
        links = NodeLinks(lambda: node)
        yield links
        links.close()


def test_a_forwarded_message_is_found_in_its_queue(links: NodeLinks) -> None:
    assert not links.is_stored(MESSAGE, 1)
    links.forward("trade", 1, [replace(MESSAGE, properties={"UNIQ_KEY": "other"}), MESSAGE])
    assert links.is_stored(MESSAGE, 1)
    assert not links.is_stored(MESSAGE, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"body": b"another"},
        {"born_timestamp_ms": MESSAGE.born_timestamp_ms + 365 * 86_400_000},
        {"prepared_transaction_offset": 400},
        {"properties": {"UNIQ_KEY": "K", "TAGS": "b"}},
        {"reconsume_times": 1},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_message_with_its_unique_key_is_not_taken_for_it(
    links: NodeLinks, change: dict[str, Any]
) -> None:
    """A producer whose clock is set back by a year makes the keys of that month again."""
    other = replace(MESSAGE, **change)
    links.forward("trade", 1, [other])
    assert links.is_stored(other, 1)
    assert not links.is_stored(MESSAGE, 1)
    links.forward("trade", 1, [MESSAGE])
    assert links.is_stored(MESSAGE, 1)
