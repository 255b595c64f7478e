"""The topics that have a meaning of their own, a row each: RocketMQ's, and those of services.

What programs may do with such a topic, how its queues are divided among the disks, and how long its
messages stay, follows from its row. The topics of retries and of dead letters are known by their
prefixes (names.py).

As in RocketMQ, each disk has queues of its own in the topics of services: delayed messages and
transactions of a disk do not depend on the machine of another one.

Which question to ask about a topic
  - ``is_system_topic``: do RocketMQ's brokers reserve the name? Retries and dead letters: no. For
    its rules and formats: imports, metrics, transactions.
  - ``is_internal_by_name``: does a node keep it for itself? Retries and dead letters: yes. Where
    there is a ``TopicConfig``, ask its ``internal``, which is also true of an app's own topics.
  - ``is_closed_topic``: does only the node send to it? Retries and dead letters: no.
  - ``is_of_service``: is it one of delayed messages or transactions, with queues on each disk?
  - ``is_emptied_by_service``: does a service remove its messages, so that a retention cannot?
  - ``is_on_each_disk``: does a disk that joins get queues of it? Of services, and retries.
  - ``may_move``: may an operator move its queues to another disk? The last two are in
    ``broker/topics/service_queues.py``, with the places of queues.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rocketray.errors import InvalidMessageError

from .names import DEAD_LETTER_PREFIX, RETRY_PREFIX

LEVELS_A_DISK = 18
"""How many queues of the schedule topic each disk has, one for each of RocketMQ's delay levels.

It is part of what is on disk, and never changes: with one more, the queues of messages that wait
would belong to other levels, and to other disks.
"""
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
"""The topic in which messages wait at a delay level."""
TIMER_TOPIC = "rmq_sys_wheel_timer"
"""The topic in which messages wait for a time."""
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
"""The topic of messages whose transaction is not decided."""
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""The topic that says which halves are done."""
END_TOPIC = "rmq_sys_END_TRANSACTION"
"""The topic of decisions: ours, because RocketMQ sends them as requests."""
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
"""The topic of messages whose transaction was abandoned."""


@dataclass(frozen=True, slots=True)
class SystemTopic:
    """A row of the table."""

    name: str
    queues_a_disk: int = 0
    """How many queues each disk has in it, in a block; 0 if it is of no service of the node."""
    waits: bool = False
    """Whether messages wait in it until their time."""
    is_emptied: bool = False
    """Whether its service knows what it still needs, and removes the other files."""
    is_closed: bool = False
    """Whether only the node stores messages in it; so it is with each topic of a service."""
    max_age_days: int | None = None
    """How long its messages stay where its service does not remove them; None: for good."""


# Those that note the end of some work stand before those with the work: a backup copies them in
# this order, and so has no end without its work.
SYSTEM_TOPICS: Mapping[str, SystemTopic] = {
    row.name: row
    for row in (
        SystemTopic(OP_TOPIC, 1, is_emptied=True),
        SystemTopic(END_TOPIC, 1, is_emptied=True),
        SystemTopic(HALF_TOPIC, 1, is_emptied=True),
        SystemTopic(SCHEDULE_TOPIC, LEVELS_A_DISK, waits=True, is_emptied=True),
        SystemTopic(TIMER_TOPIC, 1, waits=True, is_emptied=True),
        SystemTopic(GIVEN_UP_TOPIC, 1, max_age_days=30),  # an operator looks at them first
        # RocketMQ's own, which no service of a node uses (TopicValidator)
        SystemTopic("BenchmarkTest"),
        SystemTopic("CHECKPOINT_TOPIC"),
        SystemTopic("OFFSET_MOVED_EVENT", is_closed=True),
        SystemTopic("RMQ_SYS_TRACE_TOPIC"),
        SystemTopic("SELF_TEST_TOPIC", is_closed=True),
        SystemTopic("TBW102"),
    )
}
WAITING_QUEUES = {row.name: row.queues_a_disk for row in SYSTEM_TOPICS.values() if row.waits}
"""The topics in which messages wait, and the number of queues that each disk has in each."""
_PREFIX = "rmq_sys_"
_INTERNAL_PREFIXES = (RETRY_PREFIX, DEAD_LETTER_PREFIX, _PREFIX, "RMQ_SYS_TRANS_")


def is_system_topic(name: str) -> bool:
    """Return whether *name* is a system topic of a RocketMQ broker (``TopicValidator``)."""
    return name in SYSTEM_TOPICS or name.startswith(_PREFIX)


def is_internal_by_name(name: str) -> bool:
    """Return whether *name* is a topic that a node keeps for itself."""
    return is_of_service(name) or name.startswith(_INTERNAL_PREFIXES)


def is_of_service(name: str) -> bool:
    """Return whether *name* is a topic of a service: delayed messages or transactions."""
    row = SYSTEM_TOPICS.get(name)
    return row is not None and row.queues_a_disk > 0


def is_emptied_by_service(name: str) -> bool:
    """Return whether a service knows what *name* still needs, and removes its other files."""
    row = SYSTEM_TOPICS.get(name)
    return row is not None and row.is_emptied


def is_closed_topic(name: str) -> bool:
    """Return whether only the node itself stores messages in *name*.

    These are the topics of RocketMQ's ``TopicValidator.isNotAllowedSendTopic``, and here also those
    that begin with ``rmq_sys_`` or ``RMQ_SYS_TRANS_``. Retries and dead letters are open there and
    here.
    """
    if name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
        return False
    row = SYSTEM_TOPICS.get(name)
    return (row is not None and row.is_closed) or is_internal_by_name(name)


def check_open_topic(name: str) -> None:
    """Raise :class:`InvalidMessageError` if programs may not send to topic *name*."""
    if is_closed_topic(name):
        raise InvalidMessageError(
            f"topic {name!r} is a system topic, and only the node stores messages there; send to "
            "the final topic, with a delay if they should wait, or in a transaction"
        )
