"""The queue where a producer's delayed message waits: on the disk of the queue that it is for."""

from __future__ import annotations

from rocketray.base.delay import Delay, Placed
from rocketray.base.system_topics import WAITING_QUEUES
from rocketray.message import Message

from .links import QueueLinks


def place_delayed(
    links: QueueLinks,
    message: Message,
    delay: Delay,
    queue_id: int | None,
    sharding_key: str | None,
    *,
    now_ms: int,
) -> Placed[Message]:
    """Return the message and the queue where it waits for *delay*.

    Raises:
        As :meth:`QueueLinks.choose_queue`, :meth:`QueueLinks.near` and :meth:`Delay.place`.
    """
    queue_id = links.choose_queue(message.topic, queue_id, sharding_key)
    placed = delay.place_message(message, queue_id, now_ms)
    waits_in = placed.message.topic
    if waits_in not in WAITING_QUEUES:
        return placed
    disk = links.topic(message.topic).disk_of(queue_id)
    return placed._replace(queue_id=links.near(disk, waits_in, placed.queue_id).queue_id)
