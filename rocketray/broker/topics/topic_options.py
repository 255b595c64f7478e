"""The options of a new topic."""

from __future__ import annotations

from typing import TypedDict

from rocketray.base.ack_mode import AckMode
from rocketray.base.names import QueuesPerProcess
from rocketray.store.retention import RetentionPolicy


class TopicOptions(TypedDict, total=False):
    """What a new topic may have; an existing one keeps its own.

    ``retention``: how long, or up to how many bytes a queue, messages are kept; by default, all.
    ``internal``: it belongs to an app itself; patterns and lists leave it out.
    ``queues_per_process``: how many of its queues share a process of its own; ``"shared"``: they
    are in the process of the system topics, with small files. None leaves that to the node, by
    default the processes that its disk has for all topics.
    ``ack``: when a message to it counts as stored, unless its sender says; None leaves that to the
    node (see base/ack_mode.py).
    """

    retention: RetentionPolicy
    internal: bool
    queues_per_process: QueuesPerProcess
    ack: AckMode | None
