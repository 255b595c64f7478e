"""A program's own choice of a message's queue: RocketMQ's ``MessageQueueSelector.select``.

RocketMQ passes the list of queues, the message and an argument. Queues of a topic are numbered from
0 here, so how many there are says it all, and what else a choice needs comes with the callable.
Messages of one queue keep their order, so whatever is chosen alike is delivered in order.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

from rocketray.errors import ConfigError
from rocketray.message import Message

__all__ = ["QueueSelector", "select_each", "select_queue"]

QueueSelector = Callable[[int, Message], int]
"""Says from the number of queues and a message into which queue the message goes."""


def select_queue(selector: QueueSelector, queues: int, message: Message) -> int:
    """The queue that *selector* chooses for *message* among *queues*; what it raises is raised.

    Raises:
        ConfigError: it chose something else than one of them.
    """
    chosen = selector(queues, message)
    try:
        queue_id = operator.index(chosen)
    except TypeError:
        queue_id = -1
    if not 0 <= queue_id < queues:
        raise ConfigError(
            f"the queue selector chose {chosen!r} for a message of topic {message.topic!r}, which "
            f"has the queues 0 to {queues - 1}; nothing was sent"
        )
    return queue_id


def select_each(
    selector: QueueSelector, queues: int, messages: Sequence[Message]
) -> list[tuple[int, Sequence[int]]]:
    """The numbers of *messages* by the queue that is chosen for each; raises as select_queue."""
    places: dict[int, list[int]] = {}
    for number, message in enumerate(messages):
        places.setdefault(select_queue(selector, queues, message), []).append(number)
    return list(places.items())
