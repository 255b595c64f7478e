"""A node in this process with all that the console's pages ask for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.nodes.local_node import LocalNode

from rocketray.broker.retries.retry_records import dead_lettered
from rocketray.filters.subscription import Subscription
from rocketray.message import Message
from rocketray.runtime.files.home import Home
from rocketray.services.admin.dead_letter_service import DeadLetterService

COUNT = 60
LETTERS_OF = "audit"
SECRET = "<b id=injected>&\"'"
"""The body, tag, key and properties that a page has to escape."""


class _NoDisks:
    def draining(self) -> frozenset[str]:
        return frozenset()

    def coordinator_place(self) -> Home:
        return Home("", "", "")

    def homes(self) -> dict[str, Any]:
        return {}

    def reports(self) -> dict[str, Any]:
        return {}


def serve_all(node: LocalNode) -> None:
    """Have the node answer also the calls of the gateway and of the disks."""
    node.letters = DeadLetterService(node)
    node.disks = _NoDisks()  # type: ignore[assignment]


@contextmanager
def console_node(directory: Path) -> Iterator[LocalNode]:
    """A node with messages, groups, dead letters of the group ``audit``, and a named filter."""
    with LocalNode(directory / "data") as node:
        serve_all(node)
        node.topics.ensure("Trade", 2)
        node.topics.ensure("Odd", 1)
        with node.producer() as producer:
            for queue in range(2):
                messages = [_made(number) for number in range(queue, COUNT, 2)]
                producer.send_many("Trade", messages, queue_id=queue)
            odd = Message("Odd", SECRET.encode(), SECRET, (), {"amount": SECRET})
            producer.send_many("Odd", [odd])
        with node.consumer("large", "Trade", Subscription.sql("amount > 40")):
            pass
        with node.consumer("audit", "Trade", Subscription.tags("pay")) as member:
            finished = 0
            while finished < COUNT // 2:
                for batch in member.poll(1.0):
                    finished += len(batch)
                    if batch.queue_id == 0:
                        member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)
        _give_up(node, 5)
        node.named_filters.save("Trade", "pays", Subscription.tags("pay"), SECRET)
        yield node


def _give_up(node: LocalNode, count: int) -> None:
    """Store dead letters of the group ``audit``."""
    topic = f"%DLQ%{LETTERS_OF}"
    node.topics.ensure(topic, 1)
    with node.producer() as producer:
        for number in range(count):
            stored = node.messages.at("Trade", number % 2, number // 2)
            assert stored is not None
            letter = dead_lettered(stored, LETTERS_OF, topic, 16, reason=f"ValueError: {SECRET}")
            producer.forward(topic, 0, [letter.message])


def _made(number: int) -> Message:
    properties = {"amount": str(number), "n": str(number)}
    tag = "pay" if number % 4 < 2 else "ship"
    return Message("Trade", f"order {number}".encode(), tag, (f"k{number}",), properties)
