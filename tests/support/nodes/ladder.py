"""What waits to come again, delivered at once, as if the hours had passed."""

from __future__ import annotations

from support.nodes.local_node import LocalNode

from rocketray.base.delay import DELAY_LEVELS_MS, restored
from rocketray.base.system_topics import SCHEDULE_TOPIC
from rocketray.message import StoredMessage


class Ladder:
    """The schedule topic of a node, and how far each level was delivered."""

    def __init__(self, node: LocalNode) -> None:
        self._node = node
        self._next = [0] * len(DELAY_LEVELS_MS)

    def waiting(self) -> list[StoredMessage]:
        """All that waits, by level."""
        self._node.topics.ensure(SCHEDULE_TOPIC, len(DELAY_LEVELS_MS))
        found = []
        for level, start in enumerate(self._next):
            offset = start
            while (message := self._node.messages.at(SCHEDULE_TOPIC, level, offset)) is not None:
                found.append(message)
                offset += 1
        return found

    def deliver(self) -> int:
        """Deliver what waits; how many messages."""
        messages = self.waiting()
        with self._node.producer() as producer:
            for message in messages:
                again, queue_id = restored(message)
                producer.forward(again.topic, queue_id, [again])
                self._next[message.queue_id] += 1
        return len(messages)


def stored_in(node: LocalNode, topic: str) -> list[StoredMessage]:
    """The messages in queue 0 of a topic, none where it does not exist."""
    if topic not in node.topics.all():
        return []
    node.topics.ensure(topic, 1)  # so that it is there, if another is only making it
    end = node.shard_statistics(topic)[0].max_queue_offset
    found = [node.messages.at(topic, 0, offset) for offset in range(end)]
    return [one for one in found if one is not None]
