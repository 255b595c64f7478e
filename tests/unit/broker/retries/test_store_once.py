"""A message whose delivery is in doubt counts as delivered when it is on disk, and not before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from rocketray.broker.retries.deliveries import store_once
from rocketray.errors import ShardUnavailableError, TopicNotFoundError
from rocketray.message import ForwardedMessage

PLACE = ("Trade", 3)


@dataclass
class Queue:
    """One queue: what it has, and what of it is on disk."""

    stored: list[ForwardedMessage] = field(default_factory=list)
    on_disk: list[ForwardedMessage] = field(default_factory=list)
    fails: bool = False
    is_gone: bool = False

    def forward(self, topic: str, queue_id: int, messages: Sequence[ForwardedMessage]) -> None:
        self.stored += messages
        self.sync(topic, queue_id)

    def is_stored(self, message: ForwardedMessage, queue_id: int) -> bool:
        if self.is_gone:
            raise TopicNotFoundError(message.topic)
        return (message.topic, queue_id) == PLACE and message in self.stored

    def sync(self, topic: str, queue_id: int) -> None:
        assert (topic, queue_id) == PLACE
        if self.fails:
            raise ShardUnavailableError("shard Trade/3", "its disk failed")
        self.on_disk = [*self.stored]


def message(number: int) -> ForwardedMessage:
    return ForwardedMessage("Trade", b"%d" % number, {}, 0, ("192.0.2.1", 1))


ONE, TWO = message(1), message(2)


@pytest.mark.parametrize("others", [[], [(TWO, False)], [(TWO, True)]])
def test_what_an_earlier_attempt_stored_in_memory_is_brought_to_disk(
    others: list[tuple[ForwardedMessage, bool]],
) -> None:
    """Else a power failure takes a committed or delayed message that is noted as delivered."""
    queue = Queue(fails=True)
    with pytest.raises(ShardUnavailableError):
        store_once(queue, PLACE, [(ONE, False)])
    with pytest.raises(ShardUnavailableError):
        store_once(queue, PLACE, [(ONE, True), *others])
    queue.fails = False
    store_once(queue, PLACE, [(ONE, True), *((one, True) for one, _ in others)])
    assert queue.on_disk == [ONE, *(one for one, _ in others)]


def test_only_what_is_in_doubt_is_looked_for() -> None:
    queue = Queue()
    store_once(queue, PLACE, [(ONE, False), (ONE, False), (ONE, True), (TWO, True)])
    assert queue.on_disk == [ONE, ONE, ONE, TWO]
    store_once(queue, PLACE, [])
    assert len(queue.on_disk) == 4


def test_a_queue_that_is_gone_has_nothing() -> None:
    queue = Queue(is_gone=True)
    store_once(queue, PLACE, [(ONE, True)])
    assert queue.stored == [ONE]
