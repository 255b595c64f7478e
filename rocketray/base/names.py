"""Names of topics and consumer groups, and their checks.

RocketMQ allows ``[%|a-zA-Z0-9_-]``: no dot, no slash, so a valid name is also a safe directory
name. A topic has at most 127 bytes (255 if it starts with ``%RETRY%``), a group at most 120
characters. In a broker's store any topic may have 255, because its records have room for that. A
new name that differs from an existing one only in case is refused, because on some file systems
both are one directory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from rocketray.errors import InvalidNameError

RETRY_PREFIX = "%RETRY%"
"""The prefix of a group's retry topic, before the group's name."""
DEAD_LETTER_PREFIX = "%DLQ%"
"""The prefix of a group's dead-letter topic, before the group's name."""
# RocketMQ's limits, of HookUtils.checkBeforePutMessage and TopicValidator. 127 is what the one byte
# of a record's topic length holds, as Java reads it with a sign.
TOPIC_MAX_BYTES = 127
STORED_TOPIC_MAX_BYTES = 255  # what RocketMQ allows for retry topics
GROUP_MAX_CHARS = 120
QUEUE_COUNT_MAX = 1024  # ours: a queue is files, a lock, and a ring for each of its producers
SHARED: Literal["shared"] = "shared"
QueuesPerProcess = int | Literal["shared"] | None
"""How many queues share a process; ``shared``: all, with other topics; None: not said."""
# \Z, because $ would let a newline at the end pass.
_ALLOWED = re.compile(r"[%|a-zA-Z0-9_-]+\Z")


def check_topic(name: str) -> str:
    """Return *name*, or raise :class:`InvalidNameError` with the reason."""
    # A dead-letter topic needs no exception: %DLQ% and 120 characters are 125.
    is_retry = isinstance(name, str) and name.startswith(RETRY_PREFIX)
    limit = STORED_TOPIC_MAX_BYTES if is_retry else TOPIC_MAX_BYTES
    return _check("topic", name, limit)


def check_stored_topic(name: str) -> str:
    """Return *name*, of a topic in a store, or raise :class:`InvalidNameError` with the reason."""
    return _check("topic", name, STORED_TOPIC_MAX_BYTES)


def check_queues_per_process(value: object) -> QueuesPerProcess:
    """Return *value*, or raise :class:`InvalidNameError`."""
    if value is None:
        return None
    if value == SHARED:
        return SHARED
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= QUEUE_COUNT_MAX:
        raise InvalidNameError(
            f"queues per process are {value!r:.60}; give a number from 1 to {QUEUE_COUNT_MAX}, or "
            f"{SHARED!r}"
        )
    return value


def is_retry_topic(topic: str, group: str) -> bool:
    """Return whether *topic* has the messages that are redelivered to *group*."""
    return topic == RETRY_PREFIX + group


def check_group(name: str) -> str:
    """Return *name*, or raise :class:`InvalidNameError` with the reason."""
    return _check("consumer group", name, GROUP_MAX_CHARS)


def disk_words(disk: str) -> str:
    """Return how texts name a disk: by its UUID, which is empty for the first disk."""
    return f"disk {disk}" if disk else "the first disk"


def check_queue_count(queues: int) -> int:
    """Return *queues*, or raise :class:`InvalidNameError` for an invalid number of queues."""
    if not isinstance(queues, int) or not 1 <= queues <= QUEUE_COUNT_MAX:
        raise InvalidNameError(f"a topic has 1 to {QUEUE_COUNT_MAX} queues, not {queues!r:.60}")
    return queues


def check_case_clash(kind: str, name: str, existing: Iterable[str]) -> None:
    """Raise when *name* differs from one of *existing* only in case."""
    folded = name.casefold()
    for other in existing:
        if other != name and other.casefold() == folded:
            raise InvalidNameError(
                f"{kind} {name!r} differs from the existing {other!r} only in case; "
                "use that one or choose another name"
            )


def _check(kind: str, name: object, limit: int) -> str:
    if not isinstance(name, str):
        raise InvalidNameError(f"{name!r:.60} is not a name of a {kind}; give a string")
    if not name:
        raise InvalidNameError(f"a {kind} name is empty; give it 1 to {limit} characters")
    if not _ALLOWED.match(name):
        bad = sorted({char for char in name if not _ALLOWED.match(char)})
        raise InvalidNameError(
            f"{kind} {name!r} has characters that are not allowed: {' '.join(map(repr, bad))}; "
            "use letters, digits and % | _ -"
        )
    if len(name) > limit:
        raise InvalidNameError(
            f"{kind} {name[:20]!r}… has {len(name)} characters; at most {limit} are allowed"
        )
    return name
