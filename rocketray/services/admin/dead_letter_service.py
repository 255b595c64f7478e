"""The dead letters of a node, served to programs on other machines."""

from __future__ import annotations

from contextlib import closing
from itertools import islice

from rocketray.broker.retries.dead_letter_api import LetterBox, LetterPage
from rocketray.filters.subscription import Subscription
from rocketray.message import StoredMessage
from rocketray.messaging.api.node_client import NodeClient
from rocketray.messaging.producers.producer import NodeProducer

from .dead_letters import letter_boxes, letters, redrive

# A page is the result of one call, in memory on both sides; one body more at most.
_PAGE_LETTERS = 256
_PAGE_BYTES = 4 * 1024 * 1024


class DeadLetterService:
    """The object behind ``DeadLettersApi``; any thread may call."""

    def __init__(self, node: NodeClient) -> None:
        """Take a client of the node in a process that has its files."""
        self._node = node

    def boxes(self) -> list[LetterBox]:
        return letter_boxes(self._node)

    def page(
        self, group: str, subscription: Subscription, topic: str | None, start: int
    ) -> LetterPage:
        found: list[tuple[StoredMessage, bool]] = []
        size = 0
        every = letters(self._node, group, subscription, topic, start=start)
        for letter, is_redriven in islice(every, _PAGE_LETTERS):
            found.append((letter, is_redriven))
            size += len(letter.body)
            if size >= _PAGE_BYTES:
                break
        return LetterPage(found, found[-1][0].queue_offset + 1 if found else None)

    def redrive(self, group: str, subscription: Subscription, topic: str | None, limit: int) -> int:
        with closing(NodeProducer(self._node, ack="disk")) as producer:
            return redrive(self._node, producer, group, subscription, topic=topic, limit=limit)
