"""What a changelog has of a table: all messages but the records of its owners."""

from __future__ import annotations

from pathlib import Path

from rocketray.broker.topics.ownership_record import epoch_of
from rocketray.broker.topics.queue_tail import QueueTail
from rocketray.message import StoredMessage


def changes_in(data: Path, topic: str, queue_id: int) -> list[StoredMessage]:
    """Return the changes in one queue of a changelog, in order."""
    tail = QueueTail(data, topic, queue_id)
    try:
        return [one for one in tail.read(0, 100_000) if epoch_of(one) is None]
    finally:
        tail.close()
