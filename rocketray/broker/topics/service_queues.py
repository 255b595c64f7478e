"""The queues of the services' topics: each disk of a cluster has its own.

As in RocketMQ, where each broker has its own schedule topic and half topic: delayed messages and
transactions of a disk do not depend on the machine of another one. A topic has a block of queues
for each disk, one block after the other. A block stays on its disk: what the service there knows of
it is in files beside it.

Retries have at least one queue on each disk, for the same reason.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rocketray.base.names import QUEUE_COUNT_MAX, RETRY_PREFIX
from rocketray.base.system_topics import SYSTEM_TOPICS, is_of_service

from .placement import Placement


def is_on_each_disk(topic: str) -> bool:
    """Return whether a topic has queues on each disk, also on one that joins later."""
    return is_of_service(topic) or topic.startswith(RETRY_PREFIX)


def may_move(topic: str, *, internal: bool) -> bool:
    """Return whether queues may move to another disk: not the node's own, except for retries."""
    return not internal or topic.startswith(RETRY_PREFIX)


def disks_of(
    topic: str, queues: int, present: Sequence[str], placement: Placement, *, internal: bool
) -> tuple[str, ...]:
    """Return the disks of all queues of a topic, the first of which are on *present*.

    It has *queues* of them, or as many as its service needs on the disks that there are.
    """
    if is_of_service(topic):
        size = SYSTEM_TOPICS[topic].queues_a_disk
        return _with_blocks(placement.disks(), present, size)
    if topic.startswith(RETRY_PREFIX):
        on_each = _with_blocks(placement.disks(), present, 1)
        return placement.spread(on_each, max(queues, len(on_each)))
    return ("",) * queues if internal else placement.spread(present, queues)


def _with_blocks(disks: Iterable[str], present: Sequence[str], size: int) -> tuple[str, ...]:
    """Return the disks of queues of which each of *disks* has a block of *size*.

    The last block of those on *present* may be shorter: earlier versions made as many levels as
    they needed. A disk for which there is no room gets none: it uses another's.
    """
    placed = [*present]
    placed += placed[-1:] * (-len(placed) % size)
    for disk in disks:
        if disk not in placed and len(placed) + size <= QUEUE_COUNT_MAX:
            placed += [disk] * size
    return (*placed,)
