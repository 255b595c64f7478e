"""The names of shard processes; on a disk that joined, each with ``@`` and the disk's UUID behind.

    shared          queues of small topics, with smaller files; and the disk's system services
    common-NUMBER   queues of all topics that have no processes of their own
    TOPIC:NUMBER    queues of one topic

A topic's name has no colon, so no topic has a process of several topics.
"""

from __future__ import annotations

from rocketray.runtime.calls.endpoint import disk_in, on_disk

SHARED_PROCESS = "shared"
"""The process on the coordinator's disk; each joined disk has another one."""


def common_process(number: int) -> str:
    """Return the name of a process that has queues of all topics."""
    return f"common-{number}"


def process_of_topic(topic: str, number: int) -> str:
    """Return the name of a process that has queues of *topic* alone."""
    return f"{topic}:{number}"


def is_shared(process: str) -> bool:
    """Return whether a process, of any disk, has queues of several topics."""
    return ":" not in process


def has_services(process: str) -> bool:
    """Return whether a process is the one of its disk that has the system services."""
    return process == on_disk(SHARED_PROCESS, disk_in(process))
