"""A program's own choice of a message's queue: RocketMQ's ``MessageQueueSelector.select``.

RocketMQ passes the list of queues, the message and an argument. Here a topic's queues are numbered
from 0, so their number is enough, and further input is part of the callable. Messages of one queue
keep their order, so messages that are sent to the same queue are delivered in order.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from rocketray.errors import ConfigError
from rocketray.message import Message

QueueSelector = Callable[[int, Message], int]
"""Returns a message's queue, from the number of queues and the message."""


def select_queue(selector: QueueSelector, queues: int, message: Message) -> int:
    """Return the queue that *selector* chooses for *message* among *queues*; its errors are raised.

    Raises:
        ConfigError: *selector* cannot be called, or its result is not one of the queues.
    """
    if not callable(selector):
        raise ConfigError(
            f"queue_selector is {selector!r:.80}; give a function of the number of queues and the "
            "message: lambda queues, message: 0"
        )
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
